"""The health of a table as values: facts that were collected, and findings that were made of them.

`plan/diagnosis` makes the findings, `table/inspect/health_facts` collects the facts.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any

from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.plan.health_options import OptionsAtOdds


class Depth(IntEnum):
    """How much is looked at.

    SHALLOW: the newest snapshot with its manifests, and tags, branches and consumers by name. WHOLE: every
    root is verified, orphans are looked for, and what roots keep is counted. DEEP: every page is read too.
    """

    SHALLOW = 0
    WHOLE = 1
    DEEP = 2


class Severity(IntEnum):
    """How bad: rows or files are lost or unreadable; it costs, and grows; somebody should know."""

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
    """What `doctor` found in some tables, each table's worst first. Healthy: nothing but notes."""

    findings: tuple[Finding, ...]
    table_count: int
    depth: Depth

    @property
    def is_healthy(self) -> bool:
        """Whether there is no error and no warning."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    @property
    def left_out(self) -> str:
        """What was not looked at, to be put behind a verdict; empty if all was."""
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
    is_of_branch: bool = False


@record
class TableFacts:
    """What is known of one table. None: it was not looked at. Sizes in bytes, ages in milliseconds.

    `delta_lists`: the delta manifest lists of snapshots that were read, by id. `is_refused`: the problem is
    a feature that this version does not read. `whole_id`: the newest snapshot all of whose documents are
    sound, `whole_tag`: the newest tag that is; `hidden`: the first and the last snapshot that retention
    keeps and EARLIEST passes; `stray_latest`: what LATEST names, where no such snapshot is; `is_lost`: nobody can
    read the newest state, `comes_back_to`: where nobody can commit either, what `repair latest` goes back to;
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
