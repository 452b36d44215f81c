"""Data files in every format: the edges of every type, levels, statistics, and damage."""

import datetime as dt
import io
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from lsm_engine.base.errors import CorruptFileError, InvalidOptionError, UnsupportedError
from lsm_engine.data_files.formats import check_formats
from lsm_engine.data_files.orc import read_orc_footer
from lsm_engine.format.avro.container import read_container
from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.options.option import one_of, per_level
from lsm_engine.options.table_options import given_options
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.unit.data_files.tables import read_back, rows, schema, write, writer

FORMATS = ("parquet", "avro", "orc")
each_format = pytest.mark.parametrize("form", FORMATS)
KV = (("k", "INT NOT NULL"), ("v", "STRING"))

# Column type, and its values in the file (numbers for times). None is always there as well.
EDGES = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127, 0],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1, 0],
    "FLOAT": [float("-inf"), -0.0, 3.4028234663852886e38, 1e-45],
    "DOUBLE": [float("inf"), -0.0, 5e-324, -1.7976931348623157e308],
    "DECIMAL(1, 0)": [Decimal(-9), Decimal(0)],
    "DECIMAL(9, 9)": [Decimal("-0.999999999"), Decimal("0.000000001")],
    "DECIMAL(18, 3)": [Decimal("-999999999999999.999"), Decimal("0.001")],
    "DECIMAL(19, 0)": [Decimal(-9999999999999999999), Decimal(2**63)],
    "DECIMAL(38, 10)": [Decimal("-9999999999999999999999999999.9999999999"), Decimal("1E-10")],
    "STRING": ["", "\x00", "日本語 😀", "x" * 70_000, "trail  "],
    "CHAR(5)": ["     ", "abc  ", "a    ", "äöüßé"],
    "VARCHAR(20)": ["", " lead", "ünï"],
    "BYTES": [b"", b"\x00\xff" * 9, bytes(range(256))],
    "BINARY(3)": [b"\x00\x00\x00", b"\xff\xff\xff"],
    "VARBINARY(9)": [b"", b"123456789"],
    "DATE": [-719_162, 2_932_896, -1, 0],
    "TIME(3)": [0, 86_399_999, 1],
    "TIMESTAMP(0)": [0, 1_709_251_199_000, -1000],
    "TIMESTAMP(3)": [0, 1_709_251_199_999, -2000],
    "TIMESTAMP(6)": [0, 1_709_251_199_999_999, -3_000_000],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [0, 999, -1000],
    "TIMESTAMP_LTZ(6)": [0, 1, 1_709_251_199_123_456],
}  # fmt: skip
FAR_TIMES = {  # which no reader of ORC agrees on
    "TIMESTAMP(3)": [-62_135_596_800_000, 253_402_300_799_999, -1],
    "TIMESTAMP(6)": [-62_135_596_800_000_000, 253_402_300_799_999_999, -1],
    "TIMESTAMP_LTZ(6)": [-1, 253_402_300_799_999_999],
}
INNER = {
    "type": "ROW",
    "fields": [{"id": 90, "name": "x", "type": "INT"}, {"id": 91, "name": "t", "type": "TIME(3)"}],
}
NESTED = {
    "array": ({"type": "ARRAY", "element": "DECIMAL(9, 2)"}, [[Decimal("1.25"), None], []]),
    "arrays": ({"type": "ARRAY", "element": {"type": "ARRAY", "element": "STRING"}}, [[["a", None], None, []], []]),
    "rows": ({"type": "ARRAY", "element": INNER}, [[{"x": 1, "t": dt.time(1)}, None, {"x": None, "t": None}], []]),
    "map": ({"type": "MAP", "key": "STRING NOT NULL", "value": "TIMESTAMP(6)"}, [[("a", None), ("b", dt.datetime(2024, 1, 1))], []]),  # noqa: DTZ001
    "numbered": ({"type": "MAP", "key": "INT NOT NULL", "value": INNER}, [[(1, {"x": 2, "t": None}), (2, None)], []]),
    "dated": ({"type": "MAP", "key": "DATE NOT NULL", "value": {"type": "MAP", "key": "BIGINT NOT NULL", "value": "BOOLEAN"}}, [[(dt.date(1, 1, 1), [(1, None)]), (dt.date(2, 1, 1), []), (dt.date(3, 1, 1), None)], []]),
    "row": (INNER, [{"x": 1, "t": dt.time(23)}, {"x": None, "t": None}]),
    "deep": ({"type": "ROW", "fields": [
        {"id": 80, "name": "m", "type": {"type": "MAP", "key": "INT NOT NULL", "value": "STRING"}},
        {"id": 81, "name": "r", "type": INNER},
    ]}, [{"m": [(1, None)], "r": None}, {"m": [], "r": {"x": 3, "t": None}}, {"m": None, "r": None}]),
}  # fmt: skip


def edge_array(kind, values):
    """Values as an array; those of times are given as numbers."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
    return pa.array(values, kind)


def kept(form, type_, values):
    """Write a column of values and nulls; return what went in and what came out."""
    of = schema(("k", "INT NOT NULL"), ("v", type_), **{"file.format": form})
    cycle = [*values, None] * 3
    made = edge_array(of.key_value_arrow.field("v").type, cycle)
    batch = rows(of, {"k": list(range(len(cycle))), "v": made})
    disk = MemoryFileIO()
    (meta,) = write(disk, of, batch)
    assert meta.file_name.endswith(f".{form}")
    with read_back(disk, meta, of) as reader:
        return pa.Table.from_batches([batch]), reader.read()


@each_format
@pytest.mark.parametrize("type_", EDGES)
def test_edges_of_scalar_types_come_back(form, type_):
    wrote, got = kept(form, type_, EDGES[type_])
    assert got == wrote
    assert str(got.column("v")) == str(wrote.column("v"))  # -0.0 is not 0.0


@each_format
@pytest.mark.parametrize("type_", ["FLOAT", "DOUBLE"])
def test_nan_comes_back(form, type_):
    _, got = kept(form, type_, [float("nan"), 1.0])
    assert str(got.column("v").to_pylist()[:3]) == "[nan, 1.0, None]"


@pytest.mark.parametrize("form", ["parquet", "avro"])
@pytest.mark.parametrize("type_", FAR_TIMES)
def test_times_far_away_come_back(form, type_):
    wrote, got = kept(form, type_, FAR_TIMES[type_])
    assert got == wrote


@pytest.mark.parametrize("type_", FAR_TIMES)
def test_orc_refuses_times_that_its_readers_disagree_on(type_):
    with pytest.raises(UnsupportedError, match="column 'v'") as refused:
        kept("orc", type_, FAR_TIMES[type_])
    assert refused.value.facts["count"] == 3 * len(FAR_TIMES[type_])


@pytest.mark.parametrize(
    "type_",
    [
        {"type": "ARRAY", "element": "TIMESTAMP(6)"},
        {"type": "MAP", "key": "INT NOT NULL", "value": "TIMESTAMP(6)"},
        {"type": "ROW", "fields": [{"id": 9, "name": "t", "type": "TIMESTAMP(6)"}]},
    ],
    ids=["array", "map", "row"],
)
def test_orc_refuses_them_inside_other_types_too(type_):
    bad = dt.datetime(1969, 12, 31, 23, 59, 59, 5)  # noqa: DTZ001
    value = {"ARRAY": [bad], "MAP": [(1, bad)], "ROW": {"t": bad}}[type_["type"]]
    with pytest.raises(UnsupportedError) as refused:
        kept("orc", type_, [value])
    assert refused.value.facts["count"] == 3


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_nanoseconds_come_back(form):
    wrote, got = kept(form, "TIMESTAMP(9)", [0, 1, 1_709_251_199_123_456_789])
    assert got == wrote


@each_format
@pytest.mark.parametrize("name", NESTED)
def test_nested_types_come_back(form, name):
    wrote, got = kept(form, *NESTED[name])
    assert got == wrote
    assert got.schema == wrote.schema


@each_format
@pytest.mark.parametrize("name", NESTED)
def test_slices_of_nested_columns_are_written_as_what_they_are(form, name):
    type_, values = NESTED[name]
    of = schema(("k", "INT NOT NULL"), ("v", type_), **{"file.format": form})
    cycle = [*values, None] * 4
    batch = rows(of, {"k": list(range(len(cycle))), "v": cycle})
    disk = MemoryFileIO()
    (meta,) = write(disk, of, batch.slice(1, 2), batch.slice(5, 3))
    with read_back(disk, meta, of, names=("v",)) as reader:
        assert reader.read().column("v").to_pylist() == rows_as_read(batch, [1, 2, 5, 6, 7])


@each_format
def test_many_rows_of_nested_columns_come_back(form):
    columns = [("k", "INT NOT NULL"), *((name, type_) for name, (type_, _) in NESTED.items())]
    of = schema(*columns, **{"file.format": form})
    count = 5000
    data = {"k": list(range(count))}
    for step, (name, (_, values)) in enumerate(NESTED.items()):
        cycle = [*values, None]
        data[name] = [cycle[(at // (step + 1)) % len(cycle)] for at in range(count)]
    batch = rows(of, data)
    disk = MemoryFileIO()
    (meta,) = write(disk, of, batch.slice(0, 700), batch.slice(700, 1), batch.slice(701))
    with read_back(disk, meta, of) as reader:
        assert reader.read() == pa.Table.from_batches([batch])


def rows_as_read(batch, positions):
    whole = batch.column("v").to_pylist()
    return [whole[at] for at in positions]


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_metadata_is_that_of_a_parquet_file(form):
    columns = [("k", "INT NOT NULL"), *((f"c{at}", type_) for at, type_ in enumerate(EDGES))]
    columns += [(f"n{at}", type_) for at, (type_, _) in enumerate(NESTED.values())]
    metas = []
    for each in (form, "parquet"):
        of = schema(*columns, **{"file.format": each})
        data = {"k": [1, 2, 3]}
        for at, (_, values) in enumerate(EDGES.items()):
            kind = of.key_value_arrow.field(f"c{at}").type
            data[f"c{at}"] = edge_array(kind, [*values[:2], None])
        for at, (_, values) in enumerate(NESTED.values()):
            data[f"n{at}"] = [*values[:2], None]
        (meta,) = write(MemoryFileIO(), of, rows(of, data, kinds=[0, 3, 2]))
        metas.append(meta)
    got, wanted = metas
    for name in ("row_count", "min_key", "max_key", "key_stats", "value_stats", "delete_row_count",
                 "min_sequence_number", "max_sequence_number", "level", "schema_id"):  # fmt: skip
        assert (name, getattr(got, name)) == (name, getattr(wanted, name))


@each_format
def test_stats_modes_hold_in_every_format(form):
    results = []
    for each in (form, "parquet"):
        of = schema(
            ("k", "INT NOT NULL"), ("a", "STRING"), ("b", "STRING"), ("c", "DOUBLE"), ("d", "DOUBLE"),
            **{"file.format": each, "metadata.stats-mode": "truncate(2)", "fields.b.stats-mode": "counts"},
        )  # fmt: skip
        data = {
            "k": [1, 2],
            "a": ["abc", None],
            "b": ["x", "y"],
            "c": [float("nan"), 1.0],
            "d": [0.0, -1.5],
        }
        (meta,) = write(MemoryFileIO(), of, rows(of, data))
        results.append(meta.value_stats)
    assert results[0] == results[1]


# Levels, compressions, row groups.


def test_levels_have_formats_and_compressions_of_their_own():
    options = {"file.format": "orc", "file.format.per.level": "0:avro, 5:parquet",
               "file.compression": "gzip", "file.compression.per.level": "0:none"}  # fmt: skip
    of = schema(*KV, **options)
    disk = MemoryFileIO()
    for level, extension in [(0, "avro"), (1, "orc"), (5, "parquet")]:
        (meta,) = write(disk, of, rows(of, {"k": [1], "v": ["a"]}), level=level)
        assert meta.file_name.endswith("." + extension)
        if level == 0:
            data = disk.read(f"bucket-0/{meta.file_name}")
            assert read_container(data, file_name="x").codec == "null"
        disk.delete(f"bucket-0/{meta.file_name}")


@pytest.mark.parametrize(
    "text", ["avro", "0=avro", "-1:avro", "0:avro,0:orc", "0:csv", "x:orc", "0:"]
)
def test_levels_that_make_no_sense_are_refused(text):
    with pytest.raises(InvalidOptionError):
        given_options({"file.format.per.level": text})


def test_a_list_of_levels_is_sorted():
    assert per_level(one_of(("a", "b")))("7:a,0:B") == ((0, "b"), (7, "a"))


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        ([("v", "TIMESTAMP(9)")], {"file.format": "avro"}, "'v'"),
        ([("a b", "INT")], {"file.format": "avro"}, "'a b'"),
        ([("v", "INT")], {"file.format": "avro", "file.compression": "lz4"}, "lz4"),
        ([("v", "TIMESTAMP(9)")], {"file.format.per.level": "3:avro"}, "'v'"),
        (
            [("v", "INT")],
            {"file.format": "avro", "file.compression.per.level": "4:snappy"},
            "snappy",
        ),
    ],
)
def test_what_avro_does_not_have_is_refused_before_a_row_is_written(columns, options, why):
    with pytest.raises(UnsupportedError, match=why):
        check_formats(schema(("k", "INT NOT NULL"), *columns, **options))


def test_a_level_may_keep_avro_from_what_it_does_not_have():
    options = {"file.format.per.level": "0:avro", "file.compression": "lz4"}
    check_formats(schema(*KV, **options, **{"file.compression.per.level": "0:zstd"}))


@pytest.mark.parametrize("form", ["avro", "orc"])
@pytest.mark.parametrize("compression", ["zstd", "gzip", "none", "lz4", "snappy"])
def test_large_files_are_read_in_groups(form, compression):
    if form == "avro" and compression in ("lz4", "snappy"):
        return
    options = {"file.format": form, "file.compression": compression, "file.block-size": "100 kb"}
    of = schema(*KV, **options)
    count = 150_000
    batch = rows(
        of, {"k": list(range(count)), "v": [f"{i * 7919 % 100_003:x}" for i in range(count)]}
    )
    disk = MemoryFileIO()
    (meta,) = write(disk, of, batch)
    with read_back(disk, meta, of, names=("v", "k"), with_positions=True) as reader:
        assert reader.row_group_count > 1
        assert sum(reader.row_group_rows) == count
        last = reader.read([reader.row_group_count - 1])
        assert last.column("k").to_pylist() == last.column("_POSITION").to_pylist()
        assert last.num_rows == reader.row_group_rows[-1]
        whole = pa.Table.from_batches(reader.batches(max_rows=10_000))
        assert whole.select(["k", "v"]) == pa.Table.from_batches([batch]).select(["k", "v"])
        assert reader.bounds("k") is None


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_files_roll_and_an_abandoned_writer_leaves_none(form):
    options = {"file.format": form, "target-file-size": "20 kb", "file.compression": "none"}
    of = schema(*KV, **options)
    disk = MemoryFileIO()
    made = writer(disk, of)
    batch = rows(of, {"k": list(range(20_000)), "v": [str(i) for i in range(20_000)]})
    made.write(batch)
    assert len(disk.list("bucket-0")) > 2
    made.abort()
    assert not disk.list("bucket-0")
    metas = write(disk, of, batch)
    assert len(metas) > 2
    assert sum(meta.row_count for meta in metas) == 20_000


# Evolution, and files of other writers.


@each_format
def test_evolution_is_by_field_id_in_every_format(form):
    old = schema(
        ("k", "INT NOT NULL", 0), ("n", "INT", 1), ("gone", "STRING", 2),
        ("r", {"type": "ROW", "fields": [{"id": 4, "name": "a", "type": "INT"}, {"id": 5, "name": "b", "type": "INT"}]}, 3),
        **{"file.format": form},
    )  # fmt: skip
    new = schema(
        ("r", {"type": "ROW", "fields": [{"id": 9, "name": "b", "type": "STRING"}, {"id": 5, "name": "c", "type": "BIGINT"}]}, 3),
        ("gone", "INT", 8), ("k", "INT NOT NULL", 0), ("m", "BIGINT", 1), id_=1,
    )  # fmt: skip
    disk = MemoryFileIO()
    data = {"k": [1, 2], "n": [5, None], "gone": ["x", "y"], "r": [{"a": 1, "b": 2}, None]}
    (meta,) = write(disk, old, rows(old, data))
    with read_back(disk, meta, old, new, names=("r", "gone", "k", "m")) as reader:
        assert reader.read().to_pylist() == [
            {"r": {"b": None, "c": 2}, "gone": None, "k": 1, "m": 5},
            {"r": None, "gone": None, "k": 2, "m": None},
        ]


def orc_disk(table, **how):
    """A disk with an ORC file as somebody else wrote it, and a meta for it."""
    sink = io.BytesIO()
    orc.write_table(table, sink, **how)
    disk = MemoryFileIO()
    disk.write_new("bucket-0/data-f.orc", sink.getvalue())
    meta = DataFileMeta(
        file_name="data-f.orc", file_size=len(sink.getvalue()), row_count=table.num_rows,
        min_key=EMPTY_ROW, max_key=EMPTY_ROW, key_stats=EMPTY_STATS, value_stats=EMPTY_STATS,
        min_sequence_number=0, max_sequence_number=0, schema_id=0, level=0,
    )  # fmt: skip
    return disk, meta


def test_orc_times_that_would_be_read_wrong_are_refused():
    of = schema(("k", "INT"), ("t", "TIMESTAMP(3)"), keys=())
    far = pa.array([0, 253_402_300_799_999], pa.timestamp("ms"))
    disk, meta = orc_disk(pa.table({"k": [1, 2], "t": far}))
    with pytest.raises(UnsupportedError, match="1678 to 2261"):
        read_back(disk, meta, of)


@pytest.mark.parametrize("compression", ["zstd", "zlib", "snappy", "lz4", "uncompressed"])
def test_the_footer_of_orc_counts_each_stripe(compression):
    table = pa.table({"k": range(60_000), "t": pa.array(range(60_000), pa.timestamp("ms"))})
    disk, _ = orc_disk(table, compression=compression, stripe_size=20_000)
    footer = read_orc_footer(disk.open_input("bucket-0/data-f.orc"))
    file = orc.ORCFile(disk.open_input("bucket-0/data-f.orc"))
    assert [file.read_stripe(i).num_rows for i in range(file.nstripes)] == list(footer.stripe_rows)
    assert (footer.least_millis, footer.greatest_millis) == (0, 59_999)


def test_an_lz4_footer_of_orc_ends_where_its_content_does():
    """Whatever the memory held into which it is decompressed: LZ4 does not record its length."""
    stripes = [(3 << 3 | 2).to_bytes() + b"\x02\x28" + bytes([n % 100]) for n in range(1, 2000)]
    packed = pa.Codec("lz4_raw").compress(b"".join(stripes), asbytes=True)
    for size in (64 << 10, 256 << 10) * 10:
        dirt = [b"\xff" * size for _ in range(8)]
        del dirt
        footer = read_orc_footer(io.BytesIO(lz4_footer(packed)))
        assert footer.stripe_rows == tuple(n % 100 for n in range(1, 2000))
    with pytest.raises(ValueError, match="too large"):
        read_orc_footer(io.BytesIO(lz4_footer(b"\xf0" + b"\xff" * 2000 + b"\x00")))


def lz4_footer(block):
    """A file of nothing but a footer, one LZ4 block, and its postscript."""
    stored = (len(block) << 1).to_bytes(3, "little") + block
    length = bytes([len(stored) & 0x7F | 0x80, len(stored) >> 7])
    post = b"\x08" + length + b"\x10\x04" + b"\x18\x80\x80\x10"
    return stored + post + bytes([len(post)])


# Damage.


def damaged(form, spoil):
    """A file of many rows whose bytes went through `spoil`, and its schema."""
    of = schema(*KV, **{"file.format": form, "file.compression": "zstd"})
    disk = MemoryFileIO()
    (meta,) = write(
        disk, of, rows(of, {"k": list(range(3000)), "v": [str(i) for i in range(3000)]})
    )
    path = f"bucket-0/{meta.file_name}"
    data = disk.read(path)
    disk.delete(path)
    disk.write_new(path, spoil(data))
    return disk, meta, of


def read_all(disk, meta, of):
    with read_back(disk, meta, of) as reader:
        return reader.read()


@pytest.mark.parametrize("form", ["avro", "orc"])
@pytest.mark.parametrize("length", [0, 1, 3, 4, 20, 100, -1, -30, -300])
def test_a_file_cut_short_is_named(form, length):
    with pytest.raises(CorruptFileError) as refused:
        read_all(*damaged(form, lambda data: data[:length]))
    assert refused.value.facts["file"].endswith(f"-0.{form}")


@pytest.mark.parametrize("form", ["avro", "orc"])
@pytest.mark.parametrize("junk", [b"\x00", b"\xff", b"PAR1", b"Obj\x01", b"ORC"])
def test_a_file_of_something_else_is_named(form, junk):
    with pytest.raises(CorruptFileError) as refused:
        read_all(*damaged(form, lambda _: junk * 200))
    assert refused.value.facts["file"].endswith(f"-0.{form}")


def flipped(data, at):
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_an_avro_bit_flip_is_noticed_or_harmless():
    for at in range(0, 12_000, 97):
        disk, meta, of = damaged("avro", lambda data, at=at: flipped(data, at))
        try:
            assert read_all(disk, meta, of).num_rows == 3000
        except (CorruptFileError, UnsupportedError) as refused:
            assert refused.facts["file"].endswith(".avro")  # noqa: PT017


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_another_count_of_rows_is_refused(form):
    disk, meta, of = damaged(form, lambda data: data)
    with pytest.raises(CorruptFileError, match="rows its manifest entry counts"):
        read_back(disk, replace(meta, row_count=2999), of)
