"""Outputs of ops that are no assets: the table that keeps one, and the state of it that the next op reads."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.context.system import StepExecutionContext

from lsm_assets.ledger.asset_partitions import layout_of
from lsm_assets.ledger.commits import NOTHING
from lsm_assets.ledger.frames import as_rows, load, nothing_as
from lsm_assets.ledger.pinning import PinnedTable, pin_version
from lsm_assets.ledger.recording import recorded_version
from lsm_assets.ledger.storing import Work, declaration_of, store
from lsm_assets.model.asset_partitions import PartitionTemplates
from lsm_assets.model.keys import AssetKind, TableKeys, table_keys
from lsm_assets.model.storage import (
    INPUT_KEYS,
    OUTPUT_KEYS,
    ROOT_INPUT_KEYS,
    TABLE,
    Storage,
    partition_filter,
    partition_storage,
    require_known_keys,
    scan_arguments,
    unwrap_metadata,
)
from lsm_assets.model.versions import TableVersion, parse_version, version_from_snapshot
from lsm_assets.resources import LsmResource
from lsm_engine import ErrorKind, InvalidInputError

DEFAULT_OUTPUT = "result"
TABLE_NAME, VERSION, MAPPING_KEY = "dagster/table_name", "lsm/version", "lsm/mapping_key"
"""Where the event of a stored output says what the next op reads: which table, and which commit of it."""

_Told = Mapping[tuple[str, str, str | None], Mapping[str, Any]]
_told: WeakKeyDictionary[StepExecutionContext, dict[str, _Told]] = WeakKeyDictionary()


def store_output(
    context: dg.OutputContext, obj: Any, resource: LsmResource, storage: Storage
) -> None:
    """Commit the rows of an output to its table; None leaves the table as it is."""
    require_known_keys(context.definition_metadata, OUTPUT_KEYS)
    step, named = context.step_context, (context.definition_metadata, context.output_metadata)
    if obj is None and not _is_named(context, *named):
        return  # an op that returns nothing, without an annotation that says so
    keys = _written_table(context, *named)
    table = resource.existing_table(keys.name)
    found: dict[str, Any] = {TABLE_NAME: keys.name}
    if obj is None:
        newest = table.latest_snapshot() if table is not None else None
    else:
        output = f"{context.step_key}.{context.name}"
        output += f"[{context.mapping_key}]" if context.mapping_key else ""
        rows = as_rows(obj, None if table is None else table.schema)
        definition, partitions = _partitions_of(step)
        declaration = declaration_of(
            keys.asset(AssetKind.TABLE),
            storage,
            rows,
            definition if storage.partition_columns else None,
            output=output,
        )
        work = Work(
            rows=rows,
            declaration=declaration,
            storage=storage,
            templates=_templates(storage, step, declaration.schema),
            # A table that is not partitioned is kept, and replaced, as a whole.
            keys=partitions if storage.partition_columns or storage.partitioned_by else (),
            output=output,
            code_version=context.op_def.output_def_named(context.name).code_version,
        )
        stored = store(step, resource, work, table)
        newest = stored.newest
        found |= stored.found
    if newest is not None:
        found[VERSION] = version_from_snapshot(newest).text
    if context.mapping_key:
        found[MAPPING_KEY] = context.mapping_key
    context.add_output_metadata(found)


def load_output(context: dg.InputContext, resource: LsmResource) -> Any:
    """Read a table at the commit that the upstream output made, or found where it had nothing to write.

    An input without an upstream names a table, which is read as it is.
    """
    step, upstream = context.step_context, context.upstream_output
    told: Mapping[str, Any] | None = None
    known: Sequence[str] = ROOT_INPUT_KEYS
    maker, storage = "what writes it", Storage()
    if upstream is not None:
        told, known = _told_of(step, upstream), INPUT_KEYS
        maker, storage = (
            f"the step {upstream.step_key}",
            partition_storage(upstream.definition_metadata),
        )
    require_known_keys(context.definition_metadata, known)
    keys, recorded = _read_table(context, told), _recorded(step, upstream, told)
    remedy = f"Run {maker} again, then this one."
    wanted, table = context.dagster_type.typing_type, resource.existing_table(keys.name)
    if table is None and told is not None and recorded is None:
        return nothing_as(wanted)
    if table is None:
        raise dg.Failure(f"There is no table {keys.name}. {remedy}")
    newest, schema = table.latest_snapshot(), table.schema.arrow
    if recorded is None and newest is not None:
        recorded = version_from_snapshot(newest)
    templates, where, layout = _templates(storage, step, schema), None, None
    if templates is not None:
        _, partitions = _partitions_of(step)
        where = partition_filter(templates, partitions, schema)
        layout = layout_of(table, templates, partitions)
    pinned = PinnedTable(table=table, at={})
    if recorded is not None:
        key = keys.asset(AssetKind.TABLE)
        pinned = pin_version(step, resource, key, table, recorded, layout, remedy=remedy)
    read = {**pinned.at, **scan_arguments(context.definition_metadata, where)}
    return load(pinned.table, read, wanted, resource)


def _is_named(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> bool:
    return output.name != DEFAULT_OUTPUT or any(TABLE in (layer or {}) for layer in layers)


def _written_table(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> TableKeys:
    if not _is_named(output, *layers):
        raise InvalidInputError(
            f"the output {DEFAULT_OUTPUT!r} of an op is kept in no table as long as it has no name: set the "
            f"metadata {TABLE!r} of its Out to database.table, or name the output; nothing was written",
            kind=ErrorKind.INVALID_NAME,
            op=output.op_def.name,
        )
    names = [unwrap_metadata(layer[TABLE]) for layer in layers if layer and TABLE in layer]
    name = str([output.name, *names][-1])
    return TableKeys(name=name if "." in name else f"default.{name}")


def _read_table(context: dg.InputContext, told: Mapping[str, Any] | None) -> TableKeys:
    upstream, declared = context.upstream_output, context.definition_metadata or {}
    if upstream is None and TABLE not in declared:
        raise InvalidInputError(
            f"the input {context.name!r} has no upstream output: name its table by the metadata {TABLE!r} of its In",
            kind=ErrorKind.INVALID_NAME,
            op=context.op_def.name,
        )
    if upstream is None:
        return TableKeys(name=str(unwrap_metadata(declared[TABLE])))
    if upstream.has_asset_key:
        return table_keys(upstream.asset_key)
    if told and TABLE_NAME in told:
        return TableKeys(name=unwrap_metadata(told[TABLE_NAME]))
    return _written_table(upstream, upstream.definition_metadata)


def _recorded(
    step: StepExecutionContext, upstream: dg.OutputContext | None, told: Mapping[str, Any] | None
) -> TableVersion | None:
    """Return the commit that an output made; None: it found nothing, or nobody knows."""
    if upstream is not None and upstream.has_asset_key:
        found = recorded_version(step.instance, upstream.asset_key)
    else:
        found = parse_version(str(unwrap_metadata((told or {}).get(VERSION))))
    return None if found == NOTHING else found


def _told_of(step: StepExecutionContext, output: dg.OutputContext) -> Mapping[str, Any] | None:
    """Return what the event of a stored output says, of the last attempt of its step; None if there is none."""
    try:
        run_id = output.run_id
    except dg.DagsterInvariantViolationError:
        return None  # neither this run nor one that it repeats has made it
    known = _told.setdefault(step, {})
    if run_id not in known:
        # Once, however many outputs a step collects.
        known[run_id] = _told_in(step.instance, run_id)
    return known[run_id].get((output.step_key, output.name, output.mapping_key))


def _told_in(instance: dg.DagsterInstance, run_id: str) -> _Told:
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.HANDLED_OUTPUT)
    found = {}
    for event in (entry.dagster_event for entry in entries):
        if event is not None and event.step_key is not None:
            data: Any = event.event_specific_data
            mapping_key = unwrap_metadata(data.metadata.get(MAPPING_KEY))
            found[event.step_key, data.output_name, mapping_key] = data.metadata
    return found


def _partitions_of(
    step: StepExecutionContext,
) -> tuple[dg.PartitionsDefinition | None, Sequence[str]]:
    """Return what the run's partitions are of, and their keys."""
    definition = step.run_partitions_def
    if definition is None or not step.has_partitions:
        return None, ()
    if step.has_partition_key:
        return definition, (step.partition_key,)
    with partition_loading_context(dynamic_partitions_store=step.instance):
        return definition, definition.get_partition_keys_in_range(step.partition_key_range)


def _templates(
    storage: Storage, step: StepExecutionContext, schema: Any
) -> PartitionTemplates | None:
    """Return which rows the run's partitions are; None where nobody has said it, as ops have no partitions."""
    definition, keys = _partitions_of(step)
    return storage.templates(definition, keys, schema) if storage.partition_columns else None
