"""Columns under the I/O manager and in declarations: altered by rows that are accepted, compared by type."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.resource import check_declaration
from tests.dagster.lake import MARKS, ORDERS, SCHEMA
from tests.dagster.test_table_io import ROWS, Io, orders_of, taken_as
from tests.dagster.test_table_io import io as io  # the fixture

pytestmark = MARKS


@pytest.mark.parametrize(
    ("how", "mode", "is_stream"),
    [("evolve", "merge", True), ("match", "upsert", False), ("match", "overwrite", True)],
)
def test_a_refused_write_leaves_the_columns_as_they_were(
    io: Io, how: str, mode: str, is_stream: bool
) -> None:
    """A row without a key was refused, and the table had lost a column and its values for good."""
    io.run(orders_of(lambda: ROWS))
    wrong = pa.table({"id": pa.array([4, None]), "more": [0.5, 0.5]})
    rows = {False: lambda: wrong, True: wrong.to_reader}[is_stream]
    kept = {"lsm/schema": how, "lsm/mode": mode}
    with pytest.raises(lsm.InvalidInputError, match="id"):
        io.run(orders_of(rows, metadata=kept))
    assert io.table().schema.id == 0
    assert io.rows() == ROWS.to_pylist()
    fits = pa.table({"id": [4], "more": [0.5]})
    assert io.run(orders_of(lambda: fits, metadata={"lsm/schema": how})).success
    assert io.table().schema.names == (
        ("id", "name", "more") if how == "evolve" else ("id", "more")
    )


def test_other_columns_are_answered_with_the_setting_that_takes_them(io: Io) -> None:
    io.run(orders_of(lambda: ROWS))
    more = pa.table({"id": [4], "name": ["d"], "more": [0.5]})
    with pytest.raises(lsm.InvalidInputError, match="'lsm/schema' to evolve or match, or alter"):
        io.run(orders_of(lambda: more))
    with pytest.raises(
        lsm.InvalidInputError, match="another primary_key than its asset declares; alter"
    ):
        io.run(orders_of(lambda: ROWS, metadata={"lsm/primary_key": "id, name"}))


@pytest.mark.parametrize("how", ["refuse", "evolve", "match"])
def test_options_of_the_metadata_are_set_on_a_table_that_is_there(io: Io, how: str) -> None:
    """They counted when the table was created, and never again."""
    io.run(orders_of(lambda: ROWS, metadata={"lsm/options": {"num-sorted-run.stop-trigger": "9"}}))
    later = {"num-sorted-run.stop-trigger": "7", "snapshot.num-retained.max": "90"}
    io.run(orders_of(lambda: ROWS, metadata={"lsm/options": later, "lsm/schema": how}))
    texts = io.table().options.texts
    assert texts["num-sorted-run.stop-trigger"] == ("9" if how == "refuse" else "7")
    assert texts.get("snapshot.num-retained.max") == (None if how == "refuse" else "90")
    io.run(orders_of(lambda: ROWS, metadata={"lsm/options": later, "lsm/schema": how}))
    assert io.table().schema.id == (0 if how == "refuse" else 1)


MISSPELLED = {
    "asset": ({"lsm/primary_keys": "id"}, {}, "lsm/primary_key"),
    "input": ({}, {"lsm/column": "id"}, "lsm/columns"),
    "rows": ({}, {"lsm/filter": "id > 1"}, "There are lsm/columns, lsm/where"),
}


@pytest.mark.parametrize("case", MISSPELLED)
def test_misspelled_metadata_is_refused(io: Io, case: str) -> None:
    """It was left out: a reader got all columns, or all rows."""
    of_asset, of_input, named = MISSPELLED[case]
    orders = orders_of(lambda: ROWS, metadata=of_asset)
    reader = taken_as(pa.Table, [], metadata=of_input)
    with pytest.raises(lsm.InvalidOptionError, match=named):
        io.run(orders, reader)


def test_dictionaries_are_maps_where_the_table_says_so(io: Io) -> None:
    kinds = pa.schema([("id", pa.int64()), ("tags", pa.map_(pa.string(), pa.int64()))])
    io.wired["lsm"].catalog.create_table("shop.orders", kinds, primary_key="id")
    rows = [{"id": 1, "tags": {"a": 1}}, {"id": 2, "tags": {"b": 2, "c": 3}}, {"id": 3}]
    io.run(orders_of(lambda: rows))
    assert [row["tags"] for row in io.rows()] == [[("a", 1)], [("b", 2), ("c", 3)], None]
    more = [{"id": 3, "tags": {"d": 4}, "note": "new"}]
    io.run(orders_of(lambda: more, metadata={"lsm/schema": "evolve"}))
    assert io.rows()[2] == {"id": 3, "tags": [("d", 4)], "note": "new"}


SAME: dict[str, tuple[pa.DataType | pa.Field, str]] = {
    "any length": (pa.string(), "VARCHAR(10)"),
    "large text": (pa.large_string(), "STRING"),
    "one length": (lsm.sql_field("v", "VARCHAR(10)"), "VARCHAR(10)"),
    "nested": (pa.list_(pa.struct([("x", pa.int32())])), "ARRAY<ROW<x INT>>"),
}
OTHER: dict[str, tuple[pa.DataType | pa.Field, str]] = {
    "width": (pa.int64(), "INT"),
    "text for a number": (pa.string(), "BIGINT"),
    "zone": (pa.timestamp("us", "UTC"), "TIMESTAMP(6)"),
    "scale": (pa.decimal128(10, 2), "DECIMAL(10, 3)"),
    "another length": (lsm.sql_field("v", "VARCHAR(10)"), "VARCHAR(20)"),
    "nested": (pa.list_(pa.struct([("x", pa.int64())])), "ARRAY<ROW<x INT>>"),
}


def declared(kind: Any) -> TableDeclaration:
    field = kind if isinstance(kind, pa.Field) else pa.field("v", kind)
    return replace(ORDERS, schema=pa.schema([SCHEMA.field("id"), field]))


@pytest.mark.parametrize("case", SAME)
def test_a_type_as_it_is_declared_is_taken(io: Io, case: str) -> None:
    kind, stored = SAME[case]
    columns = {"id": "BIGINT NOT NULL", "v": stored}
    table = io.wired["lsm"].catalog.create_table("shop.orders", columns, primary_key="id")
    check_declaration(declared(kind), table)
    io.wired["lsm"].table(declared(kind))


@pytest.mark.parametrize("case", OTHER)
def test_a_type_that_is_declared_otherwise_is_named(io: Io, case: str) -> None:
    kind, stored = OTHER[case]
    columns = {"id": "BIGINT NOT NULL", "v": stored}
    io.wired["lsm"].catalog.create_table("shop.orders", columns, primary_key="id")
    with pytest.raises(lsm.InvalidInputError, match="other types than its asset declares") as told:
        io.wired["lsm"].table(declared(kind))
    assert told.value.facts["stored"] == {"v": stored}
    assert list(told.value.facts["declared"]) == ["v"]


@pytest.mark.parametrize("mode", ["merge", "upsert"])
def test_a_run_without_rows_shows_the_columns_that_the_table_has(io: Io, mode: str) -> None:
    """Columns of rows that were none were shown, though no commit had published them."""
    io.run(orders_of(lambda: ROWS))
    nothing = pa.table({"id": pa.array([], pa.int64()), "more": pa.array([], pa.float64())})
    kept = {"lsm/schema": "evolve", "lsm/mode": mode}
    done = io.run(orders_of(lambda: nothing, metadata=kept))
    (event,) = done.asset_materializations_for_node("shop__orders")
    shown = [each.name for each in event.metadata["dagster/column_schema"].value.columns]
    assert shown == list(io.table().schema.names)
    assert ("more" in shown) == (mode == "upsert")
