"""The table asset: runs the writer, commits each of its changes, and records each commit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks.tree import files_events
from lsm_assets.ledger.asset_partitions import require_layout, versions_after_run
from lsm_assets.ledger.feed import concurrent_feed_commit, feed_commit_user, record_partial_inputs
from lsm_assets.ledger.inspection import row_count
from lsm_assets.ledger.pinning import inputs_markdown, pin_reasons, run_inputs
from lsm_assets.ledger.recording import (
    commit_identity,
    input_tags,
    partition_events,
    record_commit,
    run_id_from_snapshot,
    run_properties,
    table_event,
    table_page_metadata,
)
from lsm_assets.model.changes import Change, Delete, Overwrite, Upsert, as_change
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import LABEL_PROPERTY
from lsm_assets.model.versions import TableVersion, version_from_snapshot
from lsm_engine import LineageInput as Input
from lsm_engine import Snapshot

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
    for number, change in enumerate(to_changes(writer(context, table))):
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
    lineage, step = context.resources.lsm.catalog.lineage, context.get_step_execution_context()
    version, partition_versions = versions_after_run(
        context.instance, declaration, table, lineage, keys, before.id if before else 0
    )
    record_partial_inputs(step, context.resources.lsm)
    result = _materialize_result(context, declaration, table, newest, commits, version)
    yield result
    yield from partition_events(step, declaration, partition_versions, result.metadata or {})
    if partition_versions:  # Dagster takes the last event as the version of the table
        tags = input_tags(step, declaration.keys.asset(AssetKind.TABLE))
        yield table_event(declaration, table, version, tags=tags)


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
            f"snapshot {feed_commit.snapshot_id} of {table.name} says that these changes are carried over, and "
            "more of them came after it: yield all that is made of them as one change. Now roll "
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
    inputs, step = run_inputs(context, declaration), context.get_step_execution_context()
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
