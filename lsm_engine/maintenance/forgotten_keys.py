"""The keys that a table is to forget, in every form in which its files hold them."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError, NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.data_files.formats import format_of, open_stored
from lsm_engine.dml.delete import columns_asked
from lsm_engine.format.avro.container import MAGIC, read_container, unpacked
from lsm_engine.format.binary_row import encode_stored
from lsm_engine.format.manifest import ManifestEntry, StoredKeys
from lsm_engine.format.manifest_file import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    entries_of,
)
from lsm_engine.format.partition_path import escape
from lsm_engine.kernels.arrow_views import Longs, is_text_or_binary, one_array
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.keys import keys_of
from lsm_engine.lookup.locate import match_keys
from lsm_engine.options.core_options import METADATA_DIRECTORIES
from lsm_engine.storage.bulk import read_pieces, texts_in
from lsm_engine.storage.checksum import ExpectedChecksums
from lsm_engine.storage.file_io import FileStatus
from lsm_engine.table.bucket_keys import bucket_hashes
from lsm_engine.table.session import TableSession
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.declared_lengths import padded_values
from lsm_engine.types.mapping import conform
from lsm_engine.types.table_schema import TableSchema

TEXT_BYTES_MIN = 4
"""Shorter texts are in any file by chance: they are not searched for as bytes."""


@record
class ForgottenKeys:
    """Keys by column, as stored rows, and as texts that can be searched for in raw bytes.

    `columns` are the primary key's; of a table without one, those that were asked for. `by_partition`
    holds the trimmed keys, as stored rows, by partition; under None where a key does not determine its
    partition. `texts` are the values of text and binary columns that are long enough to be rare.
    `hashes` are those that indexes of dynamic buckets list.
    """

    columns: pa.RecordBatch
    by_partition: dict[bytes | None, frozenset[bytes]]
    texts: tuple[bytes, ...]
    hashes: frozenset[int]

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.columns)

    @property
    def partitions(self) -> frozenset[bytes]:
        """The partitions of the keys, as stored rows, where the keys determine them."""
        return frozenset(partition for partition in self.by_partition if partition is not None)

    def may_be_in(self, partition: bytes) -> bool:
        """Whether a partition may hold one of the keys."""
        return None in self.by_partition or partition in self.by_partition

    def bounds(self, entry: ManifestEntry) -> bool:
        """Whether a key is the least or the greatest of a file, by its manifest entry."""
        keys = self.by_partition.get(entry.partition) or self.by_partition.get(None) or frozenset()
        return entry.file.min_key in keys or entry.file.max_key in keys

    def stored(self, emptied_partitions: frozenset[bytes] = frozenset()) -> StoredKeys:
        """Return what those that keep stored keys beside the table's files have to forget."""
        return StoredKeys(
            by_partition=tuple(self.by_partition.items()),
            emptied_partitions=emptied_partitions,
            texts=self.texts,
        )


def forgotten_keys(schema: TableSchema, keys: Any) -> ForgottenKeys:
    """Return keys of any Arrow data or list of dictionaries.

    Of a table without a primary key: any of its columns, as for `delete`. Raises InvalidInputError for
    keys that are missing, null or of another type.
    """
    if not schema.has_primary_key:
        key_columns = columns_asked(schema, keys)
        return ForgottenKeys(
            columns=key_columns, by_partition={}, texts=_texts(key_columns), hashes=frozenset()
        )
    batch = pa.Table.from_batches([keys_of(schema, keys)])
    distinct = batch.group_by(batch.column_names).aggregate([]).select(batch.column_names)
    columns = pa.RecordBatch.from_arrays(
        [one_array(distinct.column(name)) for name in batch.column_names], schema=batch.schema
    )
    trimmed = _stored(schema, schema.trimmed_primary_keys, columns)
    partitions: list[bytes | None] = [None] * columns.num_rows
    if set(schema.partition_keys) <= set(schema.primary_keys):
        partitions = [*_stored(schema, schema.partition_keys, columns, reserve_null_wide=True)]
    grouped: dict[bytes | None, set[bytes]] = {}
    for partition, key in zip(partitions, trimmed, strict=True):
        grouped.setdefault(partition, set()).add(key)
    return ForgottenKeys(
        columns=columns,
        by_partition={
            stored_partition: frozenset(stored_keys)
            for stored_partition, stored_keys in grouped.items()
        },
        texts=_texts(columns),
        hashes=_hashes(schema, columns),
    )


def _stored(
    schema: TableSchema,
    names: tuple[str, ...],
    rows: pa.RecordBatch,
    *,
    reserve_null_wide: bool = False,
) -> list[bytes]:
    types = [field.type for field in schema.select(names)]
    return encode_stored(
        [rows.column(name) for name in names],
        types,
        reserve_null_wide=reserve_null_wide,
        row_count=rows.num_rows,
    )


def _hashes(schema: TableSchema, rows: pa.RecordBatch) -> frozenset[int]:
    hashes = bucket_hashes(schema.select(schema.bucket_keys), rows)
    return frozenset(hashes.tolist())


def is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are stored as their own bytes."""
    return is_text_or_binary(kind) or bool(pa.types.is_fixed_size_binary(kind))


def shown_text(text: bytes) -> str:
    """Return a text of a key as plans show it."""
    return repr(text.decode("utf-8", "replace"))


def _texts(rows: pa.RecordBatch) -> tuple[bytes, ...]:
    """Return the values of text and binary columns, in each of the ways in which files spell them."""
    texts: dict[bytes, None] = {}
    for column in rows.columns:
        if not is_text(column.type):
            continue
        for value in column.cast(pa.binary()).to_pylist():
            if len(value) >= TEXT_BYTES_MIN:
                texts.update(dict.fromkeys(_spellings(value)))
    return tuple(texts)


def _spellings(value: bytes) -> Iterator[bytes]:
    """Yield a value as it is, as JSON escapes it, and as the directory of a partition does."""
    yield value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        # Bytes that are no text have one spelling.
        return
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield escape(text).encode()


# -- Search every file below a table's directory for some keys, referenced or not ------------------
#
# Data files are decoded and their key columns compared. Manifests, manifest lists and index
# manifests are decoded entry by entry, and their unpacked blocks are searched for the keys'
# texts, as are the bytes of all other files. The search trusts no statistics or checksums in
# other files.

_UNREADABLE = (LsmError, pa.ArrowException, OSError, ValueError, KeyError, IndexError)
_LIST, _INDEX, _MANIFEST = "manifest-list-", "index-manifest-", "manifest-"


@record
class Trace:
    """A file that holds one of the keys. `path` is relative to the table; `rows`: of data files.

    `kind`: data file, changelog file, manifest, manifest list, index manifest, index file, snapshot,
    tag, schema, ... or catalog, lineage outbox, lookup file, spilled rows for what lies elsewhere.
    """

    kind: str
    path: str
    detail: str
    rows: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.path}: {self.detail}"


@record
class SearchReport:
    """The result of a search for keys. `unreadable`: files that could not be decoded, and why.

    `texts_elsewhere`: texts of the keys that stand in other rows too, so that their bytes prove nothing.
    """

    traces: tuple[Trace, ...]
    unreadable: tuple[Trace, ...]
    file_count: int
    byte_count: int
    texts_elsewhere: tuple[bytes, ...] = ()


class TraceSearch:
    """Searches one table's files. What a file holds is remembered: a file of a name never changes."""

    def __init__(self, session: TableSession, keys: ForgottenKeys) -> None:
        self._session = session
        self._keys = keys
        names = keys.columns.schema.names
        self._names = names
        self._fields = session.schema.select(names)
        types = [field.type for field in self._fields]
        self._batch, _ = KeyBatch.from_columns(keys.columns.columns, types)

    def run(self, outside: Iterable[bytes] = ()) -> SearchReport:
        """Search all files there are. `outside`: texts that were found elsewhere, too."""
        traces: list[Trace] = []
        unreadable: list[Trace] = []
        texts: list[tuple[Trace, bytes]] = []
        statuses = list(self._session.file_io.list_files(""))
        for status in statuses:
            kind = kind_of(status.path)
            try:
                traces += self._decoded(kind, status.path)
                texts += self._texts(kind, status)
            except NotFoundError:
                continue  # deleted meanwhile
            except _UNREADABLE as error:
                unreadable.append(Trace(kind=kind, path=status.path, detail=str(error)))
        traced = {trace.path for trace in traces}
        text_traces = [(trace, text) for trace, text in texts if trace.path not in traced]
        shared = self._in_other_rows(statuses, {*outside, *(text for _, text in text_traces)})
        traces += [trace for trace, text in text_traces if text not in shared]
        return SearchReport(
            traces=tuple(traces),
            unreadable=tuple(unreadable),
            file_count=len(statuses),
            byte_count=sum(status.size for status in statuses),
            texts_elsewhere=tuple(sorted(shared)),
        )

    # --- decoded ---------------------------------------------------------------------------------

    def _decoded(self, kind: str, path: str) -> Iterator[Trace]:
        if kind in ("data file", "changelog file"):
            rows = self._rows(path)
            if rows:
                yield Trace(
                    kind=kind, path=path, detail=f"{counted(rows, 'row')} of a key", rows=rows
                )
            return
        name = path.rpartition("/")[2]
        searches: dict[str, Callable[[bytes, str], Iterable[str]]] = {
            _LIST: self._of_list,
            _INDEX: self._of_index_manifest,
            _MANIFEST: self._of_manifest,
        }
        for prefix, search in searches.items():
            if path.startswith(self._session.paths.manifest_directory) and name.startswith(prefix):
                data = self._session.file_io.read(path)
                yield from (
                    Trace(kind=kind, path=path, detail=detail) for detail in search(data, path)
                )
                return

    def _of_manifest(self, data: bytes, path: str) -> Iterator[str]:
        entries = entries_of(decode_manifest(data, file_name=path))
        bounded = [entry for entry in entries if self._keys.bounds(entry)]
        if bounded:
            names = ", ".join(entry.file.file_name for entry in bounded[:3])
            yield f"least or greatest key of {counted(len(bounded), 'file')}, such as {names}"
        if any(entry.partition in self._emptied_partitions for entry in entries):
            yield "a partition that holds nothing else"

    def _of_list(self, data: bytes, path: str) -> Iterator[str]:
        for meta in decode_manifest_list(data, file_name=path):
            ends = {meta.partition_stats.min_values, meta.partition_stats.max_values}
            if ends & self._emptied_partitions:
                yield f"least or greatest partition of {meta.file_name}"

    def _of_index_manifest(self, data: bytes, path: str) -> Iterator[str]:
        for entry in decode_index_manifest(data, file_name=path):
            if entry.partition in self._emptied_partitions:
                yield f"partition of {entry.index_file.file_name}, which holds nothing else"

    @cached_property
    def _emptied_partitions(self) -> frozenset[bytes]:
        return emptied_partitions(self._session, self._keys)

    def _rows(self, path: str) -> int:
        """Return how many rows of a data file have one of the keys."""
        count = 0
        for columns in self._columns(path, self._names):
            count += len(self._positions(columns))
        return count

    def _columns(self, path: str, names: Iterable[str]) -> Iterator[dict[str, pa.Array]]:
        """Yield columns of a data file, row group by row group, in the types of the table."""
        with self._session.file_io.open_input(path) as source:
            stored = open_stored(source, path, ExpectedChecksums(), verify_pages=False)
            stored_names = set(stored.schema.names)
            sources = {name: self._stored_name(name, stored_names, path) for name in names}
            for group in range(len(stored.group_rows)):
                table = stored.read_group(group, list(sources.values()))
                yield {
                    name: self._as_declared(name, table.column(stored_as), path)
                    for name, stored_as in sources.items()
                }

    def _as_declared(self, name: str, values: pa.ChunkedArray, path: str) -> pa.Array:
        (field,) = self._session.schema.select_read([name])
        declared = conform(values, arrow_type(field.type), file_name=path, column=name)
        return padded_values(field.type, one_array(declared))

    def _stored_name(self, name: str, stored_names: set[str], path: str) -> str:
        """Return what a file calls a column: it may have been written under an older name."""
        names: list[str] = [name, *self._older_names.get(self._session.schema.field(name).id, ())]
        stored_name = next((candidate for candidate in names if candidate in stored_names), None)
        if stored_name is None:
            raise UnsupportedError("a data file lacks a key column", file=path, column=name)
        return stored_name

    @cached_property
    def _older_names(self) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        for number in self._session.schemas.ids():
            for field in self._session.schemas.load(number).fields:
                names.setdefault(field.id, []).append(field.name)
        return names

    # --- as bytes --------------------------------------------------------------------------------

    def _texts(self, kind: str, status: FileStatus) -> Iterator[tuple[Trace, bytes]]:
        """Yield the texts that a file's bytes hold, or its path."""
        path = status.path.encode("utf-8", "surrogateescape")
        in_path = {text for text in self._keys.texts if text in path}
        for text in in_path:
            yield Trace(kind=kind, path=status.path, detail="in its path"), text
        for text in texts_in(self._pieces(status), set(self._keys.texts) - in_path):
            yield Trace(kind=kind, path=status.path, detail="in its bytes"), text

    def _pieces(self, status: FileStatus) -> Iterator[bytes]:
        """Yield a file's bytes; of Avro files the unpacked blocks behind them."""
        file_io = self._session.file_io
        first = b""
        for piece in read_pieces(file_io, status.path, status.size):
            first = first or piece[: len(MAGIC)]
            yield piece
        if first == MAGIC and status.path.startswith(self._session.paths.manifest_directory):
            container = read_container(file_io.read(status.path), file_name=status.path)
            for _, block in unpacked(container):
                yield block

    def _in_other_rows(self, statuses: Iterable[FileStatus], texts: set[bytes]) -> set[bytes]:
        """Return the texts that stand in a row of another key, in whatever column."""
        shared: set[bytes] = set()
        for status in statuses:
            if texts <= shared:
                break
            if kind_of(status.path) in ("data file", "changelog file"):
                shared |= self._in_rows(status.path, texts - shared)
        return shared

    def _in_rows(self, path: str, texts: set[bytes]) -> set[bytes]:
        shared: set[bytes] = set()
        try:
            with self._session.file_io.open_input(path) as source:
                stored = open_stored(source, path, ExpectedChecksums(), verify_pages=False)
                names = [field.name for field in stored.schema if is_text(field.type)]
                keyed = zip(
                    range(len(stored.group_rows)), self._columns(path, self._names), strict=True
                )
                for group, keys in keyed:
                    rows = stored.read_group(group, names).select(names)
                    is_other = np.ones(len(rows), np.bool_)
                    is_other[self._positions(keys)] = False
                    shared |= _texts_in(rows.filter(pa.array(is_other)), texts)
        except _UNREADABLE:
            return shared  # it is among the unreadable ones already
        return shared

    def _positions(self, keys: dict[str, pa.Array]) -> Longs:
        rows = pa.RecordBatch.from_arrays([keys[name] for name in self._names], self._names)
        return match_keys(rows, self._batch, self._names)[0]


def _texts_in(rows: pa.Table, texts: set[bytes]) -> set[bytes]:
    return {
        text
        for text in texts
        if any(pc.any(pc.match_substring(column, text)).as_py() for column in rows.columns)
    }


def emptied_partitions(session: TableSession, keys: ForgottenKeys) -> frozenset[bytes]:
    """Return the partitions of the keys, where these determine one, whose directory has no file."""
    if not session.schema.partition_keys:
        return frozenset()
    context = session.context()
    return frozenset(
        partition
        for partition in keys.partitions
        if not any(session.file_io.list_files(session.paths.at(context.partition_path(partition))))
    )


def kind_of(path: str) -> str:
    """Return what a file is by its path, as people call it."""
    parts = path.split("/")
    name = parts[-1]
    if len(parts) > 1 and parts[0] in METADATA_DIRECTORIES:
        directory = parts[2] if parts[0] == "branch" and len(parts) > 3 else parts[0]
        if directory == "manifest":
            prefixes = {_LIST: "manifest list", _INDEX: "index manifest", _MANIFEST: "manifest"}
            return next(
                (label for prefix, label in prefixes.items() if name.startswith(prefix)), "file"
            )
        return {"index": "index file", "statistics": "statistics file"}.get(directory, directory)
    try:
        format_of(name)
    except UnsupportedError:
        # No data file ends so.
        return "file"
    return "changelog file" if name.startswith("changelog-") else "data file"
