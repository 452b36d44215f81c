"""Data files being written, and their manifest entries once they are finished."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.ids import checked_sequence
from lsm_engine.base.modes import FileSource
from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import encode_stored
from lsm_engine.io.data_formats import DataEncoding, DataOutput, data_encoding
from lsm_engine.io.file_checksum import ChecksumOutput
from lsm_engine.io.file_stats import FileStats, FooterStats, RowStats
from lsm_engine.io.formats import file_schema
from lsm_engine.io.key_footers import key_footer_members
from lsm_engine.io.parquet_output import ParquetOutput
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.stats import EMPTY_ROW, EMPTY_STATS
from lsm_engine.schema.table_schema import (
    SEQUENCE_NUMBER,
    VALUE_KIND,
    SameSchema,
    TableSchema,
)

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"


@record
class NewFiles:
    """The facts that all files of one writer share. `directory` is the bucket's (TablePaths.bucket_directory).

    `prefix` is DATA_PREFIX or CHANGELOG_PREFIX. `target_file_size` None: from the table's options.
    `write_columns`: what the files of an append table hold, if not exactly the table's columns.
    """

    schema: TableSchema
    directory: str
    level: int = 0
    file_source: FileSource = FileSource.APPEND
    prefix: str = DATA_PREFIX
    target_file_size: int | None = None
    write_columns: tuple[str, ...] | None = None

    @property
    def roll_bytes(self) -> int:
        """Bytes at which a file is full."""
        return self.target_file_size or self.schema.options.target_file_size(
            has_primary_key=self.schema.has_primary_key
        )


@record
class FileLayout:
    """The layout of files of one schema, level and choice of columns.

    `columns` are those of the file and `sources` the columns of the rows that they come from; `required`
    are the positions of those without nulls. `stored` is the schema with the columns that the files hold.
    """

    stored: TableSchema
    columns: pa.Schema
    sources: tuple[str, ...]
    required: tuple[int, ...]
    key_names: tuple[str, ...]
    encoding: DataEncoding
    has_footer: bool
    keeps_record_keys: bool


@lru_cache(maxsize=64)
def file_layout(
    same: SameSchema, level: int, write_columns: tuple[str, ...] | None, group_bytes: int
) -> FileLayout:
    """Return the layout of new files. It is cached: a write into many buckets asks for it once per bucket.

    `write_columns` as in NewFiles; `group_bytes`: memory of a row group.
    """
    schema = same.schema
    stored = replace(schema, fields=schema.written_fields(write_columns))
    columns = file_schema(stored)
    keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
    is_thin = schema.options[core_options.DATA_FILE_THIN_MODE]
    has_footer = schema.options.file_format(level).policy.has_footer
    return FileLayout(
        stored=stored,
        columns=columns,
        sources=tuple(columns.names) if is_thin else (*keys, *columns.names[len(keys) :]),
        required=tuple(i for i, field in enumerate(columns) if not field.nullable),
        key_names=keys if is_thin else tuple(columns.names[: len(keys)]),
        encoding=data_encoding(columns, schema.options, level=level, group_bytes=group_bytes),
        has_footer=has_footer,
        # `locate` reads them.
        keeps_record_keys=has_footer
        and schema.options[core_options.INDEX_TYPE].policy.reads_blooms,
    )


@record
class WrittenFile:
    """A finished file before its keys and statistics are encoded: `metas_of` does so for many at once.

    `ends`: the keys of its first and of its last row.
    """

    schema: TableSchema
    meta: DataFileMeta
    stats: FileStats
    ends: Sequence[pa.Table]


def metas_of(written: Sequence[WrittenFile]) -> list[DataFileMeta]:
    """Return the facts of files that one operation wrote, with keys and statistics, in one pass.

    Files of one layout (their schema, and the columns and format that they hold) are taken together.
    """
    metas: dict[int, DataFileMeta] = {}
    alike: dict[Any, list[int]] = {}
    for i, file in enumerate(written):
        key = (id(file.schema), type(file.stats), file.meta.write_columns)
        alike.setdefault(key, []).append(i)
    for numbers in alike.values():
        files = [written[i] for i in numbers]
        stats = type(files[0].stats).of_each([file.stats for file in files])
        keys = _stored_ends(files)
        for i, file, (of_keys, of_values), (first, last) in zip(
            numbers, files, stats, keys, strict=True
        ):
            metas[i] = replace(
                file.meta, min_key=first, max_key=last, key_stats=of_keys, value_stats=of_values
            )
    return [metas[i] for i in range(len(written))]


def _stored_ends(files: Sequence[WrittenFile]) -> list[tuple[bytes, bytes]]:
    """Return the first and the last key of each file as stored rows."""
    schema = files[0].schema
    if not schema.has_primary_key:
        return [(EMPTY_ROW, EMPTY_ROW)] * len(files)
    fields = schema.select(schema.trimmed_primary_keys)
    rows = pa.concat_tables([end for file in files for end in file.ends])
    stored = encode_stored(rows.columns, [field.type for field in fields])
    return list(zip(stored[::2], stored[1::2], strict=True))


@record
class RowGroup:
    """An encoded row group, with the facts that its file collects, and record keys if the table stores them.

    `rows`: those whose values statistics look at. `ends`: the keys of the first and of the last row.
    `sequences`: the least and the greatest sequence number, None where rows carry none.
    """

    rows: pa.Table
    row_count: int
    ends: pa.Table
    sequences: tuple[int, int] | None
    delete_count: int
    stored: Any
    record_keys: pa.Array | None

    @staticmethod
    def from_rows(
        rows: pa.Table, key_names: Sequence[str], stored: Any, record_keys: pa.Array | None
    ) -> "RowGroup":
        """Return the row group of rows, of which there is at least one."""
        keys = rows.select(key_names)
        numbers = _chunks(rows, SEQUENCE_NUMBER)
        return RowGroup(
            rows=rows,
            row_count=rows.num_rows,
            # Copied: a slice would hold all rows in memory until the file is finished.
            ends=pa.concat_tables([keys.slice(0, 1), keys.slice(len(rows) - 1)]).combine_chunks(),
            sequences=(min(int(n.min()) for n in numbers), max(int(n.max()) for n in numbers))
            if numbers
            else None,
            # -U and -D, the kinds that remove a row, are the odd numbers.
            delete_count=sum(int(np.count_nonzero(n & 1)) for n in _chunks(rows, VALUE_KIND)),
            stored=stored,
            record_keys=record_keys,
        )


def _chunks(rows: pa.Table, name: str) -> list[Any]:
    if name not in rows.column_names:
        return []
    return [chunk.to_numpy() for chunk in rows.column(name).chunks if len(chunk)]


class OpenFile:
    """The file that a writer appends to, and its facts so far."""

    def __init__(
        self,
        name: str,
        output: ChecksumOutput,
        rows: DataOutput,
        files: NewFiles,
        layout: FileLayout,
    ) -> None:
        self.name = name
        self._output = output
        self._rows = rows
        self._files = files
        self._stats: FileStats = (
            FooterStats(layout.columns, layout.stored)
            if layout.has_footer
            else RowStats(layout.stored)
        )
        self._record_keys: list[pa.Array] = []
        self._row_count = 0
        self._delete_count = 0
        self._sequences: list[tuple[int, int]] = []
        self._ends: list[pa.Table] = []

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._output.tell()

    def append(self, group: RowGroup) -> None:
        """Append a row group."""
        self._rows.append(group.stored)
        self._stats.update(group.rows)
        if group.record_keys is not None:
            self._record_keys.append(group.record_keys)
        self._ends = [*(self._ends or [group.ends.slice(0, 1)])[:1], group.ends.slice(1)]
        self._row_count += group.row_count
        self._delete_count += group.delete_count
        if group.sequences is not None:
            self._sequences.append(group.sequences)

    def close(self, now_millis: int, first_sequence_number: int) -> "WrittenFile":
        """Finish the file; `first_sequence_number` is for rows that carry none."""
        files = self._files
        if isinstance(self._rows, ParquetOutput) and self._record_keys:
            self._rows.add_members(key_footer_members(files.schema.options, self._record_keys))
        has_footer = isinstance(self._rows, ParquetOutput)
        self._stats.finish(self._rows.close())
        size = self._output.tell()
        self._output.close()
        least, greatest = first_sequence_number, first_sequence_number + self._row_count - 1
        checked_sequence(first_sequence_number, self._row_count)
        if self._sequences:
            least = min(low for low, _ in self._sequences)
            greatest = max(high for _, high in self._sequences)
        meta = DataFileMeta(
            file_name=self.name,
            file_size=size,
            row_count=self._row_count,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=EMPTY_STATS,
            min_sequence_number=least,
            max_sequence_number=greatest,
            schema_id=files.schema.id,
            level=files.level,
            creation_millis=now_millis,
            delete_row_count=self._delete_count,
            file_source=files.file_source,
            write_columns=files.write_columns,
            checksum=self._output.checksum,
            footer_checksum=self._output.last_checksum if has_footer else None,
        )
        return WrittenFile(schema=files.schema, meta=meta, stats=self._stats, ends=self._ends)

    def abandon(self) -> None:
        """Delete the unfinished file."""
        self._rows.abandon()
        self._output.abort()
