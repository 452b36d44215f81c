"""Default values: what new rows get where they leave a column null."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm

COLUMNS = pa.schema(
    [("k", pa.int64()), ("n", pa.int32()), ("s", pa.string()), ("d", pa.decimal128(6, 2))]
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lsm.Table]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        yield catalog.create_table("db.t", COLUMNS, primary_key=["k"])


def by_key(table: lsm.Table) -> dict[int, tuple[object, ...]]:
    rows = table.scan().to_arrow().to_pylist()
    return {row["k"]: (row["n"], row["s"], row["d"]) for row in rows}


def test_new_rows_get_defaults_and_old_ones_stay(table: lsm.Table) -> None:
    table.upsert([{"k": 1, "n": None}])
    table.alter(
        lsm.SetColumnDefault(name="n", value="7"),
        lsm.SetColumnDefault(name="s", value="none"),
        lsm.SetColumnDefault(name="d", value="1.50"),
    )
    table.upsert([{"k": 2}, {"k": 3, "n": 1, "s": None, "d": Decimal("2.00")}])
    wanted = {1: (None, None, None), 2: (7, "none", Decimal("1.50"))}
    assert by_key(table) == wanted | {3: (1, "none", Decimal("2.00"))}
    table.delete([{"k": 3}])
    again = lsm.open_table(table.location)
    assert again.schema.field("n").default_value == "7"
    again.alter(lsm.SetColumnDefault(name="n", value=None))
    again.upsert([{"k": 4}])
    assert by_key(again)[4] == (None, "none", Decimal("1.50"))


def test_updates_leave_nulls_as_they_are(table: lsm.Table) -> None:
    """UPDATE and MERGE write whole rows: a null that nobody named became the default."""
    table.upsert([{"k": 1, "n": None, "s": "a"}, {"k": 2, "n": 3, "s": "b"}])
    table.alter(lsm.SetColumnDefault("n", "7"), lsm.SetColumnDefault("s", "none"))
    table.update(set={"d": Decimal("2.00")}, where="k = 1")
    table.update(set={"s": None}, where="k = 2")
    wanted = {1: (None, "a", Decimal("2.00")), 2: (3, None, None)}
    assert by_key(table) == wanted
    source = pa.table({"k": pa.array([1, 4]), "s": ["m", "m"]})
    merge = table.merge(source, on="k").when_matched_update(set={"s": "source.s"})
    merge.when_not_matched_insert(values={"k": "source.k"}).execute()
    assert by_key(table) == wanted | {1: (None, "m", Decimal("2.00")), 4: (7, "none", None)}
    table.upsert([{"k": 5, "n": None, "_row_kind": "+U"}, {"k": 6, "n": None, "_row_kind": "+I"}])
    assert by_key(table)[5] == (None, "none", None)
    assert by_key(table)[6] == (7, "none", None)


def test_rows_to_update_keep_the_nulls_that_they_state(table: lsm.Table) -> None:
    """The null that a row was updated to became the default."""
    table.upsert([{"k": 1, "n": 3, "s": "a"}, {"k": 2, "n": 4, "s": "b"}])
    table.alter(lsm.SetColumnDefault("n", "7"), lsm.SetColumnDefault("s", "none"))
    table.update([{"k": 1, "n": None, "s": "u"}])
    table.update([{"k": 2, "n": None}, {"k": 3, "n": None}], missing="skip")
    table.insert([{"k": 4, "n": None}])
    wanted = {1: (None, "u", None), 2: (None, "none", None), 4: (7, "none", None)}
    assert by_key(table) == wanted


def test_columns_updated_by_row_id_keep_the_nulls_that_they_state(tmp_path: Path) -> None:
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    schema = pa.schema([("k", pa.int64()), ("n", pa.int32())])
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("db.t", schema, options=options)
        table.alter(lsm.SetColumnDefault("n", "7"))
        table.append([{"k": 1, "n": 3}, {"k": 2, "n": None}])
        table.update_columns([{"_ROW_ID": 0, "n": None}])
        assert table.to_arrow()["n"].to_pylist() == [None, 7]


def test_what_is_no_value_is_refused(table: lsm.Table) -> None:
    for name, value in (("n", "seven"), ("n", "3000000000"), ("d", "x"), ("k", "1")):
        with pytest.raises(lsm.InvalidInputError, match=name):
            table.alter(lsm.SetColumnDefault(name=name, value=value))
    table.alter(lsm.SetColumnDefault(name="s", value="text"))
    with pytest.raises(lsm.LsmError):
        table.alter(lsm.ChangeType(name="s", type="INT"))
    assert table.schema.field("s").default_value == "text"


def test_engines_that_read_null_as_unchanged_take_none(tmp_path: Path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        for engine in ("partial-update", "aggregation"):
            table = catalog.create_table(
                f"db.{engine[:3]}", COLUMNS, primary_key=["k"], options={"merge-engine": engine}
            )
            with pytest.raises(lsm.InvalidInputError, match="merge engine"):
                table.alter(lsm.SetColumnDefault(name="n", value="7"))


def test_a_field_within_a_column_has_no_default(table: lsm.Table) -> None:
    table.alter(lsm.AddColumn("place", "ROW<city STRING>"))
    with pytest.raises(lsm.InvalidInputError, match=r"'place\.city' is a field within a column"):
        table.alter(lsm.SetColumnDefault(("place", "city"), "Oslo"))
