"""The levels of one bucket: which files are where, newest first."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.mergetree.sorted_run import KeyOrder, LevelSortedRun, SortedRun, overlap
from lsm_engine.meta.data_file import DataFileMeta


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
