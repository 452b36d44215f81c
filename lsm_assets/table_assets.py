"""The table asset: runs the writer, commits each of its changes, and records each commit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import dagster as dg
from pydantic import Field

import lsm_engine as lsm
from lsm_assets.checks import (
    CONTENTS,
    SHAPE,
    damage_metadata,
    damage_text,
    files_events,
    renewed_evaluations,
    scrub,
    snapshot_evaluation,
    sorted_runs_evaluation,
    table_readers,
)
from lsm_assets.dagster_core import (
    AUTO_MATERIALIZE_TAG,
    AUTOMATION_CONDITION_TAG,
    SCHEDULE_NAME_TAG,
    SENSOR_NAME_TAG,
    backfilled_assets,
    last_status,
    latest_storage_ids,
    report_evaluation,
    step_context,
)
from lsm_assets.declaration import TableDeclaration
from lsm_assets.feed import concurrent_feed_commit, feed_commit_user, record_partial_inputs
from lsm_assets.inspection import (
    TableInspection,
    compaction_page_metadata,
    inspect_table,
    manifest_counts,
    read_calendar_metadata,
    read_contents_metadata,
    read_manifests_metadata,
    row_count,
)
from lsm_assets.keys import (
    AssetKind,
    parse_snapshot_partition,
    partition_set_name,
    snapshot_partition,
    sorted_snapshot_partitions,
    tag_partitions,
)
from lsm_assets.metadata import (
    LABEL_PROPERTY,
    REASON_TAG,
    Metadata,
    manifest_lists_metadata,
    tag_metadata,
)
from lsm_assets.partitions import require_layout, versions_after_run
from lsm_assets.pinning import inputs_markdown, pin_reasons, run_inputs
from lsm_assets.recording import (
    commit_identity,
    declared_code_version,
    files_event,
    iceberg_events,
    in_reading_order,
    input_tags,
    partition_events,
    record_commit,
    recorded_code_version,
    remove_partitions,
    run_id_from_snapshot,
    run_properties,
    snapshot_page_metadata,
    table_event,
    table_page_metadata,
    tag_event,
)
from lsm_assets.staleness import changed_inputs
from lsm_assets.versions import (
    Change,
    Delete,
    Overwrite,
    TableVersion,
    Upsert,
    as_change,
    version_from_snapshot,
)
from lsm_engine import LineageInput as Input
from lsm_engine import LsmError, NotFoundError, Snapshot, Tag, VerifyReport, core_options

# -- The compaction asset: merges sorted runs, and shows the LSM trees before and after ------------


class CompactionConfig(dg.Config):
    """The scope of the compaction; by default the buckets that are due by the table's options."""

    full: bool = Field(default=False, description="Merge every bucket into one run")
    partitions: list[dict[str, Any]] = Field(
        default_factory=list, description="Only these partitions, as {column: value}; empty: all"
    )


def compact_table(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: CompactionConfig
) -> Iterator[Any]:
    """Compact a table, record the snapshot and the files, and evaluate the check of sorted runs.

    The table asset gets no event: a compaction changes no rows, so that readers stay up to date. If reads skip level 0,
    the sync sensor reports the new data version. Raises dagster.Failure for a table without a snapshot.
    """
    # The declaration is not checked: other clients may have altered columns, which does not matter here.
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    newest = None if table is None else table.latest_snapshot()
    if table is None or newest is None:
        raise dg.Failure(f"{declaration.name} holds nothing to compact yet", allow_retries=False)
    before = inspect_table(table, newest)
    snapshot = _compact(context, declaration, table, config)
    after = before
    if snapshot is not None:
        yield from record_commit(context, table, declaration.keys, snapshot)
        after = inspect_table(table, snapshot)
        yield files_event(table, declaration.keys, after)
        lineage = context.resources.lsm.catalog.lineage
        yield from iceberg_events(context.instance, declaration, table, lineage)
    yield sorted_runs_evaluation(declaration, after.tree, stop_trigger=table.options.stop_trigger)
    yield _result(context, declaration, table, snapshot, before, after)


def _compact(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    config: CompactionConfig,
) -> Snapshot | None:
    snapshot = table.compact(
        full=config.full,
        partitions=config.partitions or None,
        commit_user=f"dagster-{context.run.run_id}-{context.retry_number}",
        properties=run_properties(context, declaration.keys, AssetKind.COMPACTION),
    )
    if snapshot is None:
        context.log.info("nothing to compact table=%s", declaration.name)
    else:
        context.log.info("compacted table=%s snapshot=%s", declaration.name, snapshot.id)
    return snapshot


def compaction_reason(tags: Mapping[str, str]) -> str:
    """Return why a compaction was requested, from the run's tags."""
    if REASON_TAG in tags:
        return tags[REASON_TAG]
    if AUTOMATION_CONDITION_TAG in tags or AUTO_MATERIALIZE_TAG in tags:
        return "asked for by its automation condition"
    for tag, origin in ((SENSOR_NAME_TAG, "sensor"), (SCHEDULE_NAME_TAG, "schedule")):
        if tag in tags:
            return f"asked for by the {origin} {tags[tag]}"
    return "asked for by hand"


def _result(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot | None,
    before: TableInspection,
    after: TableInspection,
) -> dg.MaterializeResult[Any]:
    newest = snapshot or after.snapshot
    page = compaction_page_metadata(
        table, declaration.keys, snapshot, before, after, compaction_reason(context.run.tags)
    )
    if choice := context.resources.lsm.on_demand.choice:
        page["lsm/executor"] = dg.MetadataValue.text(choice)
    return dg.MaterializeResult(
        asset_key=declaration.keys.asset(AssetKind.COMPACTION),
        data_version=dg.DataVersion(str(newest.id)),
        metadata=page,
    )


# -- The assets of snapshots and manifest lists ----------------------------------------------------
#
# Both are immutable: materialising one reads and checks it.


class InspectConfig(dg.Config):
    """Options of checking a snapshot."""

    read_again: bool = Field(
        default=False,
        description="Read files again that an earlier run has found sound: damage by a disk leaves "
        "their time of change as it was",
    )


def inspect_snapshots(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: InspectConfig
) -> Iterator[Any]:
    """Check the snapshots of the run's partitions, and record them in the lineage.

    For `snapshots` every page of every file is read that no earlier run has read. For `manifest_lists` the manifests
    are read, and written anew if the newest snapshot has too many, by Spark if they are large. Raises dagster.Failure for damaged snapshots, after
    the checks `contents` and `shape` have recorded them.
    """
    keys = declaration.keys
    kinds = {SHAPE: AssetKind.MANIFEST_LISTS, CONTENTS: AssetKind.SNAPSHOTS}
    checks = [
        name for name, kind in kinds.items() if keys.asset(kind) in context.selected_asset_keys
    ]
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    snapshots = [
        _find_snapshot(declaration, table, key)
        for key in sorted_snapshot_partitions(context.partition_keys)
    ]
    assert table is not None, "a snapshot was found in it"
    context.resources.lsm.catalog.sync_lineage([declaration.name])
    reports: dict[tuple[str, int], VerifyReport] = {}
    for check in checks:
        for snapshot in _due_snapshots(
            context, declaration, snapshots, dg.AssetCheckKey(keys.asset(kinds[check]), check)
        ):
            is_deep = check == CONTENTS
            report = _verify(context, table, snapshot, config, is_deep=is_deep)
            reports[check, snapshot.id] = report
            context.log.info("read table=%s snapshot=%s %s", table.name, snapshot.id, report)
    damaged = {number: report for (_, number), report in reports.items() if not report.is_clean}
    if not damaged:
        for snapshot in snapshots:
            contents = reports.get((CONTENTS, snapshot.id))
            _add_page_metadata(context, declaration, table, snapshot, contents)
        yield from _inspected(context, declaration, table, snapshots)
    # Evaluated after the materialisations, as Dagster shows a check only beside the event that it has evaluated.
    for (check, number), report in reports.items():
        yield snapshot_evaluation(context.instance, declaration, check, number, report)
    for number, report in damaged.items():
        raise dg.Failure(
            f"snapshot {number} of {declaration.name} is damaged: "
            + damage_text(declaration.name, report),
            metadata=damage_metadata(declaration.name, report),
            allow_retries=False,
        )


def is_group_backfill(context: dg.AssetExecutionContext, declaration: TableDeclaration) -> bool:
    """Whether "Materialize all" of the table's group, or of all groups, has launched the run: it does what is due."""
    groups = {declaration.keys.asset(kind) for kind in (AssetKind.SNAPSHOTS, AssetKind.COMPACTION)}
    return groups <= backfilled_assets(context.instance, context.run)


def _due_snapshots(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    snapshots: Sequence[Snapshot],
    check: dg.AssetCheckKey,
) -> Sequence[Snapshot]:
    """Return the snapshots that a run reads: all, but for a group the newest, and those read before.

    The latter are cheap, and keep their result, which the event of this run would hide.
    """
    if not is_group_backfill(context, declaration):
        return snapshots
    return [
        snapshot
        for snapshot in snapshots
        if snapshot is snapshots[-1]
        or last_status(context.instance, check, snapshot_partition(snapshot.id)) is not None
    ]


def _inspected(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshots: Sequence[Snapshot],
) -> Iterator[Any]:
    """Yield the materialisations of snapshots that were read, and compact the manifests of the newest one."""
    version = (
        dg.DataVersion(version_from_snapshot(snapshots[-1]).text) if len(snapshots) == 1 else None
    )
    for kind in (AssetKind.MANIFEST_LISTS, AssetKind.SNAPSHOTS):
        key = declaration.keys.asset(kind)
        if key not in context.selected_asset_keys:
            continue
        if kind is AssetKind.MANIFEST_LISTS:
            yield from _compact_manifests(context, declaration, table, snapshots[-1])
        yield dg.MaterializeResult(asset_key=key, data_version=version)


def _verify(
    context: dg.AssetExecutionContext,
    table: lsm.Table,
    snapshot: Snapshot,
    config: InspectConfig,
    *,
    is_deep: bool,
) -> VerifyReport:
    if not is_deep:
        return table.verify(snapshot_id=snapshot.id)
    return scrub(context.resources.lsm, table, snapshot.id, incremental=not config.read_again)


def _add_page_metadata(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
    report: VerifyReport | None,
) -> None:
    """Add the contents of a snapshot and of its manifest lists to the metadata of their partitions.

    `report` is that of reading its files; None if they were not read.
    """
    keys, partition = declaration.keys, str(snapshot.id)
    lists_key, snapshots_key = keys.asset(AssetKind.MANIFEST_LISTS), keys.asset(AssetKind.SNAPSHOTS)
    if lists_key in context.selected_asset_keys:
        metadata = manifest_lists_metadata(keys, snapshot, manifest_counts(table, snapshot))
        context.add_asset_metadata(
            metadata | read_manifests_metadata(table, snapshot), lists_key, partition
        )
    if snapshots_key in context.selected_asset_keys:
        page = snapshot_page_metadata(table, keys, snapshot, run_id=run_id_from_snapshot(snapshot))
        page["lsm/read"] = dg.MetadataValue.text(
            "not yet: a run for the whole group reads the newest"
        )
        if report is not None:
            files = f"{report.read_count} read, {report.skipped_count} read before"
            page["lsm/read"] = dg.MetadataValue.text(f"data files: {files}")
            if choice := context.resources.lsm.on_demand.choice:
                page["lsm/executor"] = dg.MetadataValue.text(choice)
        context.add_asset_metadata(
            page | read_contents_metadata(table, snapshot), snapshots_key, partition
        )


def _compact_manifests(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    snapshot: Snapshot,
) -> Iterator[dg.AssetMaterialization]:
    """Compact the manifests of the newest snapshot if they are many, and record that commit."""
    count = table.system("manifests").num_rows
    newest, least = table.latest_snapshot(), table.options[core_options.MANIFEST_MERGE_MIN_COUNT]
    # Older snapshots keep their manifests, as they are immutable.
    if newest is None or newest.id != snapshot.id or count < least:
        return
    user = f"dagster-{context.run.run_id}-{context.retry_number}"
    compacted = table.compact_manifest(dry_run=False, commit_user=user).snapshot
    if compacted is None:
        return
    context.log.info("compacted manifests table=%s from=%s", declaration.name, count)
    if choice := context.resources.lsm.on_demand.choice:
        key = declaration.keys.asset(AssetKind.MANIFEST_LISTS)
        metadata = {"lsm/executor": dg.MetadataValue.text(choice)}
        context.add_asset_metadata(metadata, key, str(snapshot.id))
    yield from record_commit(context, table, declaration.keys, compacted)


def _find_snapshot(
    declaration: TableDeclaration, table: lsm.Table | None, partition: str
) -> Snapshot:
    snapshot_id = parse_snapshot_partition(partition)
    if table is None or snapshot_id is None:
        raise dg.Failure(
            f"{declaration.name} has no snapshot {partition!r}: partitions are added by "
            "commits, not by hand",
            allow_retries=False,
        )
    try:
        return table.snapshot(snapshot_id)
    except NotFoundError as error:
        raise dg.Failure(
            f"snapshot {snapshot_id} of {declaration.name} cannot be read: {error}. Its history "
            "is kept; the sync sensor removes its partition",
            allow_retries=False,
        ) from error


# -- The asset of tags, a partition each -----------------------------------------------------------
#
# Materialising one creates, replaces, extends or deletes the tag.


class TagAction(Enum):
    """The action of a run on its tag."""

    CREATE = "create"
    REPLACE = "replace"
    EXTEND = "extend"
    DELETE = "delete"


class TagConfig(dg.Config):
    """Action, snapshot and lifetime of a tag."""

    action: TagAction = Field(
        default=TagAction.CREATE,
        description="CREATE it; REPLACE: move it to another snapshot; EXTEND: give it another "
        "lifetime; DELETE it",
    )
    snapshot_id: int | None = Field(
        default=None, description="Snapshot to pin (create, replace); default the newest"
    )
    retained: str | None = Field(
        default=None, description="Lifetime such as '30 d', from now on; default for ever"
    )
    verify: bool = Field(
        default=True,
        description="Read every page of the files that a tag will pin, but those that were read before; "
        "a damaged snapshot is not tagged",
    )


def change_tag(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, config: TagConfig
) -> Iterator[dg.MaterializeResult[Any]]:
    """Create, replace, extend or delete the tag of the run's partition.

    Creating an existing tag reports it as it is, so that a retry succeeds. Raises dagster.Failure if the table has no
    snapshot, if a tag to change does not exist, or if a tag to create retains another snapshot than the given one. What
    is refused changes no partition: one without a tag is removed, and that of a tag keeps its colour.
    """
    name = context.partition_key
    table: lsm.Table | None = context.resources.lsm.existing_table(declaration.name)
    try:
        if table is None or table.latest_snapshot() is None:
            raise dg.Failure(
                f"{declaration.name} has no snapshot to tag yet: materialise it first",
                allow_retries=False,
            )
        yield from _changed_tag(context, declaration, table, config)
    except (dg.Failure, LsmError):
        _restore_tag_partition(context.instance, declaration, table, name)
        raise


def _restore_tag_partition(
    instance: dg.DagsterInstance, declaration: TableDeclaration, table: lsm.Table | None, name: str
) -> None:
    """Show a tag as it is after a run that was refused; remove the partition of a tag that does not exist."""
    tag = find_tag(table, name) if table is not None else None
    if table is not None and tag is not None:
        # Later than the failed run has announced it, this event decides the colour of the partition.
        instance.report_runless_asset_event(tag_event(table, declaration.keys, tag))
    else:
        tags = partition_set_name(tag_partitions(declaration.keys))
        remove_partitions(instance, tags, [name])


def _changed_tag(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    config: TagConfig,
) -> Iterator[dg.MaterializeResult[Any]]:
    name, key = context.partition_key, declaration.keys.asset(AssetKind.TAGS)
    if config.action is TagAction.DELETE:
        _require_tag(declaration, table, name)
        table.delete_tag(name)
        context.log.info("deleted table=%s tag=%s", declaration.name, name)
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={"lsm/deleted": dg.MetadataValue.dagster_run(context.run.run_id)},
            data_version=dg.DataVersion("deleted"),
        )
        # After the event, which needs the partition.
        tags = partition_set_name(tag_partitions(declaration.keys))
        remove_partitions(context.instance, tags, [name])
        return
    verified = _verify_pinned(context, declaration, table, config) if config.verify else {}
    tag = _apply_action(declaration, table, name, config)
    # A run may name a partition that was not added. Its event needs it.
    tags = partition_set_name(tag_partitions(declaration.keys))
    context.instance.add_dynamic_partitions(tags, [name])
    context.log.info(
        "%s table=%s tag=%s snapshot=%s",
        config.action.value,
        declaration.name,
        name,
        tag.snapshot.id,
    )
    yield dg.MaterializeResult(
        asset_key=key,
        metadata=tag_metadata(declaration.keys, tag, run_id=context.run.run_id)
        | verified
        | read_calendar_metadata(table, declaration.keys),
        data_version=dg.DataVersion(str(tag.snapshot.id)),
    )


def _verify_pinned(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    config: TagConfig,
) -> Metadata:
    """Read the files that the tag will pin, and record the check `contents` of their snapshot.

    Raises dagster.Failure for a damaged snapshot. Returns nothing if the run moves no tag to a live snapshot.
    """
    newest = table.latest_snapshot()
    number = config.snapshot_id or (newest.id if newest is not None else None)
    is_moved = config.action is TagAction.REPLACE or (
        config.action is TagAction.CREATE and find_tag(table, context.partition_key) is None
    )
    # The action itself refuses a snapshot that does not exist.
    if not is_moved or number is None or number not in table.snapshot_ids():
        return {}
    report = scrub(context.resources.lsm, table, number, incremental=True)
    evaluation = snapshot_evaluation(context.instance, declaration, CONTENTS, number, report)
    report_evaluation(context.instance, evaluation, context.run.run_id)
    text = damage_text(declaration.name, report)
    if not report.is_clean:
        raise dg.Failure(
            f"snapshot {number} of {declaration.name} is damaged, and was not tagged: {text} With 'verify: "
            "false' in the config it is tagged as it is.",
            metadata=damage_metadata(declaration.name, report),
            allow_retries=False,
        )
    metadata: Metadata = {"lsm/verified": dg.MetadataValue.text(text)}
    if choice := context.resources.lsm.on_demand.choice:
        metadata["lsm/executor"] = dg.MetadataValue.text(choice)
    return metadata


def _apply_action(
    declaration: TableDeclaration, table: lsm.Table, name: str, config: TagConfig
) -> Tag:
    match config.action:
        case TagAction.REPLACE:
            _require_tag(declaration, table, name)
            return table.replace_tag(name, config.snapshot_id, config.retained)
        case TagAction.EXTEND:
            # The engine sets a lifetime only with a tag's snapshot: replace the tag by itself.
            pinned = _require_tag(declaration, table, name).snapshot.id
            return table.replace_tag(name, pinned, config.retained)
        case _:
            return _create_tag(declaration, table, name, config)


def _create_tag(
    declaration: TableDeclaration, table: lsm.Table, name: str, config: TagConfig
) -> Tag:
    tag = find_tag(table, name)
    if tag is None:
        return table.create_tag(name, config.snapshot_id, retained=config.retained)
    if config.snapshot_id not in (None, tag.snapshot.id):
        raise dg.Failure(
            f"tag {name!r} of {declaration.name} pins snapshot {tag.snapshot.id}, not "
            f"{config.snapshot_id}: run it with the action REPLACE, or choose another name",
            allow_retries=False,
        )
    return tag


def _require_tag(declaration: TableDeclaration, table: lsm.Table, name: str) -> Tag:
    tag = find_tag(table, name)
    if tag is None:
        raise dg.Failure(f"{declaration.name} has no tag {name!r}", allow_retries=False)
    return tag


def find_tag(table: lsm.Table, name: str) -> Tag | None:
    """Return a tag by name; None if it does not exist."""
    return next((tag for tag in table.tags() if tag.name == name), None)


# -- The table asset: runs the writer, commits each of its changes, and records each commit --------

Writer = Callable[[dg.AssetExecutionContext, lsm.Table], Any]
"""Yields or returns changes, or rows, which become an upsert; None for no change."""

FEED_RETRIES = 3
"""Retries of a step that applies changes, if a concurrent run has applied them first."""


def write_table(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, writer: Writer
) -> Iterator[Any]:
    """Commit the writer's changes one by one, and yield the events of each commit before the next one starts.

    The last event is the table's materialisation. Its data version is the last commit that changed rows, also if the
    writer had no change.
    """
    table: lsm.Table = context.resources.lsm.table(declaration)
    keys = context.partition_keys if declaration.partitions_def is not None else []
    require_layout(declaration, table, keys)
    before = table.latest_snapshot()
    commits: list[Snapshot] = []
    changes = (
        [] if _is_up_to_date(context, declaration, keys) else to_changes(writer(context, table))
    )
    for number, change in enumerate(changes):
        # The writer has pinned its inputs by the time it yields: only now are they known.
        inputs = run_inputs(context, declaration)
        # Looked up again before each commit: a concurrent run may have committed since the writer read the changes.
        if feed_commit_user(change.properties) is not None:
            _require_unchanged_offset(context, table, change, commits)
        committed = _commit(context, declaration, table, change, number, inputs)
        for snapshot in _with_compactions(table, committed):
            if snapshot in commits:
                continue  # a replay of several commits ends at the last of them
            commits.append(snapshot)
            yield from record_commit(context, table, declaration.keys, snapshot)
    newest = table.latest_snapshot()
    if newest is not None and commits:
        yield from files_events(context.instance, declaration, table, newest)
    lineage, step = context.resources.lsm.catalog.lineage, step_context(context)
    version, partition_versions = versions_after_run(
        context.instance, declaration, table, lineage, keys, before.id if before else 0
    )
    record_partial_inputs(step, context.resources.lsm)
    result = _materialize_result(context, declaration, table, newest, commits, version)
    yield result
    yield from partition_events(step, declaration, partition_versions, result.metadata or {})
    # Dagster takes the last event as the version of the table.
    newest_versions = [own for _, own in in_reading_order(partition_versions)][-1:]
    if not all(own.is_same(version) for own in newest_versions):
        tags = input_tags(step, declaration.keys.asset(AssetKind.TABLE))
        yield table_event(declaration, table, version, tags=tags)
    yield from iceberg_events(context.instance, declaration, table, lineage)
    # The events above hide what failed before, although its cause may still be there.
    for evaluation, _ in renewed_evaluations(context.instance, declaration, table):
        yield evaluation


def _is_up_to_date(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, partitions: Sequence[str]
) -> bool:
    """Whether a run for a whole group has nothing to write: its partitions are there, and their inputs are as read."""
    key = declaration.keys.asset(AssetKind.TABLE)
    if not partitions or not is_group_backfill(context, declaration):
        return False
    code_version = declared_code_version(step_context(context), key)
    stale = {
        name
        for reader in table_readers([declaration])
        for change in changed_inputs(context.instance, reader) or ()
        for name in change.partitions
    }
    written = latest_storage_ids(context.instance, key).keys()
    is_up_to_date = (
        written >= set(partitions)
        and stale.isdisjoint(partitions)
        and code_version in (None, recorded_code_version(context.instance, key, partitions))
    )
    if is_up_to_date:
        context.log.info("every partition is up to date table=%s", declaration.name)
    return is_up_to_date


def _require_unchanged_offset(
    context: dg.AssetExecutionContext,
    table: lsm.Table,
    change: Change,
    commits: Sequence[Snapshot],
) -> None:
    """Retry the step if a concurrent run has applied the changes; raise dagster.Failure if this run has.

    The commit itself detects a replay only among the newest snapshots, and a writer may take longer than these last.
    """
    feed_commit = concurrent_feed_commit(
        table, change.properties, context.resources.lsm.catalog.lineage
    )
    if feed_commit is None:
        return
    if any(version_from_snapshot(snapshot) == feed_commit for snapshot in commits):
        raise dg.Failure(
            f"snapshot {feed_commit.snapshot_id} of {table.name} records these changes as applied, and "
            "more of them came after it: yield all rows made of them as one change. Now roll "
            f"{table.name} back to before snapshot {feed_commit.snapshot_id}, then run this again",
            allow_retries=False,
        )
    context.log.info("another run has carried these changes over table=%s", table.name)
    raise dg.RetryRequested(max_retries=FEED_RETRIES)


def to_changes(result: Any) -> Iterator[Change]:
    """Yield the result of a writer as changes. It may be None, one change, rows, or an iterable of both."""
    if result is None:
        return
    if isinstance(result, Upsert | Delete | Overwrite) or not _is_iterable_of_changes(result):
        yield as_change(result)
        return
    for change in result:
        yield as_change(change)


def _is_iterable_of_changes(result: Any) -> bool:
    # Arrow tables and data frames are iterable, too, by column or by row: they are rows.
    return isinstance(result, Iterable) and not hasattr(result, "__arrow_c_stream__")


def _commit(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    change: Change,
    number: int,
    inputs: tuple[Input, ...],
) -> Snapshot | None:
    """Commit one change with its own commit user and identifier (`commit_identity`).

    A change that applies a change feed has the commit user of its previous offset. If a concurrent run has committed
    with it, this commit is a replay, and the step is retried: it then applies later changes, or nothing.
    """
    feed_user = feed_commit_user(change.properties)
    identity: dict[str, Any] = {
        **commit_identity(table, context.run.run_id, context.retry_number, number),
        **({"commit_user": feed_user, "commit_identifier": 0} if feed_user else {}),
        "properties": run_properties(context, declaration.keys, AssetKind.TABLE, inputs)
        | ({LABEL_PROPERTY: change.label} if change.label else {})
        | dict(change.properties),
    }
    match change:
        case Upsert():
            add = table.upsert if table.schema.primary_keys else table.append
            snapshot = add(change.rows, **identity)
        case Delete():
            snapshot = table.delete(change.keys, **identity)
        case Overwrite():
            snapshot = table.overwrite(change.rows, change.partition, **identity)
    if feed_user and snapshot is not None and run_id_from_snapshot(snapshot) != context.run.run_id:
        context.log.info(
            "another run has carried these changes over table=%s snapshot=%s",
            declaration.name,
            snapshot.id,
        )
        raise dg.RetryRequested(max_retries=FEED_RETRIES)
    if snapshot is None:
        context.log.info("nothing to commit table=%s what=%r", declaration.name, change.label)
    else:
        context.log.info(
            "committed table=%s snapshot=%s what=%r records=%s",
            declaration.name,
            snapshot.id,
            change.label,
            snapshot.delta_record_count,
        )
    return snapshot


def _with_compactions(table: lsm.Table, committed: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a commit, and the compactions that the engine has committed after it in the same call."""
    if committed is None:
        return
    yield committed
    newest = table.latest_snapshot()
    newest_id = newest.id if newest is not None else committed.id
    for snapshot_id in range(committed.id + 1, newest_id + 1):
        following = table.snapshot(snapshot_id)
        if run_id_from_snapshot(following) == run_id_from_snapshot(committed):
            yield following


def _materialize_result(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    newest: Snapshot | None,
    commits: list[Snapshot],
    version: TableVersion,
) -> dg.MaterializeResult[Any]:
    resource = context.resources.lsm
    inputs, step = run_inputs(context, declaration), step_context(context)
    key = declaration.keys.asset(AssetKind.TABLE)
    if newest is None:
        return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(version.text))
    metadata: Mapping[str, Any] = table_page_metadata(
        table,
        declaration.keys,
        newest,
        row_count=row_count(table, declaration, newest),
        commits=commits,
        inputs=inputs_markdown(inputs, pin_reasons(step, resource)),
    )
    return dg.MaterializeResult(
        asset_key=key, metadata=metadata, data_version=dg.DataVersion(version.text)
    )
