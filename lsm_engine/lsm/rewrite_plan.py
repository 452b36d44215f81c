"""A unit → the steps that carry it out: which files are rewritten, and which only change their level."""

from typing import TypeAlias

from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.lsm.levels import Levels, SortedRun, overlaps, sections
from lsm_engine.lsm.universal import CompactUnit, FileTest, none_of_them

_SMALL_TENTHS = 7
"""A file below this many tenths of the target file size is small."""


@record
class Upgrade:
    """Files that move to another level as they are."""

    files: tuple[DataFileMeta, ...]
    output_level: int


@record
class Rewrite:
    """Sections to read, merge and write as one sorted sequence of files.

    Sections are in key order and disjoint, runs of a section oldest first. `drop_deletes`: nothing
    older can hold a key of these, so keys whose newest row is a delete leave no row. `compacted_from`:
    rows of lower levels are new, and what they change has to be known; None: no caller asks.
    """

    sections: tuple[tuple[SortedRun, ...], ...]
    output_level: int
    drop_deletes: bool
    compacted_from: int | None = None

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """Every file that is read, and replaced by what is written."""
        return tuple(file for runs in self.sections for run in runs for file in run.files)


Step: TypeAlias = Upgrade | Rewrite


def is_small(file: DataFileMeta, target_file_size: int) -> bool:
    """Whether a file is worth merging with its neighbours only because of its size."""
    # Cut before it is multiplied, as other clients do.
    return file.file_size < target_file_size // 10 * _SMALL_TENTHS


def may_drop_deletes(
    unit: CompactUnit, levels: Levels, *, has_deletion_vectors: bool = False
) -> bool:
    """Whether nothing below the unit's output can hold an older row of its keys.

    With deletion vectors older rows are marked as they are replaced, and need no delete to hide them.
    """
    return has_deletion_vectors or unit.output_level >= levels.highest_non_empty_level


def plan_rewrite(
    unit: CompactUnit,
    levels: Levels,
    *,
    target_file_size: int,
    must_rewrite: FileTest = none_of_them,
    has_deletion_vectors: bool = False,
    compacted_from: int | None = None,
) -> tuple[Step, ...]:
    """Return the steps, in key order, an Upgrade of all files that only move last.

    What overlaps is rewritten, small files together with their neighbours. A large file that
    overlaps nothing is upgraded, unless it may hold deletes and goes to the last level (or lies
    there: another writer may have kept them), or `must_rewrite` asks for its rows to be read. A file
    that is in place already and has no reason to change is in no step.
    """
    drop_deletes = may_drop_deletes(unit, levels, has_deletion_vectors=has_deletion_vectors)
    plan = _Plan(
        unit,
        levels.max_level,
        must_rewrite,
        drop_deletes=drop_deletes,
        compacted_from=compacted_from,
    )
    for section in sections(unit.files, levels.key_order):
        if len(section) > 1:
            plan.gather(tuple(section))
            continue
        for file in section[0].files:
            if is_small(file, target_file_size):
                plan.gather((SortedRun.of_one(file),))
            else:
                plan.rewrite_gathered()
                plan.move(file)
    plan.rewrite_gathered()
    return plan.steps


class _Plan:
    """Steps so far, and the neighbouring sections gathered for the next rewrite."""

    def __init__(
        self,
        unit: CompactUnit,
        max_level: int,
        must_rewrite: FileTest,
        *,
        drop_deletes: bool,
        compacted_from: int | None,
    ) -> None:
        self._compacted_from = compacted_from
        self._unit = unit
        self._max_level = max_level
        self._must_rewrite = must_rewrite
        self._drop_deletes = drop_deletes
        self._gathered: list[tuple[SortedRun, ...]] = []
        self._rewrites: list[Rewrite] = []
        self._upgraded: list[DataFileMeta] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        level = self._unit.output_level
        upgrades = (
            [Upgrade(files=tuple(self._upgraded), output_level=level)] if self._upgraded else []
        )
        return (*self._rewrites, *upgrades)

    def gather(self, section: tuple[SortedRun, ...]) -> None:
        self._gathered.append(section)

    def rewrite_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if len(gathered) == 1 and len(gathered[0]) == 1:
            # A small file whose neighbours are large: rewriting it alone would change nothing.
            for file in gathered[0][0].files:
                self.move(file)
        elif gathered:
            self._rewrite(tuple(gathered))

    def move(self, file: DataFileMeta) -> None:
        last = self._unit.output_level == self._max_level
        loses_deletes = last and self._drop_deletes and file.may_hold_deletes
        if loses_deletes or self._unit.must_rewrite or self._must_rewrite(file):
            self._rewrite(((SortedRun.of_one(file),),))
        elif file.level != self._unit.output_level:
            self._upgraded.append(file)

    def _rewrite(self, gathered: tuple[tuple[SortedRun, ...], ...]) -> None:
        self._rewrites.append(
            Rewrite(
                sections=gathered,
                output_level=self._unit.output_level,
                drop_deletes=self._drop_deletes,
                compacted_from=self._compacted_from,
            )
        )


# -- A large first load of a bucket ----------------------------------------------------------------
#
# It goes to the last level as it is, instead of being merged there.


def bulk_load(
    levels: Levels, *, target_file_size: int, must_rewrite: FileTest = none_of_them
) -> tuple[DataFileMeta, ...]:
    """Return the oldest files of level 0 that may move to the last level as they are, or none.

    Nothing may lie below level 0. The files overlap nowhere and hold no deletes; each is large, or
    there is one that is larger than everything newer. Without this the first compaction of a bucket
    would rewrite the load that it began with, because a result never goes to level 0.
    """
    if levels.highest_non_empty_level > 0:
        return ()
    selected: list[DataFileMeta] = []
    for file in reversed(levels.level_zero):
        if (
            file.may_hold_deletes
            or must_rewrite(file)
            or overlaps(file, selected, levels.key_order)
        ):
            break
        selected.append(file)
    while selected and is_small(selected[-1], target_file_size):
        if len(selected) == 1 and 2 * selected[0].file_size > sum(
            file.file_size for file in levels.files
        ):
            break
        selected.pop()
    return tuple(selected)
