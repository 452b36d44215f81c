"""Codec of manifests, manifest lists and index manifests (format sections 4, 5, 12), which are Avro files.

Manifests are large, so they are decoded into columns. Only the entries that remain after pruning and folding become
records (`entries_of`)."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.units import POSTPONE_BUCKET_COUNT
from lsm_engine.format.arrow_buffers import gather_pieces
from lsm_engine.format.avro.container import (
    BLOCK_BYTES_WRITTEN,
    CHECKSUM,
    INDEX_MANIFEST,
    MANIFEST,
    MANIFEST_LIMITS,
    MANIFEST_LIST,
    Container,
    ContainerEncoder,
    EncodedContainer,
    GrowingContainer,
    read_container,
)
from lsm_engine.format.avro.decoder import AvroRecords, decode_joined
from lsm_engine.format.data_file import DataFileMeta, SimpleStats
from lsm_engine.format.index_file import (
    DELETION_VECTORS,
    HASH,
    DeletionVectorMeta,
    IndexFileMeta,
    IndexManifestEntry,
)
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_columns import (
    ENTRY_VERSION,
    FILE_MEMBERS,
    INDEX_MANIFEST_COLUMNS,
    INDEX_VERSION,
    LIST_MEMBERS,
    MANIFEST_COLUMNS,
    MANIFEST_LIST_COLUMNS,
    decode_known,
    known_columns,
    require,
)
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.kernels.arrow_views import Bytes, Longs
from lsm_engine.options.modes import EntryKind, FileFormat, FileSource

# -- Entries as manifests hold them (format section 5): facts → Avro -------------------------------

MANIFESTS = ContainerEncoder(MANIFEST)
_FILE_FIELDS = tuple(name.removeprefix("_FILE.") for name in FILE_MEMBERS)
_file_members = attrgetter(*FILE_MEMBERS.values())


def encode_manifest(entries: Iterable[ManifestEntry], *, codec: str = "zstandard") -> bytes:
    """Return a manifest of entries, in their order, with the columns of format section 0."""
    return MANIFESTS.file(map(entry_bytes, entries), codec=codec)


def entry_bytes(entry: ManifestEntry) -> bytes:
    """Return an entry as a block of a manifest holds it."""
    return MANIFESTS.record(_entry_record(entry))


def _entry_record(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "_VERSION": ENTRY_VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            **dict(zip(_FILE_FIELDS, _file_members(file), strict=True)),
            "_KEY_STATS": stats_record(file.key_stats),
            "_VALUE_STATS": stats_record(file.value_stats),
            "_FILE_SOURCE": None if file.file_source is None else file.file_source.value,
        },
    }


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    """Return statistics as a metadata file holds them."""
    assert stats.min_values, "statistics without rows cannot be read by others; use null values"
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        # Java 0.9 fails where the array itself is null.
        "_NULL_COUNTS": stats.null_counts or (),
    }


# -- Entries of manifests as columns ---------------------------------------------------------------
#
# What no entry may say, and many small files decoded together.

UNSAFE_NAME = r"[/\\\x00]|^\.{0,2}$"


def decode_small_manifests(files: Mapping[str, bytes]) -> list[pa.Table] | None:
    """Return the entries of small manifests, by their names, as `decode_manifest` does of each.

    None where they must be decoded one by one. What is raised may name another of them.
    """
    containers = [read_container(data, file_name=name) for name, data in files.items()]
    entries = joined_manifests(containers, MANIFEST_COLUMNS)
    if entries is None:
        return None
    table, counts = entries
    ends = accumulate(counts)
    return [table.slice(end - count, count) for count, end in zip(counts, ends, strict=True)]


def joined_manifests(
    containers: Sequence[Container], columns: Collection[str]
) -> tuple[pa.Table, list[int]] | None:
    """Return some columns of small manifests, one's entries behind the other's, and how many each has.

    None, and what is raised, as of `decode_small_manifests`.
    """
    entries = decode_joined(containers, {*columns, "_VERSION"})
    if entries is None:
        return None
    name, chosen = (
        containers[0].file_name,
        [column for column in MANIFEST_COLUMNS if column in columns],
    )
    table = known_columns(
        entries[0], MANIFEST_COLUMNS, chosen, file_name=name, version=ENTRY_VERSION
    )
    return checked_entries(table, name), entries[1]


def checked_entries(table: pa.Table, file_name: str) -> pa.Table:
    """Return entries; raises CorruptFileError for values that no entry has."""
    column_names = set(table.column_names)
    checks: list[tuple[str, object]] = []
    if "_KIND" in column_names:
        checks.append(("an entry neither adds nor deletes", outside(table["_KIND"], 0, 1)))
    if "_BUCKET" in column_names:
        bucket = table["_BUCKET"]
        is_none = pc.and_(pc.less(bucket, 0), pc.not_equal(bucket, POSTPONE_BUCKET_COUNT))
        checks.append(("_BUCKET is that of no bucket", is_none))
    if "_FILE._FILE_NAME" in column_names:
        unsafe = pc.match_substring_regex(table["_FILE._FILE_NAME"], UNSAFE_NAME)
        checks.append(("a file name leads out of its directory", unsafe))
    for name in ("_FILE._FILE_SIZE", "_FILE._ROW_COUNT", "_FILE._LEVEL", "_FILE._DELETE_ROW_COUNT"):
        if name in column_names:
            checks += [(f"{name} is negative", pc.less(table[name], 0))]
    if {"_FILE._MIN_SEQUENCE_NUMBER", "_FILE._MAX_SEQUENCE_NUMBER"} <= column_names:
        low, high = table["_FILE._MIN_SEQUENCE_NUMBER"], table["_FILE._MAX_SEQUENCE_NUMBER"]
        checks.append(("sequence numbers run backwards", pc.greater(low, high)))
    require(table, checks, file_name)
    return table


def outside(column: pa.ChunkedArray, low: int, high: int) -> Any:
    """Mark the values that are below `low` or above `high`."""
    return pc.or_(pc.less(column, low), pc.greater(column, high))


# -- Manifests, manifest lists and index manifests (format sections 4, 5, 12): Avro ⇄ facts --------

_KINDS = (EntryKind.ADD, EntryKind.DELETE)
_SOURCES = {source.value: source for source in FileSource}
_LISTS, _INDEXES = map(ContainerEncoder, (MANIFEST_LIST, INDEX_MANIFEST))


def decode_manifest(
    data: bytes,
    *,
    file_name: str,
    columns: Collection[str] | None = None,
    expected_count: int | None = None,
) -> pa.Table:
    """Return the entries of a manifest as columns with flat names such as `_FILE._FILE_NAME`.

    All of MANIFEST_COLUMNS, or those of `columns`, in that order; what the writer left out is null.
    `expected_count`: entries that the manifest list counts. Raises CorruptFileError for
    wrong bytes, counts and values, UnsupportedError for another format version.
    """
    table = decode_known(
        data, MANIFEST_COLUMNS, file_name=file_name, version=ENTRY_VERSION, columns=columns
    )
    if expected_count is not None and table.num_rows != expected_count:
        raise CorruptFileError(
            "the manifest does not hold as many entries as its list records; restore it",
            file=file_name,
            entries=table.num_rows,
            expected=expected_count,
        )
    return checked_entries(table, file_name)


WITHOUT_STATS = tuple(
    name for name in MANIFEST_COLUMNS if "_STATS." not in name and name != "_VERSION"
)
"""Columns of an entry that a plan needs where no filter looks at statistics: most bytes are theirs."""


def entries_of(table: pa.Table) -> list[ManifestEntry]:
    """Return the rows of a decoded manifest as entries; absent columns are null."""
    nulls = [None] * table.num_rows
    column_names = set(table.column_names)
    values = {
        name: _values(table.column(name)) if name in column_names else nulls
        for name in MANIFEST_COLUMNS
    }
    return [
        ManifestEntry(
            kind=_KINDS[kind], partition=partition, bucket=bucket, total_buckets=total, file=file
        )
        for kind, partition, bucket, total, file in zip(
            values["_KIND"],
            values["_PARTITION"],
            values["_BUCKET"],
            values["_TOTAL_BUCKETS"],
            _files(values),
            strict=True,
        )
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values: times as numbers, lists as tuples."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return [value for chunk in column.chunks for value in _tuples(chunk)]
    return list(column.to_pylist())


def _tuples(lists: pa.Array) -> Iterable[tuple[Any, ...] | None]:
    # Several times faster than a Python list per row by way of scalars.
    items = lists.values.to_pylist()
    ends = lists.offsets.to_pylist()
    tuples = (tuple(items[begin:end]) for begin, end in pairwise(ends))
    if not lists.null_count:
        return tuples
    valid = lists.is_valid().to_pylist()
    return (value if is_valid else None for value, is_valid in zip(tuples, valid, strict=True))


def _files(values: dict[str, list[Any]]) -> Iterable[DataFileMeta]:
    names = [
        name for name in MANIFEST_COLUMNS if name.startswith("_FILE.") and "_STATS." not in name
    ]
    columns = [values[name] for name in names]
    key_stats = _stats_of(values, "_FILE._KEY_STATS")
    value_stats = _stats_of(values, "_FILE._VALUE_STATS")
    for row, keys, value_columns in zip(
        zip(*columns, strict=True), key_stats, value_stats, strict=True
    ):
        (
            name, size, rows, min_key, max_key, min_sequence, max_sequence, schema_id, level,
            extra_files, created, deletes, index, source, stats_columns, external, first_row,
            write_columns, checksum, footer_checksum,
        ) = row  # fmt: skip
        yield DataFileMeta(
            file_name=name,
            file_size=size,
            row_count=rows,
            min_key=min_key,
            max_key=max_key,
            key_stats=keys,
            value_stats=value_columns,
            min_sequence_number=min_sequence,
            max_sequence_number=max_sequence,
            schema_id=schema_id,
            level=level,
            extra_files=extra_files or (),
            creation_millis=created,
            delete_row_count=deletes,
            embedded_index=index,
            # Sources that later versions may add are unknown to this one.
            file_source=_SOURCES.get(source),
            value_stats_columns=stats_columns,
            external_path=external,
            first_row_id=first_row,
            write_columns=write_columns,
            checksum=checksum,
            footer_checksum=footer_checksum,
        )


def _stats_of(values: dict[str, list[Any]], prefix: str) -> Iterable[SimpleStats]:
    for low, high, counts in zip(
        values[f"{prefix}._MIN_VALUES"],
        values[f"{prefix}._MAX_VALUES"],
        values[f"{prefix}._NULL_COUNTS"],
        strict=True,
    ):
        yield SimpleStats(
            min_values=low or b"",
            max_values=high or b"",
            null_counts=counts,
        )


def decode_manifest_list_table(data: bytes, *, file_name: str) -> pa.Table:
    """Return the rows of a manifest list as columns, all of MANIFEST_LIST_COLUMNS."""
    table = decode_known(data, MANIFEST_LIST_COLUMNS, file_name=file_name, version=ENTRY_VERSION)
    _check_list(table, file_name)
    return table


def _check_list(table: pa.Table, file_name: str) -> None:
    unsafe = pc.match_substring_regex(table["_FILE_NAME"], UNSAFE_NAME)
    checks: list[tuple[str, object]] = [
        ("a manifest's name leads out of its directory", unsafe),
        ("_FILE_SIZE is negative", pc.less(table["_FILE_SIZE"], 0)),
        ("_NUM_ADDED_FILES is negative", pc.less(table["_NUM_ADDED_FILES"], 0)),
        ("_NUM_DELETED_FILES is negative", pc.less(table["_NUM_DELETED_FILES"], 0)),
    ]
    require(table, checks, file_name)


def decode_manifest_list(data: bytes, *, file_name: str) -> list[ManifestFileMeta]:
    """Return the manifests of a list, in order; raises CorruptFileError and UnsupportedError."""
    return _metas_of(decode_manifest_list_table(data, file_name=file_name))


def decode_manifest_lists(containers: Sequence[Container]) -> list[list[ManifestFileMeta]]:
    """Return the manifests of small lists: many cost little more than one.

    Of lists whose schemas differ, nothing. What is raised may name another of them.
    """
    joined = decode_joined(containers)
    if joined is None:
        return []
    name, columns = containers[0].file_name, MANIFEST_LIST_COLUMNS
    table = known_columns(joined[0], columns, [*columns], file_name=name, version=ENTRY_VERSION)
    _check_list(table, name)
    metas = iter(_metas_of(table))
    return [list(islice(metas, count)) for count in joined[1]]


def _metas_of(table: pa.Table) -> list[ManifestFileMeta]:
    values = {name: _values(table.column(name)) for name in table.column_names}
    rows = zip(*(values[name] for name in LIST_MEMBERS), strict=True)
    return [
        ManifestFileMeta(
            **dict(zip(LIST_MEMBERS.values(), row, strict=True)), partition_stats=stats
        )
        for row, stats in zip(rows, _stats_of(values, "_PARTITION_STATS"), strict=True)
    ]


def encode_manifest_list(metas: Sequence[ManifestFileMeta], *, codec: str = "zstandard") -> bytes:
    """Return a manifest list, in order; an empty one is a valid file too."""
    return _LISTS.file(map(_stored_meta, metas), codec=codec)


@lru_cache(maxsize=4096)
def _stored_meta(meta: ManifestFileMeta) -> bytes:
    """Return a manifest as lists name it: each commit writes all of them again, and most stay."""
    return _LISTS.record(_meta_record(meta))


def _meta_record(meta: ManifestFileMeta) -> dict[str, Any]:
    return {
        "_VERSION": ENTRY_VERSION,
        "_PARTITION_STATS": stats_record(meta.partition_stats),
        **{name: getattr(meta, member) for name, member in LIST_MEMBERS.items()},
    }


def decode_index_manifest(data: bytes, *, file_name: str) -> list[IndexManifestEntry]:
    """Return the index files of an index manifest; raises CorruptFileError and UnsupportedError."""
    table = decode_known(data, INDEX_MANIFEST_COLUMNS, file_name=file_name, version=INDEX_VERSION)
    unsafe = pc.match_substring_regex(table["_FILE_NAME"], UNSAFE_NAME)
    checks: list[tuple[str, object]] = [
        ("an entry neither adds nor deletes", outside(table["_KIND"], 0, 1)),
        ("an index file's name leads out of its directory", unsafe),
        ("_FILE_SIZE is negative", pc.less(table["_FILE_SIZE"], 0)),
        ("_ROW_COUNT is negative", pc.less(table["_ROW_COUNT"], 0)),
    ]
    require(table, checks, file_name)
    return [_index_entry(row) for row in table.to_pylist()]


def _index_entry(row: dict[str, Any]) -> IndexManifestEntry:
    ranges = row["_DELETIONS_VECTORS_RANGES"]
    vectors = None
    if ranges is not None:
        vectors = tuple(
            DeletionVectorMeta(
                data_file_name=item["f0"],
                offset=item["f1"],
                length=item["f2"],
                cardinality=item["_CARDINALITY"],
            )
            for item in ranges
            if item is not None
        )
    return IndexManifestEntry(
        kind=EntryKind(row["_KIND"]),
        partition=row["_PARTITION"],
        bucket=row["_BUCKET"],
        index_file=IndexFileMeta(
            index_type=row["_INDEX_TYPE"],
            file_name=row["_FILE_NAME"],
            file_size=row["_FILE_SIZE"],
            row_count=row["_ROW_COUNT"],
            deletion_vectors=vectors,
            external_path=row["_EXTERNAL_PATH"],
            checksum=row[CHECKSUM],
        ),
    )


def encode_index_manifest(
    entries: Sequence[IndexManifestEntry], *, codec: str = "zstandard"
) -> bytes:
    """Return an index manifest, in order."""
    return _INDEXES.file((_INDEXES.record(_index_record(entry)) for entry in entries), codec=codec)


def _index_record(entry: IndexManifestEntry) -> dict[str, Any]:
    file = entry.index_file
    ranges = None
    if file.deletion_vectors is not None:
        ranges = [
            {"f0": vector.data_file_name, "f1": vector.offset, "f2": vector.length,
             "_CARDINALITY": vector.cardinality}
            for vector in file.deletion_vectors
        ]  # fmt: skip
    return {
        "_VERSION": INDEX_VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": ranges,
        "_EXTERNAL_PATH": file.external_path,
        CHECKSUM: file.checksum,
    }


# -- Entries that go from manifests to new ones as the bytes that they are -------------------------
#
# Most of what a merge of manifests writes.
#
# A manifest that this version wrote has records that need no decoding; an entry of another
# writer's is decoded and encoded again.

_OWN_SCHEMA = json.loads(json.dumps(MANIFEST))


class ManifestCopier:
    """Copies entries of manifests, in order, to new ones of about a size."""

    def __init__(self, *, codec: str, target_size_bytes: int, entries_max: int) -> None:
        self._codec = codec
        self._target = target_size_bytes
        self._entries_max = entries_max
        self._growing: GrowingContainer | None = None
        self._count = 0

    def add(
        self, data: bytes, stands: npt.NDArray[np.bool_], *, file_name: str
    ) -> Iterator[tuple[EncodedContainer, int]]:
        """Add the entries of a manifest that stand; yield new manifests that are full, with their entries' number.

        `stands`: bool[n], of each of its entries. Raises as `decode_manifest` does.
        """
        offset = 0
        for content, bounds in _places(data, file_name):
            count = len(bounds) - 1
            rows = np.flatnonzero(stands[offset : offset + count])
            offset += count
            starts = bounds[rows]
            copied, ends = gather_pieces(content, starts, bounds[rows + 1] - starts)
            yield from self._added(copied, ends)

    def _added(self, content: Bytes, offsets: Longs) -> Iterator[tuple[EncodedContainer, int]]:
        """Add records one behind the other, in blocks."""
        first, count = 0, len(offsets) - 1
        while first < count:
            full = int(np.searchsorted(offsets, offsets[first] + BLOCK_BYTES_WRITTEN))
            last = min(full, count, first + self._entries_max - self._count)
            growing = self._growing = self._growing or MANIFESTS.begin(self._codec)
            growing.add(content[offsets[first] : offsets[last]].tobytes(), last - first)
            self._count += last - first
            first = last
            is_full = self._count == self._entries_max or growing.size >= self._target
            if is_full or growing.content_bytes > _content_max(growing.size):
                yield from self.remainder()

    def remainder(self) -> Iterator[tuple[EncodedContainer, int]]:
        """Yield the manifest that is not full yet, if there is one."""
        growing, count = self._growing, self._count
        self._growing, self._count = None, 0
        if growing is not None:
            yield growing.end(), count


def _content_max(size: int) -> int:
    """Return how much readers let a file of a size unfold into, halved: the next block may compress better."""
    limits = MANIFEST_LIMITS
    return limits.total_bytes // 2 + limits.total_bytes_per_stored_byte * size // 2


def _places(data: bytes, file_name: str) -> Iterator[tuple[Bytes, Longs]]:
    """Yield the content of some blocks at a time, and where each of its entries begins and the last ends."""
    container = read_container(data, file_name=file_name)
    if container.schema == _OWN_SCHEMA:
        yield from AvroRecords(container, flat=True).places()
        return
    encoded = [
        entry_bytes(entry) for entry in entries_of(decode_manifest(data, file_name=file_name))
    ]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    yield np.frombuffer(b"".join(encoded), np.uint8), bounds


# -- Facts in metadata that only features of newer clients leave behind, refused by name -----------
#
# Refused whatever the table's options are: rows read past such a fact would be wrong, and files
# written beside it would make other clients refuse the table.

_FILE_NAME = "_FILE._FILE_NAME"
_VECTOR_FILE, _BLOB_FILE = ".vector.", ".blob"
GATE_COLUMNS = (
    _FILE_NAME, "_FILE._FIRST_ROW_ID", "_FILE._WRITE_COLS", "_FILE._EXTERNAL_PATH",
)  # fmt: skip
"""Columns of a manifest that `refuse_foreign_entries` looks at."""

_ROW_TRACKING = "row tracking (row-tracking.enabled)"
_DATA_EVOLUTION = "data evolution (data-evolution.enabled)"
_EXTERNAL_PATHS = "files outside the table (data-file.external-paths)"
_EXTENSIONS = tuple(f".{file_format.value}" for file_format in FileFormat)
_OTHER_CONTAINERS = {b"ORC": "orc", b"PAR1": "parquet"}
"""How files of other formats than Avro begin, as `manifest.format` names them."""


def refuse_foreign_container(data: bytes, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for metadata that is stored as ORC or Parquet and not as Avro."""
    for magic, name in _OTHER_CONTAINERS.items():
        if data.startswith(magic):
            raise _refusal(f"metadata in another format (manifest.format={name})", file_name, table)


def refuse_row_id_entries(entries: pa.Table, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for entries whose files have row ids, or only some of the columns.

    For tables whose options know nothing of it.
    """
    _refuse_set(entries, "_FILE._FIRST_ROW_ID", _ROW_TRACKING, file_name=file_name, table=table)
    _refuse_set(entries, "_FILE._WRITE_COLS", _DATA_EVOLUTION, file_name=file_name, table=table)


def refuse_external_entries(entries: pa.Table, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for entries whose files lie outside of the table's directory.

    For tables without `data-file.external-paths`, which could be written: nothing here deletes such files.
    """
    _refuse_set(entries, "_FILE._EXTERNAL_PATH", _EXTERNAL_PATHS, file_name=file_name, table=table)


def _refuse_set(
    entries: pa.Table, column: str, feature: str, *, file_name: str, table: str
) -> None:
    values = entries.column(column)
    if values.null_count < len(values):
        first = _first(entries.column(_FILE_NAME), pc.is_valid(values))
        raise _refusal(feature, first, table, manifest=file_name)


def without_unread_columns(entries: pa.Table) -> pa.Table:
    """Return entries without those of files that hold columns of types that are not read: blobs and vectors."""
    names = entries.column(_FILE_NAME)
    is_unread = pc.or_(
        pc.match_substring(names, _VECTOR_FILE), pc.ends_with(names, pattern=_BLOB_FILE)
    )
    return entries.filter(pc.invert(is_unread)) if pc.any(is_unread).as_py() else entries


def refuse_foreign_entries(entries: pa.Table, *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for entries, of GATE_COLUMNS at least, whose files we do not read."""
    names = entries.column(_FILE_NAME)
    vectors = pc.match_substring(names, _VECTOR_FILE)
    if entries.num_rows and pc.any(vectors).as_py():
        raise _refusal(
            "vector columns in files of their own",
            _first(names, vectors),
            table,
            manifest=file_name,
        )
    has_extension = pc.ends_with(names, pattern=_EXTENSIONS[0])
    for extension in _EXTENSIONS[1:]:
        has_extension = pc.or_(has_extension, pc.ends_with(names, pattern=extension))
    if entries.num_rows and not pc.all(has_extension).as_py():
        raise _refusal(
            "data files in another format than parquet, orc and avro",
            _first(names, pc.invert(has_extension)),
            table,
            manifest=file_name,
        )


def _first(names: pa.ChunkedArray, mask: pa.ChunkedArray) -> str:
    return str(names.filter(mask)[0].as_py())


def refuse_row_id_list(metas: Sequence[ManifestFileMeta], *, file_name: str, table: str) -> None:
    """Raise UnsupportedError for a manifest list that counts row ids."""
    for meta in metas:
        if meta.min_row_id is not None:
            raise _refusal(_ROW_TRACKING, file_name, table, manifest=meta.file_name)


def is_foreign_index(entry: IndexManifestEntry) -> bool:
    """Whether an index file is of a kind that only other clients keep, such as a b-tree of a column."""
    return entry.index_file.index_type not in (HASH, DELETION_VECTORS)


def refuse_foreign_indexes(
    entries: Sequence[IndexManifestEntry], *, file_name: str, table: str
) -> None:
    """Raise UnsupportedError for index files of a kind that we would not keep right."""
    for entry in entries:
        if is_foreign_index(entry):
            raise _refusal(
                f"index files of type {entry.index_file.index_type!r}",
                entry.index_file.file_name,
                table,
                manifest=file_name,
            )
        if entry.index_file.external_path is not None:
            raise _refusal(_EXTERNAL_PATHS, entry.index_file.file_name, table, manifest=file_name)


def refuse_row_ids(snapshot: Snapshot, *, table: str) -> None:
    """Raise UnsupportedError for a snapshot after which new rows would have to be given ids."""
    if snapshot.next_row_id:
        raise _refusal(_ROW_TRACKING, f"snapshot-{snapshot.id}", table)


def _refusal(feature: str, file_name: str, table: str, **facts: object) -> UnsupportedError:
    return UnsupportedError(
        f"this version does not support {feature}; nothing was read or written",
        kind=ErrorKind.UNSUPPORTED_FORMAT,
        table=table,
        file=file_name,
        **facts,
    )
