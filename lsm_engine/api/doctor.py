"""The doctor: findings about a table or a catalog, each with the command that repairs it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lsm_engine.api.catalog import Catalog, map_tables
from lsm_engine.api.catalog_tables import TOGETHER, NewestState, keep_newest_lists, newest_of
from lsm_engine.api.progress import reported
from lsm_engine.api.table import Table
from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError
from lsm_engine.base.units import parse_age
from lsm_engine.catalog.names import TableName
from lsm_engine.inspect.health import examine, report_of, table_facts, unreadable
from lsm_engine.maintenance.verify_files import Progress
from lsm_engine.planning.health import (
    Depth,
    Finding,
    HealthReport,
    LiveSnapshots,
    Severity,
    TableFacts,
    catalog_findings,
    findings,
    lineage_drift,
    unnameable_findings,
)
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.storage.location import scheme_of

_BEFORE_OLDEST = 100
"""Ids before a table's oldest snapshot that its lineage is asked for: of an expiry that was not recorded."""
_NO_SNAPSHOTS = LiveSnapshots(first=1, newest=0, lists={})
_LookedAt = tuple[str, Mapping[str, LiveSnapshots], tuple[Finding, ...]]
"""A table, the snapshots that it and its branches have (by branch, main is ""), and what is wrong with it."""


def doctor(
    target: Table | Catalog,
    tables: Iterable[str] | None = None,
    *,
    depth: str = "whole",
    stale_after: str = "30 d",
    progress: Progress | bool | None = None,
) -> HealthReport:
    """Return the findings about a table, or about a catalog and its tables.

    `tables`: only these of a catalog, "database.table", and of the catalog only what is about them. `depth`:
    "shallow" reads the newest snapshot of each table, "whole" verifies every root, looks for orphans and
    counts what each tag keeps, "deep" reads every page of every data file too. `stale_after`: the age from
    which idle consumers and branches, and tags without a lifetime, count. `progress(table, how many before)` is called
    for each table; True shows their number in a notebook or a terminal. Nothing is changed, and a damaged table is a finding, not an error.
    """
    chosen, stale_millis = _depth(depth), parse_age(stale_after)
    # A single table has no catalog to compare with.
    if isinstance(target, Table):
        return examine(target.session, chosen, stale_millis=stale_millis)
    if not isinstance(target, Catalog):
        raise InvalidInputError("doctor takes a table, or open_catalog(directory)", given=target)
    registered = target.list_tables()
    directories, unnameable = target.found_and_unnameable()
    names = registered if tables is None else sorted(set(tables))
    for name in set(names) - set(registered) - set(directories):
        # A name that is neither registered nor on the disk is a mistake of the caller.
        target.table(name)  # raises, with what it may have meant
    dropped: set[str] = set()

    def looked_at(state: NewestState) -> _LookedAt:
        name = state.name
        try:
            if state.table is None:
                assert state.problem is not None
                raise state.problem
            # What takes long is not based on what was the newest when the tables were opened.
            newest = state.newest if chosen is Depth.SHALLOW else None
            facts = table_facts(state.table.session, chosen, newest)
            judged = report_of(facts, chosen, stale_millis=stale_millis).findings
            return name, _live_snapshots(facts), judged
        except LsmError as error:
            # A table that was dropped meanwhile is no damage; one that cannot be read is a finding.
            if error.kind in (ErrorKind.NO_SUCH_TABLE, ErrorKind.NO_SUCH_DATABASE):
                dropped.add(name)  # the catalog's names are judged below
                return name, {}, ()
            return name, {}, findings(unreadable(name, error))

    with reported("tables", progress=progress) as report:
        results = [*_reported(_examined(target, looked_at, names), report)]
    live = {
        _recorded_name(name, branch): ids
        for name, ids_by_branch, _ in results
        for branch, ids in ids_by_branch.items()
    }
    # A directory that this user may not list holds tables all the same.
    present = {*directories, *(set(registered).intersection(names) - dropped)}
    differs = [
        finding
        for finding in _drift(target, registered, present, live)
        if tables is None or finding.table in names
    ]
    if tables is None:
        differs += unnameable_findings(unnameable, can_move=scheme_of(target.warehouse) is None)
    of_tables = [finding for *_, table_findings in results for finding in table_findings]
    shown = (*_once_readable(differs, of_tables), *of_tables)
    return HealthReport(findings=shown, table_count=len(names), depth=chosen)


def _once_readable(differs: Iterable[Finding], of_tables: Iterable[Finding]) -> Iterator[Finding]:
    """Leave out the advice to rebuild the lineage of damaged tables: a rebuild reads all of their snapshots."""
    torn = {
        finding.table
        for finding in of_tables
        if finding.kind == "damage" and finding.severity is Severity.ERROR
    }
    return (
        finding
        for finding in differs
        if "rebuild" not in finding.command or finding.table not in torn
    )


def _reported(results: Iterable[_LookedAt], progress: Progress | None) -> Iterator[_LookedAt]:
    for position, result in enumerate(results):
        yield result
        if progress is not None:
            progress(result[0], position)


def _depth(text: str) -> Depth:
    try:
        return Depth[text.upper()]
    except KeyError:  # the error lists the depths that exist
        names = ", ".join(depth.name.lower() for depth in Depth)
        raise InvalidInputError(f"a depth is one of {names}, not {text!r}", depth=text) from None


def _examined(
    catalog: Catalog, work: Callable[[NewestState], _LookedAt], names: Sequence[str]
) -> Iterator[_LookedAt]:
    # In a store the requests of several tables run concurrently; on a disk decoding together is what saves time.
    if scheme_of(catalog.warehouse) is not None:
        yield from map_tables(
            catalog.warehouse, lambda name: work(catalog.newest_state(name)), names
        )
        return
    for start in range(0, len(names), TOGETHER):
        states = list(catalog.newest_states(names[start : start + TOGETHER]))
        keep_newest_lists(newest_of(states))
        yield from map(work, states)


def _live_snapshots(facts: TableFacts) -> Mapping[str, LiveSnapshots]:
    # Without a snapshot only branches have history.
    if facts.newest_id is None or not facts.snapshot_count:
        return facts.branch_snapshots
    first = facts.newest_id - facts.snapshot_count + 1
    main = LiveSnapshots(first=first, newest=facts.newest_id, lists=facts.delta_lists)
    return {"": main, **facts.branch_snapshots}


def _recorded_name(name: str, branch: str) -> TableName:
    return replace(TableName.parse(name), branch=branch or MAIN_BRANCH)


def _shown_name(name: TableName) -> tuple[str, str]:
    branch = "" if name.branch == MAIN_BRANCH else name.branch
    return f"{name.database}.{name.table}", branch


def _drift(
    catalog: Catalog,
    registered: Sequence[str],
    present: Collection[str],
    live: Mapping[TableName, LiveSnapshots],
) -> Iterator[Finding]:
    """Yield the differences between the catalog and the warehouse; a catalog in memory has none."""
    # A catalog in memory was made from the warehouse a moment ago.
    if catalog.is_in_memory:
        return
    since = {name: snapshots.first - _BEFORE_OLDEST for name, snapshots in live.items()}
    recorded = catalog.lineage.live_recorded(since)
    drifts = {
        name: drift
        for name in {**recorded, **live}  # of deleted branches too
        if (drift := lineage_drift(recorded.get(name, {}), live.get(name, _NO_SNAPSHOTS)))
    }

    def looked_again(name: TableName) -> tuple[int, ...]:
        return _still_there(catalog, name, recorded.get(name, {}), drifts[name])

    # The table and its lineage were read one after the other: a commit between them looks like a drift.
    again = dict(
        zip(drifts, map_tables(catalog.warehouse, looked_again, list(drifts)), strict=True)
    )
    lasting = {_shown_name(name): drift for name, drift in again.items() if drift}
    yield from catalog_findings(registered, present, lasting)


def _still_there(
    catalog: Catalog, name: TableName, recorded: Mapping[int, str], drift: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the drift without commits and expiries between the reads of a table and of its lineage."""
    try:
        shown, branch = _shown_name(name)
        table = catalog.table_in_warehouse(shown)
        # All that is recorded of a deleted branch is surplus.
        if branch and branch not in table.branches():
            return drift
        session = table.branch(branch).session if branch else table.session
        stored = {number: session.snapshots.find(number) for number in drift}
    except LsmError:
        return ()  # a finding of its own, or dropped meanwhile
    return tuple(
        number
        for number, snapshot in stored.items()
        if snapshot is None or snapshot.delta_manifest_list != recorded[number]
    )
