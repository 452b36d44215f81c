"""Rows as the fixtures' ``expected.json`` spells them, so that two clients' answers can be compared.

A row is a dict. Values that JSON lacks are one-key dicts: ``$bytes`` (base64), ``$decimal``,
``$date``, ``$time``, ``$timestamp``, ``$timestamp_tz`` (UTC) and ``$float`` (nan, inf). Times hold
microseconds; what lies below is cut here and can be had exactly from ``exact_nanos``.
"""

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Row = dict[str, Any]


def canonical_rows(table: pa.Table) -> list[Row]:
    """The table's rows, encoded, in the table's order."""
    columns = [column_in_micros(table.column(i)) for i in range(table.num_columns)]
    narrowed = pa.table(columns, names=table.column_names)
    return [{name: encode(value) for name, value in row.items()} for row in narrowed.to_pylist()]


def column_in_micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with nanosecond times cut to microseconds, which is all Python's can hold."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return cut_nanos(column, pa.timestamp("us", column.type.tz))
    if pa.types.is_time64(column.type) and column.type.unit == "ns":
        return column.cast(pa.time64("us"), safe=False)
    return column


def cut_nanos(column: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    """Floor to microseconds. A cast would round towards zero, which is upwards before 1970."""
    return pc.floor_temporal(column, unit="microsecond").cast(to)


def exact_nanos(table: pa.Table, column: str) -> list[int | None]:
    """A timestamp column as nanoseconds since 1970, nothing cut."""
    values = table.column(column)
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[values.type.unit]
    return [None if n is None else n * scale for n in values.cast(pa.int64()).to_pylist()]


def encode(value: Any) -> Any:
    """One Python value as JSON with the ``$`` spellings."""
    match value:
        case Mapping():
            return {name: encode(inner) for name, inner in value.items()}
        case list() | tuple():
            return [encode(inner) for inner in value]
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case decimal.Decimal():
            return {"$decimal": str(value)}
        case dt.datetime() if value.tzinfo is not None:
            return {"$timestamp_tz": value.astimezone(dt.UTC).isoformat(timespec="microseconds")}
        case dt.datetime():
            return {"$timestamp": value.isoformat(timespec="microseconds")}
        case dt.date():
            return {"$date": value.isoformat()}
        case dt.time():
            return {"$time": value.isoformat(timespec="microseconds")}
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case _:
            return value


def in_any_order(rows: Iterable[Any]) -> list[str]:
    """Rows as sorted text: equal exactly when the rows are, whatever their order and their columns'."""
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def difference(got: Iterable[Any], wanted: Iterable[Any]) -> str:
    """Empty when the rows are the same in any order, else what only one side has, a few of each."""
    left, right = in_any_order(got), in_any_order(wanted)
    if left == right:
        return ""
    only_got, only_wanted = surplus(left, right), surplus(right, left)
    return f"{len(left)} rows, wanted {len(right)}; only got: {only_got[:3]}; only wanted: {only_wanted[:3]}"


def surplus(rows: list[str], others: list[str]) -> list[str]:
    """Rows that occur more often than in the others."""
    left = list(others)
    extra = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            extra.append(row)
    return extra
