"""Index files: deletion vectors and hash indexes, as the index manifest lists them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.options.modes import EntryKind

DELETION_VECTORS = "DELETION_VECTORS"
HASH = "HASH"


@record
class DeletionVectorMeta:
    """Where one data file's deletion vector lies in its index file."""

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None = None


@record
class VectorPlace:
    """Where the deletion vector of one data file is: in which index file, and where in that.

    Small enough to travel with every split; the bitmap is read where the data file is.
    """

    index_file: str
    vector: DeletionVectorMeta

    @property
    def data_file_name(self) -> str:
        """The data file whose rows it takes away."""
        return self.vector.data_file_name


@record
class IndexFileMeta:
    """One index file; `deletion_vectors` only for that type."""

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vectors: tuple[DeletionVectorMeta, ...] | None = None
    external_path: str | None = None
    checksum: int | None = None  # of all bytes; None: written by others


def vector_places(files: Iterable[IndexFileMeta]) -> dict[str, VectorPlace]:
    """Return, by data file, where the vectors of a bucket are. `files`: all index files it has.

    Raises CorruptFileError if a data file has two vectors.
    """
    places: dict[str, VectorPlace] = {}
    for file in files:
        if file.index_type != DELETION_VECTORS:
            continue
        for vector in file.deletion_vectors or ():
            if vector.data_file_name in places:
                raise CorruptFileError(
                    "a data file has two deletion vectors; run verify",
                    file=vector.data_file_name,
                    index_file=file.file_name,
                )
            places[vector.data_file_name] = VectorPlace(index_file=file.file_name, vector=vector)
    return places


@record
class IndexManifestEntry:
    """One row of an index manifest."""

    kind: EntryKind
    partition: bytes
    bucket: int
    index_file: IndexFileMeta


# -- Index files of dynamic buckets ----------------------------------------------------------------
#
# The hashes of a bucket's keys, 4 bytes each, big-endian (format section 12).

_STORED = np.dtype(">i4")


def encode_bucket_index(hashes: NDArray[np.int32]) -> bytes:
    """Return the file that lists hashes, in the order given."""
    return hashes.astype(_STORED).tobytes()


def decode_bucket_index(data: bytes, *, row_count: int, file_name: str) -> NDArray[np.int32]:
    """Return the hashes that a file lists; CorruptFileError, naming it, unless there are `row_count`."""
    if len(data) != _STORED.itemsize * row_count:
        raise CorruptFileError(
            "a bucket index has not as many hashes as its index manifest records; restore it, or "
            "overwrite the partition",
            file=file_name,
            bytes=len(data),
            expected_rows=row_count,
        )
    return np.frombuffer(data, _STORED).astype(np.int32)
