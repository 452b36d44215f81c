"""Tables whose files are of several formats, and tables of nested columns, from end to end."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError, UnsupportedError

FORMATS = ("parquet", "avro", "orc")
INNER = pa.struct([("x", pa.int32()), ("t", pa.timestamp("us"))])
NESTED = pa.schema(
    [
        ("k", pa.int32()),
        ("a", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("mi", pa.map_(pa.int32(), pa.list_(pa.decimal128(10, 2)))),
        ("r", INNER),
        ("aa", pa.list_(pa.list_(pa.int64()))),
        ("ar", pa.list_(INNER)),
        ("mr", pa.map_(pa.string(), INNER)),
        ("deep", pa.struct([("l", pa.list_(pa.date32())), ("m", pa.map_(pa.date32(), pa.bool_()))])),
    ]
)  # fmt: skip
NOON = dt.datetime(2024, 1, 1, 12, 0, 0, 123456)  # noqa: DTZ001
DAY = dt.date(1960, 1, 1)


def nested_row(key, turn):
    """A row that is full, of empty things, or null, by turns."""
    inner = {"x": turn, "t": NOON}
    full = {
        "a": ["x", None, str(turn)],
        "m": [("p", turn), ("q", None)],
        "mi": [(turn, [Decimal("1.25"), None]), (turn + 1, None), (turn + 2, [])],
        "r": inner,
        "aa": [[turn], None, [], [None]],
        "ar": [inner, None, {"x": None, "t": NOON}],
        "mr": [("z", inner), ("n", None)],
        "deep": {"l": [DAY, None], "m": [(DAY, None)]},
    }
    empty = {name: [] for name in full} | {
        "r": {"x": None, "t": None},
        "deep": {"l": [], "m": None},
    }
    return {"k": key} | (full, empty, dict.fromkeys(full))[(key + turn) % 3]


def create(tmp_path, schema, **options):
    with lsm.open_catalog(f"sqlite:///{tmp_path / 'c.db'}", warehouse=str(tmp_path)) as catalog:
        catalog.create_database("db")
        made = catalog.create_table("db.t", schema, primary_key=["k"], options=options)
        return lsm.open_table(made.location)


def put(table, schema, made):
    table.upsert(pa.Table.from_pylist(made, schema=schema))


def by_key(table):
    return {row["k"]: row for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.parametrize("form", FORMATS)
def test_nested_columns_live_like_others(form, tmp_path):
    options = {"file.format": form, "bucket": "2", "num-sorted-run.compaction-trigger": "3"}
    table = create(tmp_path, NESTED, **options)
    model = {}
    for turn in range(4):
        made = [nested_row(key, turn) for key in range(turn, 30 + turn)]
        model |= {row["k"]: row for row in made}
        put(table, NESTED, made)
    table.delete(pa.table({"k": pa.array([3], pa.int32())}))
    del model[3]
    assert by_key(table) == model
    table.compact()
    assert by_key(table) == model
    table.compact(full=True)
    assert by_key(table) == model
    nulls = table.scan(columns=["k"], where=pc.field("r").is_null()).to_arrow().column("k")
    assert set(nulls.to_pylist()) == {key for key, row in model.items() if row["r"] is None}
    assert table.verify().problems == ()


KV = pa.schema([("k", pa.int32()), ("v", pa.string()), ("x", pa.float64())])


def numbers(keys, mark):
    return [{"k": key, "v": f"{mark}{key}" if key % 5 else None, "x": key / 4} for key in keys]


def parquet_ids(kind, field_id, into, path):
    """Collect the field ids of an Arrow type that was read from Parquet, by path."""
    into[path] = field_id
    is_map = pa.types.is_map(kind)
    members = (
        (kind.key_field, kind.item_field) if is_map else map(kind.field, range(kind.num_fields))
    )
    for member in members:
        number = int((member.metadata or {}).get(b"PARQUET:field_id", -1))
        parquet_ids(member.type, number, into, f"{path}.{member.name}")


def test_members_of_lists_and_maps_have_the_field_ids_that_java_gives_them(tmp_path):
    table = create(tmp_path, NESTED, bucket="1")
    put(table, NESTED, [nested_row(0, 0)])
    (file,) = [path for path in tmp_path.rglob("*.parquet") if "bucket-0" in str(path)]
    schema = pq.ParquetFile(file).schema_arrow
    ids: dict[str, int] = {}
    for field in schema:
        parquet_ids(field.type, int(field.metadata[b"PARQUET:field_id"]), ids, field.name)
    base = 536870911  # SpecialFields.STRUCTURED_TYPE_FIELD_ID_BASE
    column = {field.name: field.id for field in table.schema.fields}
    member = 1024
    expected = {
        "a.element": base + column["a"] * member + 1,
        "m.key": base - column["m"] * member - 1,
        "m.value": base + column["m"] * member + 1,
        "mi.value.element": base + column["mi"] * member + 2,
        "aa.element": base + column["aa"] * member + 1,
        "aa.element.element": base + column["aa"] * member + 2,
        "mr.key": base - column["mr"] * member - 1,
    }
    assert {path: ids[path] for path in expected} == expected
    by_name = {field.name: field.id for field in table.schema.field("deep").type.fields}
    assert ids["deep.l"] == by_name["l"]
    assert ids["deep.l.element"] == base + by_name["l"] * member + 1  # counted from its own field
    assert ids["deep.m.key"] == base - by_name["m"] * member - 1
    assert -1 not in ids.values()
    assert len(set(ids.values())) == len(ids)


def test_files_of_all_formats_merge_in_one_bucket(tmp_path):
    table = create(tmp_path, KV, **{"bucket": "1", "write-only": "true"})
    model = {}
    for turn, form in enumerate([*FORMATS, "avro"]):
        table.alter(lsm.SetOption(key="file.format", value=form))
        made = numbers(range(turn * 10, turn * 10 + 25), form)
        model |= {row["k"]: row for row in made}
        put(table, KV, made)
    stored = {path.suffix for path in tmp_path.rglob("bucket-0/*")}
    assert stored == {".parquet", ".avro", ".orc"}
    assert by_key(table) == model
    where = (pc.field("k") > 20) & (pc.field("x") < 10.0)
    got = {row["k"] for row in table.scan(where=where).to_arrow().to_pylist()}
    assert got == {key for key, row in model.items() if key > 20 and row["x"] < 10}
    table.compact(full=True)
    assert by_key(table) == model


def test_each_level_has_its_format(tmp_path):
    options = {"bucket": "1", "file.format": "orc", "file.format.per.level": "0:avro"}
    table = create(tmp_path, KV, **options)
    for turn in range(3):
        put(table, KV, numbers(range(10), str(turn)))
    before = {path.suffix for path in tmp_path.rglob("bucket-0/*")}
    table.compact(full=True)
    assert before == {".avro"}
    assert {path.suffix for path in tmp_path.rglob("bucket-0/*")} == {".avro", ".orc"}
    assert by_key(table) == {row["k"]: row for row in numbers(range(10), "2")}


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_file_is_named_by_the_scan(form, tmp_path):
    table = create(tmp_path, KV, **{"bucket": "1", "file.format": form})
    put(table, KV, numbers(range(100), "a"))
    (path,) = tmp_path.rglob("bucket-0/*")
    path.write_bytes(b"\x00" * path.stat().st_size)
    with pytest.raises(CorruptFileError) as refused:
        table.scan().to_arrow()
    assert refused.value.facts["file"].endswith(path.name)


@pytest.mark.parametrize("kind", ["sort", "hash"])
@pytest.mark.parametrize("more", [{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}, {"merge-engine": "partial-update"}], ids=str)  # fmt: skip
def test_rows_with_arrays_are_looked_up_whatever_the_lookup_files(kind, more, tmp_path):
    """Lookups of a table that had taken the option were refused, as were those that compactions make."""
    schema = pa.schema([("k", pa.int32()), ("a", pa.list_(pa.int32()))])
    table = create(tmp_path, schema, **{"bucket": "1", "lookup.local-file-type": kind, **more})
    for turn in range(3):
        put(table, schema, [{"k": key, "a": [key, turn]} for key in range(turn, 5)])
    found = table.lookup([{"k": 0}, {"k": 4}, {"k": 9}]).column("a").to_pylist()
    assert found == [[0, 0], [4, 2], None]
    assert table.locate([{"k": 2}]).num_rows == 1


def test_what_a_format_cannot_hold_is_refused_when_the_table_is_made(tmp_path):
    schema = pa.schema([("k", pa.int32()), ("t", pa.timestamp("ns"))])
    with pytest.raises(UnsupportedError, match="'t'"):
        create(tmp_path, schema, **{"file.format": "avro"})
