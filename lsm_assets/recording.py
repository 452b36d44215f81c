"""Record commits in Dagster: partitions, materialisations, data versions; and the run in snapshot properties."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets import inspection, metadata
from lsm_assets.commits import iceberg_version
from lsm_assets.dagster_core import StepExecutionContext, latest_tags, step_context
from lsm_assets.declaration import TableDeclaration
from lsm_assets.inspection import TableInspection, manifest_counts
from lsm_assets.keys import (
    ICEBERG,
    AssetKind,
    TableKeys,
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
)
from lsm_assets.metadata import lineage_link
from lsm_assets.settings import lineage_page_url
from lsm_assets.versions import TableVersion, parse_version, version_from_snapshot
from lsm_engine import (
    RUN_DAGSTER_ID,
    IcebergState,
    Lineage,
    Snapshot,
    Tag,
    core_options,
    provenance_properties,
    record,
)
from lsm_engine import LineageInput as Input
from lsm_engine import LineageRun as Run

DATA_VERSION_TAG = "dagster/data_version"
CODE_VERSION_TAG = "dagster/code_version"
CODE_VERSION_PROPERTY = "lsm.run.code-version"
"""The snapshot property with the code version of the asset that committed it."""
_RUN_USER = re.compile(r"dagster-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""The commit user of a run, see `commit_identity`."""
_INHERITED = (
    "dagster/input_data_version/",
    "dagster/input_event_pointer/",
    CODE_VERSION_TAG,
)


def snapshot_events(
    table: lsm.Table,
    keys: TableKeys,
    snapshot: Snapshot,
    *,
    run_id: str | None,
    is_abandoned: bool = False,
) -> list[dg.AssetMaterialization]:
    """Return the events of one snapshot's partitions: first its manifest lists, then the snapshot.

    `is_abandoned`: the run has ended without recording the snapshot, which the page says.
    """
    partition, version = snapshot_partition(snapshot.id), version_from_snapshot(snapshot).text
    counts = manifest_counts(table, snapshot)
    note: metadata.Metadata = {}
    if is_abandoned:
        text = f"recorded by the sync sensor: run {run_id} ended before it recorded this commit"
        note["lsm/recorded"] = dg.MetadataValue.text(text)
    lists = keys.asset(AssetKind.MANIFEST_LISTS)
    # Without it Dagster goes by the times of events, and a later look at the manifests would make the snapshot look old.
    provenance = {
        CODE_VERSION_TAG: version,
        f"dagster/input_data_version/{lists.to_user_string()}": version,
        f"dagster/input_event_pointer/{lists.to_user_string()}": "NULL",
    }
    return [
        _materialization(
            lists,
            metadata.manifest_lists_metadata(keys, snapshot, counts)
            | inspection.read_manifests_metadata(table, snapshot),
            version,
            partition,
        ),
        _materialization(
            keys.asset(AssetKind.SNAPSHOTS),
            {
                **snapshot_page_metadata(table, keys, snapshot, run_id=run_id),
                "lsm/read": dg.MetadataValue.text("not yet: recorded by its commit"),
                **note,
            },
            version,
            partition,
            provenance,
        ),
    ]


def snapshot_page_metadata(
    table: lsm.Table, keys: TableKeys, snapshot: Snapshot, *, run_id: str | None
) -> metadata.Metadata:
    """Return the metadata of a snapshot's page."""
    warehouse = table.location.rsplit("/", 2)[0]  # of <warehouse>/<database>.db/<table>
    return {
        **metadata.snapshot_metadata(keys, snapshot, run_id=run_id),
        **inspection.read_changes_metadata(table, snapshot),
        **lineage_link(lineage_page_url(warehouse), keys.name, snapshot.id),
    }


def files_event(
    table: lsm.Table, keys: TableKeys, facts: TableInspection
) -> dg.AssetMaterialization:
    """Return the event of the external asset `files`: the LSM tree after a commit."""
    page = metadata.files_metadata(
        keys, facts.snapshot, facts.tree, level_count=facts.level_count, history=facts.history
    )
    page |= inspection.read_maintenance_metadata(table)
    # Without a data version: assets downstream of files (tags, snapshots, compactions) do not become stale when a
    # later commit changes other files.
    return dg.AssetMaterialization(asset_key=keys.asset(AssetKind.FILES), metadata=page)


def table_event(
    declaration: TableDeclaration,
    table: lsm.Table | None,
    version: TableVersion,
    partition: str | None = None,
    tags: Mapping[str, str] | None = None,
    *,
    is_empty: bool = False,
) -> dg.AssetMaterialization:
    """Return the event of the table asset, or of a partition, for commits of other clients.

    Args:
        declaration: Declaration of the table.
        table: The table; None if it was dropped.
        version: The new data version.
        partition: Partition key; None for the table.
        tags: Tags with the recorded inputs, see `inherited_tags`.
        is_empty: Whether the partition has no rows any more.
    """
    keys = declaration.keys
    newest = table.latest_snapshot() if table is not None else None
    partition = _event_partition(declaration, partition)
    page: dict[str, Any] = {}
    if table is None:
        page["lsm/rows"] = dg.MetadataValue.text(f"none: {declaration.name} was dropped")
    elif newest is None:
        page["lsm/rows"] = dg.MetadataValue.text(f"none: {declaration.name} has no snapshot")
    else:
        # No row count: counting takes a merge-read, and a sensor's tick is short.
        page |= table_page_metadata(table, keys, newest, row_count=None)
    if is_empty:
        page["dagster/partition_row_count"] = dg.MetadataValue.int(0)
        page.setdefault(
            "lsm/rows",
            dg.MetadataValue.text(
                "none: their commits were rolled back, or the rows were deleted or expired since"
            ),
        )
    return _materialization(keys.asset(AssetKind.TABLE), page, version.text, partition, tags)


def table_page_metadata(
    table: lsm.Table, keys: TableKeys, snapshot: Snapshot, *, row_count: int | None, **facts: Any
) -> metadata.Metadata:
    """Return the metadata of a table's page; other arguments are those of `metadata.table_metadata`."""
    return metadata.table_metadata(
        keys,
        snapshot,
        schema=metadata.schema_with_comments(table.schema),
        primary_key=table.schema.primary_keys,
        location=table.location,
        row_count=row_count,
        **facts,
    )


def iceberg_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    state: IcebergState | None = None,
) -> list[dg.AssetMaterialization]:
    """Return the event of the view of a table's Iceberg metadata; none if Dagster has it, or without such a view.

    `state`: of the metadata, if it was read already.
    """
    if ICEBERG not in declaration.views:
        return []
    keys, state = declaration.keys, state or table.inspect.iceberg()
    key, version = keys.view(ICEBERG), iceberg_version(table, lineage, state)
    event = _materialization(key, metadata.iceberg_metadata(keys, state), version.text, None)
    entry = instance.get_latest_materialization_event(key)
    recorded = entry.asset_materialization if entry is not None else None
    is_recorded = recorded is not None and _facts(recorded) == _facts(event)
    return [] if is_recorded else [event]


def _facts(event: dg.AssetMaterialization) -> tuple[object, ...]:
    """Return what distinguishes events of Iceberg metadata: an age alone is no news."""
    names = ("dagster/uri", "lsm/lag", "lsm/hidden_files", "lsm/waiting_commits")
    return (event.tags or {}).get(DATA_VERSION_TAG), *map(event.metadata.get, names)


def _event_partition(declaration: TableDeclaration, name: str | None) -> str | None:
    """Return a partition key as events need it: a MultiPartitionKey for multi-partitions."""
    definition = declaration.partitions_def
    if name is None or not isinstance(definition, dg.MultiPartitionsDefinition):
        return name
    return definition.get_partition_key_from_str(name)


def inherited_tags(
    instance: dg.DagsterInstance, declaration: TableDeclaration, partition: str | None = None
) -> dict[str, str]:
    """Return the tags with inputs and code version of the last event of a table asset, or of a partition.

    An event for a commit of another client repeats them: such a commit does not make the asset up to date.
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


def recorded_code_version(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]
) -> str | None:
    """Return the code version that all of some partitions were written with; None if they differ."""
    filters = (dg.AssetRecordsFilter(asset_key=key, asset_partitions=[name]) for name in partitions)
    pages = [instance.fetch_materializations(newest, limit=1).records for newest in filters]
    events = [records[0].asset_materialization for records in pages if records]
    versions = {(event.tags or {}).get(CODE_VERSION_TAG) for event in events if event is not None}
    return versions.pop() if len(versions) == 1 else None


def in_reading_order(versions: Mapping[str, TableVersion]) -> list[tuple[str, TableVersion]]:
    """Return partitions and their versions, the newest last: Dagster takes the last event as that of the asset."""
    return sorted(versions.items(), key=lambda item: (item[1].snapshot_id, item[0]))


def partition_events(
    step: StepExecutionContext,
    declaration: TableDeclaration,
    versions: Mapping[str, TableVersion],
    run_metadata: Mapping[str, Any],
) -> Iterator[dg.AssetMaterialization]:
    """Yield an event for each partition whose version differs from that of the run.

    Dagster itself gives all partitions of a run one version.
    """
    key = declaration.keys.asset(AssetKind.TABLE)
    tags = input_tags(step, key) if versions else {}
    for name, version in in_reading_order(versions):
        own = step.get_asset_metadata(asset_key=key, partition_key=name) or {}
        yield _materialization(
            key, {**run_metadata, **own}, version.text, _event_partition(declaration, name), tags
        )


def declared_code_version(step: StepExecutionContext, key: dg.AssetKey) -> str | None:
    """Return the code version of an asset's definition."""
    layer = step.job_def.asset_layer
    return layer.get(key).code_version if layer.has(key) else None


def input_tags(step: StepExecutionContext, key: dg.AssetKey) -> dict[str, str]:
    """Return the tags with which Dagster records the inputs and the code version of a materialisation."""
    tags = {CODE_VERSION_TAG: declared_code_version(step, key) or step.run_id}
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
    page = metadata.tag_metadata(keys, tag) | inspection.read_calendar_metadata(table, keys)
    return _materialization(keys.asset(AssetKind.TAGS), page, str(tag.snapshot.id), tag.name)


def record_commit(
    context: dg.AssetExecutionContext, table: lsm.Table, keys: TableKeys, snapshot: Snapshot
) -> Iterator[dg.AssetMaterialization]:
    """Add the snapshot partition of a commit of this run, then yield the snapshot's events."""
    # The partition comes first, so that no event names a partition that does not exist.
    name = partition_set_name(snapshot_partitions(keys))
    context.instance.add_dynamic_partitions(name, [snapshot_partition(snapshot.id)])
    yield from snapshot_events(table, keys, snapshot, run_id=context.run.run_id)


def remove_partitions(instance: dg.DagsterInstance, name: str, partitions: Sequence[str]) -> None:
    """Remove dynamic partitions. Their events stay."""
    for partition in partitions:
        instance.delete_dynamic_partition(name, partition)


def recorded_versions(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str] | None = None
) -> dict[str, TableVersion]:
    """Return the newest recorded version of each partition of a table asset; `partitions` None: of all."""
    texts = latest_tags(
        instance, key, DATA_VERSION_TAG, None if partitions is None else list(partitions)
    )
    parsed = {name: parse_version(text) for name, text in texts.items()}
    return {name: version for name, version in parsed.items() if version is not None}


def recorded_version(instance: dg.DagsterInstance, key: dg.AssetKey) -> TableVersion | None:
    """Return the last recorded version of a table asset; None without one."""
    entry = instance.get_latest_materialization_event(key)
    event = entry.asset_materialization if entry is not None else None
    return parse_version((event.tags or {}).get(DATA_VERSION_TAG, "")) if event else None


def run_id_from_snapshot(snapshot: Snapshot) -> str | None:
    """Return the id of the Dagster run that made a snapshot; None for other clients."""
    run_id = (snapshot.properties or {}).get(RUN_DAGSTER_ID)
    if run_id is not None:
        return run_id
    # The engine keeps no properties for a compaction of manifests. The run has set its commit user.
    match = _RUN_USER.match(snapshot.commit_user)
    return match[1] if match else None


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
    """Return the arguments `commit_user` and `commit_identifier` of a step's commit.

    A retried step commits again. That is harmless for rows with a key, which are replaced. Aggregates and append
    tables would count rows twice: there all attempts have one commit user, and the second commit is a replay.

    Args:
        table: The table.
        writer: Id of the run, or of one of its outputs if several may write to the table.
        attempt: Number of the attempt, from 0.
        number: Number of the commit in the step, from 0.
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
    """Return the snapshot properties with this run, its inputs and its code version."""
    key = keys.asset(kind)
    step = step_context(context) if isinstance(context, dg.AssetExecutionContext) else None
    run = LaunchedRun(
        run_id=context.run.run_id,
        engine=context.resources.lsm.executor,
        user=context.run.tags.get("user"),
    )
    return build_run_properties(
        run,
        keys,
        kind,
        inputs=inputs,
        code_version=declared_code_version(step, key) if step is not None else None,
    )


@record
class LaunchedRun:
    """A Dagster run: its id, the executor ("spark" or "local"), and the user who launched it."""

    run_id: str
    engine: str
    user: str | None = None


def build_run_properties(
    launched: LaunchedRun,
    keys: TableKeys,
    kind: AssetKind,
    *,
    inputs: tuple[Input, ...] = (),
    code_version: str | None = None,
    output: str | None = None,
) -> dict[str, str]:
    """Return the snapshot properties of a Dagster run.

    Args:
        launched: The run.
        keys: Names of the table.
        kind: The asset that the run materialises.
        inputs: The upstream snapshots that were read.
        code_version: Code version of the asset or output.
        output: Identifier of an op's output that is no asset.
    """
    action = "compact" if kind is AssetKind.COMPACTION else "upsert"
    run = Run(
        run_id=f"{launched.run_id}/{output or keys.op(action)}",
        engine=launched.engine,
        kind=action,
        dagster_run_id=launched.run_id,
        asset_key=None if output else "/".join(keys.asset(kind).path),
        user=launched.user,
    )
    version = {CODE_VERSION_PROPERTY: code_version} if code_version else {}
    return {**provenance_properties(run, inputs), **version}
