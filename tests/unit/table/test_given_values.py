"""Values, types and names as people give them: taken as they are, or refused; never another value."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.table import incoming

NESTED = {
    "id": int,
    "place": "ROW<city STRING, at ROW<lat DOUBLE, lon DOUBLE>>",
    "parts": "array<struct<sku: string, n: int>>",
    "marks": "MAP<STRING, INT>",
    "paid": "DECIMAL(15, 2)",
    "n": "INT",
    "made": "TIMESTAMP(6)",
    "seen": "timestamptz",
}


@pytest.fixture
def table(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.b", NESTED, primary_key="id")
        made.upsert([{"id": 1, "place": {"city": "Bern"}, "n": 1, "paid": Decimal("1.01")}])
        yield made


def test_numbers_of_other_libraries_count_as_pythons(table):
    for n in range(2, 6):
        table.upsert([{"id": n, "n": n, "paid": Decimal("1.01")}])
    asked = {"retain_min": np.int64(1), "retain_max": np.uint8(9), "older_than": "1 d"}
    assert not table.expire_snapshots(np.True_, **asked).plan.expired
    assert table.scan(limit=np.uint8(1)).count() == table.scan(snapshot_id=1.0).count() == 1
    table.upsert([{"id": 9, "n": 9, "paid": Decimal("1.01")}], commit_identifier=np.int64(7))
    newest = table.latest_snapshot()
    assert newest.commit_identifier == 7
    later = newest.time_millis + 0.25
    assert table.scan(as_of_millis=later).snapshot == newest
    assert table.changelog(after_millis=later).num_rows == 0
    assert table.follow("latest", poll_millis=0.5).position == newest.id + 1
    for wrong in (1.5, True, "1"):
        with pytest.raises(lsm.InvalidInputError, match="whole number"):
            table.scan(snapshot_id=wrong)


def test_lineage_takes_the_name_of_a_table_as_text(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.b", {"id": int}, primary_key="id")
        made.upsert([{"id": 1}])
        lineage = catalog.lineage
        assert lineage.snapshots("a.b")["snapshot_id"].to_pylist() == [1]
        assert lineage.files_of_snapshot("a.b", np.int64(1)).num_rows == 1
        for wrong in ("b", 5):
            with pytest.raises(lsm.InvalidInputError, match=r"database\.table|table is"):
                lineage.snapshots(wrong)
        with pytest.raises(TypeError, match="snapshot_id"):
            lineage.downstream_of("a.b")


UNKNOWN_FIELDS = [
    ({"place": {"town": "Bern"}}, "place.town"),
    ({"place": {"at": {"height": 1.0}}}, "place.at.height"),
    ({"parts": [{"sku": "a", "count": 1}]}, "parts.element.count"),
]


@pytest.mark.parametrize(("given", "named"), UNKNOWN_FIELDS)
def test_a_nested_field_that_the_table_has_not_is_refused(given, named, table):
    acts = (
        lambda: table.upsert([{"id": 1, **given}]),
        lambda: table.upsert(pa.Table.from_pylist([{"id": 1, **given}])),
        lambda: table.insert([{"id": 2, **given}]),
        lambda: table.overwrite([{"id": 1, **given}]),
        lambda: table.update(set=given),
        lambda: table.merge([{"id": 1, **given}]).when_matched_update_all().execute(),
        lambda: table.merge([{"id": 9, **given}]).when_not_matched_insert_all().execute(),
    )
    for act in acts:
        with pytest.raises(lsm.InvalidInputError, match="has no field") as wrong:
            act()
        assert wrong.value.facts["column"] == named
    assert table.latest_snapshot().id == 1


def test_nested_values_of_another_type_are_refused(table):
    for given in ({"place": {"city": 5}}, {"parts": [{"n": "1"}]}, {"parts": [{"n": 1.5}]},
                  {"parts": {"n": 1}}, {"marks": {"a": 1.5}}, {"marks": {1: 1}}):  # fmt: skip
        with pytest.raises(lsm.InvalidInputError, match="takes"):
            table.upsert([{"id": 1, **given}])
    with pytest.raises(lsm.InvalidInputError, match="do not fit"):
        table.upsert([{"id": 1, "marks": {"a": 2**40}}])
    assert table.latest_snapshot().id == 1


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": n, "marks": marks} for n, marks in enumerate(({"a": 1, "b": None}, None, {}, {"c": 3}))],
        [{"id": n, "marks": m} for n, m in enumerate(([("a", 1), ("b", None)], None, [], [("c", 3)]))],
        pl.DataFrame({"id": range(4), "marks": [
            [{"key": "a", "value": 1}, {"key": "b", "value": None}], None, [], [{"key": "c", "value": 3}]]}),
    ],
)  # fmt: skip
def test_maps_are_given_as_dictionaries_pairs_or_lists_of_structures(rows, table):
    table.upsert(rows)
    table.upsert(rows[2:] if isinstance(rows, list) else rows.slice(2))
    found = [
        None if row is None else dict(row) for row in table.to_arrow("marks")["marks"].to_pylist()
    ]
    assert found == [{"a": 1, "b": None}, None, {}, {"c": 3}]
    table.update(set={"marks": {"z": 9}}, where="id = 0")
    assert table.lookup([{"id": 0}])["marks"].to_pylist() == [[("z", 9)]]


NO_MAPS = ["", 0, False, 7, "ab", ["ab", "cd"], [("a", 1, "c")], [("a",)], {"a"}, [{"key": "a"}],
           [{"key": "a", "value": 1, "more": 2}], [5]]  # fmt: skip


@pytest.mark.parametrize("given", NO_MAPS)
def test_what_is_no_map_is_refused(given, table):
    with pytest.raises(lsm.InvalidInputError, match="column 'marks' takes maps"):
        table.upsert([{"id": 1, "marks": {"a": 1}}, {"id": 2, "marks": given}])
    with pytest.raises(lsm.InvalidInputError):  # text is an expression there
        table.update(set={"marks": given})
    assert table.latest_snapshot().id == 1


def test_a_key_of_a_map_comes_once(table):
    for twice in ([("a", 1), ("a", 2)], [{"key": "a", "value": 1}, ["a", 1]]):
        with pytest.raises(lsm.InvalidInputError, match="'marks' has a key twice"):
            table.upsert([{"id": 2, "marks": twice}])
    table.upsert([{"id": 2, "marks": [{"key": "a", "value": 1}, ["b", None]]}])
    assert table.scan(["marks"], where="id = 2").to_arrow().to_pylist()[0]["marks"] == [
        ("a", 1),
        ("b", None),
    ]


def test_times_with_and_without_a_zone_are_not_mixed(table):
    aware = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    naive = aware.replace(tzinfo=None)
    for name in ("made", "seen"):
        for pair in ((aware, naive), (naive, aware)):
            with pytest.raises(lsm.InvalidInputError, match=f"{name!r} has times with a time zone"):
                table.upsert([{"id": n, name: value} for n, value in enumerate(pair)])
    table.alter(
        lsm.AddColumn("days", "ARRAY<TIMESTAMP_LTZ(6)>"),
        lsm.AddColumn("span", "ROW<made TIMESTAMP(6), seen TIMESTAMP_LTZ(6)>"),
    )
    with pytest.raises(lsm.InvalidInputError, match="'days' has times with a time zone"):
        table.upsert([{"id": 2, "days": [aware, naive]}])
    with pytest.raises(lsm.InvalidInputError, match=r"'span\.seen' has times with a time zone"):
        table.upsert([{"id": n, "span": {"seen": v}} for n, v in enumerate((aware, naive))])
    table.upsert(
        [
            {"id": 2, "made": naive, "seen": aware, "span": {"made": naive, "seen": aware}},
            {"id": 3, "made": None, "seen": aware.astimezone(dt.UTC)},
        ]
    )
    rows = table.scan(where="id > 1").to_arrow().sort_by("id").to_pylist()
    assert [row["seen"] for row in rows] == [aware, aware]
    assert rows[0]["span"] == {"made": naive, "seen": aware}


def test_whole_numbers_fit_decimals(table):
    table.upsert([{"id": 1, "paid": 12}])
    assert table.lookup([{"id": 1}])["paid"].to_pylist() == [Decimal("12.00")]
    with pytest.raises(lsm.InvalidInputError, match="do not fit"):
        table.upsert([{"id": 1, "paid": 10**14}])
    with pytest.raises(lsm.InvalidInputError, match=r"Decimal\('12\.50'\)"):
        table.upsert([{"id": 1, "paid": 12.5}])


def test_a_value_to_set_is_checked_as_a_row_is(table):
    zoned = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    for given, message in (
        ({"n": 1.7}, "takes int32"),
        ({"paid": 5.25}, "Decimal"),
        ({"paid": Decimal("5.255")}, "do not fit"),
        ({"made": zoned}, "take its time zone away"),
        ({"seen": zoned.replace(tzinfo=None)}, "give it a time zone"),
        ({"n": "nothing"}, "quotes of its own"),
        ({"n": len}, "to a plain value, not to <built-in function len>"),
    ):
        with pytest.raises(lsm.InvalidInputError, match=message):
            table.update(set=given)
    with pytest.raises(lsm.InvalidInputError, match="a filter is"):
        table.delete(where=len)
    table.update(set={"paid": "paid * 1.5", "n": 7, "seen": zoned, "made": None})
    (row,) = table.to_arrow(["paid", "n", "seen"]).to_pylist()
    assert row == {"paid": Decimal("1.52"), "n": 7, "seen": zoned}  # 1.515, rounded as SQL assigns


def test_a_merge_that_no_row_gets_to_is_checked_all_the_same(table):
    absent = [{"id": 77}]
    for merge in (
        table.merge(absent).when_matched_update({"n": "source.nothing"}),
        table.merge(absent).when_matched_delete("source.nothing > 1"),
        table.merge(absent).when_not_matched_by_source_update({"n": "nothing"}),
        table.merge([{"id": 1}]).when_not_matched_insert({"id": "nothing"}),
        table.merge([{"id": 77, "paid": 1.5}]).when_matched_update_all(),
    ):
        with pytest.raises(lsm.InvalidInputError):
            merge.execute()
    with pytest.raises(lsm.InvalidInputError):
        table.update(set={"n": "nothing"}, where="id = 77")
    assert table.latest_snapshot().id == 1


def test_a_new_table_has_the_types_that_were_declared(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        short = list.__class_getitem__("VARCHAR(3)")
        columns = {"id": "INT", "c": "varchar(3) NOT NULL", "b": "binary", "v": "VARCHAR"}
        made = catalog.create_table("a.b", columns, primary_key="id")
        kinds = [lsm.type_text(field.type) for field in made.schema.fields]
        assert kinds == ["INT NOT NULL", "VARCHAR(3) NOT NULL", "BYTES", "STRING"]
        with pytest.raises(lsm.InvalidInputError, match="longer than 3"):
            made.upsert([{"id": 1, "c": "four"}])
        for kind in ("ARRAY<TIMESTAMP(5)>", "TIMESTAMP(5)", short):
            with pytest.raises(lsm.UnsupportedError, match="column 'd' would become"):
                catalog.create_table("a.c", {"id": "INT", "d": kind}, primary_key="id")


@pytest.mark.parametrize("nothing", [[], pa.table({}), pd.DataFrame(), pl.DataFrame()])
def test_frames_of_nothing_write_nothing(nothing, table):
    assert table.upsert(nothing) is None
    assert table.delete(nothing) is None
    assert len(table) == 1


@pytest.mark.parametrize("rows", [[{}], pd.DataFrame(index=range(3))])
def test_rows_without_columns_are_refused(rows, table):
    with pytest.raises(lsm.InvalidInputError):
        table.upsert(rows)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("array<int>", pa.list_(pa.int32())),
        ("INT[]", pa.list_(pa.int32())),
        ("map<string, array<bigint>>", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("struct<a:int, `b c`: text>", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
        ("ROW<a TIMESTAMP(3)>", pa.struct([("a", pa.timestamp("ms"))])),
        ("text", pa.string()),
        ("long", pa.int64()),
        ("int64", pa.int64()),
        ("timestamp[us]", pa.timestamp("us")),
        (list[str], pa.list_(pa.string())),
        (dict[str, int], pa.map_(pa.string(), pa.int64())),
        (np.int32, pa.int32()),
        (np.dtype("datetime64[us]"), pa.timestamp("us")),
        (pl.Int16, pa.int16()),
        (pl.List(pl.Datetime("us", "UTC")), pa.list_(pa.timestamp("us", "UTC"))),
    ],
)
def test_types_are_given_as_they_are_elsewhere(given, made, table):
    table.alter(lsm.AddColumn("x", given))
    added = table.schema.arrow.field("x").type
    assert str(added).replace("element", "item") == str(made)


@pytest.mark.parametrize("given", ["nope", "array<>", "struct<a>", object, np.dtype(object), dict])
def test_what_is_no_type_is_refused(given, table):
    with pytest.raises(lsm.LsmError):
        table.alter(lsm.AddColumn("x", given))


def test_names_with_blanks_and_words_of_sql_are_quoted_either_way(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        odd = catalog.create_table(
            "a.b", {"id": int, "temp °C": float, "select": int}, primary_key="id"
        )
    odd.upsert([{"id": 1, "temp °C": 1.5, "select": 3}, {"id": 2, "temp °C": 9.0, "select": 4}])
    for where in ('"temp °C" > 2', "`temp °C` > 2 and `select` = 4", lsm.col("temp °C") > 2):
        assert odd.to_arrow("id", where=where)["id"].to_pylist() == [2]
    odd.update(set={"temp °C": "`temp °C` + 1"}, where="`select` = 3")
    assert odd.lookup([{"id": 1}])["temp °C"].to_pylist() == [2.5]
    for text, hint in (("select > 1", "double quotes"), ("WHERE id = 1", "leave out WHERE")):
        with pytest.raises(lsm.InvalidInputError, match=hint):
            odd.scan(where=text)


def test_a_nested_field_in_a_filter_says_how_to_ask(table):
    for where in ("place.city = 'Bern'", lsm.col("place.city") == "Bern"):
        with pytest.raises(lsm.InvalidInputError, match=r"pc\.field\('"):
            table.scan(where=where)


def test_ages_are_time_deltas_as_well(table):
    assert table.expire_snapshots(older_than=dt.timedelta(days=7)).plan.expired == ()
    assert table.remove_orphan_files(older_than=dt.timedelta(days=2)).dry_run
    for wrong in (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 7, "a while"):
        with pytest.raises(lsm.InvalidInputError, match="timedelta"):
            table.expire_snapshots(older_than=wrong)


@pytest.mark.parametrize(
    ("typed", "error", "instead"),
    [
        ("t.head('3')", lsm.InvalidInputError, "whole number"),
        ("t.scan(limit=True + 0.5)", lsm.InvalidInputError, "whole number"),
        ("t.scan(version=1.5)", lsm.InvalidInputError, "version is a whole number"),
        ("t.upsert(pl.Series([1]))", lsm.InvalidInputError, "to_frame"),
        ("t.query('n > 1')", lsm.InvalidInputError, "where="),
        ("t.update(set='n = 1')", lsm.InvalidInputError, "name: value"),
        ("t.upsert([], on='id')", TypeError, "'on'"),
        ("t.compact(target_size=1)", TypeError, "target_size"),
        ("t.explain_key([{'id': 1}])", lsm.InvalidInputError, "key is a mapping"),
        ("c['a', 'b']", lsm.InvalidInputError, "name is text"),
        ("c.create_table(('a', 'x'), {'id': int})", lsm.InvalidInputError, "name is text"),
        ("c.drop_table('a.x', if_exists=True)", TypeError, "if_exists"),
        ("lsm.open_catalog({'warehouse': 'lake'})", lsm.InvalidInputError, "url is text or a path"),
        ("lsm.open_catalog('lake', storage_options={})", TypeError, "storage_options"),
        ("lsm.open_table(t)", lsm.InvalidInputError, "path"),
        ("lsm.Schema", AttributeError, "pyarrow.Schema"),
    ],
)
def test_what_is_nearly_right_says_what_to_type(typed, error, instead, table, tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog, pytest.raises(error, match=instead):
        eval(typed, {"t": table, "c": catalog, "lsm": lsm, "pl": pl})


def test_a_path_and_a_key_by_its_place_are_taken(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        made = catalog.create_table("a.b", {"id": int}, "id")
    assert lsm.open_table(Path(made.location)).schema.primary_keys == ("id",)


def test_results_and_schemas_show_what_a_person_looks_for(table):
    result = table.upsert([{"id": 2}])
    assert repr(result).startswith("<WriteResult 2: upsert at 2")
    assert "1 row written" in repr(table.latest_snapshot())
    assert "id BIGINT NOT NULL" in repr(table.schema)
    assert repr(table.schema).endswith("; key id>")


DOUBLED = (
    "ROW<a INT NOT NULL, a INT>",
    "ARRAY<ROW<b INT, b STRING>>",
    "MAP<STRING, ROW<c ROW<d INT, d INT>>>",
)


@pytest.mark.parametrize("kind", DOUBLED)
def test_two_fields_of_one_name_are_refused_in_a_column(kind, table, tmp_path):
    with pytest.raises(lsm.InvalidInputError, match="share a name"):
        table.alter(lsm.AddColumn("x", kind))
    shared = pytest.raises(lsm.InvalidInputError, match="share a name")
    with lsm.open_catalog(tmp_path / "lake") as catalog, shared:
        catalog.create_table("a.doubled", {"id": "INT", "x": kind}, primary_key="id")
    assert "x" not in table.schema.names


def test_two_given_fields_of_one_name_are_refused(table):
    table.alter(lsm.AddColumn("s", "ROW<a BIGINT, b BIGINT>"))
    doubled = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    rows = pa.table({"id": [5], "s": doubled})
    with pytest.raises(lsm.InvalidInputError, match="share a name"):
        table.upsert(rows)


@pytest.mark.parametrize(
    "kind",
    [
        "DECIMAL(50, 2)", "DECIMAL(5, 9)", "DECIMAL(0)", "VARCHAR(0)", "CHAR(0)", "BIGINT(20)", "STRING(10)",
        "TIMESTAMP(12)", "BOOLEAN(1)", "ARRAY<DECIMAL(39, 1)>", "ROW<a VARBINARY(0)>", "MAP<INT, INT(3)>",
    ],
)  # fmt: skip
def test_types_that_no_table_can_hold_are_refused(kind, table, tmp_path):
    before = table.schema
    with pytest.raises(lsm.InvalidInputError, match="is not a column type"):
        table.alter(lsm.AddColumn("x", kind))
    with pytest.raises(lsm.InvalidInputError, match="is not a column type"):
        lsm.columns_of_text(f"x {kind}")
    refused = pytest.raises(lsm.InvalidInputError, match="is not a column type")
    with lsm.open_catalog(tmp_path / "lake") as catalog, refused:
        catalog.create_table("a.c", {"id": "INT", "x": kind}, primary_key="id")
    assert table.session.schemas.latest() == before


def test_values_without_times_are_not_looked_at_one_by_one(monkeypatch):
    looked_at = []
    monkeypatch.setattr(incoming, "_check_zones", lambda column, values: looked_at.append(column))
    incoming.values_array("s", [{"a": [1, 2], "b": {"c": "x"}}])
    assert looked_at == []
    noon = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)
    incoming.values_array("t", [{"a": [{"b": noon}]}])
    assert looked_at == ["t"]


NESTED_LENGTHS = {
    "a": ("ARRAY<VARCHAR(3)>", ["abc", None, "éßü"], ["abcd"]),
    "m": ("MAP<CHAR(2), VARBINARY(2)>", {"kk": b"xy"}, {"kk": b"xyz"}),
    "r": ("ROW<b VARCHAR(3), c ROW<d CHAR(1)>>", {"b": "abc", "c": {"d": "x"}}, {"c": {"d": "xy"}}),
    "deep": ("ARRAY<ROW<e ARRAY<BINARY(2)>>>", [{"e": [b"xy"]}, None], [{"e": [b"x", b"xyz"]}]),
}


@pytest.mark.parametrize("way", ["create", "alter"])
def test_lengths_within_columns_are_kept_and_hold_for_rows(way, table, tmp_path):
    kinds = {name: kind for name, (kind, _, _) in NESTED_LENGTHS.items()}
    if way == "create":
        with lsm.open_catalog(tmp_path / "lake") as catalog:
            table = catalog.create_table("a.lengths", {"id": "INT", **kinds}, primary_key="id")
    else:
        table.alter(*(lsm.AddColumn(name, kind) for name, kind in kinds.items()))
    found = {name: lsm.type_text(table.schema.field(name).type) for name in kinds}
    assert {name: text.replace(" NOT NULL", "") for name, text in found.items()} == kinds
    fits = {name: value for name, (_, value, _) in NESTED_LENGTHS.items()}
    table.upsert([{"id": 7, **fits}, {"id": 8}])
    row = next(row for row in table.to_arrow().to_pylist() if row["id"] == 7)
    assert {name: dict(row[name]) if name == "m" else row[name] for name in fits} == fits
    before = table.latest_snapshot()
    for name, (_, _, long) in NESTED_LENGTHS.items():
        with pytest.raises(lsm.InvalidInputError, match=rf"column '{name}\..*longer than"):
            table.upsert([{"id": 9, name: long}])
    sliced = pa.table(
        {
            "id": [1, 2],
            "m": pa.array([[("k", b"xyz")], [("k", b"x")]], table.schema.arrow.field("m").type),
        }
    )
    table.upsert(sliced.slice(1))
    assert table.latest_snapshot().id == before.id + 1
