"""Column types with the values that engines compare differently, and how each engine is told a value."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

INF, NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class Kind:
    """A column type. `values` are in rows and in conditions, `beside` in conditions only.

    Times are counts of their Arrow unit, so that none is rounded by Python.
    """

    name: str
    sql: str
    arrow: pa.DataType
    values: tuple[Any, ...]
    beside: tuple[Any, ...] = ()
    is_ordered: bool = True

    def array(self, values: Any) -> pa.Array:
        """Return values as a column."""
        kind = self.arrow
        if pa.types.is_temporal(kind):
            return pa.array(values, pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
        if pa.types.is_float32(kind):
            return pa.array(values, pa.float64()).cast(kind, safe=False)
        return pa.array(values, kind)

    def plain(self, column: pa.ChunkedArray) -> list[Any]:
        """Return the values of a column, as they are in `values`."""
        array = column.combine_chunks()
        if pa.types.is_temporal(array.type):
            array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
        return array.to_pylist()

    def scalar(self, value: Any) -> pa.Scalar:
        """Return a value as Arrow has it."""
        return self.array([value])[0]


def _whole(name: str, arrow: pa.DataType) -> Kind:
    edge = 1 << arrow.bit_width - 1
    return Kind(name, name.upper(), arrow, (-edge, -1, 0, 1, 7, edge - 1), (3, edge - 2))


def _decimal(precision: int, scale: int) -> Kind:
    most = 10**precision - 1
    digits = [Decimal(n).scaleb(-scale) for n in (0, 1, -1, 150)] if precision < 20 else []
    ends = [Decimal((sign, tuple(map(int, str(most))), -scale)) for sign in (0, 1)]
    more = [Decimal((0, (0,), -scale)), Decimal((0, (1, *[0] * (precision // 2)), -scale))]
    values = dict.fromkeys([*digits, *more, *ends])
    name = f"decimal_{precision}"
    arrow = pa.decimal128(precision, scale)
    return Kind(
        name, f"DECIMAL({precision}, {scale})", arrow, tuple(values), (Decimal((0, (7,), -scale)),)
    )


def _times(name: str, sql: str, arrow: pa.DataType) -> Kind:
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[arrow.unit]
    if pa.types.is_time(arrow):
        values = (0, per // 1000 or 1, 3723 * per, 86_399 * per + per - 1)
        beside = (3724 * per,)
    else:
        values = (
            -per,
            0,
            per // 1000 or 1,
            1_704_067_200 * per,
            -2_208_988_801 * per,
            9_000_000_000 * per + per - 1,
        )
        beside = (1_704_067_201 * per,)
    return Kind(name, sql, arrow, tuple(dict.fromkeys(values)), beside)


_FLOATS = (-INF, -1.5, -0.0, 0.0, 1.0, 2.5, INF, NAN)
_TEXTS = ("", " ", "a", "a ", " a", "ab", "a%b", "b", "é", "\U0010ffff", "x" * 70)
_BYTES = (b"", b"\0", b"a", b"a\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 40)
KINDS = (
    Kind("boolean", "BOOLEAN", pa.bool_(), (False, True)),
    _whole("tinyint", pa.int8()),
    _whole("smallint", pa.int16()),
    _whole("int", pa.int32()),
    _whole("bigint", pa.int64()),
    Kind("float", "FLOAT", pa.float32(), (*_FLOATS, 2.0**-149, 3.4028234663852886e38), (3.0,)),
    Kind("double", "DOUBLE", pa.float64(), (*_FLOATS, 5e-324, 1.7976931348623157e308), (3.0,)),
    # Bounds of one number, which engines take for those of NaN as well.
    Kind("float_nan", "FLOAT", pa.float32(), (1.0, NAN), (-INF, 0.0, 2.0)),
    Kind("double_nan", "DOUBLE", pa.float64(), (1.0, NAN), (-INF, 0.0, 2.0)),
    _decimal(5, 2),
    _decimal(18, 0),
    _decimal(38, 10),
    Kind("string", "STRING", pa.string(), _TEXTS, ("aa", "zz")),
    Kind("same", "STRING", pa.string(), ("same",), ("", "samf")),
    Kind("char", "CHAR(4)", pa.string(), ("abcd", "b   ", "b  x", "é   "), ("ab  ",)),
    Kind("varchar", "VARCHAR(9)", pa.string(), ("", " ", "a", "a ", "abc", "é"), ("b",)),
    Kind("bytes", "BYTES", pa.binary(), _BYTES, (b"b",)),
    Kind("binary", "BINARY(4)", pa.binary(), (b"abcd", b"\0\0\0\0", b"\xff\xff\xff\xff"), (b"bcde",)),
    Kind("varbinary", "VARBINARY(9)", pa.binary(), (b"", b"a", b"\xff\0"), (b"b",)),
    Kind("date", "DATE", pa.date32(), (-719_162, -1, 0, 19_782, 2_932_896), (19_783,)),
    _times("time", "TIME(3)", pa.time32("ms")),
    *(
        _times(f"{name}_{precision}", f"{sql}({precision})", pa.timestamp(unit, zone))
        for name, sql, zone in (("timestamp", "TIMESTAMP", None), ("instant", "TIMESTAMP_LTZ", "UTC"))
        for precision, unit in ((3, "ms"), (6, "us"), (9, "ns"))
    ),
    Kind("list", "ARRAY<INT>", pa.list_(pa.int32()), ([], [1, None], [2]), is_ordered=False),
    Kind("map", "MAP<STRING, INT>", pa.map_(pa.string(), pa.int32()), ([], [("a", 1)]), is_ordered=False),
    Kind("row", "ROW<x INT, y DOUBLE>", pa.struct([("x", pa.int32()), ("y", pa.float64())]),
         ({"x": 1, "y": NAN}, {"x": None, "y": 0.0}), is_ordered=False),
)  # fmt: skip
