"""System tables: what they say agrees with the files, and a filter on them is a filter afterwards."""

import json
import operator
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.api.catalog_tables import CATALOG_TABLES
from lsm_engine.inspect import system_tables
from lsm_engine.inspect.system_tables import TABLES

COLUMNS = pa.schema(
    [("dt", pa.date32()), ("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())]
)
# What tables tell at a glance; those of rows (audit_log, ro, …) have tests of their own.
NAMES = sorted(
    set(TABLES)
    & {
        "snapshots", "schemas", "options", "files", "file_key_ranges", "file_indexes", "partitions",
        "buckets", "manifests", "manifest_lists", "tags", "branches", "consumers", "statistics",
        "aggregation_fields", "compactions",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    root = tmp_path_factory.mktemp("system")
    with lsm.open_catalog(f"sqlite:///{root}/c.db", warehouse=str(root)) as opened:
        table = opened.create_table(
            "db.sums",
            COLUMNS,
            primary_key=["dt", "id"],
            partitioned_by=["dt"],
            options={
                "bucket": 2,
                "merge-engine": "aggregation",
                "fields.n.aggregate-function": "sum",
                "fields.s.aggregate-function": "listagg",
                "fields.s.list-agg-delimiter": ";",
            },
            comment="for tests",
        )
        for at in range(6):
            table.upsert(
                pa.table(
                    {
                        "dt": pa.array([18_000 + key % 3 for key in range(9)], pa.date32()),
                        "id": list(range(9)),
                        "n": [at * key for key in range(9)],
                        "s": ["ab"[key % 2] if key % 4 else None for key in range(9)],
                    }
                )
            )
            if at % 2:
                table.compact()
        table.create_tag("one", 1)
        table.create_tag("three", 3, retained="7 d")
        opened.create_table("db.empty", COLUMNS, primary_key=["id"])
        yield opened


@pytest.fixture(scope="module")
def tables(catalog) -> dict[str, Callable[..., pa.Table]]:
    table = catalog.table("db.sums")
    found: dict[str, Callable[..., pa.Table]] = {}
    for name in NAMES:
        found[name] = lambda name=name, **how: table.system(name, **how)
    for name in CATALOG_TABLES:
        found[f"sys.{name}"] = lambda name=name, **how: catalog.system(name, **how)
    return found


OPERATORS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge,
}  # fmt: skip


@st.composite
def filters(
    draw: st.DrawFn, rows: pa.Table
) -> tuple[pc.Expression, Callable[[dict[str, Any]], Any]]:
    """A filter, and the same in Python: true, false or None for a row."""
    simple = [field for field in rows.schema if not pa.types.is_nested(field.type)]
    field = draw(st.sampled_from(simple))
    there = [value for value in rows.column(field.name).to_pylist() if value is not None]
    kind = draw(st.sampled_from(["null", "compare", "in"] if there else ["null"]))
    column = pc.field(field.name)
    if kind == "null":
        return column.is_null(), lambda row: row[field.name] is None
    if kind == "in":
        some = draw(st.lists(st.sampled_from(there), min_size=1, max_size=3))
        return column.isin(pa.array(some, field.type)), lambda row: row[field.name] in some
    sign = draw(
        st.sampled_from(sorted(OPERATORS if not pa.types.is_boolean(field.type) else ["=="]))
    )
    value = draw(st.sampled_from(there))
    compare = OPERATORS[sign]
    return (
        compare(column, pa.scalar(value, field.type)),
        lambda row: None if row[field.name] is None else compare(row[field.name], value),
    )


@given(data=st.data())
def test_a_filter_is_a_filter_afterwards(tables, data) -> None:
    name = data.draw(st.sampled_from(sorted(tables)))
    whole = tables[name]()
    one, mine = data.draw(filters(whole))
    other, theirs = data.draw(filters(whole))
    both = data.draw(st.booleans())
    where = (one & other) if both else (one | other)
    keeps = (lambda a, b: a and b) if both else (lambda a, b: a or b)
    expected = [row for row in whole.to_pylist() if keeps(mine(row), theirs(row))]
    assert tables[name](where=where).to_pylist() == expected
    columns = whole.schema.names[-2:]
    narrow = tables[name](where=where, columns=columns)
    assert narrow.to_pylist() == [{key: row[key] for key in columns} for row in expected]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_has_empty_system_tables_with_the_same_columns(
    catalog, tables, name
) -> None:
    empty = catalog.table("db.empty").system(name)
    assert empty.schema == tables[name]().schema
    if name not in ("schemas", "options", "aggregation_fields"):
        assert empty.num_rows == 0


def test_sums_agree_from_files_to_the_catalog(catalog) -> None:
    table = catalog.table("db.sums")
    files = table.system("files")
    for other in ("buckets", "partitions"):
        rows = table.system(other)
        for name, of_files in (
            ("record_count", pc.sum(files["record_count"]).as_py()),
            ("file_size_in_bytes", pc.sum(files["file_size_in_bytes"]).as_py()),
            ("file_count", files.num_rows),
        ):
            assert pc.sum(rows[name]).as_py() == of_files
    (row,) = catalog.system("tables", where=pc.field("table_name") == "sums").to_pylist()
    assert row["file_count"] == files.num_rows
    assert row["record_count"] == pc.sum(files["record_count"]).as_py()
    assert catalog.system("partitions").num_rows == table.system("partitions").num_rows == 3
    options = catalog.system("all_table_options", where=pc.field("table_name") == "sums")
    assert dict(zip(options["key"].to_pylist(), options["value"].to_pylist(), strict=True)) == dict(
        table.options.texts
    )


def test_statistics_are_json_in_the_names_of_each_files_own_schema(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(system_tables, "_SLICE", 2)  # files of one layout come in several slices
    columns = pa.schema([("k", pa.string()), ("day", pa.date32()), ("x", pa.binary()), ("b", pa.bool_()), ("f", pa.float64())])  # fmt: skip
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("db.t", columns, primary_key=["k"], options={"bucket": "1", "write-only": "true"})  # fmt: skip
        keys = [
            'a"0',
            "b1",
            "c\\2",
            "d\n3",
            "ü4",
        ]  # JSON escapes some, and of those of one slice not all
        for number, key in enumerate(keys):
            if number == 3:
                table = table.altering(lsm.RenameColumn("f", "g"))
            row = {"k": [key], "day": [date(2026, 1, number + 1)], "x": [b"\x01"], "b": [True], table.schema.names[-1]: [0.5]}  # fmt: skip
            table.upsert(pa.table(row).cast(table.scan().to_arrow().schema))
        rows = table.inspect.files().sort_by("min_key").to_pylist()
    for number, row in enumerate(rows):
        # Binary columns have no bounds.
        bounds = {"k": keys[number], "day": f"2026-01-0{number + 1}", "x": None, "b": True, "f" if number < 3 else "g": 0.5}  # fmt: skip
        assert row["min_key"] == row["max_key"] == keys[number]
        for name in ("min_value_stats", "max_value_stats"):
            assert row[name] == json.dumps(bounds, ensure_ascii=False)
        assert json.loads(row["null_value_counts"]) == dict.fromkeys(bounds, 0)


def test_files_tell_keys_and_statistics_by_name(catalog) -> None:
    table = catalog.table("db.sums")
    (row, *_) = table.system("files", where=pc.field("level") > 0).to_pylist()
    assert row["partition"].startswith("dt=")
    assert '"n"' in row["min_value_stats"]
    assert '"s"' in row["null_value_counts"]
    ranges = table.system("file_key_ranges").to_pylist()
    assert {(each["file_path"], each["min_key"]) for each in ranges} == {
        (each["file_path"], each["min_key"]) for each in table.system("files").to_pylist()
    }


def test_functions_of_columns_with_their_options(catalog) -> None:
    rows = catalog.table("db.sums").system("aggregation_fields").to_pylist()
    told = {row["field_name"]: (row["function"], row["function_options"]) for row in rows}
    assert told == {
        "dt": ("primary-key", None),
        "id": ("primary-key", None),
        "n": ("sum", None),
        "s": ("listagg", '{"list-agg-delimiter": ";"}'),
    }


def test_of_a_snapshot_or_a_tag(catalog) -> None:
    table = catalog.table("db.sums")
    assert table.system("files", tag="one") == table.system("files", 1)
    assert table.system("files", 1).num_rows < table.system("snapshots").num_rows * 6
    with pytest.raises(lsm.InvalidInputError):
        table.system("files", 1, tag="one")


def test_wrong_names_and_filters_are_named(catalog) -> None:
    table = catalog.table("db.sums")
    with pytest.raises(lsm.NotFoundError, match="buckets"):
        table.system("bucket")
    with pytest.raises(lsm.NotFoundError, match="all_table_options"):
        catalog.system("everything")
    with pytest.raises(lsm.LsmError, match="nothing"):
        table.system("files", where=pc.field("nothing") == 1)
    with pytest.raises(lsm.NotFoundError, match="file_path"):
        table.system("files", columns=["nothing"])


def test_a_table_that_cannot_be_opened_is_listed_with_its_problem(tmp_path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        catalog.create_table("db.good", COLUMNS, primary_key=["id"])
        catalog.create_table("db.bad", COLUMNS, primary_key=["id"])
        (tmp_path / "db.db" / "bad" / "schema" / "schema-0").write_text("{")
        rows = {row["table_name"]: row for row in catalog.system("tables").to_pylist()}
        assert rows["good"]["problem"] is None
        assert "schema-0" in rows["bad"]["problem"]


def test_tables_of_real_clients_have_them_too(fixture_tables) -> None:
    opened = 0
    for path in sorted(fixture_tables.glob("*/*/table/snapshot")):
        try:
            table = lsm.open_table(str(path.parent))
        except lsm.UnsupportedError:
            continue
        for name in NAMES:
            table.system(name)
        opened += 1
    assert opened > 5


def test_the_page_names_every_table_and_column(tables) -> None:
    page = (Path(lsm.__file__).parent / "docs" / "system-tables.md").read_text()
    lines = {
        line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")
    }
    assert set(lines) >= {f"`{name}`" for name in TABLES}
    for name, make in tables.items():
        for column in make().schema.names:
            assert f"`{column}`" in lines[f"`{name}`"], (name, column)


def test_the_history_names_each_operation_and_counts_its_rows_where_they_are_known(tmp_path):
    catalog = lsm.open_catalog(tmp_path)
    counted = {"write.count-changes": "true", "bucket": "1"}
    table = catalog.create_table("s.t", {"id": int, "v": int}, "id", options=counted)
    table.upsert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
    table.insert([{"id": 3, "v": 3}])
    table.update(set={"v": "v + 1"}, where="id = 1")
    merging = table.merge([{"id": 3, "v": 0}, {"id": 4, "v": 4}])
    merged = merging.when_matched_delete().when_not_matched_insert_all().execute()
    table.delete([2])
    table.compact(full=True)
    table.overwrite([{"id": 9, "v": 9}])
    rows = table.history().to_pylist()[::-1]
    assert [row["operation"] for row in rows] == [
        "upsert", "insert", "update", "merge", "delete", "compact", "overwrite"
    ]  # fmt: skip
    numbers = [(row["rows_inserted"], row["rows_updated"], row["rows_deleted"]) for row in rows]
    assert numbers[:6] == [(2, 0, 0), (1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 0, 1), (0, 0, 0)]
    assert merged.operation_name == "merge"
    assert merged.row_counts == lsm.RowCounts(inserted=1, deleted=1)
    compacted = table.snapshot(6).compacted_files
    assert (compacted.files_before, compacted.files_after) == (5, 1)
    assert rows[5]["bytes_before"] == compacted.bytes_before > rows[5]["bytes_after"] > 0
    assert "compact at" in repr(table.snapshot(6))
    assert f", {compacted}, 2 in its files" in repr(table.snapshot(6))
    assert table.snapshot(5).compacted_files is None
    events = catalog.create_table("s.events", {"id": int})
    assert events.append([{"id": 1}, {"id": 1}]).row_counts == lsm.RowCounts(inserted=2)
    plain = catalog.create_table("s.plain", {"id": int}, "id")
    assert plain.upsert([{"id": 1}, {"id": 2}, {"id": 2}]).row_counts == lsm.RowCounts(inserted=2)
    unknown = plain.upsert([{"id": 1}])
    assert unknown.row_counts is None
    assert "1 row written" in repr(unknown)
    durations = [row["duration_millis"] for row in table.inspect.snapshots().to_pylist()]
    assert all(millis is not None and 0 <= millis < 60_000 for millis in durations)
