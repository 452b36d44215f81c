"""Codec of deletion vectors (format section 12): the positions of the deleted rows of a data file.

An index file holds several of them: a version byte, then per vector its size (big-endian), a bitmap
with a magic number in front, and the CRC-32 of both. 32-bit bitmaps are what every client reads; the
64-bit ones have a magic number in the other byte order, and count size and checksum as their length.
"""

import struct
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from pyroaring import BitMap, BitMap64

from lsm_engine.base.errors import CorruptFileError, InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.index_file import DeletionVectorMeta
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.groups import distinct

FILE_VERSION = 1
MAGIC_32 = 1581511376
MAGIC_64 = 1681511377
POSITIONS_MAX_32 = 1 << 32
"""Positions below this fit in a 32-bit bitmap."""
FRAME_BYTES = 8
"""Size in front and CRC behind: what a vector takes beyond its bitmap and magic number."""


class DeletionVector:
    """The deleted rows of one data file, as physical positions from 0. It is immutable.

    `positions`: ascending and distinct.
    """

    __slots__ = ("positions",)

    def __init__(self, positions: Longs) -> None:
        self.positions = positions

    @staticmethod
    def from_positions(positions: Iterable[int] | Longs) -> "DeletionVector":
        """Return a vector of positions in any order; InvalidInputError for negative ones."""
        values = positions if isinstance(positions, np.ndarray) else list(positions)
        unique_positions = distinct(np.asarray(values, np.int64))
        if len(unique_positions) and unique_positions[0] < 0:
            raise InvalidInputError("rows are numbered from 0", position=int(unique_positions[0]))
        return DeletionVector(unique_positions)

    def __len__(self) -> int:
        return len(self.positions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeletionVector):
            return NotImplemented
        return np.array_equal(self.positions, other.positions)

    def __hash__(self) -> int:
        return hash(self.positions.tobytes())

    def __repr__(self) -> str:
        return f"DeletionVector({len(self)} rows)"

    def __reduce__(self) -> tuple[Any, ...]:
        return DeletionVector, (self.positions,)

    def holds(self, rows: Longs) -> Bools:
        """Return which of some row positions, in any order, are deleted."""
        if not len(self.positions):
            return np.zeros(len(rows), np.bool_)
        places = np.searchsorted(self.positions, rows)
        places[places == len(self.positions)] = 0
        is_deleted: Bools = self.positions[places] == rows
        return is_deleted

    def between(self, first: int, end: int) -> Longs:
        """Return which of the rows from position `first` up to `end` are deleted, counted from it."""
        low, high = np.searchsorted(self.positions, (first, end))
        places: Longs = self.positions[low:high] - first
        return places

    def union(self, rows: Longs) -> "DeletionVector":
        """Return a vector that holds some rows besides its own."""
        return DeletionVector.from_positions(
            np.concatenate([self.positions, np.asarray(rows, np.int64)])
        )


def decode_vector(data: bytes, meta: DeletionVectorMeta, *, file_name: str) -> DeletionVector:
    """Return the vector in `data`, the bytes of an index file from the vector's offset on.

    Raises CorruptFileError, naming the index file, for bytes that end early, another size than the
    index manifest records, unknown magic numbers, wrong checksums and bitmaps, and another cardinality.
    """

    def corrupt(problem: str) -> CorruptFileError:
        return CorruptFileError(
            f"a deletion vector {problem}; restore the file, as rows that were deleted would come back",
            file=file_name,
            data_file=meta.data_file_name,
            offset=meta.offset,
        )

    if len(data) < FRAME_BYTES:
        raise corrupt("ends early")
    (size,) = struct.unpack_from(">i", data)
    if size < 4 or len(data) < FRAME_BYTES + size:
        raise corrupt("ends early")
    body = data[4 : 4 + size]
    is_wide = _is_wide(body)
    if is_wide is None:
        raise corrupt("has no magic number that is known")
    if meta.length != (size + FRAME_BYTES if is_wide else size):
        raise corrupt(f"is of {size} bytes, and its index manifest records {meta.length}")
    (checksum,) = struct.unpack_from(">I", data, 4 + size)
    if checksum != checksum_of(body):
        raise corrupt("does not match its checksum")
    try:
        bitmap = BitMap64.deserialize(body[4:]) if is_wide else BitMap.deserialize(body[4:])
    except (ValueError, IndexError) as cause:  # the checksum matched: a writer made it so
        raise corrupt("is no roaring bitmap") from cause
    values = np.frombuffer(bitmap.to_array(), np.uint64 if is_wide else np.uint32)
    if is_wide and len(values) and values[-1] > np.iinfo(np.int64).max:
        raise corrupt("holds a position beyond all files")
    positions: Longs = values.astype(np.int64)
    if len(positions) > 1 and not bool((np.diff(positions) > 0).all()):
        raise corrupt("is no roaring bitmap")
    if meta.cardinality is not None and meta.cardinality != len(positions):
        raise corrupt(
            f"holds {counted(len(positions), 'row')}, and its index manifest records {meta.cardinality}"
        )
    return DeletionVector(positions)


def _is_wide(body: bytes) -> bool | None:
    """Whether a bitmap is a 64-bit one; None if it is neither."""
    if struct.unpack_from(">i", body)[0] == MAGIC_32:
        return False
    return True if struct.unpack_from("<i", body)[0] == MAGIC_64 else None


def encode_vector(vector: DeletionVector, *, wide: bool = False) -> bytes:
    """Return a vector's size, magic number, bitmap and checksum; `wide`: as a 64-bit bitmap.

    Raises InvalidInputError for positions that a 32-bit bitmap cannot hold.
    """
    positions = vector.positions  # handed over as an array: others are gone through one by one
    if wide:
        bitmap = BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
        body = struct.pack("<i", MAGIC_64) + bitmap.serialize()
    else:
        if len(positions) and positions[-1] >= POSITIONS_MAX_32:
            raise InvalidInputError(
                "a row lies beyond what 32-bit deletion vectors can hold; set "
                "'deletion-vectors.bitmap64', or write smaller files",
                position=int(positions[-1]),
            )
        small = BitMap(array("I", positions.astype(np.uint32).tobytes()))
        small.run_optimize()
        body = struct.pack(">i", MAGIC_32) + small.serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", checksum_of(body))


def encode_vector_file(
    vectors: Iterable[tuple[str, DeletionVector]], *, wide: bool = False
) -> tuple[bytes, tuple[DeletionVectorMeta, ...]]:
    """Return the bytes of an index file of (data file name, vector), and where each vector lies."""
    parts = [bytes([FILE_VERSION])]
    metas = []
    offset = 1
    for name, vector in vectors:
        framed = encode_vector(vector, wide=wide)
        metas.append(
            DeletionVectorMeta(
                data_file_name=name,
                offset=offset,
                length=len(framed) if wide else len(framed) - FRAME_BYTES,
                cardinality=len(vector),
            )
        )
        parts.append(framed)
        offset += len(framed)
    return b"".join(parts), tuple(metas)


def stored_length(meta: DeletionVectorMeta) -> int:
    """Return how many bytes to read for a vector, whichever kind it is."""
    return meta.length + FRAME_BYTES


def decode_vector_file(
    data: bytes, metas: Iterable[DeletionVectorMeta], *, file_name: str
) -> dict[str, DeletionVector]:
    """Return all vectors of an index file by data file; raises as `decode_vector` does."""
    if data[:1] != bytes([FILE_VERSION]):
        raise CorruptFileError(
            "an index file of deletion vectors starts with another version; restore it",
            file=file_name,
            version=data[:1].hex(),
        )
    vectors = {}
    for meta in metas:
        if meta.offset < 1 or meta.length < 0:
            raise CorruptFileError(
                "an index manifest places a deletion vector outside of its file; restore it",
                file=file_name,
                offset=meta.offset,
            )
        piece = data[meta.offset : meta.offset + stored_length(meta)]
        vectors[meta.data_file_name] = decode_vector(piece, meta, file_name=file_name)
    return vectors
