"""Frames of polars, whose text is views and whose categories are dictionaries of views, in every verb."""

import polars as pl
import pyarrow as pa
import pytest

import lsm_engine as lsm

FRAME = pl.DataFrame(
    {
        "k": ["a", "b", "c"],
        "v": ["x", None, "y"],
        "many": [["p", None], [], None],
        "part": [{"s": "t", "b": b"1"}, None, {"s": None, "b": b""}],
        "raw": [b"1", None, b""],
    }
)
CATEGORIES = FRAME.with_columns(
    pl.col("k").cast(pl.Categorical),
    pl.col("v").cast(pl.Enum(["x", "y", "z"])),
    pl.col("many").cast(pl.List(pl.Categorical)),
)


@pytest.fixture(params=[FRAME, CATEGORIES], ids=["views", "categories"])
def frame(request):
    return request.param


@pytest.fixture
def table(tmp_path, frame):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        yield catalog.create_table("shop.items", frame, primary_key="k")


def _rows(table):
    return sorted(table, key=lambda row: row["k"])


def test_columns_of_a_frame_are_plain(table):
    assert [table.schema.arrow.field(name).type for name in ("k", "v", "raw")] == [
        pa.string(), pa.string(), pa.binary(),
    ]  # fmt: skip
    assert table.schema.arrow.field("many").type.value_type == pa.string()


def test_rows_of_a_frame_are_written_found_and_deleted(table, frame):
    table.upsert(frame)
    assert _rows(table) == FRAME.to_dicts()
    table.insert(frame, existing="skip")
    table.update(frame)
    table.overwrite(frame)
    assert _rows(table) == FRAME.to_dicts()
    found = table.lookup(frame.select("k").reverse())
    assert found["k"].to_pylist() == ["c", "b", "a"]
    assert table.locate(frame.select("k"))["action"].to_pylist() == ["update"] * 3
    table.delete(frame.select("k").head(1))
    assert _rows(table) == FRAME.to_dicts()[1:]


def test_a_frame_is_merged(table, frame):
    table.upsert(FRAME.head(2).with_columns(v=pl.lit("old")))
    whole = table.merge(frame).when_matched_update_all().when_not_matched_insert_all()
    whole.execute()
    assert _rows(table) == FRAME.to_dicts()
    by_value = table.merge(frame.select("v"), on="v").when_matched_update(
        {"v": "concat(source.v, target.v, '!')"}
    )
    by_value.execute()
    assert [row["v"] for row in _rows(table)] == ["xx!", None, "yy!"]


def test_a_column_of_rows_is_replaced_from_a_frame(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
        table = catalog.create_table("shop.items", {"k": str, "v": str}, options=options)
        table.append(CATEGORIES.select("k", "v"))
        ids = pl.DataFrame(table.to_arrow(["_ROW_ID"]))
        table.update_columns(ids.with_columns(v=pl.lit("new").cast(pl.Categorical)))
        assert table.to_arrow("v")["v"].to_pylist() == ["new"] * 3
