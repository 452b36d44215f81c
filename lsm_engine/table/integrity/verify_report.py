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
        of = {one.path: one for one in files}
        own = tuple(
            replace(one, sources=of[one.path].sources, is_rebuildable=of[one.path].is_rebuildable)
            for one in self.own_damaged_files
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
        found = f"{counted(len(self.problems), 'problem')} in {looked}"
        files = [f"damaged: {one}" for one in self.damaged_files]
        return "\n".join([found, *self.problems, *files, *self.not_honoured, *self.warnings])


def of_branches(reports: Sequence[tuple[str, VerifyReport]]) -> VerifyReport:
    """Return the report of a table, made of those of its branches, of which main is the first."""
    first = reports[0][1]
    problems = [
        f"branch {name!r}: {problem}" if name else problem
        for name, report in reports
        for problem in report.problems
    ]
    whole = [report for _, report in reports]
    return VerifyReport(
        problems=tuple(problems),
        snapshot_count=sum(one.snapshot_count for one in whole),
        tag_count=sum(one.tag_count for one in whole),
        file_count=sum(one.file_count for one in whole),
        index_file_count=sum(one.index_file_count for one in whole),
        gone_count=sum(one.gone_count for one in whole),
        not_honoured=first.not_honoured,
        unchecked_count=sum(one.unchecked_count for one in whole),
        read_count=sum(one.read_count for one in whole),
        skipped_count=sum(one.skipped_count for one in whole),
        warnings=tuple(warning for one in whole for warning in one.warnings),
        damaged_files=merged(file for one in whole for file in one.damaged_files),
        own_damaged_files=first.damaged_files,
        hidden=first.hidden,
    )
