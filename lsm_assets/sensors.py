"""The sensors of a set of tables."""

import base64
import json
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import dagster as dg

import lsm_engine as lsm
from lsm_assets.checks import (
    files_events,
    freshness_evaluations,
    freshness_specs,
    renewed_evaluations,
    table_readers,
)
from lsm_assets.commits import EMPTY_VERSION, data_version, is_rolled_back
from lsm_assets.dagster_core import RUN_KEY_TAG, failed_attempts, report_evaluation
from lsm_assets.declaration import TableDeclaration
from lsm_assets.keys import (
    ICEBERG,
    AssetKind,
    TableKeys,
    parse_snapshot_partition,
    partition_set_name,
    snapshot_partition,
    snapshot_partitions,
    sorted_snapshot_partitions,
    table_keys,
    tag_partitions,
)
from lsm_assets.metadata import REASON_TAG, counted
from lsm_assets.partitions import (
    changed_versions_since,
    empty_partitions,
    recorded_partitions,
)
from lsm_assets.recording import (
    iceberg_events,
    in_reading_order,
    inherited_tags,
    recorded_version,
    recorded_versions,
    run_id_from_snapshot,
    snapshot_events,
    table_event,
    tag_event,
)
from lsm_assets.resource import now_seconds
from lsm_assets.settings import current_settings, is_server
from lsm_assets.staleness import changed_evaluations
from lsm_assets.storage import declarations_from_assets
from lsm_assets.versions import (
    COMMIT_HASH_LENGTH,
    TableVersion,
    parse_version,
    version_from_manifest,
    version_from_snapshot,
)
from lsm_engine import Lineage, LsmError, Snapshot, record

# -- Plan what to report to Dagster about commits of other clients ---------------------------------

EVENTS_MAX = 20
"""Snapshots per table and tick that get events: reporting one takes about 0.1 s."""


@record
class SyncPlan:
    """Partitions to add and to remove, and snapshots (ids, oldest first) and tags to report.

    `is_recording`: a running Dagster run has committed and still records. It reports the table's version itself, once
    all of its commits are there.
    """

    add_snapshots: tuple[str, ...] = ()
    remove_snapshots: tuple[str, ...] = ()
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    report_snapshots: tuple[int, ...] = ()
    report_tags: tuple[str, ...] = ()
    is_recording: bool = False


@record
class LiveReferences:
    """The live snapshots of a table, oldest first, and its tags."""

    snapshot_ids: Sequence[int]
    tags: Sequence[str] = ()


@record
class KnownPartitions:
    """The snapshot partitions and the tag partitions that Dagster has for a table."""

    snapshots: Collection[str]
    tags: Collection[str] = ()


@record
class RunCommits:
    """New snapshots that Dagster runs have committed, by what the runs have done about them.

    Attributes:
        recording: Their run still records: it may commit more before readers should look.
        recorded: Their run has recorded them.
        abandoned: Their run has ended, or died, before it recorded them.
    """

    recording: frozenset[int] = frozenset()
    recorded: frozenset[int] = frozenset()
    abandoned: frozenset[int] = frozenset()


def plan_sync(
    live: LiveReferences,
    partitions: KnownPartitions,
    *,
    runs: RunCommits | None = None,
    seen_tags: Collection[str] = (),
    replaced_ids: Collection[int] = (),
    events_max: int = EVENTS_MAX,
) -> SyncPlan:
    """Compare a table with the partitions that Dagster has for it.

    Read `partitions` before `live`. A commit between the two reads is then new; in the other order it would look expired.

    Args:
        live: Snapshots and tags of the table.
        partitions: Partitions in Dagster.
        runs: Snapshots that Dagster runs have committed.
        seen_tags: Tags that an earlier tick has seen.
        replaced_ids: Snapshots whose id names another commit since a rollback. They are reported again.
        events_max: Newest snapshots, and tags, that get events.
    """
    live_keys = [snapshot_partition(snapshot_id) for snapshot_id in live.snapshot_ids]
    fresh = [
        snapshot_id
        for snapshot_id in live.snapshot_ids
        if snapshot_partition(snapshot_id) not in partitions.snapshots
    ]
    runs = runs or RunCommits()
    fresh = [snapshot_id for snapshot_id in fresh if snapshot_id not in runs.recording]
    to_report = sorted(({*fresh, *replaced_ids} | runs.abandoned) - runs.recording - runs.recorded)
    expired_keys = set(partitions.snapshots) - set(live_keys)
    new_tags = [name for name in live.tags if name not in partitions.tags]
    # Users add the partition first and then materialise it. A tag that no tick has seen may still be created.
    dead_tags = (set(seen_tags) - set(live.tags)) & set(partitions.tags)
    return SyncPlan(
        add_snapshots=tuple(snapshot_partition(snapshot_id) for snapshot_id in fresh),
        remove_snapshots=tuple(
            sorted_snapshot_partitions(
                key for key in expired_keys if parse_snapshot_partition(key) is not None
            )
        ),
        add_tags=tuple(new_tags),
        remove_tags=tuple(sorted(dead_tags)),
        report_snapshots=tuple(to_report[-events_max:]) if events_max else (),
        report_tags=tuple(new_tags[-events_max:]) if events_max else (),
        is_recording=bool(runs.recording),
    )


# -- Automation conditions for assets that are fed from tables -------------------------------------


def eager_with_compactions(*upstream: dg.AssetKey) -> dg.AutomationCondition:
    """Return `eager` with runs after compactions of upstream tables.

    With the changelog producers `lookup` and `full-compaction` a compaction emits changes of rows that have been
    committed before. It does not change the data version, so that `eager` alone does not request a run.

    `upstream` are the asset keys of these tables.
    """
    condition = dg.AutomationCondition.eager()
    idle = ~dg.AutomationCondition.in_progress()
    for key in upstream:
        compacted: Any = dg.AutomationCondition.asset_matches(
            table_keys(key).asset(AssetKind.COMPACTION), dg.AutomationCondition.newly_updated()
        )
        condition |= compacted.since_last_handled() & idle
    return condition


# -- Cursors of sensors over many tables -----------------------------------------------------------
#
# The state of each table, and the table with which the next tick begins.

TICK_SECONDS = 0.6
"""Seconds that a tick spends on many tables. The next tick goes on with the others."""
FEW_TABLES, FEW_SECONDS = 20, 20.0
"""Up to FEW_TABLES tables are all evaluated in each tick, within FEW_SECONDS.

Dagster ends a tick after 60 s, and its results are lost.
"""
UNCOMPRESSED_MAX = 4_000
"""Longer cursors (characters) are compressed, because Dagster stores the cursor with each tick."""

_POSITION, _PACKED = "", "z:"
_INPUTS = "$inputs"
"""The key of the cursor for all readers: the newest event of each at which its inputs were compared."""
_DUE = "$due"
"""The key of the cursor for partitions by time that have become due, by table."""
_ALL_TABLES = "$all"
"""The key of the cursor for the time at which all tables were looked at, where a server is asked for the new ones."""
_NAMES_MAX = 20
T = TypeVar("T")


def read_cursor(text: str | None) -> dict[str, dict[str, Any]]:
    """Return the states by table of a cursor; empty for the first tick and for a cursor that cannot be read."""
    try:
        if text and text.startswith(_PACKED):
            text = zlib.decompress(base64.b85decode(text.removeprefix(_PACKED))).decode()
        states = json.loads(text) if text else {}
    except (ValueError, zlib.error):
        # Another version or a user may have written it. An empty state only costs another evaluation of each table.
        return {}
    if not isinstance(states, dict):
        return {}
    return {str(name): state for name, state in states.items() if isinstance(state, dict)}


def write_cursor(states: Mapping[str, Mapping[str, Any]]) -> str:
    """Return states as a cursor. The same states give the same cursor."""
    text = json.dumps(states, sort_keys=True, separators=(",", ":"))
    if len(text) <= UNCOMPRESSED_MAX:
        return text
    return _PACKED + base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def tables_in_turn(
    declarations: Sequence[TableDeclaration],
    states: dict[str, dict[str, Any]],
    *,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[TableDeclaration]:
    """Yield tables in a round-robin order, beginning where the last tick stopped. At least one is yielded.

    Args:
        declarations: All tables of the sensor.
        states: States of the cursor. The first table of the next tick is stored in it, and states of tables that are
            no longer declared are deleted.
        seconds: Time after which no further table is yielded; None for the default.
        clock: Clock in seconds.
    """
    if seconds is None:
        seconds = FEW_SECONDS if len(declarations) <= FEW_TABLES else TICK_SECONDS
    names = [declaration.name for declaration in declarations]
    first = states.pop(_POSITION, {}).get("next")
    for dropped in states.keys() - {_INPUTS, _DUE, _ALL_TABLES, *names}:
        del states[dropped]
    start = names.index(first) if first in names else 0
    deadline = clock() + seconds
    for number in range(len(names)):
        index = (start + number) % len(names)
        if number and clock() >= deadline:
            states[_POSITION] = {"next": names[index]}
            return
        yield declarations[index]


def failure_message(
    failed: Mapping[str, Exception], looked_at: int, states: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return a message with the tables that a tick could not read; "" if it read all.

    Raises the first error if the tick covered all tables and could read none. A failed tick keeps neither the cursor
    nor events, so that it may fail only if it has nothing to store.
    """
    if failed and len(failed) == looked_at and _POSITION not in states:
        raise next(iter(failed.values()))
    names, hidden_count = ", ".join(list(failed)[:_NAMES_MAX]), len(failed) - _NAMES_MAX
    return (
        f"cannot look at {names}{f' and {hidden_count} more' if hidden_count > 0 else ''}"
        if failed
        else ""
    )


def tick_interval(declarations: Sequence[T], seconds: int) -> int:
    """Return the seconds between ticks. Sensors over more than 80 tables tick more often, so that turns come sooner."""
    return max(5, seconds * 80 // max(80, len(declarations)))


# -- Version events --------------------------------------------------------------------------------
#
# Events for data versions, of a table and of its asset's partitions, that other clients have
# changed.


def version_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    state: dict[str, Any],
    common_id: int = 0,
) -> list[dg.AssetMaterialization]:
    """Return events for the data versions that Dagster has not recorded.

    Commits of other clients change versions, and so do a rollback, a fast-forward, a restore and a dropped or created
    table. Partitions get an event if a commit has changed their rows, or if their recorded commit was rolled back.

    Args:
        instance: Dagster instance.
        declaration: Declaration of the table.
        table: The table; None if it was dropped.
        lineage: Lineage of the catalog.
        state: State of the sensor's cursor: the last seen data version, and the commit at which it was seen.
        common_id: A snapshot that an earlier tick has seen and that was not rolled back; 0 if none is known.
    """
    seen_version, seen_commit = (
        parse_version(state.get(name, "")) for name in ("version", "looked")
    )
    newest = table.latest_snapshot() if table is not None else None
    last_look = (
        (seen_commit, seen_version)
        if seen_commit is not None and seen_version is not None
        else None
    )
    version = EMPTY_VERSION if table is None else data_version(table, lineage, last_look)
    state["version"] = version.text
    state["looked"] = EMPTY_VERSION.text if newest is None else version_from_snapshot(newest).text
    key = declaration.keys.asset(AssetKind.TABLE)
    recorded = recorded_version(instance, key) or EMPTY_VERSION
    if recorded.is_same(version) and seen_version == version:
        return []
    # A snapshot after the last seen commit proves nothing about commits before it.
    common_id = common_id if seen_commit is not None and common_id <= seen_commit.snapshot_id else 0
    # Commits before a live commit are live, too: recorded versions up to `common_id` need no check.
    if seen_version is not None and not is_rolled_back(table, lineage, seen_version):
        common_id = seen_version.snapshot_id
    new_versions = _changed_partition_versions(
        instance, declaration, table, lineage, version, common_id
    )
    empty = empty_partitions(instance, declaration, table, new_versions)
    ordered = in_reading_order(new_versions)
    events = [
        table_event(
            declaration,
            table,
            partition_version,
            partition=name,
            tags=inherited_tags(instance, declaration, name),
            is_empty=name in empty,
        )
        for name, partition_version in ordered
    ]
    last = ordered[-1][1] if ordered else recorded
    if not last.is_same(version):
        tags = inherited_tags(instance, declaration)
        events.append(table_event(declaration, table, version, tags=tags))
    return events


def _changed_partition_versions(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table | None,
    lineage: Lineage,
    version: TableVersion,
    common_id: int,
) -> dict[str, TableVersion]:
    """Return the new versions of partitions; recorded ones up to `common_id` were not rolled back."""
    recorded = recorded_partitions(instance, declaration)
    rolled_back = {
        name: version
        for name, partition_version in recorded.items()
        if partition_version.snapshot_id > common_id
        and is_rolled_back(table, lineage, partition_version)
    }
    if table is None:
        return rolled_back
    remaining = {
        name: partition_version
        for name, partition_version in recorded.items()
        if name not in rolled_back
    }
    start = common_id or min(
        (partition_version.snapshot_id for partition_version in remaining.values()), default=0
    )
    return (
        changed_versions_since(instance, declaration, table, lineage, remaining, start)
        | rolled_back
    )


# -- The sync sensor -------------------------------------------------------------------------------
#
# Reports commits and tags of other clients to Dagster, and removes partitions of expired
# snapshots.

INTERVAL_SECONDS = 30
HEARING_SECONDS = 5
"""Seconds between questions to a server for new commits: the daemon evaluates sensors no more often."""
SILENCE_SECONDS_MAX = 6 * 60 * 60
"""Seconds without an event after which a run counts as dead, although Dagster shows it as running."""
RENEWAL_WAIT = 50
"""Seconds that failed checks wait for each second that evaluating them again has taken."""
UNSETTLED_MAX = 100
"""Newest snapshots of a table of which a tick asks whether Dagster runs have committed and recorded them."""
_STEP_EVENTS = {
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.STEP_SUCCESS,
    dg.DagsterEventType.STEP_FAILURE,
}
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
    snapshots get events, older ones only partitions. Where LSM_CATALOG_URL is the address of `lsm serve`, a tick every
    HEARING_SECONDS asks it which tables have new commits, and looks at those alone.

    Args:
        declarations: Tables of the sensor.
        name: Name of the sensor.
        interval_seconds: Least seconds between looks at all tables.
        with_physical: Whether the tables have assets for their snapshots, files and tags.
    """

    commits_max = max(2, min(COMMITS_PER_TABLE_MAX, COMMITS_MAX // max(1, len(declarations))))
    # Tables of the I/O manager have no checks: `reader_definitions` makes them.
    readers = table_readers(declarations) if with_physical else []

    interval = tick_interval(declarations, interval_seconds)
    may_hear = is_server(current_settings().catalog_url)

    @dg.sensor(
        name=name,
        minimum_interval_seconds=min(interval, HEARING_SECONDS) if may_hear else interval,
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
        turn = tables_in_turn(declarations, states)
        hears = is_server(context.resources.lsm.catalog_url)
        if hears:
            newest = newest_versions(context.resources.lsm.catalog.lineage)
            turn = tables_heard_of(declarations, states, newest, interval=interval)
        for declaration in turn:
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
            if with_physical and freshness_specs(declaration):
                state = states.setdefault(_DUE, {}).setdefault(declaration.name, {})
                events += freshness_evaluations(context.instance, declaration, state)
            requests += partition_requests(declaration, plan)
        if hears and not looked_at:
            return dg.SensorResult(
                skip_reason=dg.SkipReason("the server has heard of no commit"),
                cursor=context.cursor,
            )
        if readers:
            events += changed_evaluations(context.instance, readers, states.setdefault(_INPUTS, {}))
        messages = (tick_summary(events, requests), failure_message(failed, looked_at, states))
        return dg.SensorResult(
            skip_reason=dg.SkipReason("; ".join(filter(None, messages))),
            asset_events=events,
            dynamic_partitions_requests=requests,
            cursor=write_cursor(states),
        )

    return sensor


def newest_versions(lineage: Lineage) -> dict[str, str]:
    """Return the newest recorded commit of each table, by name, as the version of the table."""
    newest = lineage.as_recorded().newest_recorded()
    return {name.text: version_from_manifest(*commit).text for name, commit in newest.items()}


def tables_heard_of(
    declarations: Sequence[TableDeclaration],
    states: dict[str, dict[str, Any]],
    newest: Mapping[str, str],
    *,
    interval: float,
) -> Iterator[TableDeclaration]:
    """Yield the tables whose newest commit no tick has looked at, and once an interval all tables, in their turns.

    Args:
        declarations: All tables of the sensor.
        states: States of the cursor.
        newest: The newest commit of each table that the server has recorded.
        interval: Seconds between looks at all tables: commits may also be made beside the server.
    """
    now, deadline = now_seconds(), time.monotonic() + FEW_SECONDS
    is_due = now >= states.get(_ALL_TABLES, {}).get("looked", 0) + interval
    fresh = [
        declaration
        for declaration in declarations
        if newest.get(declaration.name, EMPTY_VERSION.text)
        != states.get(declaration.name, {}).get("looked", EMPTY_VERSION.text)
    ]
    for declaration in fresh:
        if time.monotonic() < deadline:
            yield declaration
    if is_due:
        states[_ALL_TABLES] = {"looked": int(now)}
        yield from (
            declaration
            for declaration in tables_in_turn(declarations, states)
            if declaration not in fresh
        )


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
    return f"added {counted(added, 'partition')}, removed {removed}, reported {counted(len(events), 'event')}"


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
        catalog.sync_lineage([declaration.name])
        events += sync_events(context.instance, declaration, table, plan) if with_physical else []
    state = states.setdefault(declaration.name, {})
    # A running run reports the versions of its commits itself, with inputs that the sensor does not know.
    if not plan.is_recording:
        common_id = max(
            (int(key) for key, _ in seen_commits.items() & state["commits"].items()), default=0
        )
        before = dict(state)
        moved = version_events(
            context.instance, declaration, table, catalog.lineage, state, common_id
        )
        # A run may have committed since the plan was made. The versions may show half of its commits, or be older than
        # what it has recorded.
        if moved and _has_committed(table, state["settled"]):
            states[declaration.name] = before
        else:
            events += moved
    if table is not None and not plan.is_recording:
        events += _iceberg_events(context.instance, declaration, table, catalog.lineage, state)
    if table is None:
        del states[declaration.name]
    elif with_physical:
        events += _renewed_checks(context.instance, declaration, table, state)
    return events, plan


def _iceberg_events(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    lineage: Lineage,
    state: dict[str, Any],
) -> list[dg.AssetMaterialization]:
    """Return the event of the table's Iceberg metadata. Metadata that shows all of the newest commit is read once."""
    newest = table.latest_snapshot()
    version = EMPTY_VERSION if newest is None else version_from_snapshot(newest)
    look = f"{version.text} {table.schema.id}"  # by another schema the option may be gone
    if ICEBERG not in declaration.views or state.get("iceberg") == look:
        return []
    shown = table.inspect.iceberg()
    if not (shown.lag or shown.hidden_files or shown.problem):
        state["iceberg"] = look
    return iceberg_events(instance, declaration, table, lineage, shown)


def _renewed_checks(
    instance: dg.DagsterInstance,
    declaration: TableDeclaration,
    table: lsm.Table,
    state: dict[str, Any],
) -> list[Event]:
    """Return failed checks that pass by now, or that events have hidden. The wait grows with their cost."""
    start = now_seconds()
    if start < state.get("checks_due", 0):
        return []
    evaluations: list[Event] = []
    for evaluation, before in renewed_evaluations(instance, declaration, table):
        if evaluation.partition is None:
            evaluations.append(evaluation)
        else:
            report_evaluation(instance, evaluation, before.run_id)
    spent = now_seconds() - start
    # A quick look is repeated by every tick, and leaves the cursor as it is.
    if spent > 1:
        state["checks_due"] = int(start + spent * RENEWAL_WAIT)
    return evaluations


def _has_committed(table: lsm.Table | None, after: int) -> bool:
    """Whether a Dagster run has committed after a snapshot."""
    if table is None:
        return False
    new_ids = [number for number in table.snapshot_ids() if number > after][-UNSETTLED_MAX:]
    return any(map(run_id_from_snapshot, read_snapshots(table, new_ids)))


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
    # A run may have recorded a commit that was rolled back before any tick has seen it.
    unseen = [key for key in commits if key not in seen_commits and key in known_partitions]
    snapshots_key = keys.asset(AssetKind.SNAPSHOTS)
    recorded = recorded_versions(instance, snapshots_key, unseen) if unseen else {}
    seen_commits |= {
        key: version.commit_hash for key, version in recorded.items() if version.commit_hash
    }
    replaced_ids = [
        int(key) for key, commit in commits.items() if seen_commits.get(key, commit) != commit
    ]
    settled = min([state.get("settled", 0), *(number - 1 for number in replaced_ids), *live[-1:]])
    unsettled = [number for number in live if number > settled][-UNSETTLED_MAX:]
    runs = run_commits(instance, keys, table, unsettled) if table is not None else RunCommits()
    # A run that was killed has made the tag, or has not; without tags nothing is to be asked.
    failed_tags = failed_attempts(instance, keys.asset(AssetKind.TAGS)) if known_tags else set()
    states[declaration.name] = {
        **state,
        "tags": tags,
        "commits": commits,
        "settled": min(runs.recording, default=max(live, default=0) + 1) - 1,
    }
    return plan_sync(
        LiveReferences(snapshot_ids=live, tags=tags),
        KnownPartitions(
            snapshots=known_partitions, tags=set(known_tags) - failed_tags.intersection(tags)
        ),
        runs=runs,
        seen_tags={*seen_tags, *failed_tags},
        replaced_ids=replaced_ids,
    )


def commit_hashes(table: lsm.Table, live: Sequence[int]) -> dict[str, str]:
    """Return the hash of each commit by snapshot id."""
    return {
        snapshot_partition(snapshot.id): version_from_snapshot(snapshot).commit_hash
        for snapshot in read_snapshots(table, live)
    }


def run_commits(
    instance: dg.DagsterInstance, keys: TableKeys, table: lsm.Table, snapshot_ids: Sequence[int]
) -> RunCommits:
    """Return the snapshots among `snapshot_ids` that Dagster runs have committed."""
    committed = [
        (snapshot, run_id)
        for snapshot in read_snapshots(table, snapshot_ids)
        if (run_id := run_id_from_snapshot(snapshot)) is not None
    ]
    run_ids = {run_id for _, run_id in committed}
    busy = {run_id for run_id in run_ids if is_recording(instance, keys, run_id)}
    recording = {snapshot.id for snapshot, run_id in committed if run_id in busy}
    ended = {
        snapshot_partition(snapshot.id): version_from_snapshot(snapshot)
        for snapshot, run_id in committed
        if run_id not in busy
    }
    # Looked up after the runs: a run that has ended in between has recorded its commits by then.
    key = keys.asset(AssetKind.SNAPSHOTS)
    versions = recorded_versions(instance, key, list(ended)) if ended else {}
    recorded = {
        version.snapshot_id
        for name, version in ended.items()
        if name in versions and versions[name].is_same(version)
    }
    return RunCommits(
        recording=frozenset(recording),
        recorded=frozenset(recorded),
        abandoned=frozenset(version.snapshot_id for version in ended.values()) - recorded,
    )


def is_recording(instance: dg.DagsterInstance, keys: TableKeys, run_id: str) -> bool:
    """Whether a run may still commit to a table, or record what it has committed.

    It may until its steps for the assets of the table have ended, and if it has none, until the run has. Dagster may
    show a killed run as running for ever: after SILENCE_SECONDS_MAX without an event it counts as dead.
    """
    run = instance.get_run_by_id(run_id)
    if run is None or run.is_finished:
        return False
    newest_event = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    if newest_event and now_seconds() - newest_event[0].timestamp > SILENCE_SECONDS_MAX:
        return False
    assets = {keys.asset(kind) for kind in AssetKind}
    planned, ended = set(), set()
    for entry in instance.all_logs(run_id, of_type=_STEP_EVENTS):
        event = entry.dagster_event
        if event is None:
            continue
        if event.event_type is not dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
            ended.add(event.step_key)
        elif event.asset_key in assets:
            planned.add(event.step_key)
    return not planned or not planned <= ended


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
        # A snapshot of a run is reported here only if the run has ended without recording it.
        run_id = run_id_from_snapshot(snapshot)
        events += snapshot_events(
            table, keys, snapshot, run_id=run_id, is_abandoned=run_id is not None
        )
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


# -- The sensor that requests compactions ----------------------------------------------------------
#
# One run per table and commit, and retries of failed runs.

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 5 * 60, 6 * 60 * 60
"""Wait before a failed run is requested again. It doubles with each attempt."""
_MESSAGES_MAX = 20


def compaction_sensor(
    declarations: Sequence[TableDeclaration],
    *,
    name: str = "lsm_compaction",
    interval_seconds: int = INTERVAL_SECONDS,
) -> dg.SensorDefinition:
    """Return the sensor that requests compactions of tables with due buckets.

    The run key contains the version of the table's newest commit, so that two ticks over one state make one run. The
    cursor has the last evaluated commit: a table without a new commit costs one read of its newest snapshot. A failed
    run is requested again after a growing wait; the tick and the run's reason say so. Many tables take turns
    (`tables_in_turn`).
    """
    keys = [declaration.keys.asset(AssetKind.COMPACTION) for declaration in declarations]

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(*keys),
        minimum_interval_seconds=tick_interval(declarations, interval_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"lsm"},
        description="Compacts tables whose buckets have gathered too many sorted runs.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        states = read_cursor(context.cursor)
        failed: dict[str, Exception] = {}
        requests: list[dg.RunRequest] = []
        waiting: list[str] = []
        looked_at = 0
        for declaration in tables_in_turn(declarations, states):
            looked_at += 1
            try:
                result = _next_request(context, declaration, states)
            except Exception as error:
                # A damaged table must not stop the compaction of the others.
                is_bug = not isinstance(error, LsmError)
                context.log.error("cannot look at %s: %s", declaration.name, error, exc_info=is_bug)
                failed[declaration.name] = error
                continue
            if isinstance(result, dg.RunRequest):
                requests.append(result)
            elif result:
                waiting.append(result)
        messages = [
            message
            for message in (failure_message(failed, looked_at, states), *waiting[:_MESSAGES_MAX])
            if message
        ]
        reason = dg.SkipReason("; ".join(messages) or "every bucket is in shape")
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else reason,
            cursor=write_cursor(states),
        )

    return sensor


def _next_request(
    context: dg.SensorEvaluationContext,
    declaration: TableDeclaration,
    states: dict[str, dict[str, Any]],
) -> dg.RunRequest | str | None:
    """Return the run to request, a message if a failed run waits for its retry, or None if nothing is due."""
    table = context.resources.lsm.existing_table(declaration.name)
    newest = table.latest_snapshot() if table is not None else None
    if table is None or newest is None:
        return None
    version, state = version_from_snapshot(newest).text, states.get(declaration.name, {})
    key, attempts = f"compact-{declaration.name}-{version}", 0
    if state.get("snapshot") == version:
        attempts = state.get("asked", 0)
        # This state was evaluated before. Only a run that was requested and has failed is requested again.
        ended = _failure_time(context.instance, _run_key(key, attempts)) if attempts else None
        if ended is None:
            return None
        retry_seconds = ended + min(
            FIRST_WAIT_SECONDS << min(attempts - 1, 20), LONGEST_WAIT_SECONDS
        )
        if now_seconds() < retry_seconds:
            retry_time = f"{datetime.fromtimestamp(retry_seconds, UTC):%H:%M} UTC"
            return f"the compaction of {declaration.name} has failed, and is asked for again at {retry_time}"
    compactable = [bucket for bucket in table.pressure() if bucket.compactable]
    # The state is stored after the reads: if one fails, the next tick evaluates the table again.
    states[declaration.name] = {
        "snapshot": version,
        **({"asked": attempts + 1} if compactable else {}),
    }
    if not compactable:
        return None
    retry_note = f", asked for again: the last {attempts} failed" if attempts else ""
    reason = f"{compactable[0].reason} ({counted(len(compactable), 'bucket')} due{retry_note})"
    return dg.RunRequest(
        run_key=_run_key(key, attempts + 1),
        asset_selection=[declaration.keys.asset(AssetKind.COMPACTION)],
        tags={REASON_TAG: reason, "lsm/table": declaration.keys.identifier},
    )


def _run_key(key: str, number: int) -> str:
    return key if number == 1 else f"{key}-{number}"


def _failure_time(instance: dg.DagsterInstance, run_key: str) -> float | None:
    """Return when the run of a key failed, in seconds since 1970; None if it has not failed.

    Retries of a run have its tags, so that the newest run decides.
    """
    run_filter = dg.RunsFilter(tags={RUN_KEY_TAG: run_key})
    for run_record in instance.get_run_records(run_filter, limit=1):
        if run_record.dagster_run.status is dg.DagsterRunStatus.FAILURE:
            return run_record.end_time or run_record.update_timestamp.timestamp()
    return None


# -- The sensors of a set of tables ----------------------------------------------------------------


def table_sensors(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> list[dg.SensorDefinition]:
    """Return the three sensors of a set of tables: automation, compaction and sync."""
    watched = [
        declaration.keys.asset(kind)
        for declaration in declarations
        # Not the assets partitioned by snapshot: expiry deletes their partitions, which breaks the
        # automation pages of everything downstream of a condition on them.
        for kind in (AssetKind.TABLE, AssetKind.FILES, AssetKind.COMPACTION)
    ]
    automation = dg.AutomationConditionSensorDefinition(
        name=f"{prefix}_automation",
        target=dg.AssetSelection.assets(*watched),
        # The default automation sensor of Dagster starts stopped.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Acts on the automation conditions of tables and their compactions.",
    )
    return [
        automation,
        compaction_sensor(declarations, name=f"{prefix}_compaction"),
        sync_sensor(declarations, name=f"{prefix}_sync"),
    ]
