"""Columns whose new type may lose something: old rows are for us what they are for Java."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.canonical import difference
from tests.interop.clients import Client
from tests.interop.our_tables import EPOCH, create, rows_of

pytestmark = pytest.mark.interop
SECOND = dt.timedelta(seconds=1)
MICRO = dt.timedelta(microseconds=1)
# Of each column: its first type, its next, and values. No decimal is too large for its next type:
# it becomes null, which Java 0.9 means as well, and fails to read.
COLUMNS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "big_int": (pa.int64(), "INT", [2**40 + 5, -1, 2**31, None]),
    "int_tiny": (pa.int32(), "TINYINT", [300, -129, 127, -128]),
    "big_double": (pa.int64(), "DOUBLE", [2**53 + 1, -(2**63), 7, None]),
    "int_float": (pa.int32(), "FLOAT", [2**24 + 1, -5, 2**31 - 1, None]),
    "double_float": (pa.float64(), "FLOAT", [0.1, 1e300, float("nan"), None]),
    "double_int": (pa.float64(), "INT", [1.9, -1.9, float("nan"), 1e20]),
    "double_big": (pa.float64(), "BIGINT", [9.3e18, -9.3e18, float("-inf"), 0.5]),
    "double_tiny": (pa.float64(), "TINYINT", [300.7, -1e20, 1e20, -0.9]),
    "bool_int": (pa.bool_(), "INT", [True, False, None, True]),
    "int_bool": (pa.int32(), "BOOLEAN", [0, -5, None, 1]),
    "dec_dec": (
        pa.decimal128(10, 2), "DECIMAL(4, 1)",
        [Decimal("1.25"), Decimal("-1.25"), Decimal("0.05"), Decimal("999.94")],
    ),
    "wide_dec": (
        pa.decimal128(30, 10), "DECIMAL(20, 3)",
        [Decimal("1.2345000000"), Decimal("-9999999999999999.9995000000"), Decimal("-0.0005"), None],
    ),
    "dec_int": (
        pa.decimal128(12, 2), "INT",
        [Decimal("1.99"), Decimal("-1.99"), Decimal("9999999999.99"), None],
    ),
    "dec_double": (pa.decimal128(12, 2), "DOUBLE", [Decimal("1.10"), Decimal("-0.01"), None, Decimal(0)]),
    "big_dec": (pa.int64(), "DECIMAL(5, 2)", [999, -999, 0, None]),
    "text": (pa.string(), "VARCHAR(3)", ["a\u00e4\u65e5\u672c", "", "xyz", None]),
    "time": (
        pa.timestamp("us"), "TIMESTAMP(3)",
        [EPOCH + SECOND - MICRO, EPOCH + MICRO, EPOCH, EPOCH - SECOND + 7 * MICRO],
    ),
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_java_reads_what_we_read(column: str, java: Client, tmp_path: Path) -> None:
    kind, narrow, values = COLUMNS[column]
    schema = [pa.field("k", pa.int32(), nullable=False), pa.field("v", kind)]
    table = create(
        tmp_path, schema, primary_key=["k"], options={"bucket": "1", "write-only": "true"}
    )
    table.upsert(pa.table([range(len(values)), values], schema=pa.schema(schema)))
    table.alter(
        lsm.SetOption(key="alter-column.lossy-casts", value=True),
        lsm.ChangeType(name="v", type=narrow),
    )
    wanted = rows_of(table)
    assert difference(java.read_rows(table.location), wanted) == ""
    table.compact(full=True)
    assert difference(rows_of(table), wanted) == ""
