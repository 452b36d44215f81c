"""What `alter` refuses so that rows stay what they are, and what it takes as `create_table` does."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm

COLUMNS = {"id": "BIGINT", "v": "BIGINT", "g": "BIGINT"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as made:
        yield made


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (
            {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
            lsm.SetOption("fields.v.aggregate-function", "max"),
        ),
        (
            {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
            lsm.SetOption("fields.default-aggregate-function", "max"),
        ),
        (
            {"merge-engine": "partial-update"},
            lsm.SetOption("fields.g.sequence-group", "v"),
        ),
    ],
)
def test_rows_that_are_not_merged_yet_keep_their_function(
    catalog: lsm.Catalog, options: dict[str, str], change: lsm.SetOption
) -> None:
    """Half of the rows of a key had been summed by a compaction, and then the greatest was taken."""
    table = catalog.create_table(
        "db.t", COLUMNS, primary_key="id", options={"write-only": "true", **options}
    )
    table.upsert([{"id": 1, "v": 5, "g": 1}])
    table.alter(lsm.SetOption("num-sorted-run.compaction-trigger", "4"))
    table.upsert([{"id": 1, "v": 2, "g": 1}])
    before = table.to_arrow()
    with pytest.raises(lsm.InvalidOptionError, match="rows of 1 bucket are not merged") as refused:
        table.alter(change)
    assert refused.value.facts["key"] == change.key
    assert catalog["db.t"].to_arrow() == before
    table.compact(full=True)
    table.alter(change)
    assert catalog["db.t"].to_arrow() == before


SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "v"}


def unmerged(catalog: lsm.Catalog, options: dict[str, str]) -> lsm.Table:
    """A table with two rows of a key, in two files."""
    table = catalog.create_table(
        "db.t", COLUMNS, primary_key="id", options={"write-only": "true", **options}
    )
    for value in (5, 2):
        table.upsert([{"id": 1, "v": value, "g": value}])
    return table


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (GROUP, [lsm.AddColumn("x", "INT"), lsm.SetOption("fields.g.sequence-group", "v,x")]),
        (SUMS, [lsm.RemoveOption("fields.v.aggregate-function"), lsm.DropColumn("v")]),
        (SUMS, [lsm.SetOption("fields.g.aggregate-function", "last_non_null_value")]),
    ],
    ids=["new column in a group", "dropped with its function", "the default one, named"],
)
def test_rows_that_are_not_merged_yet_hinder_no_change_that_leaves_columns_as_they_are(
    catalog: lsm.Catalog, options: dict[str, str], changes: list[lsm.SchemaChange]
) -> None:
    table = unmerged(catalog, options)
    before = table.to_arrow()
    table.alter(*changes)
    for _ in range(2):
        now = catalog["db.t"].to_arrow()
        same = [name for name in before.column_names if name in now.column_names]
        assert now.select(same) == before.select(same)
        catalog["db.t"].compact(full=True)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (SUMS, [lsm.RenameColumn("v", "w"), lsm.SetOption("fields.w.aggregate-function", "max")]),
        (GROUP, [lsm.RemoveOption("fields.g.sequence-group"), lsm.DropColumn("g")]),
    ],
    ids=["under a new name", "without its clock"],
)
def test_rows_that_are_not_merged_yet_keep_the_rules_of_columns_that_stay(
    catalog: lsm.Catalog, options: dict[str, str], changes: list[lsm.SchemaChange]
) -> None:
    """A column is its id: one that was renamed in the same change got another function."""
    table = unmerged(catalog, options)
    with pytest.raises(lsm.InvalidOptionError, match="rows of 1 bucket are not merged"):
        table.alter(*changes)
    assert catalog["db.t"].schema.id == 0


def test_retracts_in_files_keep_the_last_group_that_takes_them(catalog: lsm.Catalog) -> None:
    """Without any group they are refused, so that the table could not be read."""
    columns = {**COLUMNS, "w": "BIGINT"}
    table = catalog.create_table(
        "db.t", columns, primary_key="id", options={"write-only": "true", **GROUP}
    )
    table.upsert([{"id": 1, "v": 5, "g": 1, "w": 7}])
    table.upsert([{"id": 1, "v": 5, "g": 2, "w": None, "_row_kind": "-D"}])
    before = table.to_arrow()
    gone = [lsm.DropColumn("v"), lsm.DropColumn("g")]
    with pytest.raises(lsm.InvalidOptionError, match="-U and -D rows"):
        table.alter(lsm.RemoveOption("fields.g.sequence-group"), *gone)
    assert catalog["db.t"].to_arrow() == before


def test_rows_that_wait_for_a_bucket_keep_their_function(catalog: lsm.Catalog) -> None:
    """The bucket had 5, and 3 waited: the sum of both became the greater one."""
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", **SUMS}
    table = catalog.create_table("db.t", COLUMNS, primary_key="id", options=options)
    table.upsert([{"id": 1, "v": 5, "g": 1}])
    table.compact(full=True)
    table.upsert([{"id": 1, "v": 3, "g": 1}])
    change = lsm.SetOption("fields.v.aggregate-function", "max")
    with pytest.raises(lsm.InvalidOptionError, match="rows of 1 bucket are not merged"):
        table.alter(change)
    table.compact(full=True)
    table.alter(change)
    assert catalog["db.t"].to_arrow()["v"].to_pylist() == [8]


@pytest.mark.parametrize("text", ["TIMESTAMP(5)", "TIME(4)", "TIMESTAMP(1)", "ARRAY<TIMESTAMP(5)>"])
def test_types_that_a_new_table_cannot_have_are_refused_for_new_columns(
    catalog: lsm.Catalog, text: str
) -> None:
    with pytest.raises(lsm.UnsupportedError, match="would become"):
        catalog.create_table("db.c", {"id": "BIGINT", "x": text}, primary_key="id")
    table = catalog.create_table("db.t", {"id": "BIGINT", "x": "TIMESTAMP(3)"}, primary_key="id")
    for change in (lsm.AddColumn("y", text), lsm.ChangeType("x", text)):
        with pytest.raises(lsm.UnsupportedError, match="would become"):
            table.alter(change)
    assert table.schema.id == 0


@pytest.mark.parametrize(
    "text", ["TIME", "TIMESTAMP", "VARCHAR(9)", "ARRAY<ROW<a CHAR(3), b INT>>"]
)
def test_a_new_column_has_the_type_that_a_new_table_would_have(
    catalog: lsm.Catalog, text: str
) -> None:
    wanted = catalog.create_table("db.c", {"id": "BIGINT", "x": text}, primary_key="id")
    table = catalog.create_table("db.t", {"id": "BIGINT"}, primary_key="id")
    table.alter(lsm.AddColumn("x", text))
    kinds = [lsm.type_text(one.schema.field("x").type) for one in (table, wanted)]
    assert kinds[0] == kinds[1]


def test_a_field_within_a_column_moves_among_its_neighbours(catalog: lsm.Catalog) -> None:
    place = pa.struct([("street", pa.string()), ("zip", pa.int32()), ("town", pa.string())])
    columns = pa.schema([("id", pa.int64()), ("place", place)])
    table = catalog.create_table("db.t", columns, primary_key="id")
    row = {"id": 1, "place": {"street": "a", "zip": 2, "town": "c"}}
    table.upsert([row])
    table.alter(lsm.MoveColumn(("place", "zip"), first=True))
    table.alter(lsm.MoveColumn(("place", "street"), after="town"))
    assert [field.name for field in table.schema.arrow.field("place").type] == [
        "zip",
        "town",
        "street",
    ]
    table.upsert([row | {"id": 2}])
    assert table.to_arrow().sort_by("id")["place"].to_pylist() == [row["place"]] * 2
    with pytest.raises(lsm.NotFoundError, match="no column"):
        table.alter(lsm.MoveColumn(("place", "none"), first=True))


LINES = {"id": "BIGINT", "lines": "ARRAY<ROW<x INT, s INT, y STRING>>"}
NEWEST_LINES = {
    "merge-engine": "aggregation",
    "fields.lines.aggregate-function": "nested_update",
    "fields.lines.nested-key": "x",
    "fields.lines.nested-sequence-field": "s",
    "write-only": "true",
}


def of_lines(catalog: lsm.Catalog) -> lsm.Table:
    """A table with two rows of a key, in two files, of which the later replaces a nested row."""
    table = catalog.create_table("db.t", LINES, primary_key="id", options=NEWEST_LINES)
    table.upsert([{"id": 1, "lines": [{"x": 1, "s": 9, "y": "old"}, {"x": 2, "s": 9, "y": "b"}]}])
    table.upsert([{"id": 1, "lines": [{"x": 1, "s": 10, "y": "new"}]}])
    assert [line["y"] for line in table.to_arrow()["lines"][0].as_py()] == ["b", "new"]
    return table


X, S, Y = (("lines", "element", name) for name in "xsy")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([lsm.DropColumn(X), lsm.AddColumn(X, "INT")], "nested-key"),
        ([lsm.DropColumn(S), lsm.AddColumn(S, "INT")], "nested-sequence-field"),
        ([lsm.ChangeType(S, "STRING")], "another order"),
        ([lsm.SetOption("fields.lines.nested-key", "y")], "not merged"),
        ([lsm.RemoveOption("fields.lines.nested-sequence-field")], "not merged"),
    ],
    ids=["key made anew", "clock made anew", "clock as text", "another key", "no clock"],
)
def test_fields_by_which_nested_rows_merge_stay_what_they_are(
    catalog: lsm.Catalog, changes: list[object], said: str
) -> None:
    """As text 10 is below 9, and without a key all nested rows but one went."""
    table = of_lines(catalog)
    before = table.to_arrow()
    with pytest.raises(lsm.InvalidOptionError, match=said):
        table.alter(*changes)
    assert catalog["db.t"].to_arrow() == before


def test_options_follow_fields_by_which_nested_rows_merge(catalog: lsm.Catalog) -> None:
    """Two fields that exchange their names: the key is the field that it was."""
    table = of_lines(catalog)
    table.alter(
        lsm.RenameColumn(X, "z"),
        lsm.RenameColumn(Y, "x"),
        lsm.RenameColumn(S, "v"),
        lsm.ChangeType(("lines", "element", "z"), "BIGINT"),
    )
    assert table.options.of_field("lines", "nested-key") == "z"
    lines = [{"z": 2, "v": 9, "x": "b"}, {"z": 1, "v": 10, "x": "new"}]
    assert table.to_arrow()["lines"].to_pylist() == [lines]
    table.compact(full=True)
    assert catalog["db.t"].to_arrow()["lines"].to_pylist() == [lines]


def test_the_time_of_a_map_entry_keeps_its_order(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "db.t",
        {"id": "BIGINT", "m": "MAP<STRING, ROW<v STRING, ts INT>>"},
        primary_key="id",
        options={
            "merge-engine": "aggregation",
            "fields.m.aggregate-function": "merge_map_with_keytime",
            "fields.m.ts-field": "ts",
        },
    )
    for at in (9, 10):
        table.upsert([{"id": 1, "m": {"k": {"v": str(at), "ts": at}}}])
    with pytest.raises(lsm.InvalidOptionError, match="another order"):
        table.alter(lsm.ChangeType(("m", "value", "ts"), "STRING"))
    table.alter(lsm.RenameColumn(("m", "value", "ts"), "t"))
    assert table.to_arrow()["m"].to_pylist() == [[("k", {"v": "10", "t": 10})]]


def test_a_table_that_is_being_dropped_gets_no_name(catalog: lsm.Catalog) -> None:
    table = catalog.create_table("db.t", COLUMNS, primary_key="id")
    catalog.unregister_table("db.t")
    sign = ".lsm-being-dropped-1"
    table.session.file_io.replace(sign, b"")
    with pytest.raises(lsm.AlreadyExistsError, match="being dropped") as refused:
        catalog.register_table("db.t")
    assert refused.value.facts["path"] == sign
    assert catalog.list_tables() == []
    table.session.file_io.delete(sign)
    assert catalog.register_table("db.t").count() == 0
