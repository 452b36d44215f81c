"""Stored keys compare like the values they hold, and like the same keys in memory."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, UnsupportedError
from lsm_engine.format.binary_row import encode_row, encode_stored, key_order
from lsm_engine.kernels.keys import key_bytes
from lsm_engine.types.types import ScalarType, parse_type
from tests.unit.format.row_cases import column_of, types, values_of


def slow_rank(value: Any) -> tuple[int, Any]:
    """Something Python compares as the format section 7 says keys compare."""
    if value is None:
        return (0, 0)
    if isinstance(value, float):
        return (2, 0) if math.isnan(value) else (1, value + 0.0)
    if isinstance(value, str):
        return (1, value.encode())
    return (1, value)


@st.composite
def key_batches(draw: st.DrawFn, *, nulls: bool) -> tuple[list[ScalarType], list[list[Any]]]:
    kinds = draw(st.lists(types, min_size=1, max_size=4))
    pools = [
        draw(st.lists(st.none() | values_of(k) if nulls else values_of(k), min_size=1, max_size=4))
        for k in kinds
    ]
    # Few distinct values per column: ties in the first columns are the point.
    rows = draw(
        st.lists(st.tuples(*[st.sampled_from(pool) for pool in pools]), min_size=1, max_size=8)
    )
    return kinds, [list(row) for row in rows]


def columns(kinds: list[ScalarType], rows: list[list[Any]]) -> list[Any]:
    return [column_of([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]


@given(key_batches(nulls=True))
def test_order_is_that_of_the_values(batch: tuple[list[ScalarType], list[list[Any]]]) -> None:
    kinds, rows = batch
    order = key_order(kinds, nullable=True)
    keys = [order(stored) for stored in encode_stored(columns(kinds, rows), kinds)]
    ranks = [tuple(slow_rank(value) for value in row) for row in rows]
    for i, left in enumerate(keys):
        for j, right in enumerate(keys):
            assert (left < right) == (ranks[i] < ranks[j]), (rows[i], rows[j])
            assert (left == right) == (ranks[i] == ranks[j]), (rows[i], rows[j])


@given(key_batches(nulls=False))
def test_bytes_are_those_of_keys_in_memory(batch: tuple[list[ScalarType], list[list[Any]]]) -> None:
    kinds, rows = batch
    order = key_order(kinds)
    made = columns(kinds, rows)
    assert [order(stored) for stored in encode_stored(made, kinds)] == key_bytes(made).to_pylist()


@given(key_batches(nulls=True))
def test_bytes_are_those_of_nullable_keys_in_memory(
    batch: tuple[list[ScalarType], list[list[Any]]],
) -> None:
    kinds, rows = batch
    order = key_order(kinds, nullable=True)
    made = columns(kinds, rows)
    assert [order(stored) for stored in encode_stored(made, kinds)] == key_bytes(
        made, nullable=True
    ).to_pylist()


def test_what_is_no_key_is_refused() -> None:
    order = key_order([parse_type("INT")])
    with pytest.raises(CorruptFileError, match="holds a null"):
        order(encode_row([None], [parse_type("INT")]))
    with pytest.raises(CorruptFileError, match="1 fields"):
        order(encode_row([1, 2], [parse_type("INT")] * 2))
    with pytest.raises(CorruptFileError, match="outside"):
        key_order([parse_type("STRING")])(encode_row([b"x" * 9], [parse_type("BYTES")])[:-16])
    with pytest.raises(CorruptFileError, match="decimal"):
        key_order([parse_type("DECIMAL(20, 0)")])(encode_row([0], [parse_type("BIGINT")]))
    with pytest.raises(UnsupportedError, match="ARRAY"):
        key_order([parse_type({"type": "ARRAY", "element": "INT"})])


@given(st.binary(max_size=40), st.lists(types, max_size=2))
def test_any_bytes_are_a_key_or_named(body: bytes, kinds: list[ScalarType]) -> None:
    try:
        key_order(kinds, nullable=True)(len(kinds).to_bytes(4, "big") + body)
    except (CorruptFileError, UnsupportedError):
        return


def test_append_tables_have_one_key() -> None:
    assert key_order([])(encode_row([], [])) == b""


def test_decimals_by_number_not_by_text() -> None:
    kind = parse_type("DECIMAL(30, 2)")
    order = key_order([kind])
    values = [Decimal("-10.00"), Decimal("-2.50"), Decimal("0.00"), Decimal("9.99"), Decimal("10")]
    assert sorted(values, key=lambda v: order(encode_row([v], [kind]))) == values
