"""Tables of odd names, values and shapes, each with Iceberg metadata."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

import lsm_engine as lsm

NAMES = (
    "a.b", "with blank", 'double"quote', "single'quote", "back`tick", "UPPER", "select", "ünï✓", "x" * 80, "9lives", "a/b",
    "a\\b", "a%b", "a-b", "a=b", "_row_id2", "{x}", "#",
)  # fmt: skip
TEXTS = (
    "", " ", "a/b", "a=b", "a%2Fb", "ü ?#", "..", "'\"`", "back\\slash", "\U0010ffff" * 20, "x" * 100, "tab\t",
    "line\nend", "0", "null", "__HIVE_DEFAULT_PARTITION__",
)  # fmt: skip
PARTITIONS = tuple(text for text in TEXTS if text.strip() and text != "__HIVE_DEFAULT_PARTITION__")
INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
DECIMALS = ((1, 0), (9, 2), (18, 18), (19, 0), (38, 0), (38, 10), (38, 38))
YEARS = (1, 1582, 1883, 1969, 1970, 2024, 9999)
NAN = float("nan")


@dataclass(frozen=True)
class OddTable:
    """Types of columns, writes of rows, and what is deleted after them. The key is `k`, except of an append table."""

    columns: dict[str, str]
    writes: Sequence[Sequence[dict[str, Any]]]
    deleted: Sequence[int] = ()
    options: dict[str, str] = field(default_factory=dict)
    partitioned_by: str | None = None
    has_key: bool = True

    def create(self, catalog: lsm.Catalog, name: str) -> lsm.Table:
        """Create the table and write its rows."""
        key = ["k", *([self.partitioned_by] if self.partitioned_by else ())]
        table = catalog.create_table(
            name,
            {"k": "BIGINT", **self.columns},
            key if self.has_key else (),
            partitioned_by=self.partitioned_by,
            options={"iceberg-compatibility.enabled": "true", **self.options},
        )
        for rows in self.writes:
            (table.upsert if self.has_key else table.append)(
                pa.Table.from_pylist(list(rows), table.schema.arrow)
            )
        if self.deleted:
            table.delete([{"k": key} for key in self.deleted])
        return table


def _numbered(columns: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows of the values of columns, with keys; a shorter column ends in nulls."""
    count = max(map(len, columns.values())) + 1
    return [
        {"k": key}
        | {name: values[key] if key < len(values) else None for name, values in columns.items()}
        for key in range(count)
    ]


def _twice(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return two writes, of which the second writes some rows again, so that files have deleted rows."""
    return [rows, rows[1::3]]


def _times() -> list[dt.datetime]:
    moments = [dt.datetime(year, 2, 28, 23, 59, 59, 999999) for year in YEARS]  # noqa: DTZ001
    return [*moments, dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1)]  # noqa: DTZ001


def _in_millis(moment: dt.datetime) -> dt.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _decimals(precision: int, scale: int) -> list[Decimal]:
    digits = (9,) * precision
    return [
        Decimal((0, digits, -scale)), Decimal((1, digits, -scale)), Decimal((0, (1,), -scale)), Decimal((1, (0,), -scale)),
    ]  # fmt: skip


_ROW = {"x": 1, "items": [{"id": 1, "tags": ["a", None, ""]}, None, {"id": None, "tags": None}]}
_NESTED = {
    "rows": [[{"a": 1, "b": "x"}, None, {"a": None, "b": None}], [], None],
    "r": [_ROW, None, {"x": None, "items": []}, {"x": 2, "items": None}],
    "by_name": [[("a", {"x": Decimal("1.50")}), ("b", None)], [], None],
    "lists": [[[1, None], None, []], [[]], None, []],
    "r_of_r": [{"r": {"r": {"x": 1.5}}}, {"r": {"r": None}}, {"r": None}, None],
}

ODD_TABLES: dict[str, OddTable] = {
    "names": OddTable(
        dict.fromkeys(NAMES, "STRING"),
        _twice([{"k": key} | {name: f"{name} {key}" for name in NAMES} for key in range(7)]),
    ),
    "names of rows": OddTable(
        {"r": f"ROW<{', '.join(f'`{name}` INT' for name in NAMES if '`' not in name)}>"},
        _twice([{"k": key, "r": {name: key for name in NAMES if "`" not in name}} for key in range(7)]),
    ),
    "a partition with an odd name": OddTable(
        {'p. "x"/ü': "STRING", "v": "INT"},
        _twice([{"k": key, 'p. "x"/ü': "ab"[key % 2], "v": key} for key in range(7)]),
        partitioned_by='p. "x"/ü',
    ),
    "a partition whose name begins with a digit": OddTable(
        {"1p": "DECIMAL(38, 3)", "v": "INT"},
        _twice([{"k": key, "1p": Decimal(key % 2), "v": key} for key in range(7)]),
        partitioned_by="1p",
    ),
    "100 columns": OddTable(
        {f"c{number}": "INT" if number % 2 else "STRING" for number in range(100)},
        _twice(
            [
                {"k": key} | {f"c{number}": key if number % 2 else f"{key}" for number in range(100)}
                for key in range(9)
            ]
        ),
    ),
    "nested": OddTable(
        {
            "rows": "ARRAY<ROW<a INT, b STRING>>",
            "r": "ROW<x INT, items ARRAY<ROW<id BIGINT, tags ARRAY<STRING>>>>",
            "lists": "ARRAY<ARRAY<INT>>",
            "r_of_r": "ROW<r ROW<r ROW<x DOUBLE>>>",
        },
        _twice(_numbered({name: values for name, values in _NESTED.items() if name != "by_name"})),
    ),
    "maps": OddTable(
        {"by_name": "MAP<STRING, ROW<x DECIMAL(9, 2)>>", "by_number": "MAP<INT, ARRAY<STRING>>"},
        _twice(_numbered({"by_name": _NESTED["by_name"], "by_number": [[(1, ["a"]), (2, None)], []]})),
    ),
    "partitions": OddTable(
        {"p": "STRING", "v": "INT"},
        _twice([{"k": key, "p": text, "v": key} for key, text in enumerate(PARTITIONS)]),
        partitioned_by="p",
    ),
    "partitions of an append table": OddTable(
        {"p": "STRING", "v": "INT"},
        _twice([{"k": key, "p": text, "v": key} for key, text in enumerate((*PARTITIONS, None))]),
        partitioned_by="p",
        has_key=False,
    ),
    "nothing": OddTable({"v": "INT"}, ()),
    "nothing appended": OddTable({"v": "INT"}, (), has_key=False),
    "only deletes": OddTable({"v": "INT"}, [[{"k": key, "v": key} for key in range(5)]], deleted=range(5)),
    "deletes alone": OddTable({"v": "INT"}, (), deleted=range(5)),
    "decimals": OddTable(
        {f"d{precision}_{scale}": f"DECIMAL({precision}, {scale})" for precision, scale in DECIMALS},
        _twice(_numbered({f"d{precision}_{scale}": _decimals(precision, scale) for precision, scale in DECIMALS})),
    ),
    "times in microseconds": OddTable(
        {"t6": "TIMESTAMP(6)", "z6": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "d": "DATE"},
        _twice(_numbered({
            "t6": _times(), "z6": [moment.replace(tzinfo=dt.UTC) for moment in _times()],
            "d": [moment.date() for moment in _times()],
        })),
    ),
    "times in milliseconds": OddTable(
        {"t3": "TIMESTAMP(3)", "z3": "TIMESTAMP(3) WITH LOCAL TIME ZONE"},
        _twice(_numbered({
            "t3": [_in_millis(moment) for moment in _times()],
            "z3": [_in_millis(moment).replace(tzinfo=dt.UTC) for moment in _times()],
        })),
    ),
    "texts": OddTable(
        {"s": "STRING", "c": "CHAR(100)", "v": "VARCHAR(100)"},
        _twice(_numbered({"s": TEXTS, "c": TEXTS, "v": TEXTS})),
    ),
    "binaries": OddTable(
        {"b": "BYTES", "v": "VARBINARY(40)", "f": "BINARY(3)"},
        _twice(_numbered({
            "b": [b"", b"\0", b"\xff" * 40, bytes(range(256))], "v": [b"", b"\xff" * 40], "f": [b"\0\0\0", b"abc"],
        })),
    ),
    "numbers": OddTable(
        {**{kind.lower(): kind for kind in INTEGERS}, "f": "FLOAT", "d": "DOUBLE", "b": "BOOLEAN"},
        _twice(_numbered({
            **{kind.lower(): [-(1 << bits), (1 << bits) - 1, 0] for kind, bits in INTEGERS.items()},
            "f": [NAN, -0.0, 0.0, float("inf"), float("-inf"), 1e-45, 3.4028234663852886e38],
            "d": [NAN, -0.0, 0.0, float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308], "b": [True, False],
        })),
    ),
    "nulls": OddTable(
        {"v": "INT", "s": "STRING", "d": "DECIMAL(38, 3)", "t": "TIMESTAMP(6)", "l": "ARRAY<INT>", "r": "ROW<x INT>"},
        _twice([{"k": key} for key in range(5)]),
    ),
    "columns that must have a value": OddTable(
        {"v": "INT NOT NULL", "r": "ROW<x INT NOT NULL, y STRING> NOT NULL", "l": "ARRAY<INT NOT NULL> NOT NULL"},
        _twice([{"k": key, "v": key, "r": {"x": key, "y": None}, "l": [key]} for key in range(5)]),
    ),
    "300 buckets": OddTable(
        {"v": "INT"}, _twice([{"k": key, "v": key} for key in range(900)]), options={"bucket": "300"}
    ),
}  # fmt: skip
