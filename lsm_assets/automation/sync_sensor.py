"""The sync sensor: reports commits and tags of other clients to Dagster, and removes partitions of expired snapshots."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import dagster as dg

import lsm_engine as lsm
from lsm_assets.automation.cursor import (
    failure_message,
    read_cursor,
    tables_in_turn,
    tick_interval,
    write_cursor,
)
from lsm_assets.automation.version_events import version_events
from lsm_assets.checks.tree import files_events
from lsm_assets.ledger.recording import (
    run_id_from_snapshot,
    snapshot_events,
    tag_event,
)
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.partitions import (
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
    tag_partitions,
)
from lsm_assets.model.storage import declarations_from_assets
from lsm_assets.model.sync import EVENTS_MAX, SyncPlan, plan_sync
from lsm_assets.model.versions import COMMIT_HASH_LENGTH, version_from_snapshot
from lsm_engine import LsmError, Snapshot

INTERVAL_SECONDS = 30
RECORDING_MILLIS_MAX = 5 * 60_000
COMMITS_PER_TABLE_MAX = 20
"""Newest commits of a table whose hashes the cursor has, to detect that a rollback has assigned their ids again."""
COMMITS_MAX = 4_000
"""Commits of all tables whose hashes the cursor has; at least two of each table."""

Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
PartitionsRequest: TypeAlias = dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest


def sync_sensor(
    declarations: Sequence[TableDeclaration],
    *,
    name: str = "lsm_sync",
    interval_seconds: int = INTERVAL_SECONDS,
    with_physical: bool = True,
) -> dg.SensorDefinition:
    """Return the sensor that keeps Dagster's partitions equal to the live snapshots and tags.

    Dagster's partitions are the state of the sensor: a second tick over the same table reports nothing. Only the newest
    snapshots get events, older ones only partitions.

    Args:
        declarations: Tables of the sensor.
        name: Name of the sensor.
        interval_seconds: Least seconds between ticks.
        with_physical: Whether the tables have assets for their snapshots, files and tags.
    """

    commits_max = max(2, min(COMMITS_PER_TABLE_MAX, COMMITS_MAX // max(1, len(declarations))))

    @dg.sensor(
        name=name,
        minimum_interval_seconds=tick_interval(declarations, interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"lsm"},
        description="Reports to Dagster commits, tags and expiry that happened outside of it.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        states = read_cursor(context.cursor)
        failed: dict[str, Exception] = {}
        looked_at = 0
        events: list[Event] = []
        requests: list[PartitionsRequest] = []
        for declaration in tables_in_turn(declarations, states):
            looked_at += 1
            before = states.get(declaration.name)
            try:
                table_events, plan = sync_table(
                    context, declaration, states, commits_max, with_physical=with_physical
                )
            except Exception as error:
                # A damaged table must not keep the others from being reported.
                is_bug = not isinstance(error, LsmError)
                context.log.error("cannot look at %s: %s", declaration.name, error, exc_info=is_bug)
                failed[declaration.name] = error
                # Restore the table's state, so that the next tick reports everything.
                states.pop(declaration.name, None)
                if before is not None:
                    states[declaration.name] = before
                continue
            events += table_events
            requests += partition_requests(declaration, plan)
        messages = (tick_summary(events, requests), failure_message(failed, looked_at, states))
        return dg.SensorResult(
            skip_reason=dg.SkipReason("; ".join(filter(None, messages))),
            asset_events=events,
            dynamic_partitions_requests=requests,
            cursor=write_cursor(states),
        )

    return sensor


def io_sync_sensor(
    assets: Iterable[dg.AssetsDefinition | dg.AssetSpec],
    *,
    name: str = "lsm_io_sync",
    interval_seconds: int = INTERVAL_SECONDS,
) -> dg.SensorDefinition:
    """Return the sensor that reports commits of other clients to tables that `LsmIOManager` writes.

    Args:
        assets: The assets that the I/O manager stores.
        name: Name of the sensor.
        interval_seconds: Least seconds between ticks.
    """
    declarations = declarations_from_assets(assets)
    return sync_sensor(
        declarations, name=name, interval_seconds=interval_seconds, with_physical=False
    )


def tick_summary(events: Sequence[Event], requests: Sequence[PartitionsRequest]) -> str:
    """Return a one-line summary of a tick."""
    if not requests and not events:
        return "Dagster knows every snapshot and tag"
    added, removed = (
        sum(len(request.partition_keys) for request in requests if isinstance(request, kind))
        for kind in (dg.AddDynamicPartitionsRequest, dg.DeleteDynamicPartitionsRequest)
    )
    return f"added {added} partitions, removed {removed}, reported {len(events)} events"


def sync_table(
    context: dg.SensorEvaluationContext,
    declaration: TableDeclaration,
    states: dict[str, dict[str, Any]],
    commits_max: int,
    *,
    with_physical: bool = True,
) -> tuple[list[Event], SyncPlan]:
    """Return the events and partition changes of one table, and store its state in `states`."""
    lsm_resource = context.resources.lsm
    table = lsm_resource.existing_table(declaration.name)
    events: list[Event] = []
    # A table that never existed has nothing to report. One that a tick has seen was dropped, which is reported.
    if table is None and declaration.name not in states:
        return [], SyncPlan()
    seen_commits = states.get(declaration.name, {}).get("commits", {})
    plan = compare_table(context.instance, declaration, table, states, commits_max)
    catalog = lsm_resource.catalog
    if table is not None:
        # The lineage must have the commits of other clients before they expire: their changes are looked up later.
        catalog.record_commits(declaration.name, plan.report_snapshots)
        events += sync_events(context.instance, declaration, table, plan) if with_physical else []
    state = states.setdefault(declaration.name, {})
    # A running run reports the versions of its commits itself, with inputs that the sensor does not know.
    if not plan.is_recording:
        common_id = max(
            (int(key) for key, _ in seen_commits.items() & state["commits"].items()), default=0
        )
        events += version_events(
            context.instance, declaration, table, catalog.lineage, state, common_id
        )
    if table is None:
        del states[declaration.name]
    return events, plan


def compare_table(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    states: dict[str, dict[str, Any]],
    commits_max: int = COMMITS_PER_TABLE_MAX,
) -> SyncPlan:
    """Compare one table with its partitions, and store its tags and commits in `states`. `table` None: it was dropped.

    A tick lists the snapshots and tags of a table, and reads only new snapshots.
    """
    keys = declaration.keys
    known_partitions = set(
        instance.get_dynamic_partitions(partition_set_name(snapshot_partitions(keys)))
    )
    known_tags = instance.get_dynamic_partitions(partition_set_name(tag_partitions(keys)))
    live, tags = (table.snapshot_ids(), table.tag_names()) if table is not None else ([], [])
    state = states.get(declaration.name, {})
    seen_tags, seen_commits = state.get("tags", []), state.get("commits", {})
    # Cursors of earlier versions have other hashes. They are ignored, so that no commit is reported again.
    seen_commits = {
        key: mark for key, mark in seen_commits.items() if len(mark) == COMMIT_HASH_LENGTH
    }
    commits = commit_hashes(table, live[-commits_max:]) if table is not None else {}
    states[declaration.name] = {**state, "tags": tags, "commits": commits}
    fresh = [
        snapshot_id
        for snapshot_id in live
        if snapshot_partition(snapshot_id) not in known_partitions
    ]
    return plan_sync(
        live_ids=live,
        known_partitions=known_partitions,
        unrecorded_ids=unrecorded_snapshots(instance, table, fresh[-EVENTS_MAX:]) if table else (),
        live_tags=tags,
        known_tags=set(known_tags),
        seen_tags=seen_tags,
        replaced_ids=[
            int(key) for key, commit in commits.items() if seen_commits.get(key, commit) != commit
        ],
    )


def commit_hashes(table: lsm.Table, live: Sequence[int]) -> dict[str, str]:
    """Return the hash of each commit by snapshot id."""
    return {
        snapshot_partition(snapshot.id): version_from_snapshot(snapshot).commit_hash
        for snapshot in read_snapshots(table, live)
    }


def unrecorded_snapshots(
    instance: dg.DagsterInstance, table: lsm.Table, fresh: Sequence[int]
) -> set[int]:
    """Return new snapshots of Dagster runs that are still running: the runs record them.

    Dagster may show a killed run as running for ever. After RECORDING_MILLIS_MAX the sensor reports the snapshot.
    """
    snapshot_ids = set()
    for snapshot in read_snapshots(table, fresh):
        run_id = run_id_from_snapshot(snapshot)
        if run_id is None or table.age_millis(snapshot) > RECORDING_MILLIS_MAX:
            continue
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            snapshot_ids.add(snapshot.id)
    return snapshot_ids


def read_snapshots(table: lsm.Table, snapshot_ids: Iterable[int]) -> list[Snapshot]:
    """Return snapshots by id, without those that expire meanwhile."""
    snapshots = []
    for snapshot_id in snapshot_ids:
        with suppress(lsm.NotFoundError, lsm.ExpiredError):
            snapshots.append(table.snapshot(snapshot_id))
    return snapshots


def sync_events(
    instance: dg.DagsterInstance, declaration: TableDeclaration, table: lsm.Table, plan: SyncPlan
) -> list[Event]:
    """Return the events that a Dagster run would have recorded for the commits of a plan."""
    keys = declaration.keys
    fresh = read_snapshots(table, plan.report_snapshots)
    events: list[Event] = []
    for snapshot in fresh:
        events += snapshot_events(table, keys, snapshot, run_id=run_id_from_snapshot(snapshot))
    if fresh:
        events += files_events(instance, declaration, table, fresh[-1])
    for name in plan.report_tags:
        # A tag may be deleted since the plan was made. The next tick removes its partition.
        with suppress(lsm.NotFoundError):
            events.append(tag_event(table, keys, table.tag(name)))
    return events


def partition_requests(declaration: TableDeclaration, plan: SyncPlan) -> list[PartitionsRequest]:
    """Return the requests that add and remove snapshot and tag partitions."""
    snapshots, tags = snapshot_partitions(declaration.keys), tag_partitions(declaration.keys)
    requests: list[PartitionsRequest] = []
    for definition, add, remove in (
        (snapshots, plan.add_snapshots, plan.remove_snapshots),
        (tags, plan.add_tags, plan.remove_tags),
    ):
        if add:
            requests.append(definition.build_add_request(list(add)))
        if remove:
            requests.append(definition.build_delete_request(list(remove)))
    return requests
