"""Verify the index files of a root: they are there, whole, and speak of files and rows that exist."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from lsm_engine.base.errors import LsmError
from lsm_engine.base.units import counted
from lsm_engine.codec.deletion_vector import DeletionVector
from lsm_engine.kernels.groups import distinct
from lsm_engine.meta.index_file import DELETION_VECTORS, IndexFileMeta, IndexManifestEntry
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.store.indexes import DeletionVectorStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import indexes_by_partition
from lsm_engine.table.integrity.findings import Finding, finding_of
from lsm_engine.table.stage.dynamic_buckets import listed_hashes


class IndexVerification:
    """Looks at each index file once, however many roots name it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._store = DeletionVectorStore(session.file_io, session.paths)
        self._buckets = BucketVerification(session)
        self._seen: dict[str, dict[str, DeletionVector] | Finding] = {}

    @property
    def file_count(self) -> int:
        """How many index files were looked at."""
        return len(self._seen)

    def problems(self, snapshot: Snapshot, live: Sequence[ManifestEntry]) -> Iterator[Finding]:
        """Yield what is wrong with the index files of a root whose live files are `live`."""
        try:
            entries = self._session.index_entries(snapshot)
        except LsmError as error:
            yield finding_of(error)
            return
        rows = {
            (entry.partition, entry.bucket, entry.file.file_name): entry.file.row_count
            for entry in live
        }
        yield from self._buckets.problems(entries)
        marked: set[tuple[bytes, int, str]] = set()
        for entry in entries:
            vectors = self._read(entry.index_file)
            if isinstance(vectors, Finding):
                yield vectors
                continue
            for name, vector in vectors.items():
                key = (entry.partition, entry.bucket, name)
                path = self._session.paths.index_file(entry.index_file.file_name)
                for text in _of_vector(entry, name, vector, rows.get(key), is_second=key in marked):
                    yield Finding(text=text, path=path)
                marked.add(key)

    def _read(self, file: IndexFileMeta) -> dict[str, DeletionVector] | Finding:
        if file.file_name not in self._seen:
            try:
                self._seen[file.file_name] = self._vectors(file)
            except LsmError as error:
                self._seen[file.file_name] = finding_of(error)
        return self._seen[file.file_name]

    def _vectors(self, file: IndexFileMeta) -> dict[str, DeletionVector] | Finding:
        path = self._session.paths.index_file(file.file_name)
        if file.index_type != DELETION_VECTORS:
            size = self._session.file_io.status(path).size
            if size != file.file_size:
                return Finding(text=f"{path} has {size} bytes, not {file.file_size}", path=path)
            return {}
        vectors = self._store.read_file(file)
        if file.row_count != len(vectors):
            text = f"{path} holds {len(vectors)} deletion vectors, not {file.row_count}"
            return Finding(text=text, path=path)
        return vectors


def _of_vector(
    entry: IndexManifestEntry,
    name: str,
    vector: DeletionVector,
    row_count: int | None,
    *,
    is_second: bool,
) -> Iterable[str]:
    label = f"index file {entry.index_file.file_name}"
    if is_second:
        yield f"{label} holds a second deletion vector of {name}"
    if row_count is None:
        yield f"{label} deletes rows of {name}, which is not live"
    elif len(vector) and int(vector.positions[-1]) >= row_count:
        yield f"{label} deletes row {vector.positions[-1]} of {name}, which has {row_count}"


class BucketVerification:
    """Looks at each set of indexes once, however many roots have it."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._sound: set[frozenset[str]] = set()

    def problems(self, entries: Iterable[IndexManifestEntry]) -> Iterator[Finding]:
        """Yield what is wrong with the bucket indexes of a root."""
        context = self._session.context()
        for partition, files in indexes_by_partition(entries).items():
            names = frozenset(file.file_name for _, file in files)
            if names in self._sound:
                continue
            try:
                hashes = np.concatenate([listed_hashes(context, file) for _, file in files])
            except LsmError as error:
                yield finding_of(error)
                continue
            doubled = len(hashes) - len(distinct(hashes))
            if doubled:
                label = context.partition_path(partition) or "the table"
                yield Finding(
                    text=f"{counted(doubled, 'key')} of {label} listed for two dynamic buckets, so that rows may "
                    "be read twice; overwrite it with its rows"
                )
            else:
                self._sound.add(names)
