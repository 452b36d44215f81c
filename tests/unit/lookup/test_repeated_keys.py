"""A batch that repeats keys equals its keys one by one, in every lookup store and every verb by key."""

from collections import Counter

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.types.types import parse_type
from tests.unit.lookup.stores import KINDS, query_of

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def table_of(tmp_path, function, **options):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t", COLUMNS, primary_key=["k"],
        options={"merge-engine": "aggregation", "fields.v.aggregate-function": function,
                 "write-only": "true", **options},
    )  # fmt: skip
    for value in (1, 2, 3):  # three runs, so that versions have to be merged
        table.upsert([{"k": 7, "v": value}, {"k": value, "v": value}])
    return table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("function", "expected"), [("sum", 6), ("product", 6)])
def test_a_lookup_that_repeats_a_key_merges_its_versions_once(kind, function, expected, tmp_path):
    table = table_of(tmp_path, function)
    with query_of(table, kind, tmp_path) as query:
        found = query.lookup([{"k": 7}, {"k": 2}, {"k": 7}, {"k": 9}, {"k": 7}, {"k": 2}])
    assert found.column("v").to_pylist() == [expected, 2, expected, None, expected, 2]
    assert found.column("_found").to_pylist() == [True, True, True, False, True, True]


@pytest.mark.parametrize("index_type", ["bloom", "global-bloom", "simple", "bucket"])
def test_rows_are_located_alike_however_often_their_key_comes(index_type, tmp_path):
    table = table_of(tmp_path, "sum", **{"index.type": index_type})
    keys = [{"k": key} for key in (7, 9, 7, 1, 9, 7)]
    singles = [table.locate([key]).to_pylist()[0] for key in keys]
    assert table.locate(keys).to_pylist() == singles
    assert Counter(row["action"] for row in singles) == {"update": 4, "insert": 2}


def test_distinct_keys_are_counted_once_in_every_form_of_key():
    columns = {
        "BIGINT": pa.array([3, 1, 3, 1, 1, -5]),
        "STRING": pa.array(["b", "a", "b", "a", "a", ""]),
        "DECIMAL(30, 0)": pa.array([3, 1, 3, 1, 1, -5], pa.decimal128(30, 0)),
    }
    for text, column in columns.items():
        batch, places = KeyBatch.from_columns([column], [parse_type(text)])
        assert [column[place].as_py() for place in places[batch.firsts].tolist()] == [
            column[place].as_py() for place in (5, 1, 0)
        ]
        assert places[batch.firsts].tolist() == [5, 1, 0]  # the one that came first
    empty, _ = KeyBatch.from_columns([pa.array([], pa.int64())], [parse_type("BIGINT")])
    assert empty.firsts.tolist() == []
