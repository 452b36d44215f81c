"""Footers taken apart and put together: what PyArrow says of the joined file is what was written."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.io.formats import ParquetEncoding, ParquetSettings
from lsm_engine.io.parquet_footer import read_footer, stored_footer, taken_apart

SETTINGS = ParquetSettings(compression="ZSTD", compression_level=1, page_checksum=True)
WIDE = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("city", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
TIMES = pa.schema(
    [("id", pa.int64()), ("fine", pa.timestamp("ns")), ("coarse", pa.timestamp("ms"))]
)


def some_rows(schema: pa.Schema, first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    columns = {
        "id": list(numbers),
        "text": [None if n % 7 == 0 else f"text {n % 5}" for n in numbers],
        "tags": [None if n % 3 == 0 else [f"t{n}"] * (n % 4) for n in numbers],
        "place": [{"x": n / 3, "city": None} for n in numbers],
        "counts": [[(f"k{n}", n)] for n in numbers],
        "fine": [n * 1_000_003 for n in numbers],
        "coarse": [n * 1_003 for n in numbers],
    }
    return pa.table([columns.get(name, list(numbers)) for name in schema.names], schema=schema)


def written(schema: pa.Schema, groups: list[pa.Table], members: dict[bytes, bytes]) -> tuple:
    encoding, sink = ParquetEncoding(schema, SETTINGS), io.BytesIO()
    output = encoding.open(sink)
    for stored in reversed([encoding.encode(rows) for rows in reversed(groups)]):
        output.append(stored)
    output.add_members(members)
    return sink, output.close()


@pytest.mark.parametrize("schema", [WIDE, NESTED, TIMES], ids=["wide", "nested", "times"])
@given(sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=20), marked=st.booleans())
def test_row_groups_encoded_apart_are_one_file(schema, sizes, marked):
    groups = [some_rows(schema, sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    members = {b"of the writer": b"\x00\xff"} if marked else {}
    sink, footer = written(schema, groups, members)
    file = pq.ParquetFile(sink, page_checksum_verification=True)
    assert file.read().cast(schema).equals(pa.concat_tables(groups))
    for at, rows in enumerate(groups):  # found by their own offsets, whatever lies before them
        assert file.read_row_group(at).cast(schema).equals(rows)
        bounds = file.metadata.row_group(at).column(0).statistics
        assert (bounds.min, bounds.max) == (rows[0][0].as_py(), rows[0][-1].as_py())
    assert footer.equals(file.metadata)
    assert (footer.num_rows, footer.num_row_groups) == (sum(sizes), len(sizes))
    assert (footer.metadata or {}) == members


@pytest.mark.parametrize("schema", [WIDE, NESTED], ids=["wide", "nested"])
def test_a_footer_of_one_row_group_is_pyarrows_own_to_the_byte(schema):
    sink, _ = written(schema, [some_rows(schema, 0, 500)], {})
    _, footer = taken_apart(memoryview(sink.getvalue()))
    assert stored_footer(read_footer(bytes(footer))) == bytes(footer)


def test_what_does_not_end_as_a_parquet_file_is_not_taken_apart():
    with pytest.raises(AssertionError, match="not the end of a Parquet file"):
        taken_apart(memoryview(b"PAR1 and then nothing"))
