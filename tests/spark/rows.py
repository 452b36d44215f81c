"""Rows that tests write: several days, every kind of type that Spark and a table share."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

ROWS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("day", pa.date32()),
        pa.field("note", pa.string()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("ratio", pa.float64()),
        pa.field("small", pa.int16()),
        pa.field("open", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("seen", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("at", pa.time64("us")),
    ]
)
NESTED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("x", pa.float32()), ("seen", pa.timestamp("ms"))])),
        pa.field("sizes", pa.map_(pa.string(), pa.int32())),
    ]
)
_START = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)


def row(number, note):
    """One row; every seventh is null wherever it may be."""
    key = {"id": number, "day": date(2024, 5, 1 + number % 3)}
    if number % 7 == 0:
        return {**dict.fromkeys(ROWS.names), **key}
    moment = _START + timedelta(milliseconds=number * 1001)
    return {
        **key,
        "note": f"{note} {number}",
        "price": Decimal(number) / 4,
        "ratio": number / 8,
        "small": number % 100 - 50,
        "open": number % 2 == 0,
        "raw": bytes([number % 256, 0]),
        "seen": moment,
        "local": moment.replace(tzinfo=None),
        "at": moment.time(),
    }


def rows(first, count, note="v"):
    """Rows with ids from `first` on."""
    return pa.Table.from_pylist([row(n, note) for n in range(first, first + count)], schema=ROWS)


def by_id(found):
    """Rows in one order."""
    return found.sort_by([("day", "ascending"), ("id", "ascending")]).combine_chunks()


def nested(count):
    """Rows of `NESTED`."""
    found = [
        {
            "id": n,
            "tags": ["a", None][: n % 3],
            "place": {"x": n / 2, "seen": _START.replace(tzinfo=None)} if n % 4 else None,
            "sizes": [("s", n)] if n % 5 else None,
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(found, schema=NESTED)
