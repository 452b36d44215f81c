"""Compacted rows: the bytes of the format, and every value read back."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.format.lookup_file import decode_compacted, encode_compacted
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import parse_type

TEXTS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)",
    "DECIMAL(30, 4)", "STRING", "BYTES", "DATE", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
]  # fmt: skip
TYPES = [parse_type(text) for text in TEXTS]
ROW = st.tuples(
    st.booleans(),
    st.integers(-128, 127),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.floats(allow_nan=False),
    st.decimals(-9999999, 9999999, places=2),
    st.decimals(-(10**20), 10**20, places=4),
    st.text(max_size=200),
    st.binary(max_size=12),
    st.dates(date(1900, 1, 1)),
    st.integers(-(10**12), 10**12),
    st.integers(-(10**15), 10**15),
    st.integers(-(10**18), 10**18),
)


def encoded(columns, types, count):
    data, offsets = encode_compacted(columns, types, row_count=count)
    return data, offsets[:-1], offsets[1:]


@given(st.lists(ROW, max_size=12), st.data())
def test_every_type_reads_back(rows, data):
    columns = []
    for at, kind in enumerate(TYPES):
        nulls = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
        values = [None if gone else row[at] for row, gone in zip(rows, nulls, strict=True)]
        columns.append(pa.array(values, arrow_type(kind)))
    read = decode_compacted(*encoded(columns, TYPES, len(rows)), TYPES, file_name="f")
    assert [array.to_pylist() for array in read] == [array.to_pylist() for array in columns]


@pytest.mark.parametrize(
    ("text", "value", "stored"),
    [
        ("INT", 5, "000005000000"),  # the example of format section 17
        ("INT", None, "0001"),
        ("STRING", "ab", "0000026162"),
        ("STRING", "", "000000"),
        ("BIGINT", -1, "0000ffffffffffffffff"),
        ("BOOLEAN", True, "000001"),
        ("DECIMAL(20, 0)", Decimal(-129), "000002ff7f"),
        ("DECIMAL(5, 2)", Decimal("1.25"), "00007d00000000000000"),
        (
            "TIMESTAMP(6)",
            datetime.fromisoformat("1970-01-01T00:00:00.001500"),
            "00000100000000000000a0c21e",
        ),
    ],
)
def test_bytes(text, value, stored):
    kind = parse_type(text)
    data, _, _ = encoded([pa.array([value], arrow_type(kind))], [kind], 1)
    assert data.tobytes().hex() == stored


def test_null_bits_begin_behind_the_row_kind():
    kinds = [parse_type("INT")] * 9
    data, _, _ = encoded([pa.nulls(1, pa.int32())] * 9, kinds, 1)
    assert data.tobytes().hex() == "00ff01"


def test_nested_types_are_refused():
    with pytest.raises(UnsupportedError):
        encoded([pa.array([[1]])], [parse_type({"type": "ARRAY", "element": "BIGINT"})], 1)


@given(st.binary(max_size=60), st.sampled_from(TYPES))
def test_any_bytes_are_values_or_an_error_that_names_the_file(stored, kind):
    data = np.frombuffer(stored, np.uint8)
    try:
        decode_compacted(
            data, np.zeros(1, np.int64), np.array([len(stored)]), [kind], file_name="f.sst"
        )
    except (CorruptFileError, UnsupportedError) as error:
        named = error.facts.get("file") == "f.sst"  # the other: a time that Arrow cannot hold
        assert named or kind.root.value == "TIMESTAMP"
