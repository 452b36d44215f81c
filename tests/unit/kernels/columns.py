"""Strategies and slow references for columns of every type that can be ordered."""

import datetime
import decimal
import math

import pyarrow as pa
from hypothesis import strategies as st

WORDS = st.text(alphabet=st.sampled_from("ab\0\1\2é\U0001f600z"), max_size=12)
BLOBS = st.binary(max_size=20) | st.sampled_from(
    [b"", b"\0", b"\1", b"\0\0", b"\1\1", b"\xff" * 18]
)


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.sampled_from([low, high, low + 1, high - 1, 0, 1])


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    bound = 10**precision - 1
    unscaled = st.integers(-bound, bound) | st.sampled_from([0, 1, -1, bound, -bound])
    with decimal.localcontext(decimal.Context(prec=60)):
        return unscaled.map(
            lambda value: decimal.Decimal((value < 0, tuple(map(int, str(abs(value)))), -scale))
        )


FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
MOMENTS = st.integers(-(2**62), 2**62) | st.sampled_from([0, -1, 1])

# Arrow type -> strategy of Python values.
TYPES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int8(): _integers(8, signed=True),
    pa.int16(): _integers(16, signed=True),
    pa.int32(): _integers(32, signed=True),
    pa.int64(): _integers(64, signed=True),
    pa.uint8(): _integers(8, signed=False),
    pa.uint16(): _integers(16, signed=False),
    pa.uint32(): _integers(32, signed=False),
    pa.uint64(): _integers(64, signed=False),
    pa.float32(): FLOATS,
    pa.float64(): st.floats() | FLOATS,
    pa.bool_(): st.booleans(),
    pa.decimal128(9, 2): _decimals(9, 2),
    pa.decimal128(18, 0): _decimals(18, 0),
    pa.decimal128(19, 3): _decimals(19, 3),
    pa.decimal128(38, 10): _decimals(38, 10),
    pa.date32(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.timestamp("ms"): MOMENTS,
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ns"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS,
    pa.string(): WORDS,
    pa.large_string(): WORDS,
    pa.binary(): BLOBS,
    pa.large_binary(): BLOBS,
    pa.binary(3): st.binary(min_size=3, max_size=3),
}
ORDERED = st.sampled_from(list(TYPES))


def array_of(values: list[object], kind: pa.DataType, padding: int = 0) -> pa.Array:
    """Return values as an array, cut out of a longer one."""
    if padding and values:
        values = [values[0]] * padding + values + [values[-1]] * padding
        return array_of(values, kind).slice(padding, len(values) - 2 * padding)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def rank(value: object, kind: pa.DataType) -> tuple[object, ...]:
    """Return a Python value that orders as the format says: nulls first, NaN greatest."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        if pa.types.is_float32(kind):
            value = pa.scalar(value, kind).as_py()
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return (1, value.encode())
    assert isinstance(value, (int, bytes, decimal.Decimal, datetime.date, datetime.time))
    return (1, value)
