"""The health of a table as values: facts that were collected, and findings that were made of them.

`planning/health` makes the findings, `inspect/health` collects the facts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_age, format_bytes
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions

# -- Options that contradict each other ------------------------------------------------------------

OptionsAtOdds = tuple[str, str, tuple[str, ...]]
"""Options that contradict each other, the cost, and the change that mends it, as `lsm alter TABLE` takes it."""


@record
class _Conflict:
    holds: Callable[[TableOptions], bool]
    contradiction: str
    cost: str
    change: tuple[str, ...]


def at_odds(options: TableOptions, *, is_partitioned: bool) -> tuple[OptionsAtOdds, ...]:
    """Return the contradictions among a table's options."""
    return tuple(
        (rule.contradiction, rule.cost, rule.change)
        for rule in (*_ALWAYS, *(() if is_partitioned else _UNPARTITIONED))
        if rule.holds(options)
    )


def _retained_crossed(options: TableOptions) -> bool:
    least = options[core_options.SNAPSHOT_NUM_RETAINED_MIN]
    return least > options[core_options.SNAPSHOT_NUM_RETAINED_MAX]


def _stop_below_trigger(options: TableOptions) -> bool:
    stop = options[core_options.NUM_SORTED_RUN_STOP_TRIGGER]
    return stop is not None and stop < options[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER]


def _tags_without_end(options: TableOptions) -> bool:
    ends = (core_options.TAG_NUM_RETAINED_MAX, core_options.TAG_DEFAULT_TIME_RETAINED)
    makes = options[core_options.TAG_AUTOMATIC_CREATION] in ("process-time", "watermark")
    return makes and all(options[end] is None for end in ends)


def _lifetime_unused(options: TableOptions) -> bool:
    lives = options[core_options.TAG_DEFAULT_TIME_RETAINED] is not None
    return lives and not options[core_options.TAG_TIME_EXPIRE_ENABLED]


_ALWAYS = (
    _Conflict(
        holds=_retained_crossed,
        contradiction="'snapshot.num-retained.min' is above 'snapshot.num-retained.max'",
        cost="nothing ever expires",
        change=("--unset", core_options.SNAPSHOT_NUM_RETAINED_MAX.key),
    ),
    _Conflict(
        holds=_stop_below_trigger,
        contradiction="'num-sorted-run.stop-trigger' is below 'num-sorted-run.compaction-trigger'",
        cost="writers would wait for a compaction that is not due; other clients do",
        change=("--unset", core_options.NUM_SORTED_RUN_STOP_TRIGGER.key),
    ),
    _Conflict(
        holds=_tags_without_end,
        contradiction="'tag.automatic-creation' makes tags, and no option lets them end",
        cost="every period keeps its files for ever",
        change=("--set", f"{core_options.TAG_NUM_RETAINED_MAX.key}=90"),
    ),
    _Conflict(
        holds=_lifetime_unused,
        contradiction="tags have 'tag.default-time-retained', and 'tag.time-expire-enabled' is off",
        cost="tags outlive their lifetime",
        change=("--unset", core_options.TAG_TIME_EXPIRE_ENABLED.key),
    ),
)
_UNPARTITIONED = (
    _Conflict(
        holds=lambda options: core_options.PARTITION_EXPIRATION_TIME.key in options.texts,
        contradiction="'partition.expiration-time' is set, and the table has no partitions",
        cost="no row expires",
        change=("--unset", core_options.PARTITION_EXPIRATION_TIME.key),
    ),
)


# -- The health of a table as values ---------------------------------------------------------------


class Depth(IntEnum):
    """How much is looked at.

    SHALLOW: the newest snapshot with its manifests, and tags, branches and consumers by name. WHOLE: every
    retained reference is verified, orphans are looked for, and what each of these keeps is counted. DEEP: every page is read too.
    """

    SHALLOW = 0
    WHOLE = 1
    DEEP = 2


class Severity(IntEnum):
    """How bad: rows or files are lost or unreadable; it costs, and grows; a note."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


@record
class Finding:
    """One thing that is wrong, with what it costs and the command that mends it.

    `kind`: debt, damage, retention, orphans, small-files, buckets, consumers, catalog or options.
    `command`: the words after `lsm`; empty where no command can help. `loses`: what can be read no
    longer once it has run; None if nothing is lost.
    """

    table: str
    kind: str
    severity: Severity
    what: str
    cost: str = ""
    command: tuple[str, ...] = ()
    loses: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return what programs want to know, by name."""
        return {
            "table": self.table,
            "kind": self.kind,
            "severity": self.severity.name.lower(),
            "finding": self.what,
            "cost": self.cost or None,
            "command": list(self.command) or None,
            "loses": self.loses,
        }


_LEFT_OUT = {
    Depth.SHALLOW: "; older snapshots, damaged files and orphans were not looked for",
    Depth.WHOLE: "; the contents of data files were not read",
    Depth.DEEP: "",
}


@record
class HealthReport:
    """The findings of `doctor` in some tables, each table's worst first. Healthy: only notes."""

    findings: tuple[Finding, ...]
    table_count: int
    depth: Depth

    @property
    def is_healthy(self) -> bool:
        """Whether there is no error and no warning."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def left_out(self) -> str:
        """The note of parts that were not examined, for the end of a verdict; empty if there are none."""
        return _LEFT_OUT[self.depth]

    def __str__(self) -> str:
        lines = [
            f"{finding.severity.name.lower()} {finding.table}: {finding.what}"
            + (f" ({finding.cost})" if finding.cost else "")
            + (f" -> lsm {' '.join(finding.command)}" if finding.command else "")
            for finding in self.findings
        ]
        return "\n".join(lines or [f"healthy: {counted(self.table_count, 'table')}{self.left_out}"])


@record
class BucketFacts:
    """The buckets of one partition: `total` as its files record it, `sizes` of those with files.

    `declared`: the number that the option `bucket` gives to new partitions.
    """

    partition: str
    total: int
    sizes: tuple[int, ...]
    declared: int


@record
class DebtFacts:
    """Buckets due: how many, their runs and bytes, and whether writers wait for any of them."""

    buckets: int
    runs: int
    size_bytes: int
    waiting: bool


@record
class PinFacts:
    """A tag, branch or consumer: its age or idle time, and bytes that it alone keeps, if counted."""

    name: str
    age_millis: int
    is_bounded: bool = False
    at_snapshot: int | None = None
    only_size_bytes: int | None = None


@record
class IcebergFacts:
    """What the Iceberg metadata of a table shows, as `inspect.iceberg()` has it.

    `is_late`: rows wait for a full compaction for longer than `metadata.iceberg.max-lag`; `is_bounded`: that is set;
    `without_ids`: of a table without such metadata, files that it could not name. `misfiltered_files`: files whose
    timestamps Iceberg's own library filters wrongly.
    """

    shown_id: int | None = None
    problem: str | None = None
    waiting_commits: int = 0
    waiting_millis: int = 0
    is_bounded: bool = False
    is_late: bool = False
    without_ids: int = 0
    misfiltered_files: int = 0


@record
class DamageFacts:
    """A damaged file or document. `rebuildable`: the table can give it back; `has_older_rows`: of its keys.

    `is_data`: a data file, whose rows its manifest entry counts; `is_snapshot`, `is_schema`,
    `is_trash`: such a document itself; `is_miscounted`: of a manifest list only the number of rows is
    another; `consumer`: whose file it is. `in_newest`: the newest snapshot needs it. `newest_root`: the newest
    snapshot that needs it; None if only tags do. `newest_changelog`: the same of changelogs that have
    outlived their snapshots.
    """

    path: str
    problem: str
    is_data: bool
    is_snapshot: bool = False
    is_schema: bool = False
    is_trash: bool = False
    is_miscounted: bool = False
    consumer: str | None = None
    rebuildable: bool = False
    has_older_rows: bool = False
    in_newest: bool = False
    row_count: int = 0
    newest_root: int | None = None
    newest_changelog: int | None = None
    tags: tuple[str, ...] = ()


@record
class LiveSnapshots:
    """The snapshots of a table or branch: ids `first` to `newest`; of those that were read, delta manifest lists."""

    first: int
    newest: int
    lists: Mapping[int, str]


@record
class TableFacts:
    """The facts of one table. None: it was not examined. Sizes in bytes, ages in milliseconds.

    `delta_lists`: the delta manifest lists of snapshots that were read, by id. `is_refused`: the problem is
    a feature that this version does not read. `whole_id`: the newest snapshot all of whose documents are
    sound, `whole_tag`: the newest tag that is; `hidden`: the first and the last snapshot that retention
    keeps and EARLIEST passes; `stray_latest`: what LATEST names, where no such snapshot is; `is_lost`: no client
    can read the newest state, `comes_back_to`: where none can commit either, what `repair latest` goes back to;
    `rollback_to`: where a rollback returns to that is not done; `damaged_branches`: those with files that only they need.
    """

    table: str
    problem: str | None = None
    is_refused: bool = False
    whole_id: int | None = None
    whole_tag: str | None = None
    hidden: tuple[int, int] | None = None
    stray_latest: int | None = None
    is_lost: bool = False
    comes_back_to: str | None = None
    rollback_to: int | None = None
    damaged_branches: tuple[str, ...] = ()
    is_write_only: bool = False
    newest_id: int | None = None
    snapshot_count: int = 0
    delta_lists: Mapping[int, str] = field(default_factory=dict)
    expirable: int = 0
    expirable_bytes: int | None = None
    debt: DebtFacts | None = None
    small: DebtFacts | None = None
    unassigned_rows: int = 0
    buckets: tuple[BucketFacts, ...] = ()
    tags: tuple[PinFacts, ...] = ()
    overdue_tags: tuple[str, ...] = ()
    branches: tuple[PinFacts, ...] = ()
    branch_snapshots: Mapping[str, LiveSnapshots] = field(default_factory=dict)
    consumers: tuple[PinFacts, ...] = ()
    damage: tuple[DamageFacts, ...] = ()
    other_problems: tuple[str, ...] = ()
    orphan_count: int = 0
    orphan_bytes: int = 0
    unfinished_uploads: int = 0
    refused_options: tuple[tuple[str, str], ...] = ()
    at_odds: tuple[OptionsAtOdds, ...] = ()
    iceberg: IcebergFacts | None = None

    def finding(
        self,
        kind: str,
        severity: Severity,
        problem: str,
        cost: str = "",
        command: Sequence[str] = (),
        loses: str | None = None,
    ) -> Finding:
        """Return a finding on this table."""
        return Finding(
            table=self.table,
            kind=kind,
            severity=severity,
            what=problem,
            cost=cost,
            command=tuple(command),
            loses=loses,
        )


# -- Differences between a catalog and its warehouse -----------------------------------------------
#
# In names, and in the snapshots of the lineage.

_SHOWN = 5  # ids that a finding names


def lineage_drift(recorded: Mapping[int, str], live_snapshots: LiveSnapshots) -> tuple[int, ...]:
    """Return the ids recorded as live that a table has not, or with another delta manifest list.

    What the lineage lacks is no drift: the next question to it records that.
    """
    return tuple(
        number
        for number, name in sorted(recorded.items())
        if not live_snapshots.first <= number <= live_snapshots.newest
        or live_snapshots.lists.get(number, name) != name
    )


def catalog_findings(
    cataloged: Iterable[str], stored: Iterable[str], drifts: Mapping[tuple[str, str], Sequence[int]]
) -> Iterator[Finding]:
    """Yield where names differ, and where lineages do.

    `cataloged`: names in the catalog; `stored`: tables in the warehouse; `drifts`: of lineages, by table and
    branch, "" for main.
    """
    names, stored_names = set(cataloged), set(stored)
    for name in sorted(names - stored_names):
        yield Finding(
            table=name, kind="catalog", severity=Severity.ERROR,
            what="the catalog names a table that is not in the warehouse",
            cost="opening it fails", command=("catalog", "unregister", name),
        )  # fmt: skip
    for name in sorted(stored_names - names):
        yield Finding(
            table=name, kind="catalog", severity=Severity.WARNING,
            what="the catalog does not know this table of the warehouse",
            cost="it cannot be opened by its name", command=("catalog", "register", name),
        )  # fmt: skip
    for name, branch in sorted(drifts):
        if name in names & stored_names:
            yield _of_lineage(name, branch, drifts[name, branch])


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


def _of_lineage(name: str, branch: str, ids: Sequence[int]) -> Finding:
    lineage = f"lineage of branch {branch!r}" if branch else "lineage"
    subject = "branch" if branch else "table"
    return Finding(
        table=name, kind="catalog", severity=Severity.WARNING,
        what=f"{lineage} holds {_listed(ids)} as live, which the {subject} has not, or with other files",
        cost="questions about lineage are answered from commits that do not count",
        command=("catalog", "rebuild", name),
    )  # fmt: skip


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    suffix = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"snapshot{'' if len(ids) == 1 else 's'} {shown}{suffix}"


# -- Findings about a table ------------------------------------------------------------------------
#
# Findings from facts, each with what mends it.
#
# Nothing is read here: `inspect/health` collects the facts, and the user runs the
# commands.

DAY_MILLIS = 24 * 3600 * 1000
STALE_MILLIS = 30 * DAY_MILLIS
EXPIRABLE_MAX = 10
"""Snapshots that may wait for the next expiry: writers expire every so often, not at once."""
BUCKET_BYTES = 1 << 30
"""Bytes that one bucket should hold: Paimon advises 200 MB to 1 GB."""
WIDE_TIMES, NARROW_TIMES = 5, 8
"""How far from that a partition's number of buckets may be: too few buckets, too many."""

Rule = Callable[[TableFacts, int], Iterator[Finding]]


def findings(facts: TableFacts, *, stale_millis: int = STALE_MILLIS) -> tuple[Finding, ...]:
    """Return what is wrong with a table, the worst first.

    `stale_millis`: the age from which tags without a lifetime, idle consumers and idle branches count.
    """
    if facts.is_refused:
        return (
            facts.finding("options", Severity.NOTE, facts.problem or "",
                "this version does not read the table, and it was not examined: leave it to the client that wrote it"),
        )  # fmt: skip
    if facts.problem is not None:
        return (facts.finding("damage", Severity.ERROR, facts.problem, "it cannot be read at all"),)
    findings = [finding for rule in _RULES for finding in rule(facts, stale_millis)]
    return tuple(sorted(findings, key=lambda item: -item.severity))


# --- damage --------------------------------------------------------------------------------------


def _damage(facts: TableFacts, _: int) -> Iterator[Finding]:
    """Restore what can be; give up the rest of the newest state, then the history that needs it."""
    table = facts.table
    data = [damaged_file for damaged_file in facts.damage if damaged_file.is_data]
    rebuilt = [damaged_file for damaged_file in data if damaged_file.rebuildable]
    lost = [damaged_file for damaged_file in data if not damaged_file.rebuildable]
    live = [damaged_file for damaged_file in lost if damaged_file.in_newest]
    older = [damaged_file for damaged_file in live if damaged_file.has_older_rows]
    if rebuilt:
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(rebuilt, "data file"),
            f"{_rows(rebuilt)} cannot be read; the table can give them back",
            ("repair", table, "restore", "--act", "--yes"),
        )  # fmt: skip
    if older:
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(older, "data file"),
            f"{_rows(older)} cannot be read, and reads of their keys fail; the table has older rows of them",
            ("repair", table, "restore", "--act", "--yes"),
            f"{_rows(older)} stored in {counted(len(older), 'file')}; older versions show again, of those "
            "keys that have one",
        )  # fmt: skip
    elif live:
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(live, "data file"),
            f"{_rows(live)} cannot be read, and reads of their keys fail{_with_schema(facts)}",
            ("repair", table, "damaged-files", "--act", "--yes"),
            f"{_rows(live)} stored in {counted(len(live), 'file')}; older versions may show again",
        )  # fmt: skip
    elif lost:
        yield from _damaged_history(facts, lost)
    documents = [damaged_file for damaged_file in facts.damage if not damaged_file.is_data]
    yield from _damaged_readers(facts, documents)
    yield from _damaged_documents(facts, documents)
    yield from _damaged_records(facts)
    if facts.hidden is not None and not any(document.in_newest for document in documents):
        yield facts.finding(
            "damage", Severity.WARNING,
            "EARLIEST passes snapshots {} to {}, which retention keeps".format(*facts.hidden),
            "they are not read, and nothing expires: an expiry died, or EARLIEST is damaged",
            ("repair", table, "earliest", "--act", "--yes"),
        )  # fmt: skip
    for branch in facts.damaged_branches:
        yield facts.finding(
            "damage", Severity.ERROR, f"branch {branch!r} has files that are damaged or gone",
            "the branch cannot be read whole, and nothing expires while it is there",
            ("branch", "delete", table, branch, "--yes"), f"branch {branch!r}",
        )  # fmt: skip
    if facts.rollback_to is not None:
        yield facts.finding(
            "damage", Severity.ERROR, f"a rollback to snapshot {facts.rollback_to} is not done",
            "its ids are not free again; if it died, do it again",
            ("rollback", table, "--to-snapshot", str(facts.rollback_to), "--yes"),
        )  # fmt: skip
    else:
        yield from _other_problems(facts)


def _other_problems(facts: TableFacts) -> Iterator[Finding]:
    for text in facts.other_problems:
        branch = text.removeprefix("branch '").partition("'")[0]
        is_lost = text.startswith("branch '") and text.endswith("repair latest")
        path_suffix = f"/branch/branch-{branch}" if "/" in facts.table else f"@{branch}"
        command = ("repair", f"{facts.table}{path_suffix}", "latest", "--act", "--yes")
        yield facts.finding(
            "damage", Severity.ERROR, text, "answers may be wrong", command if is_lost else (),
            "what was committed with it" if is_lost else None,
        )  # fmt: skip


def _damaged_history(facts: TableFacts, lost: Sequence[DamageFacts]) -> Iterator[Finding]:
    table = facts.table
    newest = max(
        (damaged_file.newest_root for damaged_file in lost if damaged_file.newest_root is not None),
        default=None,
    )
    if newest is not None and newest == facts.newest_id:
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(lost, "data file"),
            f"the changes of snapshot {newest} cannot be read, its rows can; it goes once a newer one is there",
            ("repair", table, "manifests", "--act"),
        )  # fmt: skip
    elif newest is not None and facts.newest_id is not None:
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(lost, "data file"),
            f"snapshots up to {newest} cannot be read whole; the newest state can",
            _expire(table, retain=max(1, facts.newest_id - newest)),
            f"time travel to snapshots up to {newest}",
        )  # fmt: skip
    for tag in dict.fromkeys(tag for damaged_file in lost for tag in damaged_file.tags):
        yield facts.finding(
            "damage", Severity.ERROR, f"tag {tag!r} needs a data file that is damaged or gone",
            "the tag cannot be read whole", ("tag", "delete", table, tag), f"tag {tag!r}",
        )  # fmt: skip


def _with_schema(facts: TableFacts) -> str:
    lost = [damaged_file.path for damaged_file in facts.damage if damaged_file.is_schema]
    return f"; {lost[0]} from a backup would give them back" if lost else ""


def _damaged_documents(facts: TableFacts, damaged: Sequence[DamageFacts]) -> Iterator[Finding]:
    """First tags, which a rollback takes; then the newest state, and the history once that can be read."""
    for damaged_file in damaged:
        for tag in damaged_file.tags:
            yield facts.finding(
            "damage", Severity.ERROR, f"tag {tag!r}: {damaged_file.problem}",
                "the tag cannot be read, and nothing expires while it is there",
                ("tag", "delete", facts.table, tag), f"tag {tag!r}",
            )  # fmt: skip
    newest = [damaged_file for damaged_file in damaged if damaged_file.in_newest]
    old = [
        damaged_file
        for damaged_file in damaged
        if not damaged_file.in_newest and damaged_file.newest_root is not None
    ]
    if newest or facts.is_lost:
        yield _newest_again(facts, newest)
    elif old:
        last = max(damaged_file.newest_root or 0 for damaged_file in old)
        yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(old, "file"),
            f"snapshots up to {last} cannot be read, or not be followed one by one",
            ("repair", facts.table, "earliest", "--act", "--yes"), f"snapshots up to {last}",
        )  # fmt: skip


def _newest_again(facts: TableFacts, damaged: Sequence[DamageFacts]) -> Finding:
    """Go back to what can be read: without the files of snapshots, or by a commit of an older state; else give it up."""
    table, torn = (
        facts.table,
        [damaged_file for damaged_file in damaged if damaged_file.is_snapshot],
    )
    newest = max(
        (damaged_file.newest_root or 0 for damaged_file in damaged), default=facts.stray_latest
    )
    description = (
        _listed_findings(torn or damaged, "file") if damaged else "the newest snapshot is lost"
    )
    if facts.stray_latest is not None:
        description = f"LATEST names snapshot {facts.stray_latest}, which is not there"
    cost = "the newest state cannot be read: bring the files back from a backup"
    command: tuple[str, ...] = ()
    lost = None
    if facts.comes_back_to is not None:
        cost = "no client can read or write the table: bring the files back from a backup, or go on without"
        command = ("repair", table, "latest", "--act", "--yes")
        lost = f"what was committed after {facts.comes_back_to}"
    elif not facts.is_lost and all(damaged_file.is_miscounted for damaged_file in damaged):
        description = f"{damaged[0].path}: {damaged[0].problem}"
        cost = "it may be the list of another snapshot: bring it back from a backup, or count what it holds"
        command = ("repair", table, "manifests", "--act", "--yes")
        lost = "what the right list names, if this is another's"
    elif facts.whole_id is not None:
        command = ("rollback", table, "--to-snapshot", str(facts.whole_id), "--yes")
        lost = f"the snapshots after {facts.whole_id}, up to {newest}"
    elif facts.whole_tag is not None:
        command = ("rollback", table, "--to-tag", facts.whole_tag, "--yes")
        lost = f"the snapshots after tag {facts.whole_tag!r}, up to {newest}"
    elif facts.is_lost:
        cost += ", or empty the table and fill it anew; no snapshot and no tag can be read"
        command = ("repair", table, "purge", "--act", "--yes")
        lost = "all rows, with snapshots, tags and branches"
    if command and command[0] == "rollback":
        cost += ", or go back to what can be read"
    return facts.finding("damage", Severity.ERROR, description, cost, command, lost)


def _damaged_records(facts: TableFacts) -> Iterator[Finding]:
    """Findings about changelogs, the trash, and files of this engine."""
    damaged = [
        damaged_file for damaged_file in facts.damage
        if damaged_file.newest_changelog is not None
        or not (damaged_file.newest_root is not None or damaged_file.tags or damaged_file.consumer or damaged_file.is_schema)
    ]  # fmt: skip
    for damaged_file in facts.damage:
        if damaged_file.is_schema and damaged_file.newest_root is None:
            yield facts.finding(
                "damage", Severity.ERROR, damaged_file.problem, "bring it back from a backup"
            )
    if not damaged:
        return
    last = max(damaged_file.newest_changelog or 0 for damaged_file in damaged)
    lost = [f"changelogs up to {last}"] if last else []
    lost += (
        ["the undo of an act of maintenance"]
        if any(damaged_file.is_trash for damaged_file in damaged)
        else []
    )
    yield facts.finding(
            "damage", Severity.ERROR, _listed_findings(damaged, "file"),
        "what is recorded there cannot be read, and nothing expires while it is there",
        ("repair", facts.table, "records", "--act", "--yes"), ", ".join(lost) or None,
    )  # fmt: skip


def _damaged_readers(facts: TableFacts, damaged: Sequence[DamageFacts]) -> Iterator[Finding]:
    """Findings about positions of consumers, and the LATEST hint."""
    for damaged_file in damaged:
        if damaged_file.consumer is not None:
            yield facts.finding(
            "consumers", Severity.ERROR, damaged_file.problem,
                "the position of this reader is unknown, and nothing expires while the file is there",
                ("consumer", "reset", facts.table, damaged_file.consumer), f"the place of consumer {damaged_file.consumer!r}",
            )  # fmt: skip


def _rows(damaged: Iterable[DamageFacts]) -> str:
    return counted(sum(damaged_file.row_count for damaged_file in damaged), "row")


def _listed_findings(damaged: Sequence[DamageFacts], noun: str) -> str:
    suffix = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    return f"{counted(len(damaged), noun)} damaged or gone: {damaged[0].path}{suffix}"


# --- debt ----------------------------------------------------------------------------------------


def _debt(facts: TableFacts, _: int) -> Iterator[Finding]:
    debt, small = facts.debt, facts.small
    if debt is not None:
        by = "; write-only: its writers never compact" if facts.is_write_only else ""
        yield facts.finding(
            "debt", Severity.ERROR if debt.waiting else Severity.WARNING,
            f"compaction is due in {counted(debt.buckets, 'bucket')} with {counted(debt.runs, 'sorted run')}{by}",
            ("writers wait, and every" if debt.waiting else "every")
            + f" read merges {format_bytes(debt.size_bytes)}",
            ("compact", facts.table),
        )  # fmt: skip
    if facts.unassigned_rows:
        yield facts.finding(
            "debt", Severity.WARNING,
            f"{counted(facts.unassigned_rows, 'row')} wait for a bucket (bucket = -2)",
            "no reader sees them", ("compact", facts.table),
        )  # fmt: skip
    if small is not None:
        yield facts.finding(
            "small-files", Severity.WARNING,
            f"{counted(small.runs, 'small file')} in {counted(small.buckets, 'bucket')}",
            f"every read opens them all, for {format_bytes(small.size_bytes)}",
            ("compact", facts.table, "--full"),
        )  # fmt: skip


def _buckets(facts: TableFacts, _: int) -> Iterator[Finding]:
    """A fixed number of buckets that fits the bytes of none of the partitions with files."""
    if not facts.buckets:
        return
    largest = max(sum(bucket.sizes) for bucket in facts.buckets)
    now = max(bucket.total for bucket in facts.buckets)
    fits = max(1, -(-largest // BUCKET_BYTES))
    if now < 1 or (fits < WIDE_TIMES * now and now < NARROW_TIMES * fits):
        yield from _unlike_declared(facts)
        return
    empty = sum(bucket.total - len(bucket.sizes) for bucket in facts.buckets)
    wide = fits > now
    yield facts.finding(
            "buckets", Severity.WARNING if wide else Severity.NOTE,
        f"{counted(now, 'bucket')} for at most {format_bytes(largest)} a partition"
        + (f"; {empty:,} are empty" if empty else ""),
        f"a compaction rewrites up to {format_bytes(largest // now)} at once, on one core" if wide
        else "each write makes a file in each bucket that it touches, and each read opens them",
        ("rescale", facts.table, str(fits)),
    )  # fmt: skip


def _unlike_declared(facts: TableFacts) -> Iterator[Finding]:
    """Partitions that a rescale left out, or did not come to: another number than `bucket` declares."""
    unlike = [bucket for bucket in facts.buckets if bucket.total != bucket.declared]
    if not unlike:
        return
    declared = unlike[0].declared
    yield facts.finding(
            "buckets", Severity.NOTE,
        f"{len(unlike):,} of {counted(len(facts.buckets), 'partition')} "
        f"{'has' if len(unlike) == 1 else 'have'} another number of buckets than 'bucket' = {declared}",
        "right for readers and this version's writers; Java writes nothing there, pypaimon to wrong buckets",
        ("rescale", facts.table, str(declared)),
    )  # fmt: skip


# --- retention -----------------------------------------------------------------------------------


def _expire(table: str, retain: int | None = None) -> tuple[str, ...]:
    if retain is None:
        return ("expire", table, "--all", "--yes")
    return ("expire", table, "--all", "--retain-max", str(retain), "--older-than", "0 s", "--yes")


def _retention(facts: TableFacts, stale_millis: int) -> Iterator[Finding]:
    table = facts.table
    if facts.expirable > EXPIRABLE_MAX:
        size = facts.expirable_bytes
        yield facts.finding(
            "retention", Severity.WARNING,
            f"{counted(facts.expirable, 'snapshot')} of {facts.snapshot_count:,} have outlived their retention",
            f"{format_bytes(size)} that no read needs stay" if size else "files that no read needs stay",
            _expire(table),
        )  # fmt: skip
    if facts.overdue_tags:
        yield facts.finding(
            "retention", Severity.WARNING,
            f"{counted(len(facts.overdue_tags), 'tag')} past their lifetime: {', '.join(facts.overdue_tags[:5])}",
            "their files stay", ("tag", "expire", table, "--yes"),
        )  # fmt: skip
    for tag in facts.tags:
        if not tag.is_bounded and tag.age_millis > stale_millis:
            yield facts.finding(
            "retention", Severity.WARNING,
                f"tag {tag.name!r} is {format_age(tag.age_millis)} old and has no end",
                _pinned(tag), ("tag", "delete", table, tag.name), f"tag {tag.name!r}",
            )  # fmt: skip
    for branch in facts.branches:
        if branch.age_millis > stale_millis:
            yield facts.finding(
            "retention", Severity.WARNING,
                f"branch {branch.name!r} has not moved for {format_age(branch.age_millis)}",
                _pinned(branch), ("branch", "delete", table, branch.name, "--yes"), f"branch {branch.name!r}",
            )  # fmt: skip
    for consumer in facts.consumers:
        if consumer.age_millis > stale_millis:
            yield facts.finding(
            "consumers", Severity.WARNING,
                f"consumer {consumer.name!r} stands at snapshot {consumer.at_snapshot} since "
                f"{format_age(consumer.age_millis)}",
                "no snapshot from there on expires",
                ("consumer", "reset", table, consumer.name), f"the place of consumer {consumer.name!r}",
            )  # fmt: skip


def _pinned(pin: PinFacts) -> str:
    if pin.only_size_bytes is None:
        return "files that only it names stay"
    return f"{format_bytes(pin.only_size_bytes)} stay for it alone"


def _orphans(facts: TableFacts, _: int) -> Iterator[Finding]:
    if facts.orphan_count:
        yield facts.finding(
            "orphans", Severity.WARNING,
            f"{counted(facts.orphan_count, 'file')} that nothing names, older than a day",
            f"{format_bytes(facts.orphan_bytes)} on disk", ("orphans", facts.table, "--yes"),
        )  # fmt: skip
    if facts.unfinished_uploads:
        yield facts.finding(
            "orphans", Severity.WARNING,
            f"{counted(facts.unfinished_uploads, 'upload')} that {'was' if facts.unfinished_uploads == 1 else 'were'} not completed, begun over a day ago",
            "no listing shows their parts, which are billed", ("orphans", facts.table, "--yes"),
        )  # fmt: skip


# --- options -------------------------------------------------------------------------------------


def _options(facts: TableFacts, _: int) -> Iterator[Finding]:
    for label, reason in facts.refused_options:
        yield facts.finding(
            "options", Severity.NOTE, f"{label}: {reason}",
            "this version reads the table, and does not write it: write with the client that set it",
        )  # fmt: skip
    for contradiction, cost, change in facts.at_odds:
        yield facts.finding(
            "options", Severity.WARNING, contradiction, cost, ("alter", facts.table, *change)
        )


def _iceberg(facts: TableFacts, _: int) -> Iterator[Finding]:
    """Rows that readers of Iceberg do not see."""
    shown = facts.iceberg
    if shown is None:
        return
    position = f"Iceberg metadata shows snapshot {shown.shown_id} of {facts.newest_id}"
    full = ("compact", facts.table, "--full")
    if shown.without_ids:
        yield facts.finding(
            "iceberg", Severity.NOTE,
            f"{counted(shown.without_ids, 'file')} without field ids of members of lists and maps",
            "Iceberg metadata cannot name them: with 'metadata.iceberg.storage' a full compaction writes them anew",
        )  # fmt: skip
    elif shown.problem is not None:
        yield facts.finding(
            "iceberg", Severity.WARNING, f"{position}: {shown.problem}", "other engines read older rows", full
        )  # fmt: skip
    elif shown.shown_id != facts.newest_id:
        yield facts.finding(
            "iceberg", Severity.WARNING, position, "other engines read older rows",
            ("iceberg", "sync", facts.table),
        )  # fmt: skip
    elif shown.waiting_commits and (shown.is_late or not shown.is_bounded):
        yield facts.finding(
            "iceberg", Severity.WARNING if shown.is_late else Severity.NOTE,
            f"rows of {counted(shown.waiting_commits, 'commit')} in {format_age(shown.waiting_millis)} "
            "wait for a full compaction",
            "other engines do not read them by Iceberg metadata", full,
        )  # fmt: skip
    if shown.misfiltered_files:
        yield facts.finding(
            "iceberg", Severity.WARNING,
            f"{counted(shown.misfiltered_files, 'file')} of another client with statistics of timestamps in milliseconds",
            "Spark and other engines with Iceberg's own library leave out rows where they filter by these columns", full,
        )  # fmt: skip


_RULES: tuple[Rule, ...] = (_damage, _debt, _buckets, _retention, _orphans, _options, _iceberg)
