"""The table asset: run the writer, commit each of its changes, record what each commit made."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks.tree import files_events
from lsm_assets.ledger.asset_partitions import require_layout, versions_after
from lsm_assets.ledger.feed import fed_meanwhile, feed_user, hold_back_partial_inputs
from lsm_assets.ledger.pinning import inputs_markdown, inputs_of_run, reasons_of
from lsm_assets.ledger.recording import (
    commit_identity,
    dagster_run_of,
    input_tags,
    partition_events,
    recorded,
    run_properties,
    table_event,
    table_page,
)
from lsm_assets.ledger.survey import row_count
from lsm_assets.model.changes import Change, Delete, Overwrite, Upsert, as_change
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.metadata import LABEL_PROPERTY
from lsm_assets.model.versions import TableVersion, version_from_snapshot
from lsm_engine import LineageInput as Input
from lsm_engine import Snapshot

Writer = Callable[[dg.AssetExecutionContext, lsm.Table], Any]
"""Yields or returns changes (or bare rows, which mean an upsert); None for no change at all."""

FEED_RETRIES = 3
"""How often a step that carries changes over begins anew because another run was faster."""


def write_table(
    context: dg.AssetExecutionContext, declaration: TableDeclaration, writer: Writer
) -> Iterator[Any]:
    """Commit the writer's changes one by one; each is recorded before the next one starts.

    Ends with the table's materialisation, whose data version is the last data-changing snapshot,
    also when the writer had nothing to change.
    """
    table: lsm.Table = context.resources.lsm.table(declaration)
    keys = context.partition_keys if declaration.partitions_def is not None else []
    require_layout(declaration, table, keys)
    before = table.latest_snapshot()
    commits: list[Snapshot] = []
    for number, change in enumerate(changes_of(writer(context, table))):
        # A writer has read its inputs by the time that it yields.
        inputs = inputs_of_run(context, declaration)
        if feed_user(change.properties) is not None:
            _require_not_fed(context, table, change, commits)
        made = _commit(context, declaration, table, change, number, inputs)
        for snapshot in _with_compactions(table, made):
            if snapshot in commits:
                continue  # a replay of several commits ends at the last of them
            commits.append(snapshot)
            yield from recorded(context, table, declaration.keys, snapshot)
    newest = table.latest_snapshot()
    if newest is not None and commits:
        yield from files_events(context.instance, declaration, table, newest)
    lineage, step = context.resources.lsm.catalog.lineage, context.get_step_execution_context()
    version, others = versions_after(
        context.instance, declaration, table, lineage, keys, before.id if before else 0
    )
    hold_back_partial_inputs(step, context.resources.lsm)
    result = _materialised(context, declaration, table, newest, commits, version)
    yield result
    yield from partition_events(step, declaration, others, result.metadata or {})
    if others:  # what was recorded last stands for the whole of it
        tags = input_tags(step, declaration.keys.asset(AssetKind.TABLE))
        yield table_event(declaration, table, version, tags=tags)


def _require_not_fed(
    context: dg.AssetExecutionContext,
    table: lsm.Table,
    change: Change,
    commits: Sequence[Snapshot],
) -> None:
    """Begin the step anew where another run has carried a change over; raise dagster.Failure where this has.

    A commit looks for its replays among the newest snapshots alone, and a writer may take its time.
    """
    fed_by = fed_meanwhile(table, change.properties, context.resources.lsm.catalog.lineage)
    if fed_by is None:
        return
    if any(version_from_snapshot(each) == fed_by for each in commits):
        raise dg.Failure(
            f"snapshot {fed_by.snapshot_id} of {table.name} says that these changes are carried over, and "
            "more of them came after it: yield all that is made of them as one change. Now roll "
            f"{table.name} back to before snapshot {fed_by.snapshot_id}, then run this again",
            allow_retries=False,
        )
    context.log.info("another run has carried these changes over table=%s", table.name)
    raise dg.RetryRequested(max_retries=FEED_RETRIES)


def changes_of(written: Any) -> Iterator[Change]:
    """Return what a writer returned as changes: nothing, one change, bare rows, or several of either."""
    if written is None:
        return
    if isinstance(written, Upsert | Delete | Overwrite) or not _is_plain_iterable(written):
        yield as_change(written)
        return
    for each in written:
        yield as_change(each)


def _is_plain_iterable(written: Any) -> bool:
    # Arrow tables and data frames can be iterated over too, by column or by row.
    return isinstance(written, Iterable) and not hasattr(written, "__arrow_c_stream__")


def _commit(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    change: Change,
    number: int,
    inputs: tuple[Input, ...],
) -> Snapshot | None:
    """Commit one change under a name of its own (`commit_identity`).

    Changes that are carried over have the name of what they go on from. Where another run has committed
    that meanwhile, the step is run again: it has more to carry over, or nothing.
    """
    feeding = feed_user(change.properties)
    identity: dict[str, Any] = {
        **commit_identity(table, context.run.run_id, context.retry_number, number),
        **({"commit_user": feeding, "commit_identifier": 0} if feeding else {}),
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
    if feeding and snapshot is not None and dagster_run_of(snapshot) != context.run.run_id:
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


def _with_compactions(table: lsm.Table, made: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a commit, and the compaction that the engine let follow it in the same breath."""
    if made is None:
        return
    yield made
    newest = table.latest_snapshot()
    upto = newest.id if newest is not None else made.id
    for snapshot_id in range(made.id + 1, upto + 1):
        following = table.snapshot(snapshot_id)
        if dagster_run_of(following) == dagster_run_of(made):
            yield following


def _materialised(
    context: dg.AssetExecutionContext,
    declaration: TableDeclaration,
    table: lsm.Table,
    newest: Snapshot | None,
    commits: list[Snapshot],
    version: TableVersion,
) -> dg.MaterializeResult[Any]:
    resource = context.resources.lsm
    inputs, step = inputs_of_run(context, declaration), context.get_step_execution_context()
    key = declaration.keys.asset(AssetKind.TABLE)
    if newest is None:
        return dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(version.text))
    found: Mapping[str, Any] = table_page(
        table,
        declaration.keys,
        newest,
        row_count=row_count(table, declaration, newest),
        commits=commits,
        inputs=inputs_markdown(inputs, reasons_of(step, resource)),
    )
    return dg.MaterializeResult(
        asset_key=key, metadata=found, data_version=dg.DataVersion(version.text)
    )
