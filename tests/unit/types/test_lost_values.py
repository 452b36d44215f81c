"""Which values a narrower type cannot hold: those that do not come back as they were."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.casts import cast_values, loses_somewhere, lost_count, may_lose_values
from lsm_engine.types.types import DataField, RowType, parse_type

START = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- wall clocks have no zone
MICRO = dt.timedelta(microseconds=1)
CASES: list[tuple[str, str, list[Any], list[Any]]] = [
    # from, to, values that fit, values that do not
    ("BIGINT", "INT", [0, -1, 2**31 - 1, -(2**31)], [2**31, 5_000_000_000, -(2**63)]),
    ("INT", "TINYINT", [127, -128], [128, -129, 300]),
    ("BIGINT", "DOUBLE", [2**53, -(2**63), 7], [2**53 + 1, 2**63 - 1]),
    ("INT", "FLOAT", [2**24, -5, -(2**31)], [2**24 + 1, 2**31 - 1]),
    ("DOUBLE", "FLOAT", [0.5, float("nan"), float("inf"), -0.0], [0.1, 1e300]),
    ("DOUBLE", "INT", [1.0, -3.0, 2.0**31 - 1], [1.9, float("nan"), 1e20, 2.0**31]),
    ("DOUBLE", "BIGINT", [1.0, -(2.0**63)], [0.5, 2.0**63, float("-inf")]),
    ("DOUBLE", "TINYINT", [-128.0, 127.0], [128.0, 300.0]),
    ("BOOLEAN", "INT", [True, False], []),
    ("INT", "BOOLEAN", [0, 1], [2, -5]),
    ("DECIMAL(10, 2)", "DECIMAL(4, 1)", [Decimal("1.20"), Decimal("-999.90")], [Decimal("1.25"), Decimal("1000.00")]),
    ("DECIMAL(12, 2)", "INT", [Decimal("2.00")], [Decimal("1.99"), Decimal("9999999999.00")]),
    ("DECIMAL(12, 2)", "DOUBLE", [Decimal("1.10"), Decimal("-0.01")], []),
    ("BIGINT", "DECIMAL(5, 2)", [999, -999], [1000, 2**62]),
    ("STRING", "VARCHAR(3)", ["", "xyz", "a\u00e4\u65e5"], ["long", "a\u00e4\u65e5\u672c"]),
    ("INT", "VARCHAR(3)", [0, -99, 999], [1000, -100]),
    ("BOOLEAN", "VARCHAR(4)", [True], [False]),
    ("DATE", "VARCHAR(9)", [], [START.date()]),
    ("BYTES", "VARBINARY(2)", [b"", b"ab"], [b"abc"]),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", [START, START - 1000 * MICRO], [START + MICRO, START - MICRO]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "fit", "lost"), CASES, ids=lambda one: str(one)[:16])
def test_what_does_not_come_back_is_lost(old: str, new: str, fit: list, lost: list) -> None:
    source, target = parse_type(old), parse_type(new)
    stored = pa.array([*fit, None, *lost], arrow_type(source))
    assert may_lose_values(source, target) or not lost
    for values in (
        stored,
        stored.slice(1),
        pa.chunked_array([stored.slice(0, 1), stored.slice(1)]),
    ):
        assert lost_count(values, cast_values(values, source, target), source, target) == len(lost)
    kept = stored.slice(0, len(fit) + 1)
    assert lost_count(kept, cast_values(kept, source, target), source, target) == 0


def field(number: int, name: str, text: str) -> DataField:
    return DataField(id=number, name=name, type=parse_type(text))


def test_fields_of_structures_are_looked_into_by_id() -> None:
    big, text = field(1, "a", "BIGINT"), field(2, "b", "STRING")
    source = RowType(fields=(big, text))
    target = RowType(fields=(field(2, "b", "STRING"), field(1, "c", "INT")))
    stored = pa.array([{"a": 2**40, "b": "x"}, None, {"a": 1, "b": "y"}], arrow_type(source))
    read = pa.array([{"b": "x", "c": 0}, None, {"b": "y", "c": 1}], arrow_type(target))
    assert loses_somewhere(source, target)
    assert lost_count(stored, read, source, target) == 1
    assert not loses_somewhere(source, source)
