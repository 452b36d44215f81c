"""Column types as the model knows them: plain Python values, their order, and their Arrow form.

A plain value is None, bool, int, float, str, bytes or Decimal. Dates are days, times milliseconds of
the day, timestamps counts of the type's unit since 1970: integers, so that nothing is lost.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")  # the one NaN of the model: found equal by identity, also inside tuples

Plain = Any


@dataclass(frozen=True, repr=False)
class Kind:
    """A column type with values worth trying; `beyond` lies outside of them, for filters.

    The first values are the plain ones, so that shrunk histories read well.
    """

    name: str
    arrow: pa.DataType
    values: tuple[Plain, ...]
    beyond: tuple[Plain, ...] = ()
    is_key: bool = True
    is_sequence: bool = False
    is_partition: bool = False
    beside: tuple[Plain, ...] = ()
    """Values that only non-key columns take: -0.0 merges with 0.0 but may lie in another bucket."""
    more: Callable[[int], Plain] | None = None
    """The i-th of many further values, none of them in `values`; for tables with many keys."""

    @property
    def is_everywhere(self) -> bool:
        """Whether plain readers of ORC and Avro give the same values as one of Parquet."""
        return not (pa.types.is_timestamp(self.arrow) or pa.types.is_time(self.arrow))

    def __repr__(self) -> str:
        return self.name


TINYINT = Kind("tinyint", pa.int8(), (0, 1, -1, 127, -128), is_sequence=True)
SMALLINT = Kind(
    "smallint",
    pa.int16(),
    (0, 1, -1, 32767, -32768),
    (300,),
    is_sequence=True,
    more=lambda i: 400 + i,
)
INT = Kind(
    "int", pa.int32(), (0, 1, 2, -1, 7, 100, -(2**31), 2**31 - 1), (55, -77),
    is_sequence=True, is_partition=True, more=lambda i: 1_000 + 3 * i,
)  # fmt: skip
BIGINT = Kind(
    "bigint", pa.int64(), (0, 1, 2, -1, 256, 2**40, -(2**63), 2**63 - 1), (10**15, -5),
    is_sequence=True, is_partition=True, more=lambda i: 2**33 - 7 * i,
)  # fmt: skip
COUNTED = Kind("counted", pa.int64(), (0, 1, 2, -3, 10, 1000))  # sums stay far from the type's end
BOOLEAN = Kind("boolean", pa.bool_(), (False, True), is_partition=True)
FLOAT = Kind(
    "float", pa.float32(), (0.0, 1.5, -1.5, float("inf"), float("-inf"), NAN), (99.0,),
    beside=(-0.0,),
)  # fmt: skip
DOUBLE = Kind(
    "double", pa.float64(), (0.0, 1.5, -1.5, 1e300, float("inf"), float("-inf"), NAN), (99.0,),
    is_sequence=True, beside=(-0.0,),
)  # fmt: skip
STRING = Kind(
    "string",
    pa.string(),
    (
        "a", "b", "", "ab", "sevenby", "eightbyt", "a long value of which only a part is in the stats",
        "a long value of which only a parT", "\U0010ffff" * 20, "z\u00e4\uffff", "\U0001f600", "%_\\",
    ),
    ("zzzz", "A"),
    is_partition=True,
    more=lambda i: f"key-{i * 37 % 1000:03}",
)  # fmt: skip
PARTITION_STRING = Kind(
    "string in a path", pa.string(), ("b/c d=1", "", "\u00fc%2F..:\x01", "..", "2024-01-01"), ("zz",),
    is_partition=True,
)  # fmt: skip
BINARY = Kind(
    "bytes", pa.binary(), (b"a", b"", b"\x00", b"\x7f", b"\x80", b"\xff" * 20, b"a longer value"), (b"\xfe",),
    more=lambda i: bytes([i % 256, 128 + i // 256]) * 3,
)  # fmt: skip
SMALL_DECIMAL = Kind(
    "decimal(9, 2)", pa.decimal128(9, 2),
    tuple(Decimal(text) for text in ("0.00", "1.50", "-1.50", "9999999.99", "-9999999.99")),
    (Decimal("42.00"),), is_sequence=True, more=lambda i: Decimal(1000 + i).scaleb(-2),
)  # fmt: skip
WIDE_DECIMAL = Kind(
    "decimal(30, 4)", pa.decimal128(30, 4),
    tuple(Decimal(text) for text in ("0.0000", "1.0000", "-1.0000", "9" * 26 + ".9999", "-" + "9" * 26 + ".9999", "18446744073709551616.0000")),
    (Decimal("5.0000"),), more=lambda i: Decimal((i + 2) * 10**15).scaleb(-4),
)  # fmt: skip
DATE = Kind(
    "date",
    pa.date32(),
    (0, 1, -1, 19_782, -719_162, 2_932_896),
    (500,),
    is_sequence=True,
    is_partition=True,
    more=lambda i: 1_000 - i,
)
TIME = Kind("time", pa.time32("ms"), (0, 1, 1000, 86_399_999), (777,))
TIMESTAMP_MILLIS = Kind(
    "timestamp(3)",
    pa.timestamp("ms"),
    (0, 1, -1, 1_700_000_000_123, -62_135_596_800_000),
    (12_345,),
    is_sequence=True,
)
TIMESTAMP_MICROS = Kind(
    "timestamp(6)", pa.timestamp("us"), (0, 1, -1, 999, 1_700_000_000_123_456, -62_135_596_800_000_000), (12_345,),
    is_sequence=True, more=lambda i: 50_000 + 999 * i,
)  # fmt: skip
TIMESTAMP_NANOS = Kind(
    "timestamp(9)",
    pa.timestamp("ns"),
    (0, 1, -1, 999_999, 1_700_000_000_123_456_789, -1_000_001),
    (12_345,),
)
TIMESTAMP_LTZ = Kind(
    "timestamp_ltz(6)", pa.timestamp("us", "UTC"), (0, 1, -1, 1_700_000_000_123_456), (12_345,),
    more=lambda i: 1_600_000_000_000_000 + i,
)  # fmt: skip

KINDS = (
    INT, STRING, BIGINT, TINYINT, SMALLINT, BOOLEAN, FLOAT, DOUBLE, PARTITION_STRING, BINARY,
    SMALL_DECIMAL, WIDE_DECIMAL, DATE, TIME, TIMESTAMP_MILLIS, TIMESTAMP_MICROS, TIMESTAMP_NANOS,
    TIMESTAMP_LTZ,
)  # fmt: skip
KEY_KINDS = tuple(kind for kind in KINDS if kind.is_key)
SEQUENCE_KINDS = tuple(kind for kind in KINDS if kind.is_sequence)
PARTITION_KINDS = tuple(kind for kind in KINDS if kind.is_partition)


@dataclass(frozen=True)
class _Reversed:
    value: Any

    def __lt__(self, other: "_Reversed") -> bool:
        return other.value < self.value


def rank(value: Plain, *, descending: bool = False) -> tuple[Any, ...]:
    """Return what compares as the value does (format section 7): nulls first also when descending, NaN
    greatest, -0.0 below 0.0, text and binary by unsigned bytes.
    """
    if value is None:
        return (0,)
    ordered: Any = value
    if isinstance(value, str):
        ordered = value.encode()
    elif isinstance(value, float):
        ordered = (1, 0.0) if value != value else (0, value, math.copysign(1, value))
    return (1, _Reversed(ordered) if descending else ordered)


def to_arrow(values: Sequence[Plain], type_: pa.DataType) -> pa.Array:
    """Return plain values as an Arrow array."""
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if pa.types.is_float32(type_):
        return pa.array(values, pa.float64()).cast(type_)
    return pa.array(values, type_)


def to_plain(column: pa.Array | pa.ChunkedArray) -> list[Plain]:
    """Return an Arrow column as plain values."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return column.cast(pa.int32()).to_pylist()
    values = column.to_pylist()
    if pa.types.is_floating(type_):
        return [NAN if value != value else value for value in values]
    return values


def to_rows(table: pa.Table | pa.RecordBatch, columns: Iterable[str]) -> list[tuple[Plain, ...]]:
    """Return an Arrow table as tuples of plain values, in the order of `columns`."""
    named = list(columns)
    if not named:
        return [()] * table.num_rows
    return list(zip(*(to_plain(table.column(name)) for name in named), strict=True))
