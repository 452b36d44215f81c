"""Disk cache of decoded large manifests, as mapped Arrow files, for the first scan plan of a process."""

from collections.abc import Collection

import pyarrow as pa

from lsm_engine.codec.narrow_entries import narrowed, widened
from lsm_engine.io.paths import TablePaths
from lsm_engine.io.shared_cache import SharedCache, manifest_cache_root
from lsm_engine.meta.manifest import ManifestFileMeta

ENTRIES_FROM = 1024
"""Entries from which on decoding a manifest takes longer than mapping what was decoded."""
_FORM = 1  # of what is stored: another number for another one


class MappedManifests:
    """Columns of manifests of one table, in a directory that all processes of a user share.

    A manifest is stored when the same columns of it are asked for a second time, by any process: one that is
    read once costs no more. A manifest of a remote store is stored on the first read, as it would be fetched again. Entries go by
    the manifest's path, size and checksum; a file of a name never changes.
    """

    def __init__(self, paths: TablePaths, *, max_bytes: int, is_far: bool) -> None:
        self._paths = paths
        self._is_far = is_far
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
        if self._is_far or self._cache.is_asked_again(key):
            entries = narrowed(decoded)

            def write(sink: object) -> None:
                with pa.ipc.new_file(sink, entries.schema) as writer:
                    writer.write_table(entries)

            self._cache.put(key, write)

    def _key(self, meta: ManifestFileMeta, columns: Collection[str]) -> str:
        path = self._paths.manifest(meta.file_name)
        return f"{_FORM} {path} {meta.file_size} {meta.checksum} {','.join(sorted(columns))}"
