"""Store outputs of ops that are no assets in tables, and load the commit of an output in the next op."""

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.execution.context.system import StepExecutionContext

from lsm_assets.ledger.asset_partitions import partition_layout
from lsm_assets.ledger.commits import EMPTY_VERSION
from lsm_assets.ledger.frames import empty_rows, load_rows, to_rows
from lsm_assets.ledger.pinning import PinnedTable, pin_version
from lsm_assets.ledger.recording import recorded_version
from lsm_assets.ledger.storing import WriteRequest, declaration_from_rows, write_rows
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
"""Metadata keys of a stored output's event: the table and the commit that the next op reads."""

_OutputEvents = Mapping[tuple[str, str, str | None], Mapping[str, Any]]
_event_cache: WeakKeyDictionary[StepExecutionContext, dict[str, _OutputEvents]] = (
    WeakKeyDictionary()
)


def store_output(
    context: dg.OutputContext, obj: Any, resource: LsmResource, storage: Storage
) -> None:
    """Commit the rows of an output to its table. None leaves the table as it is."""
    require_known_keys(context.definition_metadata, OUTPUT_KEYS)
    step, layers = context.step_context, (context.definition_metadata, context.output_metadata)
    if obj is None and not _names_table(context, *layers):
        return  # an op without a return statement and without an annotation also has the output `result`
    keys = _output_table(context, *layers)
    table = resource.existing_table(keys.name)
    metadata: dict[str, Any] = {TABLE_NAME: keys.name}
    if obj is None:
        newest = table.latest_snapshot() if table is not None else None
    else:
        output = f"{context.step_key}.{context.name}"
        output += f"[{context.mapping_key}]" if context.mapping_key else ""
        rows = to_rows(obj, None if table is None else table.schema)
        definition, partitions = _run_partitions(step)
        declaration = declaration_from_rows(
            keys.asset(AssetKind.TABLE),
            storage,
            rows,
            definition if storage.partition_columns else None,
            output=output,
        )
        work = WriteRequest(
            rows=rows,
            declaration=declaration,
            storage=storage,
            templates=_run_templates(storage, step, declaration.schema),
            # A table without partitions is overwritten as a whole.
            keys=partitions if storage.partition_columns or storage.partitioned_by else (),
            output=output,
            code_version=context.op_def.output_def_named(context.name).code_version,
        )
        stored = write_rows(step, resource, work, table)
        newest = stored.newest
        metadata |= stored.metadata
    if newest is not None:
        metadata[VERSION] = version_from_snapshot(newest).text
    if context.mapping_key:
        metadata[MAPPING_KEY] = context.mapping_key
    context.add_output_metadata(metadata)


def load_output(context: dg.InputContext, resource: LsmResource) -> Any:
    """Load the table of an upstream output at the commit that the output made, or found if it wrote nothing.

    An input without an upstream output names a table, which is read at its newest snapshot.
    """
    step, upstream = context.step_context, context.upstream_output
    event_metadata: Mapping[str, Any] | None = None
    known_keys: Sequence[str] = ROOT_INPUT_KEYS
    writer, storage = "what writes it", Storage()
    if upstream is not None:
        event_metadata, known_keys = _output_event(step, upstream), INPUT_KEYS
        writer, storage = (
            f"the step {upstream.step_key}",
            partition_storage(upstream.definition_metadata),
        )
    require_known_keys(context.definition_metadata, known_keys)
    keys, recorded = (
        _input_table(context, event_metadata),
        _recorded_version(step, upstream, event_metadata),
    )
    remedy = f"Run {writer} again, then this one."
    annotation, table = context.dagster_type.typing_type, resource.existing_table(keys.name)
    # The output was None and no table existed. A table that was dropped since is an error instead.
    if table is None and event_metadata is not None and recorded is None:
        return empty_rows(annotation)
    if table is None:
        raise dg.Failure(f"There is no table {keys.name}. {remedy}")
    newest, schema = table.latest_snapshot(), table.schema.arrow
    # Without a recorded commit the newest one is pinned, so that the page of the step says what was read.
    if recorded is None and newest is not None:
        recorded = version_from_snapshot(newest)
    templates, row_filter, layout = _run_templates(storage, step, schema), None, None
    if templates is not None:
        _, partitions = _run_partitions(step)
        row_filter = partition_filter(templates, partitions, schema)
        layout = partition_layout(table, templates, partitions)
    pinned = PinnedTable(table=table, at={})
    if recorded is not None:
        key = keys.asset(AssetKind.TABLE)
        pinned = pin_version(step, resource, key, table, recorded, layout, remedy=remedy)
    arguments = {**pinned.at, **scan_arguments(context.definition_metadata, row_filter)}
    return load_rows(pinned.table, arguments, annotation, resource)


def _names_table(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> bool:
    return output.name != DEFAULT_OUTPUT or any(TABLE in (layer or {}) for layer in layers)


def _output_table(output: dg.OutputContext, *layers: Mapping[str, Any] | None) -> TableKeys:
    if not _names_table(output, *layers):
        raise InvalidInputError(
            f"the output {DEFAULT_OUTPUT!r} of an op is kept in no table as long as it has no name: set the "
            f"metadata {TABLE!r} of its Out to database.table, or name the output; nothing was written",
            kind=ErrorKind.INVALID_NAME,
            op=output.op_def.name,
        )
    names = [unwrap_metadata(layer[TABLE]) for layer in layers if layer and TABLE in layer]
    name = str([output.name, *names][-1])
    return TableKeys(name=name if "." in name else f"default.{name}")


def _input_table(context: dg.InputContext, event_metadata: Mapping[str, Any] | None) -> TableKeys:
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
    if event_metadata and TABLE_NAME in event_metadata:
        return TableKeys(name=unwrap_metadata(event_metadata[TABLE_NAME]))
    return _output_table(upstream, upstream.definition_metadata)


def _recorded_version(
    step: StepExecutionContext,
    upstream: dg.OutputContext | None,
    event_metadata: Mapping[str, Any] | None,
) -> TableVersion | None:
    """Return the commit of an output; None if its table was empty or the event has no commit."""
    if upstream is not None and upstream.has_asset_key:
        version = recorded_version(step.instance, upstream.asset_key)
    else:
        version = parse_version(str(unwrap_metadata((event_metadata or {}).get(VERSION))))
    return None if version == EMPTY_VERSION else version


def _output_event(step: StepExecutionContext, output: dg.OutputContext) -> Mapping[str, Any] | None:
    """Return the metadata of an output's event, from the last attempt of its step; None without an event."""
    try:
        run_id = output.run_id
    except dg.DagsterInvariantViolationError:
        return None  # Dagster raises if neither this run nor the run that it re-executes made the output
    events_by_run = _event_cache.setdefault(step, {})
    if run_id not in events_by_run:
        # A step may collect many outputs of one run: its events are read once.
        events_by_run[run_id] = _read_output_events(step.instance, run_id)
    return events_by_run[run_id].get((output.step_key, output.name, output.mapping_key))


def _read_output_events(instance: dg.DagsterInstance, run_id: str) -> _OutputEvents:
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.HANDLED_OUTPUT)
    events = {}
    for event in (entry.dagster_event for entry in entries):
        if event is not None and event.step_key is not None:
            data: Any = event.event_specific_data
            mapping_key = unwrap_metadata(data.metadata.get(MAPPING_KEY))
            events[event.step_key, data.output_name, mapping_key] = data.metadata
    return events


def _run_partitions(
    step: StepExecutionContext,
) -> tuple[dg.PartitionsDefinition | None, Sequence[str]]:
    """Return the definition and the keys of the run's partitions; (None, ()) for a run without partitions."""
    definition = step.run_partitions_def
    if definition is None or not step.has_partitions:
        return None, ()
    if step.has_partition_key:
        return definition, (step.partition_key,)
    with partition_loading_context(dynamic_partitions_store=step.instance):
        return definition, definition.get_partition_keys_in_range(step.partition_key_range)


def _run_templates(
    storage: Storage, step: StepExecutionContext, schema: Any
) -> PartitionTemplates | None:
    """Return the declared templates of an output; None without any. Ops have no partitions to guess them from."""
    definition, keys = _run_partitions(step)
    return storage.templates(definition, keys, schema) if storage.partition_columns else None
