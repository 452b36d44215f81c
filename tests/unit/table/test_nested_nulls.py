"""NOT NULL inside nested columns: kept where there is a structure, and no matter where there is none."""

from decimal import Decimal

import pyarrow as pa
import pytest

import lsm_engine as lsm

COLUMNS = {
    "k": "INT",
    "n": "STRUCT<a: INT NOT NULL, b: INT>",
    "l": "ARRAY<INT NOT NULL>",
    "s": "ARRAY<STRUCT<a: STRING NOT NULL, t: TIMESTAMP_LTZ(3) NOT NULL>>",
    "m": "MAP<STRING, DECIMAL(10, 2) NOT NULL>",
    "deep": "ROW<x ROW<y ROW<z DATE NOT NULL, w ARRAY<INT NOT NULL> NOT NULL, v MAP<INT, INT> NOT NULL>"
    " NOT NULL, u INT>>",
    "d": "ARRAY<DECIMAL(10, 2)>",
    "r": "ROW<d DECIMAL(10, 2), e ARRAY<DECIMAL(38, 2)>>",
}


@pytest.fixture(params=["parquet", "orc", "avro"])
def table(tmp_path, request):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        options = {"file.format": request.param, "write-only": "true"}
        yield catalog.create_table("a.b", COLUMNS, primary_key="k", options=options)


WRONG = [
    ({"n": {"b": 1}}, "n.a"),
    ({"n": {"a": None}}, "n.a"),
    ({"l": [None]}, "l.element"),
    ({"l": [1, None]}, "l.element"),
    ({"s": [None, {"a": "x"}]}, "s.element.t"),
    ({"m": {"a": None}}, "m.value"),
    ({"deep": {"x": {"u": 1}}}, "deep.x.y"),
]


@pytest.mark.parametrize(("given", "path"), WRONG)
def test_a_null_where_none_may_be_is_refused_by_its_path(given, path, table):
    kinds = pa.schema([table.schema.arrow.field(name) for name in ("k", *given)])
    loose = pa.schema([(field.name, _nullable(field.type)) for field in kinds])
    for rows in ([{"k": 1, **given}], pa.Table.from_pylist([{"k": 1, **given}], schema=loose)):
        with pytest.raises(lsm.InvalidInputError, match="may not be null") as wrong:
            table.upsert(rows)
        assert wrong.value.facts["column"] == path
    assert table.latest_snapshot() is None


def _nullable(kind):
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _nullable(field.type)) for field in kind])
    return pa.list_(_nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def test_nothing_is_missing_in_a_structure_that_is_not_there(table):
    table.upsert([{"k": 1}, {"k": 2, "n": {"a": 5}, "s": [None], "deep": {"x": None}}])
    table.upsert([{"k": 3, "n": None, "l": [], "m": {}}, {"k": 4, "deep": None, "l": [1, 2]}])
    table.upsert(pa.table({"k": pa.array([5, 6], pa.int32()), "n": pa.nulls(2), "s": pa.nulls(2)}))
    typed = pa.Table.from_pylist([{"k": 7, "s": [None]}, {"k": 8}], schema=table.schema.arrow)
    table.upsert(typed.slice(1))
    table.upsert(typed.slice(0, 1))
    for _ in range(2):
        rows = table.scan().to_arrow().sort_by("k").to_pylist()
        given = [{k: v for k, v in row.items() if v is not None} for row in rows]
        assert given == [
            {"k": 1},
            {"k": 2, "n": {"a": 5, "b": None}, "s": [None], "deep": {"x": None}},
            {"k": 3, "l": [], "m": []},
            {"k": 4, "l": [1, 2]},
            *({"k": k} for k in (5, 6)),
            {"k": 7, "s": [None]},
            {"k": 8},
        ]
        table.compact(full=True)


def test_whole_numbers_fit_nested_decimals(table):
    table.upsert([{"k": 1, "d": [1, 2, None], "r": {"d": 3, "e": [4]}, "m": {"a": 5}}])
    (row,) = table.scan(["d", "r", "m"]).to_arrow().to_pylist()
    assert row["d"] == [Decimal("1.00"), Decimal("2.00"), None]
    assert row["r"] == {"d": Decimal("3.00"), "e": [Decimal("4.00")]}
    assert row["m"] == [("a", Decimal("5.00"))]
    with pytest.raises(lsm.InvalidInputError, match="'d' has values that do not fit"):
        table.upsert([{"k": 1, "d": [10**9]}])


def test_a_column_added_later_is_missing_in_older_rows(table):
    table.upsert([{"k": 1}])
    table.alter(lsm.AddColumn("more", "ROW<a INT NOT NULL, b ROW<c STRING NOT NULL> NOT NULL>"))
    table.upsert([{"k": 2, "more": {"a": 1, "b": {"c": "x"}}}])
    for _ in range(2):
        rows = table.scan(["more"]).to_arrow().to_pylist()
        assert rows == [{"more": None}, {"more": {"a": 1, "b": {"c": "x"}}}]
        table.compact(full=True)


def test_partial_updates_leave_structures_missing(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        options = {"merge-engine": "partial-update", "write-only": "true"}
        table = catalog.create_table("a.b", COLUMNS, primary_key="k", options=options)
        table.upsert([{"k": 1, "l": [1]}, {"k": 2, "l": [2]}, {"k": 3}])
        table.upsert([{"k": 1, "n": {"a": 1}}, {"k": 2}])
        table.compact(full=True)
        rows = table.scan(["k", "n", "l"]).to_arrow().sort_by("k").to_pylist()
        assert rows == [
            {"k": 1, "n": {"a": 1, "b": None}, "l": [1]},
            {"k": 2, "n": None, "l": [2]},
            {"k": 3, "n": None, "l": None},
        ]
