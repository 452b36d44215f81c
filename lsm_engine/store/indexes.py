"""Index files of deletion vectors. A file of a name never changes."""

from collections.abc import Iterable

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.codec.checksum import check_bytes, checksum_of
from lsm_engine.codec.deletion_vector import (
    DeletionVector,
    decode_vector,
    decode_vector_file,
    encode_vector_file,
    stored_length,
)
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import TablePaths
from lsm_engine.meta.index_file import DELETION_VECTORS, IndexFileMeta, VectorPlace


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
