"""Types, values and a slow, obvious BinaryRow encoder to hold the fast one against."""

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import BINARY, TEXT, TIMESTAMPS, Root, ScalarType, parse_type

TYPE_TEXTS = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)",
    "DECIMAL(18, 0)", "DECIMAL(19, 3)", "DECIMAL(38, 10)", "STRING", "CHAR(3)", "VARCHAR(20)",
    "BYTES", "BINARY(4)", "VARBINARY(9)", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)",
    "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
]  # fmt: skip
types = st.sampled_from(TYPE_TEXTS).map(parse_type)


def _decimals(kind: ScalarType) -> st.SearchStrategy[Decimal]:
    limit = 10 ** (kind.precision or 0) - 1
    near = st.integers(-300, 300) | st.sampled_from([-128, 127, 128, -129, limit, -limit])
    unscaled = near.map(lambda n: max(-limit, min(limit, n))) | st.integers(-limit, limit)
    # scaleb would round to the context's 28 digits.
    return unscaled.map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -(kind.scale or 0)))
    )


def values_of(kind: ScalarType) -> st.SearchStrategy[Any]:
    """Plain Python values; timestamps as ticks of their Arrow unit, times and dates as numbers."""
    width = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.DATE: 32, Root.BIGINT: 64}
    if kind.root is Root.BOOLEAN:
        return st.booleans()
    if kind.root in width:
        bits = width[kind.root]
        return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if kind.root is Root.TIME:
        return st.integers(0, 86_399_999)
    if kind.root is Root.FLOAT:
        return st.floats(width=32)
    if kind.root is Root.DOUBLE:
        return st.floats()
    if kind.root is Root.DECIMAL:
        return _decimals(kind)
    if kind.root in TIMESTAMPS:
        return st.integers(-(2**62), 2**62)
    if kind.root in TEXT:
        return st.text(st.sampled_from("\x00\x01ab\x7fé中\U0001f600"), max_size=12)
    assert kind.root in BINARY
    return st.binary(max_size=12)


def column_of(values: list[Any], kind: ScalarType) -> pa.Array:
    target = arrow_type(kind)
    if kind.root in TIMESTAMPS:
        return pa.array(values, pa.int64()).cast(target)
    if kind.root in (Root.TIME, Root.DATE):
        return pa.array(values, pa.int32()).cast(target)
    return pa.array(values, target)


def plain(array: pa.Array, kind: ScalarType) -> list[Any]:
    """`column_of` turned round."""
    if kind.root in TIMESTAMPS:
        array = array.cast(pa.int64())
    elif kind.root in (Root.TIME, Root.DATE):
        array = array.cast(pa.int32())
    return array.to_pylist()


def slow_row(values: list[Any], kinds: list[ScalarType], *, reserve: bool = False) -> bytes:
    """One BinaryRow, field by field, as the format section 6 words it."""
    arity = len(kinds)
    header = bytearray(((arity + 8 + 63) // 64) * 8)
    slots = bytearray(8 * arity)
    behind = bytearray()
    base = len(header) + len(slots)
    for index, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        wide_decimal = kind.root is Root.DECIMAL and kind.precision > 18
        wide_timestamp = kind.root in TIMESTAMPS and kind.precision > 3
        if value is None:
            header[(8 + index) // 8] |= 1 << ((8 + index) % 8)
            if reserve and (wide_decimal or wide_timestamp):
                slots[8 * index : 8 * index + 8] = struct.pack("<II", 0, base + len(behind))
                behind += bytes(16 if wide_decimal else 8)
            continue
        slots[8 * index : 8 * index + 8] = _slot(value, kind, base, behind)
    return bytes(header + slots + behind)


def _slot(value: Any, kind: ScalarType, base: int, behind: bytearray) -> bytes:
    formats = {
        Root.BOOLEAN: "<?", Root.TINYINT: "<b", Root.SMALLINT: "<h", Root.INT: "<i",
        Root.DATE: "<i", Root.TIME: "<i", Root.BIGINT: "<q", Root.FLOAT: "<f", Root.DOUBLE: "<d",
    }  # fmt: skip
    if kind.root in formats:
        return struct.pack(formats[kind.root], value).ljust(8, b"\0")
    if kind.root is Root.DECIMAL:
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        if kind.precision <= 18:
            return struct.pack("<q", unscaled)
        length = next(n for n in range(1, 17) if -(1 << (8 * n - 1)) <= unscaled < 1 << (8 * n - 1))
        slot = struct.pack("<II", length, base + len(behind))
        behind += unscaled.to_bytes(length, "big", signed=True).ljust(16, b"\0")
        return slot
    if kind.root in TIMESTAMPS:
        if kind.precision <= 3:
            return struct.pack("<q", value)
        per_milli = 1000 if kind.precision <= 6 else 1_000_000
        nanos = value % per_milli * (1_000_000 // per_milli)
        slot = struct.pack("<II", nanos, base + len(behind))
        behind += struct.pack("<q", value // per_milli)
        return slot
    data = value.encode() if isinstance(value, str) else value
    if len(data) <= 7:
        return data.ljust(7, b"\0") + bytes([0x80 + len(data)])
    slot = struct.pack("<II", len(data), base + len(behind))
    behind += data.ljust((len(data) + 7) & ~7, b"\0")
    return slot
