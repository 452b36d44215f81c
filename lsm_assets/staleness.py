"""Readers whose recorded inputs are older than the present versions: a check, a condition and a sensor.

Dagster's own dot compares the inputs of a reader with their present versions, but for edges of 100 or more upstream
partitions, and from partitions by time to a reader without partitions. The check compares all of them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import dagster as dg

from lsm_assets.dagster_core import (
    check_target,
    latest_storage_ids,
    latest_tags,
    unevaluated_checks,
)
from lsm_assets.keys import viewed_table
from lsm_assets.metadata import counted, markdown_table
from lsm_engine import record

INPUTS = "inputs"
"""Name of the check."""

_VERSION_TAG = "dagster/data_version"
_INPUT_VERSION, _INPUT_POINTER = "dagster/input_data_version/", "dagster/input_event_pointer/"
_NAMES_SHOWN = 10
_EVENTS_MAX = 100
"""Events of an upstream asset without partitions that are compared. A reader of an older one is out of date."""


@record
class Reader:
    """An asset that reads others: its key, the keys of its upstream assets, and whether it has partitions."""

    key: dg.AssetKey
    upstream: tuple[dg.AssetKey, ...]
    is_partitioned: bool = False


@record
class ChangedInput:
    """An upstream asset that has changed since a reader has read it.

    `partitions`: those that have changed; of a reader with partitions, those of the reader that are out of date. Empty for
    assets without partitions.
    """

    upstream: dg.AssetKey
    partitions: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = ", ".join(self.partitions[:_NAMES_SHOWN])
        hidden_count = len(self.partitions) - _NAMES_SHOWN
        suffix = f" and {hidden_count} more" if hidden_count > 0 else ""
        return self.upstream.to_user_string() + (f" ({names}{suffix})" if names else "")


def readers_from_assets(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[Reader]:
    """Return the assets that have upstream assets."""
    specs = [
        spec
        for asset in assets
        for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])
    ]
    return [
        Reader(
            key=spec.key,
            upstream=tuple(dep.asset_key for dep in spec.deps if dep.asset_key != spec.key),
            is_partitioned=spec.partitions_def is not None,
        )
        for spec in specs
        if any(dep.asset_key != spec.key for dep in spec.deps)
    ]


def changed_inputs(instance: dg.DagsterInstance, reader: Reader) -> list[ChangedInput] | None:
    """Return the upstream assets that have changed since a reader was materialised; None if it never was.

    An event with the version that the reader has read is no change. Of a reader with partitions, upstream partitions are
    compared with the partitions of the same key.
    """
    records = instance.fetch_materializations(reader.key, limit=1).records
    event = records[0].asset_materialization if records else None
    if event is None:
        return None
    changes = []
    for upstream in reader.upstream:
        # Dagster records no version of a view: its table is compared, as of the time of the reader's event.
        table = viewed_table(upstream)
        if table is not None and not reader.is_partitioned:
            if _has_changed_after(instance, table, records[0].storage_id):
                changes.append(ChangedInput(upstream=upstream))
            continue
        partitions = (
            _changes_by_partition(instance, reader.key, table or upstream)
            if reader.is_partitioned
            else _changes_since(instance, upstream, event.tags or {})
        )
        if partitions is not None:
            changes.append(ChangedInput(upstream=upstream, partitions=partitions))
    return changes


def _changes_since(
    instance: dg.DagsterInstance, upstream: dg.AssetKey, tags: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return the partitions of `upstream` that have changed; () for an asset without partitions, None for no change."""
    name = upstream.to_user_string()
    # An upstream asset that was added to the definition later has no record: the reader has not read it.
    pointer = _pointer(tags.get(_INPUT_POINTER + name))
    storage_ids = latest_storage_ids(instance, upstream)
    if storage_ids:
        newer = [name for name, storage_id in storage_ids.items() if storage_id > pointer]
        changes = _with_other_versions(instance, upstream, newer, pointer) if newer else []
        return tuple(changes) or None
    entry = instance.get_latest_materialization_event(upstream)
    present = entry.asset_materialization if entry is not None else None
    if present is None:
        return None
    return None if _version(present) == tags.get(_INPUT_VERSION + name) else ()


def _changes_by_partition(
    instance: dg.DagsterInstance, reader: dg.AssetKey, upstream: dg.AssetKey
) -> tuple[str, ...] | None:
    """Return the partitions of a reader for which `upstream` has changed since their events; None for no change.

    A change while the reader ran is left to Dagster, which compares partitions of the same key.
    """
    storage_ids = latest_storage_ids(instance, upstream)
    if storage_ids:
        changes = [
            partition
            for partition, storage_id in latest_storage_ids(instance, reader).items()
            if storage_ids.get(partition, 0) > storage_id
            and _with_other_versions(instance, upstream, [partition], storage_id)
        ]
    else:
        versions = _recent_versions(instance, upstream)
        changes = [
            partition
            for partition, storage_id in latest_storage_ids(instance, reader).items()
            if versions
            and versions[0][1]
            != next((version for number, version in versions if number < storage_id), None)
        ]
    return tuple(sorted(changes)) or None


def _has_changed_after(instance: dg.DagsterInstance, table: dg.AssetKey, storage_id: int) -> bool:
    if storage_ids := latest_storage_ids(instance, table):
        newer = [name for name, number in storage_ids.items() if number > storage_id]
        return bool(newer and _with_other_versions(instance, table, newer, storage_id))
    versions = _recent_versions(instance, table)
    before = next((version for number, version in versions if number < storage_id), None)
    return bool(versions) and versions[0][1] != before


def _recent_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> list[tuple[int, str | None]]:
    """Return the storage ids and versions of the newest events, newest first."""
    records = instance.fetch_materializations(key, limit=_EVENTS_MAX).records
    return [(event.storage_id, _version(event.asset_materialization)) for event in records]


def _version(event: dg.AssetMaterialization | None) -> str | None:
    return (event.tags or {}).get(_VERSION_TAG) if event is not None else None


def _with_other_versions(
    instance: dg.DagsterInstance, upstream: dg.AssetKey, partitions: Sequence[str], pointer: int
) -> list[str]:
    """Return the partitions whose version after the event `pointer` is another than up to it."""
    after = latest_tags(instance, upstream, _VERSION_TAG, partitions, after=pointer)
    before = latest_tags(instance, upstream, _VERSION_TAG, partitions, before=pointer + 1)
    return sorted(name for name in partitions if before.get(name) != after.get(name))


def _pointer(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


# -- The check -------------------------------------------------------------------------------------


def inputs_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """Return the spec of the check of a reader."""
    return dg.AssetCheckSpec(
        name=INPUTS,
        asset=key,
        description="The upstream versions that were read are the present ones. Yellow: an input has changed since.",
    )


def inputs_result(instance: dg.DagsterInstance, reader: Reader) -> dg.AssetCheckResult:
    """Return the result of the check, a warning if inputs have changed."""
    changes = changed_inputs(instance, reader)
    description = "never materialised" if changes is None else "every input is as it was read"
    if changes:
        names = ", ".join(str(change) for change in changes)
        description = f"changed since this asset has read it: {names}"
    rows = [
        (change.upstream.to_user_string(), len(change.partitions) or "") for change in changes or ()
    ]
    metadata = (
        {"lsm/changed_inputs": dg.MetadataValue.md(markdown_table(["input", "partitions"], rows))}
        if rows
        else {}
    )
    return dg.AssetCheckResult(
        asset_key=reader.key,
        check_name=INPUTS,
        passed=not changes,
        severity=dg.AssetCheckSeverity.WARN,
        description=description,
        metadata=metadata,
    )


def inputs_evaluation(instance: dg.DagsterInstance, reader: Reader) -> dg.AssetCheckEvaluation:
    """Return the result as an event without a run."""
    result = inputs_result(instance, reader)
    return dg.AssetCheckEvaluation(
        asset_key=reader.key,
        check_name=INPUTS,
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
        target_materialization_data=check_target(instance, reader.key),
    )


def _compared_keys(reader: Reader) -> list[dg.AssetKey]:
    return [reader.key, *(viewed_table(key) or key for key in reader.upstream)]


def changed_evaluations(
    instance: dg.DagsterInstance, readers: Sequence[Reader], compared: dict[str, int]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield evaluations of readers for which an event was recorded since the last call, of theirs or of an input.

    A reader's own run that failed or died has left its check without a result: it is evaluated as well.

    `compared` has, by reader, the newest event at the last call. It is updated.
    """
    keys = {key for reader in readers for key in _compared_keys(reader)}
    newest = {
        asset.asset_entry.asset_key: asset.asset_entry.last_materialization_storage_id or 0
        for asset in (instance.get_asset_records(list(keys)) if keys else ())
    }
    checks = [dg.AssetCheckKey(reader.key, INPUTS) for reader in readers]
    unevaluated = {check.asset_key for check in unevaluated_checks(instance, checks)}
    for reader in readers:
        name = reader.key.to_user_string()
        event = max(newest.get(key, 0) for key in _compared_keys(reader))
        is_compared = event == compared.get(name) and reader.key not in unevaluated
        # A reader that was never materialised is missing, which Dagster shows itself.
        if is_compared or not newest.get(reader.key):
            continue
        yield inputs_evaluation(instance, reader)
        compared[name] = event


# -- For readers that are no declared tables -------------------------------------------------------

INTERVAL_SECONDS = 30


def inputs_changed(key: dg.AssetKey) -> dg.AutomationCondition:
    """Return the condition that runs a reader once its check has found changed inputs.

    In place of `eager`, for readers of many partitions or of partitions by time, whose inputs Dagster does not compare.
    """
    failed = dg.AutomationCondition.any_checks_match(dg.AutomationCondition.check_failed())
    own = failed.allow(dg.AssetSelection.checks(dg.AssetCheckKey(key, INPUTS)))
    changes = own.with_label("an input has changed since it was read")
    return (
        changes
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )


def reader_definitions(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec], *, name: str = "lsm_readers"
) -> dg.Definitions:
    """Return the check `inputs` of assets that read tables, and the sensor that evaluates it.

    Tables of `lsm_table_assets` have the check already. The assets may be of any kind and group: of the I/O manager, of
    dbt, or a report.

    Args:
        assets: The readers. Those without upstream assets are left out.
        name: Name of the sensor, and of the op of the checks.
    """
    readers = readers_from_assets(assets)
    if not readers:
        return dg.Definitions()
    by_key = {reader.key: reader for reader in readers}

    @dg.multi_asset_check(
        name=f"{name}_{INPUTS}", specs=[inputs_spec(key) for key in by_key], can_subset=True
    )
    def check_inputs(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for key in context.selected_asset_check_keys:
            yield inputs_result(context.instance, by_key[key.asset_key])

    @dg.sensor(
        name=name,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Compares the recorded inputs of readers with the present versions.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        compared: dict[str, int] = json.loads(context.cursor) if context.cursor else {}
        evaluations = list(changed_evaluations(context.instance, readers, compared))
        stale = [evaluation for evaluation in evaluations if not evaluation.passed]
        return dg.SensorResult(
            skip_reason=dg.SkipReason(
                f"compared {counted(len(evaluations), 'reader')}; with changed inputs: {len(stale)}"
            ),
            asset_events=evaluations,
            cursor=json.dumps(compared, sort_keys=True),
        )

    return dg.Definitions(asset_checks=[check_inputs], sensors=[sensor])
