"""Where a catalog and the tables in its warehouse differ: in names, and in the snapshots of the lineage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lsm_engine.base.record import record
from lsm_engine.plan.health import Finding, LiveSnapshots, Severity

_SHOWN = 5  # ids that a finding names


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


def lineage_drift(
    recorded: Mapping[int, str], live_snapshots: LiveSnapshots
) -> LineageDrift | None:
    """Compare what is recorded as live, by id the delta manifest list, with a table; None: no difference.

    A branch's oldest snapshot may be lacking: it is that of the tag that the branch began at.
    """
    own = range(live_snapshots.first + live_snapshots.is_of_branch, live_snapshots.newest + 1)
    lacking = [number for number in own if number not in recorded]
    not_so = [
        number
        for number, name in recorded.items()
        if not live_snapshots.first <= number <= live_snapshots.newest
        or live_snapshots.lists.get(number, name) != name
    ]
    if not lacking and not not_so:
        return None
    return LineageDrift(
        lacking=tuple(lacking),
        not_so=tuple(sorted(not_so)),
        newest=max((number for number in recorded if number <= live_snapshots.newest), default=0),
    )


def catalog_findings(
    cataloged: Iterable[str], stored: Iterable[str], drifts: Mapping[tuple[str, str], LineageDrift]
) -> Iterator[Finding]:
    """Yield where names differ, and where lineages do.

    `known`: names in the catalog; `found`: tables in the warehouse; `drifts`: of lineages, by table and
    branch, "" for main.
    """
    names, stored_names = set(cataloged), set(stored)
    for name in sorted(names - stored_names):
        yield Finding(
            table=name, kind="catalog", severity=Severity.ERROR,
            what="the catalog names a table that is not in the warehouse",
            cost="whoever opens it gets an error", command=("catalog", "unregister", name),
        )  # fmt: skip
    for name in sorted(stored_names - names):
        yield Finding(
            table=name, kind="catalog", severity=Severity.WARNING,
            what="the catalog does not know this table of the warehouse",
            cost="it cannot be opened by its name", command=("catalog", "register", name),
        )  # fmt: skip
    for name, branch in sorted(drifts):
        if name in names & stored_names:
            yield from _of_lineage(name, branch, drifts[name, branch])


def unnameable_findings(unnameable: Mapping[str, str], *, can_move: bool) -> Iterator[Finding]:
    """Yield tables that no catalog can name: by their paths in the warehouse, why. `can_move`: on a disk."""
    remedy = "catalog adopt PATH DATABASE.TABLE moves it to a name"
    if not can_move:
        remedy = "a table of another name with a copy of its rows has one"
    for path, why in unnameable.items():
        yield Finding(
            table=path, kind="catalog", severity=Severity.NOTE,
            what=f"a table lies in this directory that cannot be named: {why}",
            cost=f"verbs take it by its path; {remedy}",
        )  # fmt: skip


def _of_lineage(name: str, branch: str, drift: LineageDrift) -> Iterator[Finding]:
    command = ("catalog", "rebuild", name)
    lineage = f"lineage of branch {branch!r}" if branch else "lineage"
    subject = "branch" if branch else "table"
    if drift.lacking:
        has_later = drift.newest > drift.lacking[0]
        why = ": others have committed" if drift.is_tail else ", and has later ones" * has_later
        yield Finding(
            table=name, kind="catalog", severity=Severity.NOTE if drift.is_tail else Severity.WARNING,
            what=f"{lineage} lacks {_listed(drift.lacking)}{why}",
            cost="questions about lineage are answered without them", command=command,
        )  # fmt: skip
    if drift.not_so:
        yield Finding(
            table=name, kind="catalog", severity=Severity.WARNING,
            what=f"{lineage} holds {_listed(drift.not_so)} as live, which the {subject} has not, or with other files",
            cost="questions about lineage are answered from commits that do not count", command=command,
        )  # fmt: skip


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    suffix = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"snapshot{'' if len(ids) == 1 else 's'} {shown}{suffix}"
