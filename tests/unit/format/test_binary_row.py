"""BinaryRow: every scalar type, against a slow encoder, and with bytes that lie."""

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, InvalidInputError, UnsupportedError
from lsm_engine.format.binary_row import (
    decode_columns,
    decode_row,
    encode_row,
    encode_rows,
    encode_stored,
)
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.types.types import parse_type
from tests.unit.format.row_cases import TYPE_TEXTS, column_of, plain, slow_row, types, values_of


@st.composite
def batches(draw: st.DrawFn) -> tuple[list, list[list]]:
    kinds = draw(st.lists(types, min_size=1, max_size=9))
    count = draw(st.integers(0, 6))
    rows = st.lists(
        st.tuples(*[st.none() | values_of(kind) for kind in kinds]), min_size=count, max_size=count
    )
    return kinds, [list(row) for row in draw(rows)]


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (
            math.isnan(left) and math.isnan(right)
        )
    return left == right


@given(batches(), st.booleans())
def test_fast_rows_are_the_slow_ones(batch: tuple[list, list[list]], reserve: bool) -> None:
    kinds, rows = batch
    columns = [column_of([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    encoded = encode_rows(columns, kinds, reserve_null_wide=reserve)
    assert [encoded.row(i) for i in range(len(rows))] == [
        slow_row(row, kinds, reserve=reserve) for row in rows
    ]


@given(batches(), st.booleans())
def test_rows_come_back(batch: tuple[list, list[list]], reserve: bool) -> None:
    kinds, rows = batch
    columns = [column_of([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    stored = pa.array(encode_stored(columns, kinds, reserve_null_wide=reserve), pa.binary())
    for i, (got, kind) in enumerate(zip(decode_columns(stored, kinds), kinds, strict=True)):
        got.validate(full=True)
        assert all(
            same(a, b) for a, b in zip(plain(got, kind), [row[i] for row in rows], strict=True)
        )


@pytest.mark.parametrize("arity", [1, 55, 56, 57, 119, 120, 121])
def test_null_bits_of_wide_rows(arity: int) -> None:
    kinds = [parse_type("INT")] * arity
    rows = [[None if (i + r) % 3 else i for i in range(arity)] for r in range(3)]
    columns = [column_of([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    encoded = encode_rows(columns, kinds)
    assert [encoded.row(r) for r in range(3)] == [slow_row(row, kinds) for row in rows]


def test_the_example_of_the_format() -> None:
    kinds = [parse_type("INT NOT NULL"), parse_type("STRING")]
    stored = encode_row([1, "a"], kinds)
    assert stored.hex() == "00000002000000000000000001000000000000006100000000000081"
    assert decode_row(stored, kinds) == (1, "a")


def test_a_row_without_fields() -> None:
    assert encode_stored([], [], row_count=2) == [EMPTY_ROW, EMPTY_ROW]
    assert decode_row(EMPTY_ROW, []) == ()


def test_slices_chunks_and_dictionaries_are_columns_too() -> None:
    kind = parse_type("STRING")
    whole = pa.array(["no", "a long enough text", None, "b"])
    want = encode_stored([whole.slice(1)], [kind])
    chunked = pa.chunked_array([["a long enough text"], [None, "b"]])
    assert encode_stored([chunked], [kind]) == want
    assert encode_stored([whole.slice(1).dictionary_encode()], [kind]) == want
    assert encode_stored([whole.slice(1).cast(pa.large_string())], [kind]) == want
    assert encode_stored([whole.slice(1).cast(pa.string_view())], [kind]) == want


def test_only_wanted_columns_in_the_order_wanted() -> None:
    kinds = [parse_type(text) for text in ("INT", "STRING", "BIGINT")]
    stored = pa.array([encode_row([1, "x", 3], kinds)], pa.binary())
    assert [c.to_pylist() for c in decode_columns(stored, kinds, [2, 0])] == [[3], [1]]


def test_nanoseconds_are_integers() -> None:
    kinds = [parse_type("TIMESTAMP(9)")]
    assert decode_row(encode_row([-1], kinds), kinds) == (-1,)


def test_dates_that_python_has_not() -> None:
    kinds = [parse_type("DATE"), parse_type("TIMESTAMP(3)")]
    columns = [
        pa.array([2**30], pa.int32()).cast("date32"),
        pa.array([2**60]).cast(pa.timestamp("ms")),
    ]
    assert decode_row(encode_stored(columns, kinds)[0], kinds) == (2**30, 2**60)


def test_unknown_rows_are_null() -> None:
    kinds = [parse_type("INT"), parse_type("STRING")]
    stored = pa.chunked_array([pa.array([encode_row([1, "x"], kinds), None, b""], pa.binary())])
    assert [c.to_pylist() for c in decode_columns(stored, kinds)] == [
        [1, None, None],
        ["x", None, None],
    ]
    empty = pa.chunked_array([], pa.binary())
    assert [len(c) for c in decode_columns(empty, kinds)] == [0, 0]


def test_nested_values_are_refused_by_name() -> None:
    kinds = [parse_type({"type": "ARRAY", "element": "INT"})]
    assert encode_stored([pa.nulls(1, pa.list_(pa.int32()))], kinds) == [encode_row([None], kinds)]
    assert decode_row(encode_row([None], kinds), kinds) == (None,)
    with pytest.raises(UnsupportedError, match="ARRAY<INT>"):
        encode_stored([pa.array([[1]])], kinds)
    with pytest.raises(UnsupportedError, match="ARRAY<INT>"):
        decode_row(encode_row([1], [parse_type("INT")]), kinds)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="TINYINT"):
        encode_rows([pa.array([300])], [parse_type("TINYINT")])


def test_a_timestamp_beyond_arrow_is_refused() -> None:
    millis = encode_row([2**60], [parse_type("TIMESTAMP(6)")])
    with pytest.raises(UnsupportedError, match="TIMESTAMP"):
        decode_row(millis, [parse_type("TIMESTAMP(9)")])


INT = parse_type("INT")
TEXT = parse_type("STRING")
LIES = [
    ("shorter than its fields", b"\0\0\0\1" + bytes(8), INT),
    ("does not have 1 fields", b"\0\0\0\2" + bytes(24), INT),
    ("lies outside its row", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 9, 16), TEXT),
    ("lies outside its row", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 2**31, 16), TEXT),
    ("lies outside its row", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 8, 0) + bytes(8), TEXT),
    ("more than 7 bytes", b"\0\0\0\1" + bytes(15) + b"\x88", TEXT),
    ("no STRING", b"\0\0\0\1" + bytes(8) + b"\xff\0\0\0\0\0\0\x81", TEXT),
    ("no byte or more", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 17, 16), "DECIMAL(20, 0)"),
    ("outside", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 16, 16), "DECIMAL(20, 0)"),
    ("digits", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 16, 16) + b"\x7f" * 16, "DECIMAL(20, 0)"),
    ("no DECIMAL", b"\0\0\0\1" + bytes(8) + b"\xff" * 7 + b"\x7f", "DECIMAL(3, 0)"),
    ("outside", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 1, 16), "TIMESTAMP(6)"),
    ("nanosec", b"\0\0\0\1" + bytes(8) + struct.pack("<II", 10**6, 16) + bytes(8), "TIMESTAMP(6)"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "stored", "kind"), LIES, ids=range(len(LIES)))
def test_bytes_that_lie(message: str, stored: bytes, kind: object) -> None:
    known = parse_type(kind) if isinstance(kind, str) else kind
    with pytest.raises(CorruptFileError, match=message):
        decode_columns(pa.array([stored], pa.binary()), [known])


@given(st.binary(min_size=0, max_size=60), st.lists(st.sampled_from(TYPE_TEXTS), max_size=3))
def test_any_bytes_are_rows_or_named(body: bytes, texts: list[str]) -> None:
    kinds = [parse_type(text) for text in texts]
    stored = len(kinds).to_bytes(4, "big") + body
    try:
        decode_columns(pa.array([stored], pa.binary()), kinds)
    except (CorruptFileError, UnsupportedError):
        return


def test_a_million_keys_take_no_time_worth_mentioning() -> None:
    keys = pa.array(np.arange(1_000_000))
    encoded = encode_rows([keys], [parse_type("BIGINT NOT NULL")])
    assert encoded.data.view(np.uint64)[1::2].tolist()[-3:] == [999_997, 999_998, 999_999]
