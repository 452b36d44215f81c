"""Record a commit in Dagster: its partition, and a materialisation of everything it made."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.execution.context.system import StepExecutionContext

import lsm_engine as lsm
from lsm_assets.ledger import details
from lsm_assets.ledger.inspection import TableInspection, manifest_counts
from lsm_assets.model import metadata
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.details import lineage_link
from lsm_assets.model.keys import AssetKind, TableKeys
from lsm_assets.model.partitions import (
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
)
from lsm_assets.model.versions import TableVersion, parse_version
from lsm_assets.settings import lineage_page_url
from lsm_engine import RUN_DAGSTER_ID, Snapshot, Tag, core_options, provenance_properties
from lsm_engine import LineageInput as Input
from lsm_engine import LineageRun as Run

DATA_VERSION_TAG = "dagster/data_version"
CODE_VERSION_PROPERTY = "lsm.run.code-version"
"""The snapshot property with the code version of the asset that made it."""
_INHERITED = (
    "dagster/input_data_version/",
    "dagster/input_event_pointer/",
    "dagster/code_version",
)


def snapshot_events(
    table: lsm.Table, keys: TableKeys, snapshot: Snapshot, *, run_id: str | None
) -> list[dg.AssetMaterialization]:
    """Return the events of one snapshot's own partitions: its manifest lists, then itself."""
    partition = snapshot_partition(snapshot.id)
    counts = manifest_counts(table, snapshot)
    return [
        _materialization(
            keys.asset(AssetKind.MANIFEST_LISTS),
            metadata.manifest_lists_metadata(keys, snapshot, counts)
            | details.read_manifests_metadata(table, snapshot),
            partition,
            partition,
        ),
        _materialization(
            keys.asset(AssetKind.SNAPSHOTS),
            snapshot_page_metadata(table, keys, snapshot, run_id=run_id),
            partition,
            partition,
        ),
    ]


def snapshot_page_metadata(
    table: lsm.Table, keys: TableKeys, snapshot: Snapshot, *, run_id: str | None
) -> metadata.Metadata:
    """Return all that a snapshot's page shows: what it is, what it changed, where to follow it."""
    warehouse = table.location.rsplit("/", 2)[0]  # of <warehouse>/<database>.db/<table>
    return {
        **metadata.snapshot_metadata(keys, snapshot, run_id=run_id),
        **details.read_changes_metadata(table, snapshot),
        **lineage_link(lineage_page_url(warehouse), keys.name, snapshot.id),
    }


def files_event(keys: TableKeys, inspection: TableInspection) -> dg.AssetMaterialization:
    """Return the event of the external `files` asset: the tree as a commit left it."""
    page = metadata.files_metadata(
        keys,
        inspection.snapshot,
        inspection.tree,
        level_count=inspection.level_count,
        history=inspection.history,
    )
    page |= inspection.maintenance
    # Without a data version: what is made of files (tags, snapshots, compactions) is then never
    # shown as out of date because a later commit changed other files.
    return dg.AssetMaterialization(asset_key=keys.asset(AssetKind.FILES), metadata=page)


def table_event(
    declaration: TableDeclaration,
    table: lsm.Table | None,
    version: TableVersion,
    commits: Sequence[Snapshot] = (),
    partition: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.AssetMaterialization:
    """Return the event of the table itself, or of a partition, for what happened outside Dagster.

    `table` None: it was dropped. `tags`: what is known of the inputs, see `inherited_tags`.
    """
    keys = declaration.keys
    newest = table.latest_snapshot() if table is not None else None
    partition = _event_partition(declaration, partition)
    if table is None or newest is None:
        return _materialization(keys.asset(AssetKind.TABLE), {}, version.text, partition, tags)
    # A sensor has no time for a merge-read.
    page = table_page_metadata(table, keys, newest, row_count=None, commits=commits)
    return _materialization(keys.asset(AssetKind.TABLE), page, version.text, partition, tags)


def table_page_metadata(
    table: lsm.Table, keys: TableKeys, snapshot: Snapshot, *, row_count: int | None, **facts: Any
) -> metadata.Metadata:
    """Return what a table's page shows of a snapshot; arguments as of `metadata.table_metadata`."""
    return metadata.table_metadata(
        keys,
        snapshot,
        schema=metadata.schema_with_comments(table.schema),
        primary_key=table.schema.primary_keys,
        location=table.location,
        row_count=row_count,
        **facts,
    )


def _event_partition(declaration: TableDeclaration, name: str | None) -> str | None:
    """Return the key of a partition as events name it."""
    definition = declaration.partitions_def
    if name is None or not isinstance(definition, dg.MultiPartitionsDefinition):
        return name
    return definition.get_partition_key_from_str(name)


def inherited_tags(
    instance: dg.DagsterInstance, declaration: TableDeclaration, partition: str | None = None
) -> dict[str, str]:
    """Return what Dagster last recorded of the inputs and code of a table asset, or of a partition.

    A commit from outside leaves them as they are: what was out of date for them still is.
    """
    if not declaration.deps:
        return {}
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(
            asset_key=declaration.keys.asset(AssetKind.TABLE),
            asset_partitions=None if partition is None else [partition],
        ),
        limit=1,
    ).records
    event = records[0].asset_materialization if records else None
    tags = (event.tags or {}) if event is not None else {}
    return {name: value for name, value in tags.items() if name.startswith(_INHERITED)}


def partition_events(
    step: StepExecutionContext,
    declaration: TableDeclaration,
    versions: Mapping[str, TableVersion],
    run_metadata: Mapping[str, Any],
) -> Iterator[dg.AssetMaterialization]:
    """Yield an event for each partition of a run that has another version than the run; Dagster gives all one."""
    key = declaration.keys.asset(AssetKind.TABLE)
    tags = input_tags(step, key) if versions else {}
    for name, version in sorted(versions.items()):
        own = step.get_asset_metadata(asset_key=key, partition_key=name) or {}
        yield _materialization(
            key, {**run_metadata, **own}, version.text, _event_partition(declaration, name), tags
        )


def declared_code_version(step: StepExecutionContext, key: dg.AssetKey) -> str | None:
    """Return the code version that an asset declares."""
    layer = step.job_def.asset_layer
    return layer.get(key).code_version if layer.has(key) else None


def input_tags(step: StepExecutionContext, key: dg.AssetKey) -> dict[str, str]:
    """Return the tags by which Dagster records the inputs and code of a materialisation."""
    tags = {"dagster/code_version": declared_code_version(step, key) or step.run_id}
    for upstream in step.job_def.asset_layer.get(key).parent_keys:
        input_info = step.maybe_fetch_and_get_input_asset_version_info(upstream)
        version = input_info.data_version if input_info is not None else None
        name = upstream.to_user_string()
        tags[f"dagster/input_data_version/{name}"] = version.value if version else "INITIAL"
        tags[f"dagster/input_event_pointer/{name}"] = (
            str(input_info.storage_id) if input_info else "NULL"
        )
    return tags


def tag_event(table: lsm.Table, keys: TableKeys, tag: Tag) -> dg.AssetMaterialization:
    """Return the event of a tag's partition."""
    page = metadata.tag_metadata(keys, tag) | details.read_calendar_metadata(table, keys)
    return _materialization(keys.asset(AssetKind.TAGS), page, str(tag.snapshot.id), tag.name)


def record_commit(
    context: dg.AssetExecutionContext, table: lsm.Table, keys: TableKeys, snapshot: Snapshot
) -> Iterator[dg.AssetMaterialization]:
    """Add the partition of a commit of this run, then yield the events of what it made."""
    # The partition first, so that no event names an unknown one.
    name = partition_set_name(snapshot_partitions(keys))
    context.instance.add_dynamic_partitions(name, [snapshot_partition(snapshot.id)])
    yield from snapshot_events(table, keys, snapshot, run_id=context.run.run_id)


def remove_partitions(instance: dg.DagsterInstance, name: str, partitions: Sequence[str]) -> None:
    """Remove dynamic partitions; what was recorded for them is kept."""
    for partition in partitions:
        instance.delete_dynamic_partition(name, partition)


def recorded_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str] | None = None
) -> dict[str, TableVersion]:
    """Return the newest recorded version of each partition of a table asset; None: of all."""
    tags = instance.event_log_storage.get_latest_tags_by_partition(
        key,
        dg.DagsterEventType.ASSET_MATERIALIZATION,
        [DATA_VERSION_TAG],
        asset_partitions=None if partitions is None else list(partitions),
    )
    texts = {
        name: partition_tags.get(DATA_VERSION_TAG, "") for name, partition_tags in tags.items()
    }
    parsed = {name: parse_version(text) for name, text in texts.items()}
    return {name: version for name, version in parsed.items() if version is not None}


def recorded_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> TableVersion | None:
    """Return the version that Dagster last recorded of a table asset; None if none."""
    entry = instance.get_latest_materialization_event(key)
    event = entry.asset_materialization if entry is not None else None
    return parse_version((event.tags or {}).get(DATA_VERSION_TAG, "")) if event else None


def run_id_from_snapshot(snapshot: Snapshot) -> str | None:
    """Return the Dagster run that made a snapshot, by its own properties."""
    return (snapshot.properties or {}).get(RUN_DAGSTER_ID)


def _materialization(
    key: dg.AssetKey,
    page: Mapping[str, Any],
    version: str,
    partition: str | None,
    tags: Mapping[str, str] | None = None,
) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=key,
        partition=partition,
        metadata=page,
        tags={**(tags or {}), DATA_VERSION_TAG: version},
    )


def commit_identity(
    table: lsm.Table, writer: str, attempt: int, number: int = 0
) -> dict[str, str | int]:
    """Return the name of a step's commit, the `number`th, in its `attempt`th attempt (both from 0).

    `writer`: the run, or an output of it, where others may write to the same table.

    A step that is tried again repeats its commits by key. Where that would count rows twice, as in
    sums and in tables without a key, all attempts have one name, and the second one is a replay.
    """
    engine = table.options[core_options.MERGE_ENGINE].policy
    adds_up = not table.schema.primary_keys or engine.combines_versions
    user = f"dagster-{writer}" if adds_up else f"dagster-{writer}-{attempt}"
    return {"commit_user": user, "commit_identifier": number}


def run_properties(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    keys: TableKeys,
    kind: AssetKind,
    inputs: tuple[Input, ...] = (),
) -> dict[str, str]:
    """Return the snapshot properties that carry this run's identity, inputs and code version."""
    key, is_asset = keys.asset(kind), isinstance(context, dg.AssetExecutionContext)
    step = context.get_step_execution_context() if is_asset else None
    return build_run_properties(
        context.run.run_id,
        keys,
        kind,
        engine=context.resources.lsm.executor,
        user=context.run.tags.get("user"),
        inputs=inputs,
        code_version=declared_code_version(step, key) if step is not None else None,
    )


def build_run_properties(
    run_id: str,
    keys: TableKeys,
    kind: AssetKind,
    *,
    engine: str,
    user: str | None = None,
    inputs: tuple[Input, ...] = (),
    code_version: str | None = None,
    output: str | None = None,
) -> dict[str, str]:
    """Return the snapshot properties of a Dagster run, given its id; `output`: of what is no asset."""
    action = "compact" if kind is AssetKind.COMPACTION else "upsert"
    run = Run(
        run_id=f"{run_id}/{output or keys.op(action)}",
        engine=engine,
        kind=action,
        dagster_run_id=run_id,
        asset_key=None if output else "/".join(keys.asset(kind).path),
        user=user,
    )
    version = {CODE_VERSION_PROPERTY: code_version} if code_version else {}
    return {**provenance_properties(run, inputs), **version}
