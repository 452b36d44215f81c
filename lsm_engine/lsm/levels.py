"""The levels of one bucket: which files are where, newest first."""

import heapq
from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta

# -- A sorted run: files in key order that do not overlap ------------------------------------------

KeyOrder: TypeAlias = Callable[[bytes], bytes]
"""A file's `min_key` or `max_key` → bytes that compare as the keys do."""


@record
class SortedRun:
    """Files in key order, no two of which overlap. A level-0 file is a run by itself."""

    files: tuple[DataFileMeta, ...]

    def __post_init__(self) -> None:
        assert self.files, "a run without files"

    @staticmethod
    def of_one(file: DataFileMeta) -> "SortedRun":
        """Return the run that a file is by itself."""
        return SortedRun(files=(file,))

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.file_size for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows of all files."""
        return sum(file.row_count for file in self.files)


@record
class LevelSortedRun:
    """A run and the level it lives on."""

    level: int
    run: SortedRun

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """The run's files."""
        return self.run.files

    @property
    def size(self) -> int:
        """Bytes of the run."""
        return self.run.size


def overlap(files: Iterable[DataFileMeta], key_order: KeyOrder) -> tuple[str, str] | None:
    """Return the names of two neighbours whose keys overlap, or None; files come in key order."""
    before: DataFileMeta | None = None
    for file in files:
        if before is not None and key_order(before.max_key) >= key_order(file.min_key):
            return before.file_name, file.file_name
        before = file
    return None


# -- The levels of one bucket: which files are where, newest first ---------------------------------


def overlaps(file: DataFileMeta, candidates: Iterable[DataFileMeta], key_order: KeyOrder) -> bool:
    """Whether some of the others may hold a key of a file."""
    low, high = key_order(file.min_key), key_order(file.max_key)
    return any(
        key_order(candidate.min_key) <= high and low <= key_order(candidate.max_key)
        for candidate in candidates
    )


def newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    """Return the sort key of level-0 files: newest first, ties broken by facts that never change."""
    created = -1 if file.creation_millis is None else file.creation_millis
    return (-file.max_sequence_number, file.min_sequence_number, created, file.file_name)


@record
class Levels:
    """The files of one bucket as runs. State is replaced, not edited.

    `level_zero` is newest first; `runs_below[i]` is the run of level i + 1, or None where empty.
    """

    level_zero: tuple[DataFileMeta, ...]
    runs_below: tuple[SortedRun | None, ...]
    key_order: KeyOrder

    @staticmethod
    def from_files(
        files: Iterable[DataFileMeta], *, level_count: int, key_order: KeyOrder
    ) -> "Levels":
        """Arrange files. There are `level_count` levels, more if a file is on a deeper one.

        Raises CorruptFileError where files of a level below 0 overlap.
        """
        by_level: dict[int, list[DataFileMeta]] = {}
        for file in files:
            by_level.setdefault(file.level, []).append(file)
        deepest = max((level_count - 1, *by_level))
        return Levels(
            level_zero=tuple(sorted(by_level.get(0, ()), key=newest_first)),
            runs_below=tuple(
                _run(level, by_level.get(level, []), key_order) for level in range(1, deepest + 1)
            ),
            key_order=key_order,
        )

    @property
    def level_count(self) -> int:
        """Levels, level 0 included."""
        return 1 + len(self.runs_below)

    @property
    def max_level(self) -> int:
        """The last level."""
        return len(self.runs_below)

    @property
    def runs(self) -> tuple[LevelSortedRun, ...]:
        """Every run, newest first: level 0 file by file, then the levels that hold files."""
        zero = (LevelSortedRun(level=0, run=SortedRun.of_one(file)) for file in self.level_zero)
        below = (
            LevelSortedRun(level=level, run=run)
            for level, run in enumerate(self.runs_below, start=1)
            if run is not None
        )
        return (*zero, *below)

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        """Every file, newest run first."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def highest_non_empty_level(self) -> int:
        """The deepest level that holds a file, or -1."""
        runs = self.runs
        return runs[-1].level if runs else -1

    def files_of(self, level: int) -> tuple[DataFileMeta, ...]:
        """Return the files of a level: the newest first on level 0, in key order below."""
        if level == 0:
            return self.level_zero
        run = self.runs_below[level - 1] if level <= self.max_level else None
        return run.files if run else ()

    def update(self, before: Iterable[DataFileMeta], after: Iterable[DataFileMeta]) -> "Levels":
        """Replace the inputs of a compaction by its outputs. Levels never become fewer."""
        removed = {(file.file_name, file.level) for file in before}
        remaining = [file for file in self.files if (file.file_name, file.level) not in removed]
        assert len(remaining) + len(removed) == len(self.files), "an input is not in these levels"
        return Levels.from_files(
            (*remaining, *after), level_count=self.level_count, key_order=self.key_order
        )

    def candidates(self, key: bytes, *, from_level: int = 0) -> Iterator[DataFileMeta]:
        """Yield the files whose range holds a key, newest first; at most one of each level below 0.

        `key` is memcomparable, as `key_order` returns it.
        """
        if from_level == 0:
            for file in self.level_zero:
                if self.key_order(file.min_key) <= key <= self.key_order(file.max_key):
                    yield file
        for level in range(max(1, from_level), self.level_count):
            files = self.files_of(level)
            index = bisect_left(files, key, key=lambda file: self.key_order(file.max_key))
            if index < len(files) and self.key_order(files[index].min_key) <= key:
                yield files[index]


def _run(level: int, files: list[DataFileMeta], key_order: KeyOrder) -> SortedRun | None:
    if not files:
        return None
    ordered = sorted(files, key=lambda file: key_order(file.min_key))
    if names := overlap(ordered, key_order):
        raise CorruptFileError(
            f"files of level {level} overlap; restore from a snapshot before they did",
            level=level,
            files=names,
        )
    return SortedRun(files=tuple(ordered))


# -- Interval partition: files → disjoint sections → the fewest sorted runs of each ----------------


def sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> list[list[SortedRun]]:
    """Return sections in key order; no key is in two of them.

    The runs of a section stand oldest first (deepest level, then lowest sequence number), so that a
    merge that has nothing else to decide by lets the newer one win. They are as few as can be, unless
    rows of several runs may have one sequence number: then no run holds both an older and a newer file
    than one of another run.
    """
    return [_runs(section) for section in _sections(files, key_order)]


def runs_by_age(
    section: Iterable[Sequence[DataFileMeta]], compacted_from: int
) -> list[tuple[int, tuple[DataFileMeta, ...]]]:
    """Return the runs of a section cut by age, each with its age, oldest first.

    The age of files above level `compacted_from` is 0: they are new. Other files have their level's.
    """
    cut: list[tuple[int, tuple[DataFileMeta, ...]]] = []
    for run in section:
        by_age: dict[int, list[DataFileMeta]] = {}
        for file in run:
            by_age.setdefault(file.level if file.level >= compacted_from else 0, []).append(file)
        cut += [(age, tuple(files)) for age, files in by_age.items()]
    return sorted(cut, key=lambda cut_section: -cut_section[0])


def runs_are_apart(section: Iterable[Sequence[DataFileMeta]]) -> bool:
    """Whether all rows of a run are older, or all newer, than any row of another, by sequence numbers.

    Then a file's greatest number decides as those of its rows do.
    """
    ends = sorted(
        (
            min(file.min_sequence_number for file in run),
            max(file.max_sequence_number for file in run),
        )
        for run in section
    )
    return all(before[1] < after[0] for before, after in pairwise(ends))


_Bounded = tuple[bytes, bytes, DataFileMeta]  # first key, last key, file


def _sections(files: Iterable[DataFileMeta], key_order: KeyOrder) -> Iterator[list[_Bounded]]:
    bounded = [(key_order(file.min_key), key_order(file.max_key), file) for file in files]
    bounded.sort(key=lambda interval: (interval[0], interval[1], interval[2].file_name))
    section: list[_Bounded] = []
    end = b""
    for bound in bounded:
        if section and bound[0] > end:
            yield section
            section = []
        end = max(end, bound[1]) if section else bound[1]
        section.append(bound)
    if section:
        yield section


def _runs(section: list[_Bounded]) -> list[SortedRun]:
    runs = _by_age(section) if _may_tie(file for _, _, file in section) else _fewest(section)
    return [SortedRun(files=tuple(run)) for run in runs]


def _fewest(section: list[_Bounded]) -> list[list[DataFileMeta]]:
    """Give each file, by first key, to the run that ends first; a new run if even that is too far."""
    ends: list[tuple[bytes, int]] = []  # last key of each run, a heap
    runs: list[list[DataFileMeta]] = []
    for first, last, file in section:
        if ends and ends[0][0] < first:
            _, run = heapq.heappop(ends)
        else:
            run = len(runs)
            runs.append([])
        runs[run].append(file)
        heapq.heappush(ends, (last, run))
    return sorted(runs, key=lambda run: min(map(_newest_first, run)), reverse=True)


def _may_tie(files: Iterable[DataFileMeta]) -> bool:
    """Whether files that may share a key have sequence numbers in common; those of a level share none."""
    spans: dict[object, tuple[int, int]] = {}
    for file in files:
        run = file.level or file.file_name
        low, high = spans.get(run, (file.min_sequence_number, file.max_sequence_number))
        spans[run] = (min(low, file.min_sequence_number), max(high, file.max_sequence_number))
    return any(span[1] >= next_span[0] for span, next_span in pairwise(sorted(spans.values())))


def _by_age(section: list[_Bounded]) -> list[list[DataFileMeta]]:
    """Give files, oldest first, to one run until one shares keys with it: the next begins a run."""
    runs: list[list[_Bounded]] = []
    for interval in sorted(section, key=lambda interval: _newest_first(interval[2]), reverse=True):
        if runs:
            index = bisect(runs[-1], interval[0], key=lambda member: member[0])
            follows = index == 0 or runs[-1][index - 1][1] < interval[0]
            if follows and (index == len(runs[-1]) or interval[1] < runs[-1][index][0]):
                runs[-1].insert(index, interval)
                continue
        runs.append([interval])
    return [[file for _, _, file in run] for run in runs]


def _newest_first(file: DataFileMeta) -> tuple[int, tuple[int, int, int, str]]:
    return (file.level, newest_first(file))
