"""Manifests and manifest lists. Files never change, so decoded contents are cached without invalidation."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError, InvalidInputError, LsmError
from lsm_engine.base.record import record
from lsm_engine.codec.avro_container import codec_named
from lsm_engine.codec.checksum import check_bytes, checksum_of
from lsm_engine.codec.entry_bytes import encode_manifest
from lsm_engine.codec.entry_checks import decode_small_manifests
from lsm_engine.codec.manifest import (
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    encode_index_manifest,
    encode_manifest_list,
    entries_of,
)
from lsm_engine.codec.manifest_gate import (
    GATE_COLUMNS,
    refuse_foreign_container,
    refuse_foreign_entries,
    refuse_foreign_indexes,
    refuse_row_id_entries,
    refuse_row_id_list,
)
from lsm_engine.codec.manifest_rows import rows_of
from lsm_engine.codec.readable import check_readable_avro
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TablePaths
from lsm_engine.meta.index_file import IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.store.kept_manifests import CACHE_BYTES, KeptManifests
from lsm_engine.store.mapped_manifests import ENTRIES_FROM, MappedManifests

T = TypeVar("T")
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
    Every read raises UnsupportedError, naming `table`, for what codec/manifest_gate refuses.
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
        """Return a manifest's entries as columns, in order (codec/manifest.py names them).

        `columns`: only these are decoded and returned; such a result is not cached.
        """
        needed = None if columns is None else {*columns, *GATE_COLUMNS}
        decode = partial(decode_manifest, columns=needed, expected_count=_count(manifest))
        refuse, name, checksum = self.refuse_entries, manifest.file_name, manifest.checksum
        if columns is None or needed is None:
            return self._kept_or(name, decode, refuse, checksum, keeps=keeps)
        mapped = self._mapped_of(manifest)
        entries = None if mapped is None else mapped.find(manifest, needed)
        if entries is None:
            entries = self._kept_or(name, decode, refuse, checksum, keeps=False)
            if mapped is not None:
                mapped.offer(manifest, needed, entries)
        else:
            refuse(entries, file_name=self._paths.manifest(name), table=self._table)
        return entries.select([name for name in entries.column_names if name in columns])

    def _mapped_of(self, manifest: ManifestFileMeta) -> MappedManifests | None:
        """Return the store of decoded columns for a large manifest that is not cached in memory."""
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
        if not self._file_io.facts.is_far:
            for batch in _batches(metas):
                yield from self._decoded(batch, function)
            return
        waiting: list[ManifestFileMeta] = []
        ready: list[ManifestFileMeta] = []
        try:
            for meta in metas:
                if self._is_wanted(meta, function) and not self._is_mapped(meta, columns):
                    self._file_io.prefetch(self._paths.manifest(meta.file_name))
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
            self._file_io.forget_prefetched(
                self._paths.manifest(meta.file_name) for meta in (*ready, *waiting)
            )

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
            if self._file_io.facts.is_far and not self._kept.holds(name):
                self._file_io.prefetch(self._paths.manifest(name))

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
            copy = copies().get(name)
            is_whole = copy is not None and checksum_of(copy) == checksum
            return copy if copy is not None and is_whole else self.content(name, checksum)

        decode, refuse = decode_manifest_list, self._refuse_list
        return list(self._kept_or(name, decode, refuse, checksum, content=content))

    def take_list(self, name: str, metas: list[ManifestFileMeta]) -> None:
        """Cache a manifest list that was decoded elsewhere, unless the table refuses it."""
        with suppress(LsmError):
            self._refuse_list(metas, file_name=name, table=self._table)
            self._kept.keep(name, metas)

    def read_index(self, name: str, checksum: int | None = None) -> list[IndexManifestEntry]:
        """Return all index files that an index manifest names."""
        return list(self._kept_or(name, decode_index_manifest, refuse_foreign_indexes, checksum))

    def write(
        self, name: str, entries: Sequence[ManifestEntry], *, codec: str, put: Put | None = None
    ) -> WrittenFile:
        """Write a manifest. `codec` as in option manifest.compression.

        A small one is cached: the next commit will read it. `put` takes the
        file, by its path, to be written later with others; the same of lists and index manifests.
        """
        data = encode_manifest(entries, codec=codec_named(codec))
        written = self.write_encoded(name, data, put=put)
        if len(entries) <= _KEPT_ENTRIES:
            self._kept.keep(name, rows_of(entries, with_stats=True))
        return written

    def write_encoded(self, name: str, data: bytes, *, put: Put | None = None) -> WrittenFile:
        """Write an encoded manifest, such as one of copied entries."""
        return self._write(name, data, decode_manifest, put)

    def write_list(
        self,
        name: str,
        manifests: Sequence[ManifestFileMeta],
        *,
        codec: str,
        put: Put | None = None,
    ) -> WrittenFile:
        """Write a manifest list. Its decoded contents are cached."""
        data = encode_manifest_list(manifests, codec=codec_named(codec))
        written = self._write(name, data, decode_manifest_list, put)
        self._kept.keep(name, list(manifests))
        return written

    def write_index(
        self,
        name: str,
        entries: Sequence[IndexManifestEntry],
        *,
        codec: str,
        put: Put | None = None,
    ) -> WrittenFile:
        """Write an index manifest. Its decoded contents are cached."""
        data = encode_index_manifest(entries, codec=codec_named(codec))
        written = self._write(name, data, decode_index_manifest, put)
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
        refuse_foreign_entries(entries, file_name=file_name, table=table)
        if not self.tracks_rows:
            refuse_row_id_entries(entries, file_name=file_name, table=table)

    def _refuse_list(
        self, metas: Sequence[ManifestFileMeta], *, file_name: str, table: str
    ) -> None:
        if not self.tracks_rows:
            refuse_row_id_list(metas, file_name=file_name, table=table)

    def _write(
        self, name: str, data: bytes, decode: Callable[..., object], put: Put | None
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
        (put or self._file_io.write_new)(self._paths.manifest(name), data)
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
