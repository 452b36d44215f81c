"""Verify the rows of data and changelog files: every page decoded, in order, as the manifest describes."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.codec.binary_row import decode_columns, encode_stored
from lsm_engine.io.data_file_reader import DataFileReader, ReadColumns, open_data_file
from lsm_engine.io.file_checksum import check_whole
from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.order import is_sorted
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.stakes import stake_of

Progress = Callable[[str, int], None]
"""Called with the path of each file that has been read, and how many were read before it."""


class FileVerification:
    """Reads each file once, however many roots name it."""

    def __init__(self, session: TableSession, progress: Progress | None = None) -> None:
        self._session = session
        self._progress = progress
        self._schemas: dict[int, TableSchema] = {}
        self._count = 0

    def problems(self, entry: ManifestEntry, path: str, *, is_changelog: bool) -> Iterator[str]:
        """Yield what is wrong with a file that is there, and has its size."""
        file = entry.file
        schema = self._session.schema
        try:
            schema = self._schema(file.schema_id)
            rows = _Rows(file, schema, is_changelog=is_changelog, is_postponed=entry.bucket < 0)
            for problem in self._read(file, path, schema, rows):
                yield f"{path}: {problem} ({stake_of(entry, schema, path)})"
        except LsmError as error:
            yield f"{error} ({stake_of(entry, schema, path)})"
        if self._progress is not None:
            self._progress(path, self._count)
        self._count += 1

    def _schema(self, schema_id: int) -> TableSchema:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._session.schemas.load(schema_id)
        return self._schemas[schema_id]

    def _read(
        self, file: DataFileMeta, path: str, schema: TableSchema, rows: "_Rows"
    ) -> Iterator[str]:
        source = self._session.file_io.open_input(path)
        try:
            check_whole(source, file.checksum, file_name=path)
        finally:
            source.close()
        names = None
        if file.write_columns is not None:
            names = tuple(field.name for field in schema.written_fields(file.write_columns))
        columns = ReadColumns(file_schema=schema, read_schema=schema, names=names)
        with open_data_file(self._session.file_io, path, file, columns) as reader:
            reader.decode_every_column()
            yield from rows.problems(reader)


class _Rows:
    """The rows of one file, compared with its manifest entry.

    Rows of postponed buckets stand as they came, unsorted and unmerged.
    """

    def __init__(
        self, file: DataFileMeta, schema: TableSchema, *, is_changelog: bool, is_postponed: bool
    ) -> None:
        self._file = file
        self._schema = schema
        self._may_repeat = is_changelog or is_postponed
        self._is_postponed = is_postponed
        self._keys = schema.trimmed_primary_keys if schema.has_primary_key else ()
        self._first: bytes | None = None
        self._last: pa.Table | None = None
        self._deletes = 0
        self._sequences: list[int] = []
        fields = schema.written_fields(file.write_columns)
        self._types = {field.name: field.type for field in fields}
        self._nulls = dict.fromkeys(self._types, 0)
        self._wrong_order = self._doubled = 0
        self._outside: dict[str, None] = {}

    def problems(self, reader: DataFileReader) -> Iterator[str]:
        """Yield what is wrong."""
        for batch in reader.batches():
            if batch.num_rows:
                self._take(pa.Table.from_batches([batch]))
        file = self._file
        if self._wrong_order and not self._is_postponed:
            yield "its rows are not in the order of their keys"
        if self._doubled:
            yield f"{self._doubled} rows have the key of the row before them"
        if self._keys and self._last is not None:
            ends = (self._first, self._stored_key(self._last))
            if ends != (file.min_key, file.max_key) and not self._is_postponed:
                yield "its first or last key is not the one that its manifest entry names"
            outside = min(self._sequences) < file.min_sequence_number
            if outside or max(self._sequences) > file.max_sequence_number:
                yield "rows have sequence numbers outside of what its manifest entry names"
            if file.delete_row_count not in (None, self._deletes):
                yield f"{self._deletes} rows are deletes, its manifest entry records another count"
        yield from self._wrong_null_counts()
        for name in self._outside:
            yield f"column {name!r} has values outside of the bounds in its manifest entry"

    def _take(self, rows: pa.Table) -> None:
        for name in self._types:
            self._nulls[name] += rows.column(name).null_count
        self._compare_bounds(rows)
        if not self._keys:
            return
        if self._first is None:
            self._first = self._stored_key(rows.slice(0, 1))
        numbers = pc.min_max(rows.column(SEQUENCE_NUMBER)).as_py()
        self._sequences += [numbers["min"], numbers["max"]]
        kinds = rows.column(VALUE_KIND).to_numpy()
        self._deletes += int(np.count_nonzero(kinds & 1))
        keys = rows.select(self._keys)
        joined = keys if self._last is None else pa.concat_tables([self._last, keys])
        self._wrong_order += not is_sorted(sort_keys(joined.columns))
        if not self._may_repeat:
            self._doubled += _repeats(joined)
        self._last = keys.slice(keys.num_rows - 1)

    def _stored_key(self, row: pa.Table) -> bytes:
        fields = self._schema.select(self._keys)
        return encode_stored([row.column(name) for name in self._keys], [f.type for f in fields])[0]

    def _wrong_null_counts(self) -> Iterator[str]:
        counts = self._file.value_stats.null_counts
        if not self._has_all_stats() or counts is None or len(counts) != len(self._nulls):
            return
        for (name, found), counted in zip(self._nulls.items(), counts, strict=True):
            if name in self._schema.tracking_names:
                continue  # what is null in the file was read from the manifest
            if counted is not None and counted != found:
                yield f"column {name!r} has {found} nulls, its manifest entry counts {counted}"

    def _has_all_stats(self) -> bool:
        return self._file.value_stats_columns is None

    def _compare_bounds(self, rows: pa.Table) -> None:
        stats, types = self._file.value_stats, list(self._types.values())
        if not self._has_all_stats() or not stats.min_values or not stats.max_values:
            return
        lower, upper = (
            decode_columns(pa.array([stored], pa.binary()), types)
            for stored in (stats.min_values, stats.max_values)
        )
        for name, least, greatest in zip(self._types, lower, upper, strict=True):
            if name in self._schema.tracking_names:
                continue
            column = rows.column(name)
            if least.null_count or greatest.null_count or column.null_count == len(column):
                continue
            below = pc.any(pc.less(column, least[0].cast(column.type))).as_py()
            if below or pc.any(pc.greater(column, greatest[0].cast(column.type))).as_py():
                self._outside[name] = None


def _repeats(keys: pa.Table) -> int:
    count = keys.num_rows - 1
    if count < 1:
        return 0
    same = [pc.equal(column.slice(0, count), column.slice(1)) for column in keys.columns]
    repeated = same[0]
    for other in same[1:]:
        repeated = pc.and_(repeated, other)
    return int(pc.sum(repeated).as_py() or 0)
