"""A cell read by itself is what Arrow gives: any type, with nulls, in slices, of no rows."""

from decimal import Decimal

import pyarrow as pa
import pytest

from lsm_engine.lookup.columnar_store import cell_reader

COLUMNS = {
    "tinyint": pa.array([1, None, -128, 127], pa.int8()),
    "smallint": pa.array([1, None, -32768, 32767], pa.int16()),
    "int": pa.array([1, None, -(2**31), 2**31 - 1], pa.int32()),
    "bigint": pa.array([1, None, -(2**63), 2**63 - 1], pa.int64()),
    "float": pa.array([0.1, None, -0.0, float("inf")], pa.float32()),
    "double": pa.array([0.1, None, -0.0, 1e308], pa.float64()),
    "text": pa.array(["", None, "größer", "a\x00b"], pa.string()),
    "large text": pa.array(["", None, "größer", "a\x00b"], pa.large_string()),
    "bytes": pa.array([b"", None, b"\xff\x00", b"x" * 40], pa.binary()),
    "large bytes": pa.array([b"", None, b"\xff\x00", b"x" * 40], pa.large_binary()),
    "boolean": pa.array([True, None, False, True]),
    "date": pa.array([0, None, -1, 20_000], pa.int32()).cast(pa.date32()),
    "seconds": pa.array([0, None, -1, 1_700_000_000], pa.timestamp("s")),
    "milliseconds": pa.array([0, None, -1, 1_700_000_000_001], pa.timestamp("ms")),
    "nanoseconds": pa.array([0, None, -1000, 1_700_000_000_000_001_000], pa.timestamp("ns")),
    "with a zone": pa.array([0, None, -1, 1_700_000_000_001], pa.timestamp("ms", "UTC")),
    "decimal": pa.array(
        [Decimal("0.00"), None, Decimal("-9.99"), Decimal(10**10)], pa.decimal128(13, 2)
    ),
    "whole decimal": pa.array(
        [Decimal(0), None, Decimal(-(10**38) + 1), Decimal(7)], pa.decimal128(38, 0)
    ),
    "all digits behind": pa.array(
        [Decimal("0E-38"), None, Decimal("1E-38"), Decimal("-0." + "9" * 38)], pa.decimal128(38, 38)
    ),
    "timestamp": pa.array([0, None, -1, 1_700_000_000_000_001], pa.timestamp("us")),
    "array": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int32())),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_each_row_of_any_slice_is_as_arrow_reads_it(column: pa.Array) -> None:
    whole = pa.concat_arrays([column] * 5)
    for array in (column, whole, column.drop_null(), pa.array([None] * 3, column.type)):
        for start in range(len(array) + 1):
            part = array[start:]
            read = cell_reader(part)
            found, wanted = [read(row) for row in range(len(part))], part.to_pylist()
            assert found == wanted
            assert [repr(value) for value in found] == [repr(value) for value in wanted]
