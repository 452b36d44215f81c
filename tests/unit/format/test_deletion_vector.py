"""Deletion vectors: the bytes of real clients, our own, and all that can be wrong with them."""

import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, InvalidInputError
from lsm_engine.format.deletion_vector import (
    DeletionVector,
    decode_vector_file,
    encode_vector,
    encode_vector_file,
)
from lsm_engine.format.index_file import DELETION_VECTORS, DeletionVectorMeta
from lsm_engine.format.manifest_file import decode_index_manifest

NAME = "data-1.parquet"
EDGES = [0, 1, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1]
WIDE_EDGES = [*EDGES, 2**32, 2**40, 2**63 - 1]


def read_back(positions: list[int], *, wide: bool) -> DeletionVector:
    vector = DeletionVector.from_positions(positions)
    data, metas = encode_vector_file(
        [("other", DeletionVector.from_positions([7])), (NAME, vector)], wide=wide
    )
    return decode_vector_file(data, metas, file_name="index-0")[NAME]


@given(positions=st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 200_000)), wide=st.booleans())
def test_decode_after_encode(positions: list[int], wide: bool) -> None:
    assert read_back(positions, wide=wide).positions.tolist() == sorted(set(positions))


def test_positions_at_the_edges() -> None:
    assert read_back(EDGES, wide=False).positions.tolist() == EDGES
    assert read_back(WIDE_EDGES, wide=True).positions.tolist() == WIDE_EDGES
    with pytest.raises(InvalidInputError, match="bitmap64"):
        encode_vector(DeletionVector.from_positions([2**32]))
    with pytest.raises(InvalidInputError):
        DeletionVector.from_positions([-1])


def test_bytes_by_hand() -> None:
    """Positions 1 and 3, as format section 12 and the public Roaring layout spell them."""
    bitmap = struct.pack("<II", 12346, 1) + struct.pack("<HHI", 0, 1, 16) + struct.pack("<HH", 1, 3)
    body = struct.pack(">i", 1_581_511_376) + bitmap
    framed = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    data, metas = encode_vector_file([(NAME, DeletionVector.from_positions([3, 1, 3]))])
    assert data == b"\x01" + framed
    assert metas == (
        DeletionVectorMeta(data_file_name=NAME, offset=1, length=len(body), cardinality=2),
    )
    body = struct.pack("<i", 1_681_511_377) + struct.pack("<qi", 1, 0) + bitmap
    framed = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    data, metas = encode_vector_file([(NAME, DeletionVector.from_positions([1, 3]))], wide=True)
    assert data == b"\x01" + framed
    assert metas[0].length == len(body) + 8


def test_files_of_real_clients_byte_for_byte(fixture_tables: Path) -> None:
    seen = 0
    for path in fixture_tables.glob("*/*/table/manifest/index-manifest-*"):
        for entry in decode_index_manifest(path.read_bytes(), file_name=path.name):
            file = entry.index_file
            if file.index_type != DELETION_VECTORS:
                continue
            data = path.parents[1].joinpath("index", file.file_name).read_bytes()
            vectors = decode_vector_file(data, file.deletion_vectors or (), file_name=path.name)
            assert len(vectors) == file.row_count
            assert encode_vector_file(vectors.items())[0] == data
            seen += 1
    assert seen >= 3


@pytest.mark.parametrize("wide", [False, True])
def test_every_truncation_is_noticed(*, wide: bool) -> None:
    data, metas = encode_vector_file(
        [(NAME, DeletionVector.from_positions([1, 5, 70_000]))], wide=wide
    )
    for size in range(len(data)):
        with pytest.raises(CorruptFileError) as caught:
            decode_vector_file(data[:size], metas, file_name="index-0")
        assert caught.value.facts["file"] == "index-0"


@pytest.mark.parametrize("wide", [False, True])
def test_every_flipped_bit_is_noticed(*, wide: bool) -> None:
    data, metas = encode_vector_file(
        [(NAME, DeletionVector.from_positions([1, 5, 70_000]))], wide=wide
    )
    for bit in range(8 * len(data)):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFileError):
            decode_vector_file(bytes(bent), metas, file_name="index-0")


@given(bitmap=st.binary(max_size=60), wide=st.booleans())
def test_bitmaps_of_any_bytes_are_read_or_refused(bitmap: bytes, wide: bool) -> None:
    magic = struct.pack("<i", 1_681_511_377) if wide else struct.pack(">i", 1_581_511_376)
    body = magic + bitmap
    data = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    length = len(data) if wide else len(body)
    meta = DeletionVectorMeta(data_file_name=NAME, offset=1, length=length)
    try:
        found = decode_vector_file(b"\x01" + data, [meta], file_name="index-0")[NAME]
    except CorruptFileError:
        return
    assert (np.diff(found.positions) > 0).all()
    assert len(found) == 0 or found.positions[0] >= 0


def test_what_the_index_manifest_says_is_checked() -> None:
    data, (meta,) = encode_vector_file([(NAME, DeletionVector.from_positions([1, 5]))])
    for changes in ({"length": meta.length + 1}, {"cardinality": 3}, {"offset": 0}, {"offset": -1},
                    {"offset": 2}, {"offset": 10_000}, {"length": -9}):  # fmt: skip
        wrong = DeletionVectorMeta(
            **{
                "data_file_name": NAME,
                "offset": meta.offset,
                "length": meta.length,
                "cardinality": meta.cardinality,
                **changes,
            }
        )
        with pytest.raises(CorruptFileError):
            decode_vector_file(data, [wrong], file_name="index-0")
    with pytest.raises(CorruptFileError, match="version"):
        decode_vector_file(b"\x02" + data[1:], [meta], file_name="index-0")


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(0, 300))
def test_questions_to_a_vector(deleted: set[int], rows: set[int], first: int) -> None:
    vector = DeletionVector.from_positions(deleted)
    asked = sorted(rows, reverse=True)
    held = vector.holds(np.array(asked, np.int64))
    assert held.tolist() == [row in deleted for row in asked]
    assert vector.between(first, first + 50).tolist() == sorted(
        row - first for row in deleted if first <= row < first + 50
    )
    both = vector.union(np.array(asked, np.int64))
    assert both == DeletionVector.from_positions(deleted | rows)
    assert pickle.loads(pickle.dumps(both)) == both
