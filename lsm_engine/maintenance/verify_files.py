"""Verify the rows of data and changelog files: decode every page, and compare it with the manifest entry."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.data_files.reader import DataFileReader, ReadColumns, open_data_file
from lsm_engine.filter.file_index import matching_rows
from lsm_engine.filter.predicate import Compare, Comparison, IsNull, Predicate
from lsm_engine.format.binary_row import decode_columns, encode_stored, key_order
from lsm_engine.format.file_index import FileIndexes
from lsm_engine.format.index_file import IndexFileMeta
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.kernels.arrow_views import one_array
from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.merge_runs import is_sorted
from lsm_engine.storage.checksum import check_whole
from lsm_engine.table.bucket_context import BucketContext
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.components import LocalExecutor
from lsm_engine.types.declared_lengths import upper_bounds
from lsm_engine.types.table_schema import (
    SEQUENCE_NUMBER,
    VALUE_KIND,
    TableSchema,
    has_unread_columns,
)
from lsm_engine.write.buckets import listed_hashes

Progress = Callable[[str, int], None]
"""Called with the path of each file that has been read, and how many were read before it."""


@record
class FileToRead:
    """A data or changelog file that is there and has its size. It pickles.

    `index`: the hash index of its dynamic bucket; None for buckets that have none.
    """

    entry: ManifestEntry
    path: str
    is_changelog: bool
    index: IndexFileMeta | None = None


FileReader = Callable[[BucketContext, Sequence[FileToRead]], Iterable[tuple[int, tuple[str, ...]]]]
"""Yields the number of each file, as it has been read, and what is wrong with it."""


def read_files(
    context: BucketContext, files: Sequence[FileToRead]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Read files on the threads of this process."""
    return enumerate(LocalExecutor().ordered(partial(wrong_in_file, context), files))


def wrong_in_file(context: BucketContext, file: FileToRead) -> tuple[str, ...]:
    """Return what is wrong with the bytes and the rows of a file."""
    meta, path = file.entry.file, file.path
    if meta.schema_id not in context.schemas:
        return (f"{path}: its schema {meta.schema_id} cannot be read",)
    try:
        return tuple(f"{path}: {problem}" for problem in _read(context, file))
    except LsmError as error:
        return (str(error),)


def _read(context: BucketContext, file: FileToRead) -> Iterator[str]:
    meta, path = file.entry.file, file.path
    schema = context.schemas[meta.schema_id]
    file_io, stored_path = context.place_of((file.entry.partition, file.entry.bucket), meta)
    source = file_io.open_input(stored_path)
    try:
        check_whole(source, meta.checksum, file_name=path)
    finally:
        source.close()
    names = None
    if meta.write_columns is not None:
        names = tuple(field.name for field in schema.written_fields(meta.write_columns))
    columns = ReadColumns(file_schema=schema, read_schema=schema, names=names)
    rows = _Rows(file, schema, hashes=file.index is not None)
    with open_data_file(file_io, stored_path, meta, columns, keeps_footer=False) as reader:
        reader.decode_every_column()
        yield from rows.problems(reader)
    if file.index is not None:
        yield from _unlisted(context, file.index, rows.hashes)


def wrong_index(context: BucketContext, file: FileToRead) -> tuple[str, ...]:
    """Return what is wrong with the file index of a data file whose rows are right."""
    try:
        indexes = context.file_index((file.entry.partition, file.entry.bucket), file.entry.file)
        return () if indexes is None else tuple(_hidden_rows(context, file, indexes))
    except LsmError as error:
        return (str(error),)


def _hidden_rows(context: BucketContext, file: FileToRead, indexes: FileIndexes) -> Iterator[str]:
    """Rows that the file index rules out for a value that they have, so that a filter would miss them.

    Nulls are compared all, of other values some that lie apart.
    """
    schema = context.schemas[file.entry.file.schema_id]
    fields = [field for field in schema.fields if field.name in indexes.places]
    columns = ReadColumns(
        file_schema=schema, read_schema=schema, names=tuple(field.name for field in fields)
    )
    place = context.place_of((file.entry.partition, file.entry.bucket), file.entry.file)
    with open_data_file(*place, file.entry.file, columns) as reader:
        rows = reader.read()
    for field in fields:
        column = one_array(rows.column(field.name))
        step = max(1, len(column) // _VALUES_TRIED)
        values = pc.unique(
            column.take(pa.array(range(0, len(column), step), pa.int64()))
        ).drop_null()
        questions: list[tuple[Predicate, pa.Array]] = [
            (IsNull(column=field.name), column.is_null())
        ]
        for value in values[:_VALUES_TRIED]:
            equal = Compare(column=field.name, comparison=Comparison.EQUAL, value=value)
            questions.append((equal, pc.fill_null(pc.equal(column, value), fill_value=False)))
        for question, is_match in questions:
            answer = matching_rows(indexes, question, stored=[field], read=[field])
            matches = BitMap(np.flatnonzero(is_match.to_numpy(zero_copy_only=False)))
            hidden = 0 if answer is None else len(matches - answer)
            if hidden:
                yield (
                    f"the file index rules out {counted(hidden, 'row')} of column {field.name!r} that a filter "
                    "asks for; set 'file-index.read.enabled' = false until the file is written anew"
                )
                break


def _unlisted(
    context: BucketContext, index: IndexFileMeta, hashes: npt.NDArray[np.int32]
) -> Iterator[str]:
    """Keys that the hash index of their bucket lacks: the next write would give them another bucket."""
    try:
        listed = listed_hashes(context, index)
    except LsmError:
        return  # listed as a problem of the index
    count = len(np.setdiff1d(hashes, listed))
    if count:
        yield (
            f"{counted(count, 'key')} missing in the hash index {index.file_name} of their bucket, so that a "
            "write may give them another bucket; overwrite the partition with its rows"
        )


_VALUES_TRIED = 16


class _Rows:
    """The rows of one file, compared with its manifest entry.

    Rows of postponed buckets stand as they came, unsorted and unmerged.
    """

    def __init__(self, read: FileToRead, schema: TableSchema, *, hashes: bool) -> None:
        file, is_changelog = read.entry.file, read.is_changelog
        is_postponed = read.entry.bucket < 0
        self._hashes: list[npt.NDArray[np.int32]] | None = [] if hashes else None
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

    @property
    def hashes(self) -> npt.NDArray[np.int32]:
        """The hashes of the keys, each once, in order."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *(self._hashes or ())]))

    def problems(self, reader: DataFileReader) -> Iterator[str]:
        """Yield what is wrong."""
        for batch in reader.batches():
            if batch.num_rows:
                self._take(pa.Table.from_batches([batch]))
        file = self._file
        if self._wrong_order and not self._is_postponed:
            yield "its rows are not in the order of their keys"
        if self._doubled:
            yield f"{counted(self._doubled, 'row')} with the key of the row before them"
        if self._keys and self._last is not None:
            ends = (self._first, self._stored_key(self._last))
            if not self._is_postponed and not self._fits(ends):
                yield "its first or last key is not the one that its manifest entry names"
            outside = min(self._sequences) < file.min_sequence_number
            if outside or max(self._sequences) > file.max_sequence_number:
                yield "rows have sequence numbers outside of what its manifest entry names"
            if file.delete_row_count not in (None, self._deletes):
                yield f"holds {counted(self._deletes, 'delete')}, its manifest entry records another count"
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
        if self._hashes is not None:
            fields = self._schema.select(self._schema.bucket_keys)
            batches = rows.to_batches()
            self._hashes += [np.unique(bucket_hashes(fields, batch)) for batch in batches]
        keys = rows.select(self._keys)
        joined = keys if self._last is None else pa.concat_tables([self._last, keys])
        self._wrong_order += not is_sorted(sort_keys(joined.columns))
        if not self._may_repeat:
            self._doubled += _repeats(joined)
        self._last = keys.slice(keys.num_rows - 1)

    def _fits(self, ends: tuple[bytes | None, bytes]) -> bool:
        """Whether the first and last key are those of the manifest entry; of other clients, within them.

        Java Paimon 0.9 also names a last key whose delete the compaction has dropped.
        """
        file, (first, last) = self._file, ends
        if ends == (file.min_key, file.max_key):
            return True
        if file.checksum is not None or first is None:
            return False
        order = key_order([field.type for field in self._schema.select(self._keys)])
        return order(file.min_key) <= order(first) and order(last) <= order(file.max_key)

    def _stored_key(self, row: pa.Table) -> bytes:
        fields = self._schema.select(self._keys)
        return encode_stored([row.column(name) for name in self._keys], [f.type for f in fields])[0]

    def _wrong_null_counts(self) -> Iterator[str]:
        counts = self._file.value_stats.null_counts
        if not self._has_all_stats() or counts is None or len(counts) != len(self._nulls):
            return
        for (name, null_count), recorded in zip(self._nulls.items(), counts, strict=True):
            if name in self._schema.tracking_names:
                continue  # what is null in the file was read from the manifest
            if recorded is not None and recorded != null_count:
                yield f"column {name!r} has {null_count} nulls, its manifest entry counts {recorded}"

    def _has_all_stats(self) -> bool:
        file = self._file
        return file.value_stats_columns is None and not has_unread_columns(
            self._schema, file.write_columns
        )

    def _compare_bounds(self, rows: pa.Table) -> None:
        stats, types = self._file.value_stats, list(self._types.values())
        if not self._has_all_stats() or not stats.min_values or not stats.max_values:
            return
        lower, upper = (
            decode_columns(pa.array([stored], pa.binary()), types)
            for stored in (stats.min_values, stats.max_values)
        )
        for name, least, stored in zip(self._types, lower, upper, strict=True):
            if name in self._schema.tracking_names:
                continue
            column = rows.column(name)
            greatest = upper_bounds(self._types[name], stored)
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
    for column_repeats in same[1:]:
        repeated = pc.and_(repeated, column_repeats)
    return int(pc.sum(repeated).as_py() or 0)
