"""Footers taken apart and put together: what PyArrow says of the joined file is what was written."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.data_files.parquet_output import (
    ParquetEncoding,
    ParquetSettings,
    read_footer,
    split_row_groups,
    stored_footer,
)
from lsm_engine.options.table_options import given_options

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


def written(
    schema: pa.Schema, groups: list[pa.Table], members: dict[bytes, bytes], **options: str
) -> tuple:
    settings = ParquetSettings.from_options(given_options(options))
    encoding, sink = ParquetEncoding(schema, settings), io.BytesIO()
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
    _, footer = split_row_groups(memoryview(sink.getvalue()))
    assert stored_footer(read_footer(bytes(footer))) == bytes(footer)


def test_what_does_not_end_as_a_parquet_file_is_not_taken_apart():
    with pytest.raises(AssertionError, match="not the end of a Parquet file"):
        split_row_groups(memoryview(b"PAR1 and then nothing"))


KEYED = pa.schema(
    [
        pa.field("_KEY_id", pa.int64(), nullable=False),
        pa.field("_KEY_text", pa.string(), nullable=False),
        pa.field("counts", NESTED.field("counts").type),
        pa.field("text", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", NESTED.field("tags").type),
    ]
)


def keyed_rows(first: int, count: int) -> pa.Table:
    rows = some_rows(NESTED, first, count)
    names = [f"name {number:09}" for number in range(first, first + count)]
    columns = {name: rows[name] for name in rows.column_names} | {"text": pa.array(names)}
    return pa.table([columns[name.removeprefix("_KEY_")] for name in KEYED.names], schema=KEYED)


@pytest.mark.parametrize("sizes", [(5_000,), (5_000, 100), (100, 5_000), (5_000, 4_096, 6_000)])
def test_keys_are_encoded_once_and_stored_twice(sizes):
    groups = [keyed_rows(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
    sink, footer = written(KEYED, groups, {})
    file = pq.ParquetFile(sink, page_checksum_verification=True)
    assert file.read().equals(pa.concat_tables(groups))
    assert file.read(["id"]).equals(pa.concat_tables(groups).select(["id"]))
    for at, rows in enumerate(groups):
        assert file.read_row_group(at).equals(rows)
        told = footer.row_group(at)
        columns = {told.column(n).path_in_schema: told.column(n) for n in range(told.num_columns)}
        for name in ("id", "text"):
            one, other = columns[f"_KEY_{name}"], columns[name]
            assert one.statistics.equals(other.statistics)
            assert one.total_compressed_size == other.total_compressed_size
            assert other.data_page_offset > one.data_page_offset
        assert told.total_byte_size == sum(one.total_uncompressed_size for one in columns.values())


def test_a_column_that_may_be_null_is_not_its_key():
    loose = pa.schema([field.with_nullable(not field.name.startswith("_")) for field in KEYED])
    rows = keyed_rows(0, 5_000).cast(loose)
    sink, _ = written(loose, [rows], {})
    assert pq.read_table(sink).equals(rows)


def test_all_row_groups_have_their_ordinal_as_readers_in_rust_want_it():
    sink, _ = written(KEYED, [keyed_rows(0, 100), keyed_rows(100, 5_000)], {})
    _, footer = split_row_groups(memoryview(sink.getvalue()))
    groups = read_footer(bytes(footer))[4].content[1]
    assert [group[7].content >> 1 for group in groups] == [0, 1]


@pytest.mark.parametrize(
    ("count", "options", "codec"),
    [
        (5, {}, "UNCOMPRESSED"),
        (200, {}, "SNAPPY"),
        (200, {"file.compression": "zstd"}, "ZSTD"),
        (200, {"file.compression.zstd-level": "3"}, "ZSTD"),
        (200, {"file.compression": "gzip"}, "GZIP"),
        (2_000, {}, "ZSTD"),
    ],
)
def test_columns_of_few_bytes_take_what_starts_quickly(count, options, codec):
    sink, _ = written(KEYED, [keyed_rows(0, count)], {}, **options)
    group = pq.ParquetFile(sink, page_checksum_verification=True).metadata.row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {codec}
    assert pq.read_table(sink).equals(keyed_rows(0, count))


def test_row_groups_with_and_without_compression_are_one_file():
    groups = [keyed_rows(0, 5), keyed_rows(5, 5_000), keyed_rows(5_005, 3)]
    sink, _ = written(KEYED, groups, {})
    assert pq.read_table(sink).equals(pa.concat_tables(groups))
