"""The little language for buckets: "L0:1 L2:9" is a file of 1 byte on level 0 and one of 9 on level 2.

After the size, in this order and each optional: its keys `[3-9]` (default: all, [0-99]), its sequence
numbers `@5` or `@5-8`, its deletes `d2` (`d?`: not recorded), a name `=a`. Without sequence numbers
files are taken to be written newest first. Keys are whole numbers, stored as themselves.
"""

import re
from collections.abc import Iterable

from lsm_engine.format.data_file import EMPTY_STATS, DataFileMeta
from lsm_engine.lsm.levels import Levels, LevelSortedRun, SortedRun
from lsm_engine.options.modes import FileSource

_FILE = re.compile(
    r"L(?P<level>\d+):(?P<size>\d+)(?:\[(?P<low>\d+)(?:-(?P<high>\d+))?\])?"
    r"(?:@(?P<first>\d+)(?:-(?P<last>\d+))?)?(?:d(?P<deletes>\d+|\?))?(?:=(?P<name>\w+))?"
)


def key_of(number: int) -> bytes:
    """Return a whole number as a stored key whose bytes are in key order."""
    return number.to_bytes(4, "big")


def key_order(stored: bytes) -> bytes:
    """The key order of shapes: stored keys compare as they are."""
    return stored


def files(shape: str) -> list[DataFileMeta]:
    """Return the files of a shape, in the order written."""
    words = shape.split()
    return [_file(word, len(words) - at) for at, word in enumerate(words)]


def _file(word: str, age: int) -> DataFileMeta:
    found = _FILE.fullmatch(word)
    assert found, f"not a file: {word!r}"
    low = int(found["low"] or 0)
    high = int(found["high"]) if found["high"] else low if found["low"] else 99
    first = int(found["first"]) if found["first"] else age
    deletes = found["deletes"]
    return DataFileMeta(
        file_name=found["name"] or f"file-{age}",
        file_size=int(found["size"]),
        row_count=int(found["size"]),
        min_key=key_of(low),
        max_key=key_of(high),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=first,
        max_sequence_number=int(found["last"]) if found["last"] else first,
        schema_id=0,
        level=int(found["level"]),
        delete_row_count=None if deletes == "?" else int(deletes or 0),
        file_source=FileSource.APPEND,
    )


def runs(shape: str) -> list[LevelSortedRun]:
    """Return each file of a shape as a run, in the order written: newest first."""
    return [LevelSortedRun(level=file.level, run=SortedRun.of_one(file)) for file in files(shape)]


def levels(shape: str, *, level_count: int = 6) -> Levels:
    """Return a shape as the levels of a bucket."""
    return Levels.from_files(files(shape), level_count=level_count, key_order=key_order)


def show(file: DataFileMeta) -> str:
    """Return a file as short text: its name, level and keys."""
    low, high = (int.from_bytes(key, "big") for key in (file.min_key, file.max_key))
    return f"L{file.level}:{file.file_size}[{low}-{high}]"


def show_all(shown: Iterable[DataFileMeta]) -> str:
    """Return files as short text."""
    return " ".join(show(file) for file in shown)
