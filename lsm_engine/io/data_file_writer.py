"""Writer of rolling data files from sorted rows.

Files are invisible until a commit names them. A caller that fails calls `abort`, which deletes them.
"""

import contextlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidInputError, LsmError
from lsm_engine.base.modes import RowKind
from lsm_engine.io.clock import Clock, IdSource
from lsm_engine.io.file_checksum import ChecksumOutput
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.key_footers import record_keys
from lsm_engine.io.stored_groups import StoredGroups
from lsm_engine.io.written_file import (
    CHANGELOG_PREFIX,
    FileLayout,
    NewFiles,
    OpenFile,
    RowGroup,
    WrittenFile,
    file_layout,
    metas_of,
)
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.schema.table_schema import VALUE_KIND, SameSchema

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 128 << 20
ENCODERS = min(4, len(os.sched_getaffinity(0)))
"""Row groups that one writer encodes at a time, as long as they hold no more than ROW_GROUP_BYTES."""
_ROW_GROUP_MIN_ROWS = 1024
_GROUPS_OF_A_LARGE_WRITE = 8


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
        self._group_bytes = min(
            files.schema.options[core_options.FILE_BLOCK_SIZE] or ROW_GROUP_BYTES, files.roll_bytes
        )
        self._layout = file_layout(
            SameSchema(files.schema), files.level, files.write_columns, self._group_bytes
        )
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._open: OpenFile | None = None
        self._encoders: ThreadPoolExecutor | None = None
        self._encoded: deque[tuple[int, Future[RowGroup]]] = deque()
        self._groups_begun = 0
        self._count = 0
        self._done: list[WrittenFile] = []

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

    def is_large(self, row_count: int, memory_bytes: int) -> bool:
        """Whether rows are enough for a row group to stay: files would be made of ever more small ones."""
        return row_count >= ROW_GROUP_ROWS // 4 or memory_bytes >= self._group_bytes // 4

    @property
    def takes_copies(self) -> bool:
        """Whether a stored row group can follow: what waits becomes one of its own then."""
        return not self._waiting or self.is_large(self._waiting_rows, self._waiting_bytes)

    def copy(self, groups: StoredGroups, number: int) -> None:
        """Append a row group of another file as it is stored, behind all rows so far."""
        self.relieve()
        self._append(groups.group(number))

    @property
    def layout(self) -> FileLayout:
        """How the files are laid out."""
        return self._layout

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows in memory that wait for their row group to fill."""
        return self._waiting_bytes

    def relieve(self) -> None:
        """Write the waiting rows as a row group, however small, to free their memory."""
        if self._waiting_rows:
            self._encode(self._waiting_rows)
        self._append_encoded()

    def close(self) -> list[DataFileMeta]:
        """Finish and return the files, in key order; none if no row was written."""
        return metas_of(self.finish())

    def finish(self) -> list[WrittenFile]:
        """Finish the files as `close` does, for `metas_of`: one writer of many asks for all at once."""
        last = self._group(self._take(self._waiting_rows)) if self._waiting_rows else None
        self._append_encoded()
        if last is not None:
            self._append(last)
        self._roll()
        self._stop_encoders()
        return list(self._done)

    def abort(self) -> None:
        """Delete all files of this writer, as far as the storage allows."""
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self._stop_encoders()
        if self._open is not None:
            self._open.abandon()
            self._open = None
        while self._done:
            with contextlib.suppress(LsmError):  # a file that remains is an orphan
                self._file_io.delete(f"{self._files.directory}/{self._done.pop().meta.file_name}")

    def _arranged(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        """Return rows in the columns of the file: the key columns twice, nothing copied."""
        schema = self._layout.columns
        columns = [rows.column(name) for name in self._layout.sources]
        if [column.type for column in columns] != schema.types:
            columns = list(map(pc.cast, columns, schema.types))
        for i in self._layout.required:
            if columns[i].null_count:
                raise InvalidInputError(
                    "a column that is NOT NULL has nulls, of a -D that is not a whole row (delete(keys) "
                    "takes keys alone), or as a merge leaves them where all values were retracted; make "
                    "it nullable with SetNullable, or give it an aggregate function that does not end "
                    "in null",
                    column=schema.names[i],
                )
        return pa.Table.from_arrays(columns, schema=schema)

    def _group_rows(self) -> int:
        """Rows of the next row group, by the size in memory of the rows that wait for it."""
        by_size = self._group_bytes * self._waiting_rows // max(self._waiting_bytes, 1)
        return max(min(by_size, ROW_GROUP_ROWS), _ROW_GROUP_MIN_ROWS)

    def _encode(self, row_count: int) -> None:
        """Hand the next rows to an encoder; waits while all are busy, or hold enough memory."""
        rows = self._take(row_count)
        while len(self._encoded) >= ENCODERS or (
            self._encoded and sum(size for size, _ in self._encoded) + rows.nbytes > ROW_GROUP_BYTES
        ):
            self._append_next()
        if self._encoders is None:
            self._encoders = ThreadPoolExecutor(ENCODERS, thread_name_prefix="lsm-encode")
        self._groups_begun += 1
        is_large = self._groups_begun > _GROUPS_OF_A_LARGE_WRITE
        encode = self._group_apart if is_large else self._group
        self._encoded.append((rows.nbytes, self._encoders.submit(encode, rows)))

    def _group_apart(self, rows: pa.Table) -> RowGroup:
        """Encode, and release the memory of the thread: a tenth of the memory of a large compaction.

        A small compaction would spend an eighth of its time on allocating the memory again.
        """
        group = self._group(rows)
        pa.default_memory_pool().release_unused()
        return group

    def _group(self, rows: pa.Table) -> RowGroup:
        """Encode rows. Runs in any thread and reads no mutable state."""
        keys = None
        if self._layout.keeps_record_keys:
            names = self._files.schema.trimmed_primary_keys
            keys = record_keys(names, [rows.column(name) for name in names])
        return RowGroup.from_rows(
            rows, self._layout.key_names, self._layout.encoding.encode(rows), record_keys=keys
        )

    def _take(self, row_count: int) -> pa.Table:
        """Take the next waiting rows."""
        waiting = pa.concat_tables(self._waiting)
        row_count = self._uncut(waiting, row_count)
        rows, remaining = waiting.slice(0, row_count), waiting.slice(row_count)
        self._waiting = [remaining] if remaining.num_rows else []
        self._waiting_rows = remaining.num_rows
        self._waiting_bytes = remaining.nbytes if remaining.num_rows else 0
        return rows

    def _append_encoded(self) -> None:
        """Wait for the row groups that are being encoded; raises the errors of their encoding."""
        while self._encoded:
            self._append_next()

    def _append_next(self) -> None:
        _, encoded = self._encoded.popleft()
        self._append(encoded.result())

    def _append(self, group: RowGroup) -> None:
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
        """Return the number of rows to write so that a -U of a changelog and its +U stay together."""
        if self._files.prefix != CHANGELOG_PREFIX or row_count >= waiting.num_rows:
            return row_count
        last = waiting.column(VALUE_KIND)[row_count - 1].as_py()
        return row_count + int(last == RowKind.UPDATE_BEFORE)

    def _started(self) -> OpenFile:
        extension = self._files.schema.options.file_format(self._files.level).value
        name = f"{self._files.prefix}{self._unique}-{self._count}.{extension}"
        self._count += 1
        output = ChecksumOutput(self._file_io.open_output(f"{self._files.directory}/{name}"))
        try:
            rows = self._layout.encoding.open(output)
            return OpenFile(name, output, rows, self._files, self._layout)
        except BaseException:  # not yet in `_open`, where `abort` would find it
            output.abort()
            raise

    def _roll(self) -> None:
        if self._open is None:
            return
        finished = self._open.close(self._clock.now_millis(), self._next_sequence_number)
        self._next_sequence_number = finished.meta.max_sequence_number + 1
        self._done.append(finished)
        self._open = None
