"""Where a catalog and the tables in its warehouse differ: in names, and in the snapshots of the lineage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lsm_engine.base.record import record
from lsm_engine.plan.health import Finding, Severity

_SHOWN = 5  # ids that a finding names


@record
class LiveSnapshots:
    """The snapshots of a table: ids `first` to `newest`; of those that were read, delta manifest lists."""

    first: int
    newest: int
    lists: Mapping[int, str]


@record
class LineageDrift:
    """Ids that the lineage lacks, and ids that it holds as live and the table has not, or with other files.

    `newest`: the newest id that both may have, 0 if there is none.
    """

    lacking: tuple[int, ...]
    not_so: tuple[int, ...]
    newest: int

    @property
    def is_tail(self) -> bool:
        """Whether the lineage lacks the newest alone, as after commits of others."""
        return not self.not_so and min(self.lacking, default=0) > self.newest


def lineage_drift(recorded: Mapping[int, str], there: LiveSnapshots) -> LineageDrift | None:
    """Compare what is recorded as live, by id the delta manifest list, with a table; None: no difference."""
    lacking = [number for number in range(there.first, there.newest + 1) if number not in recorded]
    not_so = [
        number
        for number, name in recorded.items()
        if not there.first <= number <= there.newest or there.lists.get(number, name) != name
    ]
    if not lacking and not not_so:
        return None
    return LineageDrift(
        lacking=tuple(lacking),
        not_so=tuple(sorted(not_so)),
        newest=max((number for number in recorded if number <= there.newest), default=0),
    )


def catalog_findings(
    known: Iterable[str], found: Iterable[str], drifts: Mapping[str, LineageDrift]
) -> Iterator[Finding]:
    """Yield where names differ, and where lineages do.

    `known`: names in the catalog; `found`: tables in the warehouse; `drifts`: of lineages, by table.
    """
    names, there = set(known), set(found)
    for name in sorted(names - there):
        yield Finding(
            table=name, kind="catalog", severity=Severity.ERROR,
            what="the catalog names a table that is not in the warehouse",
            cost="whoever opens it gets an error", command=("catalog", "unregister", name),
        )  # fmt: skip
    for name in sorted(there - names):
        yield Finding(
            table=name, kind="catalog", severity=Severity.WARNING,
            what="the catalog does not know this table of the warehouse",
            cost="it cannot be opened by its name", command=("catalog", "register", name),
        )  # fmt: skip
    for name in sorted(names & there & set(drifts)):
        yield from _of_lineage(name, drifts[name])


def _of_lineage(name: str, drift: LineageDrift) -> Iterator[Finding]:
    command = ("catalog", "rebuild", name)
    if drift.lacking:
        has_later = drift.newest > drift.lacking[0]
        why = ": others have committed" if drift.is_tail else ", and has later ones" * has_later
        yield Finding(
            table=name, kind="catalog", severity=Severity.NOTE if drift.is_tail else Severity.WARNING,
            what=f"lineage lacks {_listed(drift.lacking)}{why}",
            cost="questions about lineage are answered without them", command=command,
        )  # fmt: skip
    if drift.not_so:
        yield Finding(
            table=name, kind="catalog", severity=Severity.WARNING,
            what=f"lineage holds {_listed(drift.not_so)} as live, which the table has not, or with other files",
            cost="questions about lineage are answered from commits that do not count", command=command,
        )  # fmt: skip


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"snapshot{'' if len(ids) == 1 else 's'} {shown}{more}"
