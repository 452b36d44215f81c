"""Writing data files and reading them back: bytes on disk, metadata, rolling, evolution, damage."""

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.base.errors import (
    CorruptFileError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.data_files.reader import POSITION
from lsm_engine.data_files.writer import CHANGELOG_PREFIX
from lsm_engine.format.binary_row import decode_row
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS
from lsm_engine.format.stats import StatsCollector, stats_modes
from lsm_engine.options.modes import FileSource
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Crash, Die, Fail, RecordingFileIO, When
from tests.unit.data_files.tables import (
    SEQUENCE_NUMBER,
    VALUE_KIND,
    foreign,
    read_back,
    rows,
    schema,
    write,
    writer,
)

KV = schema(("k", "INT NOT NULL"), ("v", "STRING"))

UTC = dt.UTC
NAIVE = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000)  # noqa: DTZ001 -- a wall clock
EVERY = schema(
    ("k", "BIGINT NOT NULL"),
    ("tiny", "TINYINT"),
    ("small", "SMALLINT"),
    ("int", "INT"),
    ("float", "FLOAT"),
    ("double", "DOUBLE"),
    ("bool", "BOOLEAN"),
    ("d9", "DECIMAL(9, 2)"),
    ("d18", "DECIMAL(18, 3)"),
    ("d38", "DECIMAL(38, 10)"),
    ("str", "STRING"),
    ("char", "CHAR(3)"),
    ("bin", "VARBINARY(9)"),
    ("date", "DATE"),
    ("time", "TIME(3)"),
    ("ts0", "TIMESTAMP(0)"),
    ("ts3", "TIMESTAMP(3)"),
    ("ts6", "TIMESTAMP(6)"),
    ("ltz3", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
    ("ltz6", "TIMESTAMP_LTZ(6)"),
    ("arr", {"type": "ARRAY", "element": "INT"}),
    ("map", {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"}),
    ("row", {"type": "ROW", "fields": [{"id": 90, "name": "a", "type": "TIMESTAMP(3)"}]}),
)
EVERY_ROWS = {
    "k": [-1, 0, 2**62],
    "tiny": [-128, 127, None],
    "small": [-32768, None, 1],
    "int": [None, -(2**31), 1],
    "float": [1.5, -0.0, None],
    "double": [None, float("inf"), 1e300],
    "bool": [True, False, None],
    "d9": [Decimal("-1234567.89"), None, Decimal("0.00")],
    "d18": [Decimal("-1.234"), Decimal("999999999999999.999"), None],
    "d38": [Decimal("-1.0000000001"), None, Decimal("9999999999999999999999999999.0000000000")],
    "str": ["", "ünï", None],
    "char": ["abc", None, "x  "],
    "bin": [b"\x00\xff", b"", None],
    "date": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
    "time": [dt.time(1, 2, 3, 4000), None, dt.time(0)],
    "ts0": [NAIVE.replace(microsecond=0), None, None],
    "ts3": [NAIVE, NAIVE.replace(year=1), None],
    "ts6": [NAIVE.replace(microsecond=123_456), NAIVE.replace(year=9999), None],
    "ltz3": [NAIVE.replace(tzinfo=UTC), None, None],
    "ltz6": [None, NAIVE.replace(tzinfo=UTC, microsecond=1), None],
    "arr": [[1, None], [], None],
    "map": [[("a", 1)], [], None],
    "row": [{"a": NAIVE}, {"a": None}, None],
}


def parquet(disk, meta):
    return pq.ParquetFile(pa.BufferReader(disk.read(f"bucket-0/{meta.file_name}")))


def test_every_type_comes_back():
    disk = MemoryFileIO()
    batch = rows(EVERY, EVERY_ROWS)
    (meta,) = write(disk, EVERY, batch)
    with read_back(disk, meta, EVERY) as reader:
        assert reader.schema == EVERY.key_value_arrow
        assert reader.read() == pa.Table.from_batches([batch])


def test_columns_on_disk_are_what_other_clients_expect():
    disk = MemoryFileIO()
    (meta,) = write(disk, EVERY, rows(EVERY, EVERY_ROWS))
    stored = parquet(disk, meta)
    columns = {stored.schema.column(at).path: stored.schema.column(at) for at in range(25)}
    assert [field.name for field in stored.schema_arrow][:5] == [
        "_KEY_k",
        SEQUENCE_NUMBER,
        VALUE_KIND,
        "k",
        "tiny",
    ]
    physical = {name: (c.physical_type, str(c.logical_type)) for name, c in columns.items()}
    assert physical["d9"] == ("INT32", "Decimal(precision=9, scale=2)")
    assert physical["d18"] == ("INT64", "Decimal(precision=18, scale=3)")
    assert physical["d38"] == ("FIXED_LEN_BYTE_ARRAY", "Decimal(precision=38, scale=10)")
    assert physical["tiny"] == ("INT32", "Int(bitWidth=8, isSigned=true)")
    assert physical["small"] == ("INT32", "Int(bitWidth=16, isSigned=true)")
    assert physical[VALUE_KIND] == ("INT32", "Int(bitWidth=8, isSigned=true)")
    assert physical["time"] == ("INT32", "Time(isAdjustedToUTC=true, timeUnit=milliseconds)")
    assert physical["bin"] == ("BYTE_ARRAY", "None")
    for name, utc, unit in [
        ("ts0", "false", "milliseconds"),
        ("ts3", "false", "milliseconds"),
        ("ts6", "false", "microseconds"),
        ("ltz3", "true", "milliseconds"),
        ("ltz6", "true", "microseconds"),
    ]:
        kind, logical = physical[name]
        assert kind == "INT64"
        assert f"isAdjustedToUTC={utc}, timeUnit={unit}" in logical


def field_ids(stored):
    return {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in stored.schema_arrow}


def test_field_ids():
    disk = MemoryFileIO()
    of = schema(("a", "INT NOT NULL", 3), ("b", "STRING NOT NULL", 5), keys=("b", "a"))
    (meta,) = write(disk, of, rows(of, {"a": [1], "b": ["x"]}))
    assert field_ids(parquet(disk, meta)) == {
        "_KEY_b": 1_073_741_828,
        "_KEY_a": 1_073_741_826,
        SEQUENCE_NUMBER: 2_147_483_646,
        VALUE_KIND: 2_147_483_645,
        "a": 3,
        "b": 5,
    }


@pytest.mark.parametrize("short", [False, True])
def test_only_long_timestamps_are_int96(short):
    columns = [("k", "INT NOT NULL"), ("ts9", "TIMESTAMP(9)"), ("ltz9", "TIMESTAMP_LTZ(9)")]
    if short:
        columns += [
            ("ts3", "TIMESTAMP(3)"),
            ("ltz6", "TIMESTAMP_LTZ(6)"),
            ("arr", {"type": "ARRAY", "element": "TIMESTAMP(6)"}),
        ]
    of = schema(*columns)
    given = {"k": [1, 2], "ts9": [1_700_000_000_123_456_789, None], "ltz9": [None, -1]}
    given |= {"ts3": [NAIVE, None], "ltz6": [None, NAIVE.replace(tzinfo=UTC)], "arr": [[NAIVE], []]}
    disk = MemoryFileIO()
    batch = rows(of, {name: given[name] for name in of.names})
    (meta,) = write(disk, of, batch)
    with read_back(disk, meta, of) as reader:
        assert reader.read() == pa.Table.from_batches([batch])
        assert reader.bounds("ts9").lower.null_count == 1
    stored = parquet(disk, meta)
    kinds = {
        stored.schema.column(at).path: stored.schema.column(at).physical_type
        for at in range(len(stored.schema.names))
    }
    assert {name for name, kind in kinds.items() if kind == "INT96"} == {"ts9", "ltz9"}
    assert stored.schema_arrow.field("k").metadata  # the corrected footer keeps field ids
    if short:
        assert "timeUnit=microseconds" in str(stored.schema.column(8).logical_type)
        assert stored.read().column("ts3").to_pylist() == [NAIVE, None]


def test_metadata():
    disk = MemoryFileIO()
    (meta,) = write(
        disk,
        KV,
        rows(KV, {"k": [1, 2, 3], "v": ["a", None, "c"]}, sequence=7, kinds=[0, 3, 2]),
        rows(KV, {"k": [4], "v": ["d"]}, sequence=2, kinds=[1]),
        level=2,
        file_source=FileSource.COMPACT,
    )
    assert meta.file_name == "data-00000000-0000-4000-8000-000000000001-0.parquet"
    assert meta.file_size == disk.status(f"bucket-0/{meta.file_name}").size
    assert (meta.row_count, meta.delete_row_count) == (4, 2)
    assert (meta.min_sequence_number, meta.max_sequence_number) == (2, 9)
    types = [KV.fields[0].type]
    assert decode_row(meta.min_key, types) == (1,)
    assert decode_row(meta.max_key, types) == (4,)
    assert (meta.level, meta.schema_id, meta.file_source) == (2, 0, FileSource.COMPACT)
    assert meta.creation_millis == 1_700_000_000_000
    assert meta.value_stats_columns is None
    assert decode_row(meta.key_stats.min_values, types) == (1,)
    assert decode_row(meta.key_stats.max_values, types) == (4,)
    assert meta.key_stats.null_counts == (0,)
    every = [field.type for field in KV.fields]
    assert decode_row(meta.value_stats.min_values, every) == (1, "a")
    assert decode_row(meta.value_stats.max_values, every) == (4, "d")
    assert meta.value_stats.null_counts == (0, 1)


def test_append_tables_hold_their_columns_alone():
    of = schema(("a", "INT"), ("b", "STRING"), keys=())
    disk = MemoryFileIO()
    batch = rows(of, {"a": [2, 1], "b": ["x", None]})
    (meta,) = write(disk, of, batch, first_sequence_number=10)
    assert parquet(disk, meta).schema_arrow.names == ["a", "b"]
    assert (meta.min_key, meta.max_key, meta.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert (meta.min_sequence_number, meta.max_sequence_number) == (10, 11)
    assert meta.delete_row_count == 0
    with read_back(disk, meta, of) as reader:
        assert reader.read() == pa.Table.from_batches([batch])


def big(of, count, seed=0):
    rng = np.random.default_rng(seed)
    return rows(
        of, {"k": pa.array(np.arange(count, dtype=np.int32)), "v": pa.array(
            np.char.mod("%x", rng.integers(0, 2**60, count)).tolist(), pa.string())}
    )  # fmt: skip


def test_rolls_at_the_target_size():
    disk = MemoryFileIO()
    batch = big(KV, 50_000)
    files = write(
        disk, KV, *(batch.slice(at, 777) for at in range(0, 50_000, 777)), target_file_size=100_000
    )
    assert len(files) > 3
    assert [meta.file_name.rpartition("-")[2] for meta in files] == [
        f"{at}.parquet" for at in range(len(files))
    ]
    assert all(100_000 <= meta.file_size < 200_000 for meta in files[:-1])
    assert sum(meta.row_count for meta in files) == 50_000
    tables = [read_back(disk, meta, KV).read() for meta in files]
    assert pa.concat_tables(tables).combine_chunks() == pa.Table.from_batches([batch])
    types = [KV.fields[0].type]
    for before, after in itertools.pairwise(files):
        assert decode_row(before.max_key, types)[0] + 1 == decode_row(after.min_key, types)[0]


def test_row_groups_are_moderate_and_addressable():
    disk = MemoryFileIO()
    batch = big(KV, 300_000)
    (meta,) = write(disk, KV, batch)
    reader = read_back(disk, meta, KV, with_positions=True)
    assert reader.row_group_rows == (100_000, 100_000, 100_000)
    bounds = reader.bounds("k")
    assert bounds is not None
    assert bounds.lower.to_pylist() == [0, 100_000, 200_000]
    assert bounds.upper.to_pylist() == [99_999, 199_999, 299_999]
    middle = reader.read([1])
    assert middle.column(POSITION)[0].as_py() == 100_000
    assert middle.column("k").to_pylist() == middle.column(POSITION).to_pylist()
    assert [len(each) for each in reader.batches()] == [100_000] * 3
    assert [len(each) for each in reader.batches([2], max_rows=60_000)] == [60_000, 40_000]
    assert reader.read([]).num_rows == 0


def test_block_size_bounds_row_groups():
    of = schema(("k", "INT NOT NULL"), ("v", "STRING"), **{"file.block-size": "64 kb"})
    disk = MemoryFileIO()
    (meta,) = write(disk, of, big(of, 10_000))
    reader = read_back(disk, meta, of)
    assert reader.row_group_count > 3
    assert max(reader.row_group_rows) * 30 < 100_000


def test_dictionaries_only_where_they_pay():
    of = schema(
        ("k", "INT NOT NULL"), ("low", "STRING"), ("high", "STRING"), ("price", "DECIMAL(5, 2)")
    )
    count = 5000
    batch = rows(
        of,
        {
            "k": list(range(count)),
            "low": [f"w{at % 7}" for at in range(count)],
            "high": [f"w{at}" for at in range(count)],
            "price": [Decimal("1.00")] * count,
        },
    )
    disk = MemoryFileIO()
    (meta,) = write(disk, of, batch)
    group = parquet(disk, meta).metadata.row_group(0)
    found = {
        group.column(at).path_in_schema
        for at in range(group.num_columns)
        if group.column(at).has_dictionary_page
    }
    assert found == {"low", VALUE_KIND}


def test_rows_in_wider_arrow_types_are_cast():
    wide = pa.table(
        {
            "k": pa.array([1], pa.int32()),
            "v": pa.array(["a"], pa.large_string()),
            SEQUENCE_NUMBER: pa.array([0]),
            VALUE_KIND: pa.array([0], pa.int8()),
        }
    )
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, wide)
    assert read_back(disk, meta, KV).read().column("v").to_pylist() == ["a"]


def test_no_rows_make_no_file():
    disk = MemoryFileIO()
    assert write(disk, KV) == []
    assert write(disk, KV, rows(KV, {"k": [], "v": []})) == []
    assert disk.list("") == []


def test_rows_in_chunks_of_which_one_is_empty():
    of = schema(("k", "BIGINT NOT NULL"), ("v", "STRING"))
    batch = rows(of, {"k": [1, 2, 3], "v": ["a", "b", "c"]}, sequence=7)
    table = pa.Table.from_batches([batch[:2], batch[:0], batch[2:]])
    disk = MemoryFileIO()
    (meta,) = write(disk, of, table)
    assert (meta.min_sequence_number, meta.max_sequence_number, meta.row_count) == (7, 9, 3)


def test_changelog_files_are_named_so():
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, rows(KV, {"k": [1], "v": ["a"]}), prefix=CHANGELOG_PREFIX)
    assert meta.file_name.startswith("changelog-0000")


def test_abort_deletes_everything():
    disk = MemoryFileIO()
    made = writer(disk, KV, target_file_size=100_000)
    made.write(big(KV, 40_000))
    assert len(disk.list("bucket-0")) > 1
    made.abort()
    assert disk.list("bucket-0") == []
    closed = writer(disk, KV)
    closed.write(big(KV, 10))
    assert len(closed.close()) == 1
    closed.abort()
    assert disk.list("bucket-0") == []


def test_a_full_disk_is_told_and_cleaned_up():
    for at in range(1, 100):
        disk = MemoryFileIO()
        storage = RecordingFileIO(
            disk, Fail(at=at, error=StorageError("the disk is full"), when=When.HALFWAY)
        )
        made = writer(storage, KV)
        try:
            made.write(big(KV, 10))
            made.close()
        except StorageError as error:
            assert error.message == "the disk is full"  # noqa: PT017 -- success ends the loop
            made.abort()
            del made
            assert disk.list("bucket-0") == []
        else:
            assert at > 3
            return
    raise AssertionError("never got through")


def test_nothing_is_written_after_a_crash():
    for at in range(1, 100):
        disk = MemoryFileIO()
        storage = RecordingFileIO(disk, Die(at=at))
        made = writer(storage, KV)
        try:
            made.write(big(KV, 10))
            made.close()
        except Crash:
            calls = len(storage.calls)
            del made
            assert len(storage.calls) == calls
        else:
            return


# --- reading -------------------------------------------------------------------------------------


def test_projection_reads_only_what_is_asked_for():
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, rows(KV, {"k": [1, 2], "v": ["a", "b"]}))
    assert read_back(disk, meta, KV, names=("v",)).read().to_pydict() == {"v": ["a", "b"]}
    assert read_back(disk, meta, KV, names=(VALUE_KIND, "k")).schema.names == [VALUE_KIND, "k"]
    nothing = read_back(disk, meta, KV, names=()).read()
    assert nothing.num_columns == 0
    positions = read_back(disk, meta, KV, names=(), with_positions=True).read()
    assert positions.to_pydict() == {POSITION: [0, 1]}


def test_a_file_of_an_older_schema():
    old = schema(("k", "INT NOT NULL"), ("a", "INT"), ("gone", "STRING"))
    new = schema(("k", "INT NOT NULL"), ("b", "BIGINT", 1), ("a", "STRING", 3), id_=1)
    disk = MemoryFileIO()
    (meta,) = write(disk, old, rows(old, {"k": [1, 2], "a": [5, None], "gone": ["x", "y"]}))
    with read_back(disk, meta, old, new) as reader:
        table = reader.read()
        assert table.schema == new.key_value_arrow
        assert table.select(["k", "b", "a"]).to_pydict() == {
            "k": [1, 2],
            "b": [5, None],
            "a": [None, None],
        }
        assert reader.bounds("b").lower == pa.array([5])
        assert reader.bounds("a") is None
        assert reader.bounds("nothing") is None
    assert read_back(disk, meta, old, new, names=("a",)).read().to_pydict() == {"a": [None, None]}


def test_bounds_of_every_type():
    disk = MemoryFileIO()
    (meta,) = write(disk, EVERY, rows(EVERY, EVERY_ROWS))
    reader = read_back(disk, meta, EVERY)
    for name in EVERY.names:
        bounds = reader.bounds(name)
        values = [value for value in EVERY_ROWS[name] if value is not None]
        if name in ("arr", "map", "row"):
            assert bounds is None
            continue
        assert bounds.null_counts == (3 - len(values),)
        assert bounds.lower.type == EVERY.key_value_arrow.field(name).type
        assert bounds.lower.to_pylist() == [min(values)]
        if name in ("float", "double"):
            assert bounds.upper.to_pylist() == [None]  # there could be a NaN
        else:
            assert bounds.upper.to_pylist() == [max(values)]


def test_statistics_say_nothing_about_columns_with_nan():
    of = schema(("k", "INT NOT NULL"), ("x", "DOUBLE"), ("y", "DOUBLE"))
    disk = MemoryFileIO()
    (meta,) = write(disk, of, rows(of, {"k": [1, 2], "x": [1.0, float("nan")], "y": [1.0, 2.0]}))
    types = [field.type for field in of.fields]
    assert decode_row(meta.value_stats.max_values, types) == (2, None, 2.0)
    assert decode_row(meta.value_stats.min_values, types) == (1, None, 1.0)
    assert meta.value_stats.null_counts == (0, 0, 0)


@pytest.mark.parametrize(
    ("mode", "least", "greatest", "nulls"),
    [
        ("truncate(3)", "aaa", "zza", (0, 1)),
        ("full", "aaaaaa", "zz`zzz", (0, 1)),
        ("counts", None, None, (0, 1)),
        ("none", None, None, (None, None)),
    ],
)
def test_statistics_modes(mode, least, greatest, nulls):
    of = schema(("k", "INT NOT NULL"), ("v", "STRING"), **{"metadata.stats-mode": mode})
    disk = MemoryFileIO()
    (meta,) = write(disk, of, rows(of, {"k": [1, 2, 3], "v": ["zz`zzz", None, "aaaaaa"]}))
    types = [field.type for field in of.fields]
    assert decode_row(meta.value_stats.min_values, types)[1] == least
    assert decode_row(meta.value_stats.max_values, types)[1] == greatest
    assert meta.value_stats.null_counts == nulls
    assert decode_row(meta.min_key, types[:1]) == (1,)  # keys are exact in every mode


def test_statistics_agree_with_a_look_at_every_row():
    modes = stats_modes(EVERY)
    batch = rows(EVERY, EVERY_ROWS)
    collector = StatsCollector([field.type for field in EVERY.fields], modes)
    collector.update([batch.column(name) for name in EVERY.names])
    disk = MemoryFileIO()
    (meta,) = write(disk, EVERY, batch)
    expected = collector.result()
    assert meta.value_stats.min_values == expected.min_values
    assert meta.value_stats.max_values == expected.max_values
    flat = [at for at, name in enumerate(EVERY.names) if name not in ("arr", "map", "row")]
    for at in flat:
        assert meta.value_stats.null_counts[at] == expected.null_counts[at]


def key_values(table, **system):
    count = table.num_rows
    columns = {
        SEQUENCE_NUMBER: pa.array(range(count)),
        VALUE_KIND: pa.array([0] * count, pa.int8()),
    }
    for name, column in (columns | system).items():
        if column is not None:
            table = table.append_column(name, column)
    return table


def test_thin_files_and_other_writers_types():
    of = schema(
        ("k", "INT NOT NULL"),
        ("tiny", "TINYINT"),
        ("dec", "DECIMAL(9, 2)"),
        ("ltz", "TIMESTAMP_LTZ(9)"),
        ("ts3", "TIMESTAMP(3)"),
        ("arr", {"type": "ARRAY", "element": "INT"}),
    )
    table = key_values(
        pa.table(
            {
                "k": pa.array([1, 2], pa.int32()),
                "tiny": pa.array([1, None], pa.int32()),
                "dec": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
                "ltz": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns")),
                "ts3": pa.array([1, None], pa.timestamp("ms")),
                "arr": pa.array([[1], None], pa.list_(pa.field("item", pa.int32()))),
            }
        ),
        **{VALUE_KIND: pa.array([0, 3], pa.int32())},
    )
    disk, meta = foreign(
        table, use_deprecated_int96_timestamps=True, use_compliant_nested_type=False
    )
    with read_back(disk, meta, of) as reader:
        made = reader.read()
    assert made.schema == of.key_value_arrow
    assert made.column(VALUE_KIND).to_pylist() == [0, 3]
    assert made.column("dec").to_pylist() == [Decimal("1.25"), None]
    assert made.column("ltz").cast(pa.int64()).to_pylist() == [1_700_000_000_123_456_789, None]
    assert made.column("ts3").cast(pa.int64()).to_pylist() == [1, None]


def test_columns_with_dots_in_their_names():
    of = schema(("k", "INT NOT NULL"), ("a.b", "INT"), ("a", "INT"))
    disk = MemoryFileIO()
    (meta,) = write(disk, of, rows(of, {"k": [1], "a.b": [2], "a": [3]}))
    assert read_back(disk, meta, of, names=("a.b",)).read().to_pydict() == {"a.b": [2]}


def test_missing_columns_are_refused_by_name():
    table = pa.table({"k": pa.array([1], pa.int32())})
    for system in ({SEQUENCE_NUMBER: None}, {VALUE_KIND: None}, {}):
        disk, meta = foreign(key_values(table, **system))
        with pytest.raises(CorruptFileError, match="missing") as caught:
            read_back(disk, meta, KV)
        assert caught.value.facts["file"] == "bucket-0/data-foreign-0.parquet"


def test_a_file_that_is_gone_or_of_another_format():
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, rows(KV, {"k": [1], "v": ["a"]}))
    disk.delete(f"bucket-0/{meta.file_name}")
    with pytest.raises(NotFoundError):
        read_back(disk, meta, KV)
    with pytest.raises(UnsupportedError):
        read_back(disk, meta.rename("data-x-0.vortex"), KV)


def test_a_file_with_other_rows_than_its_entry_says():
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, rows(KV, {"k": [1], "v": ["a"]}))
    lying = {field: getattr(meta, field) for field in meta.__slots__} | {"row_count": 2}
    with pytest.raises(CorruptFileError, match="count"):
        read_back(disk, type(meta)(**lying), KV)


@pytest.mark.parametrize("verify", [True, False])
def test_damage_is_named_or_harmless(verify):
    """Every flipped bit gives the right rows or a typed error; with checksums never wrong rows."""
    disk = MemoryFileIO()
    batch = big(KV, 2000)
    (meta,) = write(disk, KV, batch)
    path = f"bucket-0/{meta.file_name}"
    good = disk.read(path)
    rng = np.random.default_rng(1)
    wrong = 0
    for at in rng.integers(0, len(good), 300).tolist():
        damaged = bytearray(good)
        damaged[at] ^= 1 << int(rng.integers(8))
        disk.replace(path, bytes(damaged))
        try:
            with read_back(disk, meta, KV, verify_checksums=verify) as reader:
                wrong += reader.read() != pa.Table.from_batches([batch])
        except (CorruptFileError, UnsupportedError) as error:
            assert path in str(error)  # noqa: PT017 -- both outcomes are right
    assert wrong > 0 if not verify else wrong <= 3  # names and statistics have no checksum


@pytest.mark.parametrize("size", [0, 3, 11, 12, 100, 1000])
def test_truncated_files(size):
    disk = MemoryFileIO()
    (meta,) = write(disk, KV, big(KV, 2000))
    path = f"bucket-0/{meta.file_name}"
    disk.replace(path, disk.read(path)[:size])
    with pytest.raises(CorruptFileError):
        read_back(disk, meta, KV)


def test_on_a_real_disk(tmp_path):
    disk = LocalFileIO(str(tmp_path))
    batch = big(KV, 1000)
    (meta,) = write(disk, KV, batch)
    assert meta.file_size == (tmp_path / "bucket-0" / meta.file_name).stat().st_size
    with read_back(disk, meta, KV) as reader:
        assert reader.read() == pa.Table.from_batches([batch])
