"""Floating columns that decide which row is newest are in the order of Java's Float.compare and Double.compare."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.merge.sequence import in_java_order, words_of
from tests.unit.merge.slow_merge import in_java_order as slow_order

SPECIAL = [-0.0, 0.0, float("nan"), float("inf"), float("-inf"), -1.5, 5e-324, -5e-324]
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<q", -1))[0]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@given(
    drawn=st.lists(st.none() | st.floats(width=32) | st.sampled_from(SPECIAL)),
    first=st.integers(0, 3),
)
def test_floats_as_whole_numbers_order_like_the_slow_comparison(kind, drawn, first):
    column = pa.array(drawn, kind).slice(first)
    numbers = in_java_order(column)
    assert numbers.is_null().equals(column.is_null())
    values = column.drop_null().to_pylist()
    order = np.argsort(numbers.drop_null().to_numpy(), kind="stable")
    wanted = sorted(range(len(values)), key=lambda at: slow_order(values[at]))
    assert order.tolist() == wanted
    words, valid = words_of([column])
    assert np.argsort(words[valid], kind="stable").tolist() == wanted


def test_every_nan_is_one_number_and_other_columns_stay_as_they_are():
    both = in_java_order(pa.array([float("nan"), NEGATIVE_NAN], pa.float64()))
    assert both[0] == both[1]
    texts = pa.array(["a", None])
    assert in_java_order(texts) is texts


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
@pytest.mark.parametrize("first", [-0.0, 0.0])
def test_a_sequence_of_zero_is_newer_than_one_of_negative_zero(tmp_path, kind, engine, first):
    options = {"merge-engine": engine, "sequence.field": "s", "write-only": "true"}
    columns = {"k": "INT NOT NULL", "s": kind, "v": "STRING"}
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("a.t", columns, primary_key="k", options=options)
        for number in (first, -first):
            row = {"k": 1, "s": number, "v": str(number)}
            table.upsert(pa.Table.from_pylist([row], schema=table.to_arrow().schema))
        assert table.to_arrow("v")["v"].to_pylist() == ["0.0"]
        table.compact(full=True)
        assert table.to_arrow("v")["v"].to_pylist() == ["0.0"]


@pytest.mark.parametrize("descending", [False, True])
def test_sort_order_turns_zeros_round_as_well(tmp_path, descending):
    order = "descending" if descending else "ascending"
    options = {"sequence.field": "s", "sequence.field.sort-order": order}
    columns = {"k": "INT NOT NULL", "s": "DOUBLE", "v": "STRING"}
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("a.t", columns, primary_key="k", options=options)
        table.upsert([{"k": k, "s": 0.0, "v": "0.0"} for k in (1, 2)])
        table.upsert([{"k": 1, "s": -0.0, "v": "-0.0"}, {"k": 2, "s": 0.0, "v": "again"}])
        table.upsert([{"k": 2, "s": None, "v": "null is the oldest"}])
        rows = table.to_arrow().sort_by("k")["v"].to_pylist()
    assert rows == ["-0.0" if descending else "0.0", "again"]


def test_zeros_of_a_key_are_one_row(tmp_path):
    columns = {"k": "DOUBLE NOT NULL", "v": "INT"}
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        table = catalog.create_table("a.t", columns, primary_key="k")
        table.upsert([{"k": -0.0, "v": 1}])
        table.upsert([{"k": 0.0, "v": 2}])
        assert table.to_arrow("v")["v"].to_pylist() == [2]
