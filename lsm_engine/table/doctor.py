"""The doctor: what is wrong with a table, a database or a whole warehouse, and the commands that mend it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError
from lsm_engine.base.units import parse_age
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.plan.diagnosis import catalog_findings
from lsm_engine.plan.health import Depth, Finding, HealthReport, Severity
from lsm_engine.table.inspect.health import examine
from lsm_engine.table.table import Table
from lsm_engine.table.warehouse import Catalog

_IN_FLIGHT = 16
"""Tables of an object store that are looked at together: most of the time is spent on waiting."""
_LookedAt = tuple[str, int | None, tuple[Finding, ...]]


def doctor(
    target: Table | Catalog,
    tables: Iterable[str] | None = None,
    *,
    depth: str = "whole",
    stale_after: str = "30 d",
    progress: Callable[[str, int], None] | None = None,
) -> HealthReport:
    """Return what is wrong with a table, or with the tables of a catalog and the catalog itself.

    `tables`: only these of a catalog, "database.table", and of the catalog only what is about them. `depth`:
    "shallow" reads the newest snapshot of each table, "whole" verifies every root, looks for orphans and
    counts what each tag keeps, "deep" reads every page of every data file too. `stale_after`: the age from
    which idle consumers and branches, and tags without a lifetime, count. `progress(table, how many before)` is called
    for each table. Nothing is changed, and a damaged table is a finding, not an error.
    """
    chosen, stale_millis = _depth(depth), parse_age(stale_after)
    if isinstance(target, Table):
        return examine(target.session, chosen, stale_millis=stale_millis)
    known = target.list_tables()
    found = target.found_tables()
    names = known if tables is None else sorted(set(tables))
    for name in set(names) - set(known) - set(found):
        target.table(name)  # raises, with what it may have meant

    def looked_at(name: str) -> _LookedAt:
        try:
            session = target.table_in_warehouse(name).session
            found = examine(session, chosen, stale_millis=stale_millis).findings
            return name, session.snapshots.latest_id(), found
        except LsmError as error:
            if error.kind in (ErrorKind.NO_SUCH_TABLE, ErrorKind.NO_SUCH_DATABASE):
                return name, None, ()  # the catalog's names are judged below
            return name, None, (_unreadable(name, error),)

    results = []
    for at, result in enumerate(_mapped(target, looked_at, names)):
        results.append(result)
        if progress is not None:
            progress(result[0], at)
    newest = {name: latest for name, latest, _ in results}
    differs = [
        one for one in _drift(target, known, found, newest) if tables is None or one.table in names
    ]
    of_tables = [one for *_, some in results for one in some]
    return HealthReport(findings=(*differs, *of_tables), table_count=len(names), depth=chosen)


def _depth(text: str) -> Depth:
    try:
        return Depth[text.upper()]
    except KeyError:
        known = ", ".join(one.name.lower() for one in Depth)
        raise InvalidInputError(f"a depth is one of {known}, not {text!r}", depth=text) from None


def _unreadable(name: str, error: LsmError) -> Finding:
    return Finding(
        table=name,
        kind="damage",
        severity=Severity.ERROR,
        what=error.message,
        cost="it cannot be opened"
        + "".join(f"; {key}: {fact}" for key, fact in error.facts.items()),
    )


def _mapped(
    catalog: Catalog, work: Callable[[str], _LookedAt], names: Sequence[str]
) -> Iterator[_LookedAt]:
    if scheme_of(catalog.warehouse) is None:  # on a disk, threads would only wait for each other
        yield from map(work, names)
        return
    with ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="lsm-doctor") as pool:
        yield from pool.map(work, names)


def _drift(
    catalog: Catalog, known: Sequence[str], found: Sequence[str], newest: Mapping[str, int | None]
) -> Iterator[Finding]:
    """Yield where the catalog and the warehouse differ; nowhere if it was made of what is found there."""
    if not catalog.is_in_memory:
        recorded = catalog.lineage.newest_recorded()
        yield from catalog_findings(known, found, recorded=recorded.get, newest=newest.get)
