"""DataFileMeta: one sorted, immutable data file of a bucket."""

from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Self

from lsm_engine.base.record import record
from lsm_engine.options.modes import FileSource

# -- Column statistics of a file or a manifest: min, max and null counts ---------------------------

EMPTY_ROW = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
"""The stored form of a row without fields: the partition of an unpartitioned table."""


@record
class SimpleStats:
    """Stored rows of minima and maxima, one field per covered column (null: unknown).

    `null_counts` holds a count or None per column; a None in place of the whole means that the
    writer stored no array at all.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None


EMPTY_STATS = SimpleStats(min_values=EMPTY_ROW, max_values=EMPTY_ROW, null_counts=())
"""Statistics that cover no column."""


# -- DataFileMeta: one sorted, immutable data file of a bucket -------------------------------------

_NOTHING_KNOWN = SimpleStats(min_values=b"", max_values=b"", null_counts=None)


@record
class DataFileMeta:
    """The metadata of one data or changelog file in a manifest. docs/formats.md lists the bytes.

    `min_key` and `max_key` are stored rows (arity, then BinaryRow) of the trimmed primary key; they
    compare only through a key order (format/binary_row.py). Counts are of rows, sizes of bytes.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_millis: int | None = None
    delete_row_count: int | None = None  # None: written before the count was recorded
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_columns: tuple[str, ...] | None = None  # None: every column, in schema order
    external_path: str | None = None
    first_row_id: int | None = None
    write_columns: tuple[str, ...] | None = None
    checksum: int | None = None  # of all bytes; None: written by others
    footer_checksum: int | None = None  # of a Parquet file's footer and what follows it

    def __post_init__(self) -> None:
        assert self.min_sequence_number <= self.max_sequence_number, self
        assert self.row_count >= 0, self

    def upgrade(self, level: int) -> Self:
        """Return the file at a deeper level, with the same bytes: a compaction that has nothing to merge."""
        assert level > self.level, (level, self)
        return replace(self, level=level)

    def rename(self, file_name: str) -> Self:
        """Return the file with another name."""
        return replace(self, file_name=file_name)

    def without_stats(self) -> Self:
        """Return the file without value statistics."""
        if not self.value_stats.min_values and self.value_stats.null_counts is None:
            return self
        # A plan does this for every file, and `dataclasses.replace` takes twice as long.
        optional_values: dict[str, Any] = dict(zip(_OTHERS, _of_others(self), strict=True))
        return type(self)(**optional_values, value_stats=_NOTHING_KNOWN)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The data file and the files beside it that belong to it."""
        return (self.file_name, *self.extra_files)

    @property
    def may_hold_deletes(self) -> bool:
        """Whether the file holds retract rows, or does not record their number."""
        return self.delete_row_count is None or self.delete_row_count > 0


_OTHERS = tuple(field.name for field in fields(DataFileMeta) if field.name != "value_stats")
_of_others = attrgetter(*_OTHERS)
