"""Sorted rows → rolled data files → DataFileMeta.

Files are invisible until a commit names them. Whoever gives up calls `abort`, which deletes them.
"""

import contextlib
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidInputError, LsmError
from lsm_engine.base.ids import checked_sequence
from lsm_engine.base.modes import FileSource, RowKind
from lsm_engine.base.record import record
from lsm_engine.codec.binary_row import encode_stored
from lsm_engine.io.clock import Clock, IdSource
from lsm_engine.io.data_formats import DataOutput, data_encoding
from lsm_engine.io.file_checksum import ChecksumOutput
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.file_stats import FileStats, FooterStats, RowStats
from lsm_engine.io.formats import file_schema
from lsm_engine.io.key_footers import key_footer_members, record_keys
from lsm_engine.io.parquet_output import ParquetOutput
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.stats import EMPTY_ROW
from lsm_engine.schema.table_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"
ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 128 << 20
ENCODERS = min(4, len(os.sched_getaffinity(0)))
"""Row groups that one writer encodes at a time, as long as they hold no more than ROW_GROUP_BYTES."""
_ROW_GROUP_MIN_ROWS = 1024


@record
class NewFiles:
    """What the files of one writer share. `directory` is the bucket's (TablePaths.bucket_directory).

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
    def stored_schema(self) -> TableSchema:
        """The schema with the columns that the files hold."""
        return replace(self.schema, fields=self.schema.written_fields(self.write_columns))

    @property
    def roll_bytes(self) -> int:
        """Bytes at which a file is full."""
        return self.target_file_size or self.schema.options.target_file_size(
            has_primary_key=self.schema.has_primary_key
        )


class DataFileWriter:
    """Writes rows of `schema.key_value_arrow` to one bucket, by key, each once (RollingFileWriter).

    Row groups are encoded by threads, up to one for each processor, while the rows of the next ones are
    made; their bytes go into the files in order, and a file is full at its target size.

    A changelog's rows may come several times a key; -U and the +U behind it stay in one file.

    Append tables: rows of `schema.arrow`, numbered on from `first_sequence_number`.
    """

    def __init__(
        self,
        file_io: FileIO,
        files: NewFiles,
        *,
        ids: IdSource,
        clock: Clock,
        first_sequence_number: int = 0,
    ) -> None:
        self._file_io = file_io
        self._files = files
        self._clock = clock
        self._unique = ids.new_id()
        self._next_sequence_number = first_sequence_number
        self._schema = file_schema(files.stored_schema)
        self._sources = [
            field.name.removeprefix(KEY_PREFIX) if at < self._key_count else field.name
            for at, field in enumerate(self._schema)
        ]
        self._group_bytes = min(
            files.schema.options[core_options.FILE_BLOCK_SIZE] or ROW_GROUP_BYTES, files.roll_bytes
        )
        self._encoding = data_encoding(
            self._schema, files.schema.options, level=files.level, group_bytes=self._group_bytes
        )
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._open: _OpenFile | None = None
        self._encoders: ThreadPoolExecutor | None = None
        self._encoded: deque[tuple[int, Future[_Group]]] = deque()
        self._count = 0
        self._done: list[DataFileMeta] = []

    @property
    def _keeps_record_keys(self) -> bool:
        """Whether what `locate` asks for is written along."""
        options = self._files.schema.options
        is_parquet = options.file_format(self._files.level).policy.has_footer
        return is_parquet and options[core_options.INDEX_TYPE].policy.reads_blooms

    @property
    def _key_count(self) -> int:
        schema = self._files.schema
        return len(schema.trimmed_primary_keys) if schema.has_primary_key else 0

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows; what they hold is referenced until its row group is written."""
        if rows.num_rows == 0:
            return
        arranged = self._arranged(rows)
        self._waiting.append(arranged)
        self._waiting_rows += arranged.num_rows
        self._waiting_bytes += arranged.nbytes
        while self._waiting_rows >= (most := self._group_rows()):
            # Groups of one size: the last ones are encoded side by side and end together.
            self._encode(-(-self._waiting_rows // -(-self._waiting_rows // most)))

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows in memory that wait for their row group to fill."""
        return self._waiting_bytes

    def relieve(self) -> None:
        """Write what waits as a row group, however small, to free its memory."""
        if self._waiting_rows:
            self._encode(self._waiting_rows)
        self._append_encoded()

    def close(self) -> list[DataFileMeta]:
        """Finish and return the files, in key order; none if no row was written."""
        last = self._group(self._taken(self._waiting_rows)) if self._waiting_rows else None
        self._append_encoded()
        if last is not None:
            self._append(last)
        self._roll()
        self._stop_encoders()
        return list(self._done)

    def abort(self) -> None:
        """Delete everything this writer wrote, as far as the storage lets it."""
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._stop_encoders()
        if self._open is not None:
            self._open.abandon()
            self._open = None
        while self._done:
            with contextlib.suppress(LsmError):  # what is left is an orphan, no more
                self._file_io.delete(f"{self._files.directory}/{self._done.pop().file_name}")

    def _arranged(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """Return rows in the columns of the file: the key columns twice, nothing copied."""
        columns = [rows.column(name) for name in self._sources]
        if any(
            column.type != field.type for column, field in zip(columns, self._schema, strict=True)
        ):
            columns = [
                pc.cast(column, field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ]
        for column, field in zip(columns, self._schema, strict=True):
            if not field.nullable and column.null_count:
                raise InvalidInputError(
                    "a column that is NOT NULL has nulls, as a merge leaves them where all values "
                    "were retracted; make it nullable with SetNullable, or give it an aggregate "
                    "function that does not end in null",
                    column=field.name,
                )
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _group_rows(self) -> int:
        """Rows of the next row group, by the size in memory of the rows that wait for it."""
        by_size = self._group_bytes * self._waiting_rows // max(self._waiting_bytes, 1)
        return max(min(by_size, ROW_GROUP_ROWS), _ROW_GROUP_MIN_ROWS)

    def _encode(self, row_count: int) -> None:
        """Hand the next rows to an encoder; waits while all are busy, or hold enough memory."""
        rows = self._taken(row_count)
        while len(self._encoded) >= ENCODERS or (
            self._encoded and sum(size for size, _ in self._encoded) + rows.nbytes > ROW_GROUP_BYTES
        ):
            self._append_next()
        if self._encoders is None:
            self._encoders = ThreadPoolExecutor(ENCODERS, thread_name_prefix="lsm-encode")
        self._encoded.append((rows.nbytes, self._encoders.submit(self._group_apart, rows)))

    def _group_apart(self, rows: pa.Table) -> "_Group":
        """Encode in a thread, which keeps no memory of it: a tenth of what a large compaction holds."""
        group = self._group(rows)
        pa.default_memory_pool().release_unused()
        return group

    def _group(self, rows: pa.Table) -> "_Group":
        """Encode; runs in any thread, on nothing that changes."""
        keys = None
        if self._keeps_record_keys:
            names = self._files.schema.trimmed_primary_keys
            keys = record_keys(names, [rows.column(name) for name in names])
        return _Group(rows=rows, stored=self._encoding.encode(rows), record_keys=keys)

    def _taken(self, row_count: int) -> pa.Table:
        """Take rows from those that wait."""
        waiting = pa.concat_tables(self._waiting)
        row_count = self._uncut(waiting, row_count)
        rows, rest = waiting.slice(0, row_count), waiting.slice(row_count)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_rows = rest.num_rows
        self._waiting_bytes = rest.nbytes if rest.num_rows else 0
        return rows

    def _append_encoded(self) -> None:
        """Wait for the row groups that are being encoded; raises what that raised."""
        while self._encoded:
            self._append_next()

    def _append_next(self) -> None:
        _, encoded = self._encoded.popleft()
        self._append(encoded.result())

    def _append(self, group: "_Group") -> None:
        if self._open is not None and self._open.size >= self._files.roll_bytes:
            self._roll()
        if self._open is None:
            self._open = self._started()
        self._open.append(group)

    def _stop_encoders(self) -> None:
        encoders, self._encoders = self._encoders, None
        self._encoded.clear()
        if encoders is not None:
            encoders.shutdown(cancel_futures=True)

    def _uncut(self, waiting: pa.Table, row_count: int) -> int:
        """Return how many rows to write so that no -U of a changelog parts from its +U."""
        if self._files.prefix != CHANGELOG_PREFIX or row_count >= waiting.num_rows:
            return row_count
        last = waiting.column(VALUE_KIND)[row_count - 1].as_py()
        return row_count + int(last == RowKind.UPDATE_BEFORE)

    def _started(self) -> "_OpenFile":
        extension = self._files.schema.options.file_format(self._files.level).value
        name = f"{self._files.prefix}{self._unique}-{self._count}.{extension}"
        self._count += 1
        output = ChecksumOutput(self._file_io.open_output(f"{self._files.directory}/{name}"))
        try:
            return _OpenFile(name, output, self._encoding.open(output), self._files, self._schema)
        except BaseException:  # not yet in `_open`, where `abort` would find it
            output.abort()
            raise

    def _roll(self) -> None:
        if self._open is None:
            return
        finished = self._open.close(self._clock.now_millis(), self._next_sequence_number)
        self._next_sequence_number = finished.max_sequence_number + 1
        self._done.append(finished)
        self._open = None


@record
class _Group:
    """Rows, what their file's encoding made of them, and their record keys if those are kept."""

    rows: pa.Table
    stored: Any
    record_keys: pa.Array | None


class _OpenFile:
    """The file that rows go to now, and what is known about it so far."""

    def __init__(
        self,
        name: str,
        output: ChecksumOutput,
        rows: DataOutput,
        files: NewFiles,
        schema: pa.Schema,
    ) -> None:
        self.name = name
        self._output = output
        self._rows = rows
        self._files = files
        is_parquet = files.schema.options.file_format(files.level).policy.has_footer
        self._stats: FileStats = (
            FooterStats(schema, files.stored_schema)
            if is_parquet
            else RowStats(files.stored_schema)
        )
        self._record_keys: list[pa.Array] = []
        self._row_count = 0
        self._delete_count = 0
        self._sequences: list[tuple[int, int]] = []
        self._min_key, self._max_key = EMPTY_ROW, EMPTY_ROW

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._output.tell()

    def append(self, group: _Group) -> None:
        rows = group.rows
        self._rows.append(group.stored)
        self._stats.update(rows)
        if group.record_keys is not None:
            self._record_keys.append(group.record_keys)
        if not self._row_count:
            self._min_key = _stored_key(self._files.schema, rows.slice(0, 1))
        self._max_key = _stored_key(self._files.schema, rows.slice(rows.num_rows - 1))
        self._row_count += rows.num_rows
        if SEQUENCE_NUMBER in rows.column_names:
            found = pc.min_max(rows.column(SEQUENCE_NUMBER)).as_py()
            self._sequences.append((found["min"], found["max"]))
        if VALUE_KIND in rows.column_names:
            # Of the four kinds the two that take a row away are the odd numbers.
            self._delete_count += sum(
                int(np.count_nonzero(chunk.to_numpy() & 1))
                for chunk in rows.column(VALUE_KIND).chunks
            )

    def close(self, now_millis: int, first_sequence_number: int) -> DataFileMeta:
        """Finish the file; `first_sequence_number` is for rows that carry none."""
        files, stats = self._files, self._stats
        if isinstance(self._rows, ParquetOutput) and self._record_keys:
            self._rows.add_members(key_footer_members(files.schema.options, self._record_keys))
        has_footer = isinstance(self._rows, ParquetOutput)
        stats.finish(self._rows.close())
        size = self._output.tell()
        self._output.close()
        least, greatest = first_sequence_number, first_sequence_number + self._row_count - 1
        checked_sequence(first_sequence_number, self._row_count)
        if self._sequences:
            least = min(low for low, _ in self._sequences)
            greatest = max(high for _, high in self._sequences)
        return DataFileMeta(
            file_name=self.name,
            file_size=size,
            row_count=self._row_count,
            min_key=self._min_key,
            max_key=self._max_key,
            key_stats=stats.of_keys(),
            value_stats=stats.of_values(),
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

    def abandon(self) -> None:
        """Delete the unfinished file."""
        self._rows.abandon()
        self._output.abort()


def _stored_key(schema: TableSchema, row: pa.Table) -> bytes:
    if not schema.has_primary_key:
        return EMPTY_ROW
    fields = schema.select(schema.trimmed_primary_keys)
    columns: Sequence[pa.ChunkedArray] = [row.column(KEY_PREFIX + field.name) for field in fields]
    return encode_stored(columns, [field.type for field in fields])[0]
