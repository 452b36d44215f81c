"""The deletion vectors of one bucket: to read its files without deleted rows, and to delete more.

Reading: `places_by_bucket` returns where the vectors of a snapshot are; a BucketReader (split_read)
that is handed a bucket's places leaves deleted rows out by itself.

Deleting (a lookup compaction of level 0, a delete from an append table): make `BucketDeletions`
of the bucket's index files as of the snapshot that the work is planned on, `add` positions, `forget`
data files that leave the bucket, `write`; what that returns goes into the commit message.
"""

from collections.abc import Iterable, Sequence

from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.format.index_file import (
    DELETION_VECTORS,
    IndexFileMeta,
    IndexManifestEntry,
    VectorPlace,
    vector_places,
)
from lsm_engine.format.manifest import Bucket
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.metadata.manifests import DeletionVectorStore
from lsm_engine.options import core_options
from lsm_engine.table.bucket_context import BucketContext

_FRAME_GUESS_BYTES = 32


def vector_files_by_bucket(
    entries: Iterable[IndexManifestEntry],
) -> dict[Bucket, tuple[IndexFileMeta, ...]]:
    """Return the index files of deletion vectors of each bucket that has any."""
    by_bucket: dict[Bucket, list[IndexFileMeta]] = {}
    for entry in entries:
        if entry.index_file.index_type == DELETION_VECTORS:
            by_bucket.setdefault((entry.partition, entry.bucket), []).append(entry.index_file)
    return {bucket: tuple(files) for bucket, files in by_bucket.items()}


def places_by_bucket(
    entries: Iterable[IndexManifestEntry],
) -> dict[Bucket, dict[str, VectorPlace]]:
    """Return where the vectors of each bucket's data files are, by data file name."""
    by_bucket = vector_files_by_bucket(entries)
    return {bucket: vector_places(files) for bucket, files in by_bucket.items()}


class BucketVectors:
    """The vectors of one bucket, each read when its data file first is. Threads may share it.

    `places` travel; this is made where the files are read.
    """

    def __init__(self, context: BucketContext, places: Iterable[VectorPlace]) -> None:
        self._store = DeletionVectorStore(context.file_io, context.paths)
        self._places = {place.data_file_name: place for place in places}
        self._read: dict[str, DeletionVector] = {}

    def vector_of(self, file_name: str) -> DeletionVector | None:
        """Return a data file's vector; None: none of its rows is deleted.

        Raises NotFoundError and CorruptFileError, naming the index file.
        """
        place = self._places.get(file_name)
        if place is None:
            return None
        if file_name not in self._read:
            self._read[file_name] = self._store.read(place)
        return self._read[file_name]

    def deleted(self, file: DataFileMeta, positions: Longs) -> Bools:
        """Return which rows of a data file are deleted (LookupLevels' DeletedRows)."""
        return (self.vector_of(file.file_name) or DeletionVector.from_positions(())).holds(
            positions
        )


@record
class VectorChange:
    """The index files that work on a bucket made, and those of its base that they replace."""

    new: tuple[IndexFileMeta, ...] = ()
    deleted: tuple[IndexFileMeta, ...] = ()


class BucketDeletions:
    """One bucket's vectors with added rows (DeletionVectorsMaintainer). For one thread.

    `files`: the bucket's index files of deletion vectors in the snapshot that the work is planned on
    (`TableSession.vector_files`). Nothing is written before `write`.
    """

    def __init__(self, context: BucketContext, files: Sequence[IndexFileMeta]) -> None:
        self._context = context
        self._store = DeletionVectorStore(context.file_io, context.paths)
        self._files = tuple(files)
        self._places = vector_places(files)
        self._vectors = BucketVectors(context, self._places.values())
        self._changed: dict[str, DeletionVector | None] = {}
        self._written: list[str] = []

    def vector(self, file_name: str) -> DeletionVector | None:
        """Return a data file's vector, with what was added; None: no row of it is deleted."""
        if file_name in self._changed:
            return self._changed[file_name]
        return self._vectors.vector_of(file_name)

    def deleted(self, file: DataFileMeta, positions: Longs) -> Bools:
        """Return which rows of a data file are deleted, by now (LookupLevels' DeletedRows)."""
        return (self.vector(file.file_name) or DeletionVector.from_positions(())).holds(positions)

    def add(self, file_name: str, positions: Longs) -> int:
        """Delete rows of a data file by physical position; return how many were there until now."""
        before = self.vector(file_name) or DeletionVector.from_positions(())
        after = before.union(positions)
        if len(after) > len(before):
            self._changed[file_name] = after
        return len(after) - len(before)

    def forget(self, file_names: Iterable[str]) -> None:
        """Drop the vectors of data files that leave the bucket. Upgraded files keep theirs."""
        for name in file_names:
            # None marks a vector that goes; a file without one leaves nothing to change.
            if name in self._places or name in self._changed:
                self._changed[name] = None

    def write(self) -> VectorChange:
        """Write the index files that a commit message names; an empty change if there is none.

        `new` and `deleted` go into `new_index_files` and `deleted_index_files` of its increment.

        A primary-key bucket has one index file, replaced as a whole, as its readers expect. Append
        tables have files of about `deletion-vector.index-file.target-size`, of which only those are
        replaced that hold a changed vector.
        """
        if not any(self._is_change(name) for name in self._changed):
            return VectorChange()
        options = self._context.schema.options
        wide = options[core_options.DELETION_VECTORS_BITMAP64]
        has_one_file = self._context.schema.has_primary_key
        touched = [file for file in self._files if has_one_file or self._touches(file)]
        stay = {file.file_name for file in self._files} - {file.file_name for file in touched}
        # Vectors that share a replaced index file move into the new one.
        untouched = {
            name: self.vector(name)
            for name, place in self._places.items()
            if place.index_file not in stay
        }
        vectors = {
            name: vector
            for name, vector in sorted({**untouched, **self._changed}.items())
            if vector is not None and len(vector)
        }
        most = (
            None if has_one_file else options[core_options.DELETION_VECTOR_INDEX_FILE_TARGET_SIZE]
        )
        new = [
            self._store.write(self._new_name(), piece, wide=wide)
            for piece in _pieces(list(vectors.items()), most)
        ]
        return VectorChange(new=tuple(new), deleted=tuple(touched))

    def abort(self) -> None:
        """Delete what `write` wrote; nothing names it."""
        for name in self._written:
            self._store.delete(name)

    def _is_change(self, name: str) -> bool:
        return self._changed[name] is not None or name in self._places

    def _touches(self, file: IndexFileMeta) -> bool:
        return any(v.data_file_name in self._changed for v in file.deletion_vectors or ())

    def _new_name(self) -> str:
        name = f"index-{self._context.ids.new_id()}-0"
        self._written.append(name)
        return name


def _pieces(
    vectors: Sequence[tuple[str, DeletionVector]], most_bytes: int | None
) -> list[list[tuple[str, DeletionVector]]]:
    """Cut vectors into index files of about a size. An estimate: two bytes per position or less."""
    pieces: list[list[tuple[str, DeletionVector]]] = []
    size = 0
    for pair in vectors:
        added = _FRAME_GUESS_BYTES + 2 * len(pair[1])
        if not pieces or (most_bytes is not None and size + added > most_bytes):
            pieces.append([])
            size = 0
        pieces[-1].append(pair)
        size += added
    return pieces
