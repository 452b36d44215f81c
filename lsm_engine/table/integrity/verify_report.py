"""What a verification found, as values and as text."""

from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.table.integrity.findings import DamagedFile, merged

_ELSEWHERE = {"ok": "is_clean", "errors": "problems", "files": "damaged_files"}


@record
class VerifyReport:
    """What was looked at, and every broken reference. Without problems all roots can be read.

    `problems` is text, one entry for each root that has one; `damaged_files` has each file once, with
    the roots concerned and what could give it back; `own_damaged_files` those of the table or branch
    that was asked, with its own roots alone: ids of branches name other snapshots. `unchecked_count`:
    data files that others wrote, or named, without a checksum. `read_count`, `skipped_count`: files
    whose pages were read, or were passed over because an earlier verification had read them.
    `gone_count`: roots that were taken away meanwhile, or that an expiry which died had begun to take.
    `not_honoured`: options of the table that this version does not support; no problem while it is
    read. `warnings`: what may go wrong while others write. `hidden`: the first and the last of the table's
    own snapshots that its retention keeps and EARLIEST passes.
    """

    problems: tuple[str, ...]
    snapshot_count: int
    tag_count: int
    file_count: int
    index_file_count: int = 0
    gone_count: int = 0
    not_honoured: tuple[str, ...] = ()
    unchecked_count: int = 0
    read_count: int = 0
    skipped_count: int = 0
    damaged_files: tuple[DamagedFile, ...] = ()
    own_damaged_files: tuple[DamagedFile, ...] = ()
    warnings: tuple[str, ...] = ()
    hidden: tuple[int, int] | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def with_sources(self, files: Sequence[DamagedFile]) -> "VerifyReport":
        """Return the same report with what could give the files back, as `files` have it."""
        by_path = {file.path: file for file in files}
        own = tuple(
            replace(
                file,
                sources=by_path[file.path].sources,
                is_rebuildable=by_path[file.path].is_rebuildable,
            )
            for file in self.own_damaged_files
        )
        return replace(self, damaged_files=tuple(files), own_damaged_files=own)

    def __str__(self) -> str:
        looked = (
            f"{counted(self.snapshot_count, 'snapshot')}, {counted(self.tag_count, 'tag')}, "
            f"{counted(self.file_count, 'data file')}"
        )
        if self.index_file_count:
            looked += f", {counted(self.index_file_count, 'index file')}"
        if self.unchecked_count:
            looked += f", {self.unchecked_count} of the files without a checksum"
        if self.skipped_count:
            looked += f", {self.skipped_count} of the files verified before"
        if self.gone_count:
            looked += f"; {self.gone_count} of them expired meanwhile, or are expiring"
        if self.is_clean:
            return "\n".join([f"clean: {looked}", *self.not_honoured, *self.warnings])
        headline = f"{counted(len(self.problems), 'problem')} in {looked}"
        files = [f"damaged: {file}" for file in self.damaged_files]
        return "\n".join([headline, *self.problems, *files, *self.not_honoured, *self.warnings])


def of_branches(reports: Sequence[tuple[str, VerifyReport]]) -> VerifyReport:
    """Return the report of a table, made of those of its branches, of which main is the first."""
    first = reports[0][1]
    problems = [
        f"branch {name!r}: {problem}" if name else problem
        for name, report in reports
        for problem in report.problems
    ]
    branch_reports = [report for _, report in reports]
    return VerifyReport(
        problems=tuple(problems),
        snapshot_count=sum(branch_report.snapshot_count for branch_report in branch_reports),
        tag_count=sum(branch_report.tag_count for branch_report in branch_reports),
        file_count=sum(branch_report.file_count for branch_report in branch_reports),
        index_file_count=sum(branch_report.index_file_count for branch_report in branch_reports),
        gone_count=sum(branch_report.gone_count for branch_report in branch_reports),
        not_honoured=first.not_honoured,
        unchecked_count=sum(branch_report.unchecked_count for branch_report in branch_reports),
        read_count=sum(branch_report.read_count for branch_report in branch_reports),
        skipped_count=sum(branch_report.skipped_count for branch_report in branch_reports),
        warnings=tuple(
            warning for branch_report in branch_reports for warning in branch_report.warnings
        ),
        damaged_files=merged(
            file for branch_report in branch_reports for file in branch_report.damaged_files
        ),
        own_damaged_files=first.damaged_files,
        hidden=first.hidden,
    )
