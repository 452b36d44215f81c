"""A sorted run: files in key order that do not overlap."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta

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
