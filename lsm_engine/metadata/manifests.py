"""Manifests and manifest lists. Files never change, so decoded contents are cached without invalidation."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress, product
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from lsm_engine.base.errors import CorruptFileError, InvalidInputError, LsmError
from lsm_engine.base.record import record
from lsm_engine.cache.shared import SharedCache, manifest_cache_root
from lsm_engine.format.avro.container import Container, codec_named, read_container
from lsm_engine.format.checksum import check_bytes, checksum_of
from lsm_engine.format.deletion_vector import (
    DeletionVector,
    decode_vector,
    decode_vector_file,
    encode_vector_file,
    stored_length,
)
from lsm_engine.format.documents import check_readable_avro
from lsm_engine.format.index_file import (
    DELETION_VECTORS,
    IndexFileMeta,
    IndexManifestEntry,
    VectorPlace,
)
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.manifest_columns import narrowed, rows_of, widened
from lsm_engine.format.manifest_file import (
    GATE_COLUMNS,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    decode_manifest_lists,
    decode_small_manifests,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    entries_of,
    joined_manifests,
    refuse_external_entries,
    refuse_foreign_container,
    refuse_foreign_entries,
    refuse_row_id_entries,
    refuse_row_id_list,
    without_unread_columns,
)
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.storage.bulk import forget_prefetched, prefetch
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TablePaths

# -- Cache of decoded manifests and lists of a process, with a limit in bytes for each kind --------

T = TypeVar("T")
CACHE_BYTES = 64 << 20
FACT_BYTES = 64 << 20
_BYTES_PER_RECORD = 800  # what one record of a list takes, measured
_EXACT_FROM_BYTES = 1 << 15
_BYTES_PER_ARRAY = 1_400
"""The measured overhead of an Arrow array: for a few entries it is nearly all of the memory."""


class KeptManifests:
    """Entries of manifests, as tables, and lists and facts about entries, by name. Any thread may use it.

    Entries and facts have limits of their own: the entries of one large manifest would evict the facts of
    a hundred others. On a remote store all handles of a process share one cache, in a server those on local disks, too.
    """

    def __init__(self, file_io: FileIO, cache_bytes: int) -> None:
        """`cache_bytes`: of entries, where they are not shared."""
        self._file_io = file_io
        self._is_shared = file_io.facts.is_remote or _shares_local.is_set()
        if self._is_shared:
            self._entries, self._others, self._lock = _shared_entries, _shared_others, _shared_lock
        else:
            self._entries = LRUCache(cache_bytes, getsizeof=_size_of)
            self._others = LRUCache(FACT_BYTES, getsizeof=_size_of)
            self._lock = threading.Lock()

    def find(self, name: str) -> Any | None:
        """Return the cached value of a name, or None."""
        return self.find_all([name])[0]

    def find_all(self, names: Iterable[str]) -> list[Any | None]:
        """Return the cached value of each name, or None."""
        keys = [(self._file_io, name) for name in names] if self._is_shared else names
        with self._lock:
            entries, facts = self._entries, self._others
            return [facts[key] if key in facts else entries.get(key) for key in keys]

    def holds(self, name: str) -> bool:
        """Whether a name has a cached value."""
        key = self._key(name)
        with self._lock:
            return key in self._others or key in self._entries

    def keep(self, name: str, value: T) -> T:
        """Cache a value, unless it is larger than the cache, and return it."""
        cache = self._entries if isinstance(value, pa.Table) else self._others
        # The cache raises for a value that is larger than all of it.
        with self._lock, suppress(ValueError):
            cache[self._key(name)] = value
        return value

    def forget(self, name: str) -> None:
        """Drop the cached value of a name."""
        with self._lock:
            for cache in (self._entries, self._others):
                cache.pop(self._key(name), None)

    def forget_all(self) -> None:
        """Drop all cached values of this store."""
        with self._lock:
            for cache in (self._entries, self._others):
                for key in [key for key in cache if not self._is_shared or key[0] == self._file_io]:
                    del cache[key]

    def _key(self, name: str) -> Any:
        return (self._file_io, name) if self._is_shared else name


def share_local() -> None:
    """Have handles of tables on local disks that are opened from now on share the cache of the process.

    For a server, which opens a handle for each request. What is damaged on the disk meanwhile is then read from memory.
    """
    _shares_local.set()


def forget_shared() -> None:
    """Clear the shared cache, as in a new process."""
    with _shared_lock:
        _shared_entries.clear()
        _shared_others.clear()


def _size_of(value: Any) -> int:
    if isinstance(value, pa.Table):
        # Tables of entries have as many chunks in each column.
        arrays = value.num_columns * value.column(0).num_chunks if value.num_columns else 0
        size = int(value.get_total_buffer_size())
        # Of manifests decoded together each is a slice of the same buffers, and counts its part.
        if size > _EXACT_FROM_BYTES:
            size = int(value.nbytes)
        return size + _BYTES_PER_ARRAY * arrays
    stated = getattr(value, "kept_bytes", None)
    return _BYTES_PER_RECORD * max(len(value), 1) if stated is None else int(stated)


_shared_entries: LRUCache[Any, Any] = LRUCache(CACHE_BYTES, getsizeof=_size_of)
_shared_others: LRUCache[Any, Any] = LRUCache(FACT_BYTES, getsizeof=_size_of)
_shared_lock = threading.Lock()
_shares_local = threading.Event()


# -- Mapped manifests ------------------------------------------------------------------------------
#
# Disk cache of decoded large manifests, as mapped Arrow files, for the first scan plan of a
# process.

ENTRIES_FROM = 1024
"""Entries from which on decoding a manifest takes longer than mapping what was decoded."""
_FORM = 1  # of what is stored: another number for another one


class MappedManifests:
    """Columns of manifests of one table, in a directory that all processes of a user share.

    A manifest is stored when the same columns of it are asked for a second time, by any process: one that is
    read once costs no more. A manifest of a remote store is stored on the first read, as it would be fetched again. Entries go by
    the manifest's path, size and checksum; a file of a name never changes.
    """

    def __init__(self, paths: TablePaths, *, max_bytes: int, is_remote: bool) -> None:
        self._paths = paths
        self._is_remote = is_remote
        self._cache = SharedCache(manifest_cache_root(), max_bytes)

    def find(self, meta: ManifestFileMeta, columns: Collection[str]) -> pa.Table | None:
        """Return columns of a manifest as they were decoded, if they are stored."""
        stored = self._cache.find(self._key(meta, columns))
        return None if stored is None else widened(pa.ipc.open_file(stored).read_all(), columns)

    def holds(self, meta: ManifestFileMeta, columns: Collection[str]) -> bool:
        """Whether these columns of a manifest are stored."""
        return self._cache.holds(self._key(meta, columns))

    def offer(self, meta: ManifestFileMeta, columns: Collection[str], decoded: pa.Table) -> None:
        """Take columns that were decoded, to store them if they are likely to be asked for again."""
        key = self._key(meta, columns)
        if not self._cache.is_usable:
            return
        if self._is_remote or self._cache.is_asked_again(key):
            entries = narrowed(decoded)

            def write(sink: object) -> None:
                with pa.ipc.new_file(sink, entries.schema) as writer:
                    writer.write_table(entries)

            self._cache.put(key, write)

    def _key(self, meta: ManifestFileMeta, columns: Collection[str]) -> str:
        path = self._paths.manifest(meta.file_name)
        return f"{_FORM} {path} {meta.file_size} {meta.checksum} {','.join(sorted(columns))}"


# -- Manifests and manifest lists ------------------------------------------------------------------

Put = Callable[[str, bytes], None]
BYTES_MAX = 256 << 20
"""The maximum size of a manifest, a manifest list or an index manifest, for readers and writers."""
_AHEAD = 32
_TOGETHER = 64  # manifests of at most so many bytes are decoded at once
SMALL_BYTES = 16 << 10
"""Of so many bytes at most a manifest is decoded with others."""
_KEPT_ENTRIES = 256  # a manifest of more is decoded when it is asked for


@record
class WrittenFile:
    """A metadata file that was written: its bytes, and their checksum."""

    size: int
    checksum: int


class ManifestStore:
    """One table's manifests, manifest lists and index manifests (ManifestFile, ManifestList, …).

    Caches decoded contents by file name (KeptManifests). Names hold a UUID: none is used twice.
    Every read raises UnsupportedError, naming `table`, for what format/manifest_file refuses.
    """

    def __init__(
        self,
        file_io: FileIO,
        paths: TablePaths,
        *,
        cache_bytes: int = CACHE_BYTES,
        table: str = "",
        tracks_rows: bool = False,
        mapped: MappedManifests | None = None,
    ) -> None:
        """`tracks_rows`: the table's options know of row ids; else they are refused. `mapped`: of large ones."""
        self._table = table
        self.tracks_rows = tracks_rows
        self.leaves_out = False
        """Whether files of columns that are not read are passed over."""
        self.reads_external = False
        """Whether files may lie outside of the table's directory; else they are refused."""
        self._file_io = file_io
        self._paths = paths
        self._kept = KeptManifests(file_io, cache_bytes)
        self._mapped = mapped

    def read(
        self,
        manifest: ManifestFileMeta,
        columns: Collection[str] | None = None,
        *,
        keeps: bool = True,
    ) -> pa.Table:
        """Return a manifest's entries as columns, in order (format/manifest_file.py names them).

        `columns`: only these are decoded and returned; such a result is not cached.
        """
        needed = None if columns is None else {*columns, *GATE_COLUMNS}
        decode = partial(decode_manifest, columns=needed, expected_count=_count(manifest))
        refuse, name, checksum = self.refuse_entries, manifest.file_name, manifest.checksum
        if columns is None or needed is None:
            return self._readable(self._kept_or(name, decode, refuse, checksum, keeps=keeps))
        # Decoding a large manifest takes longer than mapping what another process decoded.
        mapped = self._mapped_of(manifest)
        entries = None if mapped is None else mapped.find(manifest, needed)
        if entries is None:
            entries = self._kept_or(name, decode, refuse, checksum, keeps=False)
            if mapped is not None:
                mapped.offer(manifest, needed, entries)
        else:
            refuse(entries, file_name=self._paths.manifest(name), table=self._table)
        entries = self._readable(entries)
        return entries.select([name for name in entries.column_names if name in columns])

    def _mapped_of(self, manifest: ManifestFileMeta) -> MappedManifests | None:
        """Return the store of decoded columns for a large manifest that is not cached in memory."""
        # A manifest in memory needs no copy on disk.
        is_large = _count(manifest) >= ENTRIES_FROM and not self._kept.holds(manifest.file_name)
        return self._mapped if is_large else None

    def ahead(
        self,
        metas: Iterable[ManifestFileMeta],
        function: Callable[[pa.Table], object] | None = None,
        columns: Collection[str] | None = None,
    ) -> Iterator[ManifestFileMeta]:
        """Yield manifests in order, and prefetch the next ones of a remote store.

        Small ones are decoded in batches, and cached. `function`, `columns`: only a fact of each will be asked for, or
        these columns. What is fetched ahead is at most 64 MB, or one file.
        """
        if not self._file_io.facts.is_remote:
            for batch in _batches(metas):
                yield from self._decoded(batch, function)
            return
        waiting: list[ManifestFileMeta] = []
        ready: list[ManifestFileMeta] = []
        try:
            for meta in metas:
                if self._is_wanted(meta, function) and not self._is_mapped(meta, columns):
                    prefetch(self._file_io, self._paths.manifest(meta.file_name))
                waiting.append(meta)
                if (
                    len(waiting) > _AHEAD
                    or sum(pending.file_size for pending in waiting) > CACHE_BYTES
                ):
                    half = (len(waiting) + 1) // 2
                    ready, waiting = waiting[:half], waiting[half:]
                    yield from self._decoded(ready, function)
            ready, waiting = waiting, []
            yield from self._decoded(ready, function)
        finally:  # the caller may have stopped halfway
            names = (meta.file_name for meta in (*ready, *waiting))
            forget_prefetched(self._file_io, map(self._paths.manifest, names))

    def _is_wanted(
        self, meta: ManifestFileMeta, function: Callable[[pa.Table], object] | None
    ) -> bool:
        name = meta.file_name if function is None else _fact_name(meta, function)
        return not (self._kept.holds(name) or self._kept.holds(meta.file_name))

    def _is_mapped(self, meta: ManifestFileMeta, columns: Collection[str] | None) -> bool:
        mapped = None if columns is None else self._mapped_of(meta)
        return mapped is not None and mapped.holds(meta, {*(columns or ()), *GATE_COLUMNS})

    def _decoded(
        self, metas: Sequence[ManifestFileMeta], function: Callable[[pa.Table], object] | None
    ) -> Sequence[ManifestFileMeta]:
        """Decode the needed small manifests in one batch, cache them, and return all manifests.

        `read` reports the errors of a damaged one.
        """
        small = [
            manifest
            for manifest in metas
            if manifest.file_size <= SMALL_BYTES and self._is_wanted(manifest, function)
        ]
        if len(small) < 2:
            return metas
        # Decoding ahead saves time only: the errors come from the read itself.
        with suppress(LsmError):
            files = {
                self._paths.manifest(meta.file_name): self.content(meta.file_name, meta.checksum)
                for meta in small
            }
            for meta, entries in zip(small, decode_small_manifests(files) or (), strict=False):
                if entries.num_rows == _count(meta):
                    self.refuse_entries(entries, file_name=meta.file_name, table=self._table)
                    self._kept.keep(meta.file_name, entries)
        return metas

    def expect(self, names: Iterable[str]) -> None:
        """Prefetch manifests and lists of a remote store that will be read."""
        for name in names:
            # Prefetching a cached one would be a request for nothing.
            if self._file_io.facts.is_remote and not self._kept.holds(name):
                prefetch(self._file_io, self._paths.manifest(name))

    def read_entries(self, manifest: ManifestFileMeta) -> list[ManifestEntry]:
        """Return a manifest's entries, in order."""
        return entries_of(self.read(manifest))

    def fact(
        self,
        manifest: ManifestFileMeta,
        function: Callable[[pa.Table], T],
        columns: Collection[str] | None = None,
    ) -> T:
        """Return a pure function's value for a manifest's entries, and cache it.

        `columns`: the columns that it reads. Only these of a large manifest are decoded, and none are cached.
        """
        name = _fact_name(manifest, function)
        value: T | None = self._kept.find(name)
        if value is not None:
            return value
        # A small manifest is decoded whole and cached, as other facts of it will be asked for.
        needed = columns if _count(manifest) > _KEPT_ENTRIES else None
        return self._kept.keep(name, function(self.read(manifest, needed)))

    def facts(
        self,
        metas: Sequence[ManifestFileMeta],
        function: Callable[[pa.Table], T],
        columns: Collection[str] | None = None,
    ) -> Sequence[T]:
        """Return `fact` of each manifest; manifests without one are read as `ahead` does."""
        values: list[Any] = self._kept.find_all(_fact_name(meta, function) for meta in metas)
        if None not in values:
            return values
        return [self.fact(meta, function, columns) for meta in self.ahead(metas, function, columns)]

    def are_known(
        self, metas: Sequence[ManifestFileMeta], function: Callable[[pa.Table], object]
    ) -> list[bool]:
        """Return for each manifest whether the value of a function is cached."""
        values = self._kept.find_all(_fact_name(meta, function) for meta in metas)
        return [value is not None for value in values]

    def read_list(
        self,
        name: str,
        checksum: int | None = None,
        copies: Callable[[], Mapping[str, bytes]] = dict,
    ) -> list[ManifestFileMeta]:
        """Return the manifests that a manifest list names, in order.

        `checksum`: of the list, as the snapshot keeps it (`Snapshot.checksum_of`). `copies`: of the
        contents of its lists, by name; one is taken where it has that checksum.
        """

        def content(name: str, checksum: int | None) -> bytes:
            # A copy in the snapshot saves a request, and is trusted only by its checksum.
            copy = copies().get(name)
            is_whole = copy is not None and checksum_of(copy) == checksum
            return copy if copy is not None and is_whole else self.content(name, checksum)

        decode, refuse = decode_manifest_list, self._refuse_list
        return list(self._kept_or(name, decode, refuse, checksum, content=content))

    def has_list(self, name: str) -> bool:
        """Whether a manifest list is cached."""
        return self._kept.holds(name)

    def take_list(self, name: str, metas: list[ManifestFileMeta]) -> None:
        """Cache a manifest list that was decoded elsewhere, unless the table refuses it."""
        with suppress(LsmError):
            self._refuse_list(metas, file_name=name, table=self._table)
            self._kept.keep(name, metas)

    def read_index(self, name: str, checksum: int | None = None) -> list[IndexManifestEntry]:
        """Return all index files that an index manifest names, those of other kinds too."""
        return list(self._kept_or(name, decode_index_manifest, _refuse_nothing, checksum))

    def write(
        self,
        name: str,
        entries: Sequence[ManifestEntry],
        *,
        codec: str,
        write_file: Put | None = None,
    ) -> WrittenFile:
        """Write a manifest. `codec` as in option manifest.compression.

        A small one is cached: the next commit will read it. `write_file` takes the
        file, by its path, to be written later with others; the same of lists and index manifests.
        """
        data = encode_manifest(entries, codec=codec_named(codec))
        written = self.write_encoded(name, data, write_file=write_file)
        if len(entries) <= _KEPT_ENTRIES:
            self._kept.keep(name, rows_of(entries, with_stats=True))
        return written

    def write_encoded(
        self, name: str, data: bytes, *, write_file: Put | None = None
    ) -> WrittenFile:
        """Write an encoded manifest, such as one of copied entries."""
        return self._write(name, data, decode_manifest, write_file)

    def write_list(
        self,
        name: str,
        manifests: Sequence[ManifestFileMeta],
        *,
        codec: str,
        write_file: Put | None = None,
    ) -> WrittenFile:
        """Write a manifest list. Its decoded contents are cached."""
        data = encode_manifest_list(manifests, codec=codec_named(codec))
        written = self._write(name, data, decode_manifest_list, write_file)
        self._kept.keep(name, list(manifests))
        return written

    def write_index(
        self,
        name: str,
        entries: Sequence[IndexManifestEntry],
        *,
        codec: str,
        write_file: Put | None = None,
    ) -> WrittenFile:
        """Write an index manifest. Its decoded contents are cached."""
        data = encode_index_manifest(entries, codec=codec_named(codec))
        written = self._write(name, data, decode_index_manifest, write_file)
        self._kept.keep(name, list(entries))
        return written

    def delete(self, name: str) -> bool:
        """Delete a manifest or list without references; False if it does not exist."""
        self.forget(name)
        return self._file_io.delete(self._paths.manifest(name))

    def forget_all(self) -> None:
        """Clear the caches in memory, and ignore the one on disk: the next reads see the current files."""
        self._kept.forget_all()
        self._mapped = None

    def forget(self, name: str) -> None:
        """Drop a file that will be deleted from the cache."""
        self._kept.forget(name)

    def refuse_entries(self, entries: pa.Table, *, file_name: str, table: str) -> None:
        """Raise UnsupportedError for entries, of GATE_COLUMNS at least, that this table cannot have."""
        refuse_foreign_entries(self._readable(entries), file_name=file_name, table=table)
        if not self.tracks_rows:
            refuse_row_id_entries(entries, file_name=file_name, table=table)
        if not self.reads_external:
            refuse_external_entries(entries, file_name=file_name, table=table)

    def _readable(self, entries: pa.Table) -> pa.Table:
        return without_unread_columns(entries) if self.leaves_out else entries

    def _refuse_list(
        self, metas: Sequence[ManifestFileMeta], *, file_name: str, table: str
    ) -> None:
        if not self.tracks_rows:
            refuse_row_id_list(metas, file_name=file_name, table=table)

    def _write(
        self, name: str, data: bytes, decode: Callable[..., object], write_file: Put | None
    ) -> WrittenFile:
        """Write a file that readers will take; InvalidInputError, and nothing written, otherwise."""
        check_readable_avro(data, decode, file_name=name)
        if len(data) > BYTES_MAX:
            raise InvalidInputError(
                "a manifest would become larger than readers take; lower manifest.target-file-size, or "
                "commit fewer files at once",
                file=name,
                bytes=len(data),
                bytes_max=BYTES_MAX,
            )
        (write_file or self._file_io.write_new)(self._paths.manifest(name), data)
        return WrittenFile(size=len(data), checksum=checksum_of(data))

    def _kept_or(
        self,
        name: str,
        decode: Callable[..., T],
        refuse: Callable[..., None],
        checksum: int | None,
        *,
        keeps: bool = True,
        content: Callable[[str, int | None], bytes] | None = None,
    ) -> T:
        cached: T | None = self._kept.find(name)
        if cached is not None:
            return cached
        path = self._paths.manifest(name)
        decoded = decode((content or self.content)(name, checksum), file_name=path)
        refuse(decoded, file_name=path, table=self._table)
        return self._kept.keep(name, decoded) if keeps else decoded

    def content(self, name: str, checksum: int | None) -> bytes:
        """Return the content of a metadata file, with size and checksum verified."""
        path = self._paths.manifest(name)
        data = self._file_io.read(path, length=BYTES_MAX + 1)
        if not data:
            raise CorruptFileError("the file is empty; restore it, or run verify", file=path)
        if len(data) > BYTES_MAX:
            raise CorruptFileError(
                "the file is far too large for its kind; restore it, or run verify",
                file=path,
                bytes_max=BYTES_MAX,
            )
        check_bytes(data, checksum, file_name=path)
        refuse_foreign_container(data, file_name=path, table=self._table)
        return data


def _refuse_nothing(_: object, *, file_name: str, table: str) -> None:
    """Readers pass over index files that they do not know; writers refuse them by what they ask for."""


def _batches(metas: Iterable[ManifestFileMeta]) -> Iterator[list[ManifestFileMeta]]:
    """Yield manifests in order, as many at a time as may be decoded together."""
    batch: list[ManifestFileMeta] = []
    for meta in metas:
        batch.append(meta)
        if len(batch) == _TOGETHER or meta.file_size > SMALL_BYTES:
            yield batch
            batch = []
    yield batch


def _fact_name(manifest: ManifestFileMeta, function: Callable[[pa.Table], object]) -> str:
    return f"{manifest.file_name} {function.__module__}.{function.__qualname__}"


def _count(manifest: ManifestFileMeta) -> int:
    return manifest.added_file_count + manifest.deleted_file_count


# -- Batched decoding of manifest lists and manifests of many tables -------------------------------
#
# The cost of a small file is mostly work per column, which one batch pays once for all files.

K = TypeVar("K")

_MANIFESTS_PER_CALL = 256
"""Files decoded by one call: the loop over so few is interpreted, without loading the compiler."""


def keep_lists(lists: Iterable[tuple[ManifestStore, str, int | None]]) -> None:
    """Read manifest lists, given by (store, name, checksum), and cache them in their stores, unless they are there.

    `ManifestStore.read_list` reports the errors of a damaged one.
    """
    contents = [
        ((store, name), data)
        for store, name, checksum in lists
        if not store.has_list(name) and (data := _content(store, name, checksum)) is not None
    ]
    for keys, containers in _alike(contents):
        with suppress(LsmError):
            for (store, name), metas in zip(keys, decode_manifest_lists(containers), strict=True):
                store.take_list(name, metas)


def joined_entries(
    manifests: Sequence[tuple[ManifestStore, ManifestFileMeta]], columns: Collection[str]
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    """Yield batches: entries, for each the position of its manifest in `manifests`, and all positions.

    Large and damaged manifests are in no batch: read them by `ManifestStore.read`.
    """
    # The entries of a batch are refused together.
    for accepted in product((False, True), repeat=2):
        contents = [
            (place, data)
            for place, (store, meta) in enumerate(manifests)
            if (store.tracks_rows, store.reads_external) == accepted
            and meta.file_size <= SMALL_BYTES
            and (data := _content(store, meta.file_name, meta.checksum)) is not None
        ]
        for places, containers in _alike(contents):
            with suppress(LsmError):
                yield from _joined(manifests, places, containers, columns)


def _joined(
    manifests: Sequence[tuple[ManifestStore, ManifestFileMeta]],
    places: Sequence[int],
    containers: Sequence[Container],
    columns: Collection[str],
) -> Iterator[tuple[pa.Table, Longs, Sequence[int]]]:
    joined = joined_manifests(containers, {*columns, *GATE_COLUMNS})
    if joined is None:
        return
    entries, counts = joined
    manifests[places[0]][0].refuse_entries(entries, file_name="", table="")
    metas = [manifests[place][1] for place in places]
    are_complete = [
        count == meta.added_file_count + meta.deleted_file_count
        for count, meta in zip(counts, metas, strict=True)
    ]
    mask = np.repeat(are_complete, counts)
    names = [name for name in entries.column_names if name in columns]
    yield (
        entries.select(names).filter(pa.array(mask)),
        np.repeat(np.array(places, np.int64), counts)[mask],
        list(compress(places, are_complete)),
    )


def _content(store: ManifestStore, name: str, checksum: int | None) -> bytes | None:
    with suppress(LsmError):
        return store.content(name, checksum)
    return None


def _alike(files: Iterable[tuple[K, bytes]]) -> Iterator[tuple[list[K], list[Container]]]:
    """Yield batches of files of one schema; files that are not Avro are left out."""
    grouped: dict[int, tuple[list[K], list[Container]]] = {}
    for key, data in files:
        with suppress(LsmError):
            container = read_container(data, file_name="")
            # Texts that are equal are decoded into the same object.
            keys, containers = grouped.setdefault(id(container.schema), ([], []))
            keys.append(key)
            containers.append(container)
    for keys, containers in grouped.values():
        for start in range(0, len(keys), _MANIFESTS_PER_CALL):
            yield (
                keys[start : start + _MANIFESTS_PER_CALL],
                containers[start : start + _MANIFESTS_PER_CALL],
            )


# -- Index files of deletion vectors ---------------------------------------------------------------
#
# A file of a name never changes.


class DeletionVectorStore:
    """The deletion vectors of one table (DeletionVectorsIndexFile), found by index manifest."""

    def __init__(self, file_io: FileIO, paths: TablePaths) -> None:
        self._file_io = file_io
        self._paths = paths

    def read(self, place: VectorPlace) -> DeletionVector:
        """Return one vector; reads its bytes and no others of the file.

        Raises NotFoundError if the file is missing, CorruptFileError, naming it, if it is wrong.
        """
        path = self._paths.index_file(place.index_file)
        vector = place.vector
        if vector.offset < 1 or vector.length < 0:
            raise CorruptFileError(
                "an index manifest places a deletion vector outside of its file; restore it",
                file=path,
                offset=vector.offset,
            )
        data = self._file_io.read(path, vector.offset, stored_length(vector))
        return decode_vector(data, vector, file_name=path)

    def read_file(self, file: IndexFileMeta) -> dict[str, DeletionVector]:
        """Return all vectors of an index file by data file; raises as `read` does."""
        path = self._paths.index_file(file.file_name)
        data = self._file_io.read(path, length=file.file_size + 1)
        if len(data) != file.file_size:
            raise CorruptFileError(
                "an index file's size differs from its index manifest entry; restore it",
                file=path,
                bytes=len(data),
                expected=file.file_size,
            )
        check_bytes(data, file.checksum, file_name=path)
        return decode_vector_file(data, file.deletion_vectors or (), file_name=path)

    def write(
        self, name: str, vectors: Iterable[tuple[str, DeletionVector]], *, wide: bool
    ) -> IndexFileMeta:
        """Write an index file of (data file, vector) pairs; return its index manifest entry.

        `wide`: as 64-bit bitmaps, which Java 0.9 and pypaimon cannot read.
        """
        data, metas = encode_vector_file(vectors, wide=wide)
        self._file_io.write_new(self._paths.index_file(name), data)
        return IndexFileMeta(
            index_type=DELETION_VECTORS,
            file_name=name,
            file_size=len(data),
            row_count=len(metas),
            deletion_vectors=metas,
            checksum=checksum_of(data),
        )

    def delete(self, name: str) -> bool:
        """Delete an index file that nothing names; False if it was not there."""
        return self._file_io.delete(self._paths.index_file(name))
