"""Gathering equals concatenating and taking, for every type, null, slice and chunk."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.kernels import gather as gather_kernels
from lsm_engine.kernels.gather import gather, gather_column
from tests.unit.kernels.columns import TYPES, array_of

NESTED = {
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=3),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.integers(0, 9), "b": st.text("xy", max_size=3)}
    ),
    pa.map_(pa.string(), pa.int32()): st.dictionaries(
        st.text("xy", max_size=3), st.integers(0, 9), max_size=2
    ).map(lambda one: list(one.items())),
}
LONG_TEXT = {pa.string(): st.text("abc", max_size=40)}
EVERY = {**TYPES, **NESTED, pa.null(): st.none()}


@st.composite
def gathered(draw):
    kinds = draw(st.lists(st.sampled_from(list(EVERY)), min_size=1, max_size=4))
    sources = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 12))
        padding = draw(st.integers(0, 9))
        columns = []
        for kind in kinds:
            values = EVERY[kind] | LONG_TEXT.get(kind, st.nothing())
            drawn = draw(st.lists(st.none() | values, min_size=count, max_size=count))
            columns.append(array_of(drawn, kind, padding))
        names = [f"c{at}" for at in range(len(kinds))]
        source = pa.RecordBatch.from_arrays(columns, names)
        sources.append(
            draw(st.sampled_from([source, *chunked(source, draw(st.integers(0, count)))]))
        )
    places = [(run, row) for run, source in enumerate(sources) for row in range(source.num_rows)]
    wanted = draw(st.lists(st.sampled_from(places), max_size=30)) if places else []
    if draw(st.booleans()):
        wanted += [place for place in places if draw(st.booleans()) or place[1] > 2]
    return sources, wanted


def chunked(source, cut):
    yield pa.Table.from_batches([source])
    yield pa.Table.from_batches([source.slice(0, cut), source.slice(cut)])
    yield (
        pa.Table.from_batches([], source.schema)
        if not source.num_rows
        else pa.Table.from_batches([source])
    )


def reference(sources, wanted):
    tables = [one if isinstance(one, pa.Table) else pa.Table.from_batches([one]) for one in sources]
    begins = np.cumsum([0, *(table.num_rows for table in tables)])
    positions = [int(begins[run]) + row for run, row in wanted]
    return pa.concat_tables(tables).take(pa.array(positions, pa.int64()))


def readable(table):
    """Return values as Python has them, timestamps as numbers: Python knows the years 1 to 9999."""
    return [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]


@pytest.mark.parametrize("long_stretch", [1, 12])
@given(drawn=gathered())
def test_equals_concatenate_and_take(long_stretch, drawn):
    sources, wanted = drawn
    run = np.array([place[0] for place in wanted], np.uint16)
    row = np.array([place[1] for place in wanted], np.int32)
    before, gather_kernels._LONG_STRETCH = gather_kernels._LONG_STRETCH, long_stretch
    try:
        got = gather(sources, run, row)
    finally:
        gather_kernels._LONG_STRETCH = before
    got.validate(full=True)
    want = reference(sources, wanted)
    assert got.schema.equals(want.schema)
    assert repr(readable(got)) == repr(readable(want))  # repr: a NaN equals itself there
    for name in got.column_names:
        assert got[name].null_count == want[name].null_count


def test_one_column():
    batch = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]})
    column = gather_column([batch, batch], "b", np.array([1, 0, 1]), np.array([2, 0, 1]))
    assert column.to_pylist() == ["z", "x", None]


def test_text_beyond_one_chunk(monkeypatch):
    monkeypatch.setattr(gather_kernels, "_MOST_TEXT_BYTES", 10)
    batch = pa.record_batch({"a": ["four", "five", None, "a longer one", "six"]})
    run, row = np.zeros(7, np.uint16), np.array([0, 1, 2, 3, 4, 4, 0], np.int32)
    got = gather([batch], run, row)
    assert got["a"].num_chunks > 1
    assert got["a"].to_pylist() == ["four", "five", None, "a longer one", "six", "six", "four"]
    got.validate(full=True)


def test_no_null_costs_no_bitmap():
    batch = pa.record_batch({"a": pa.array([1, None, 3]).slice(2, 1), "b": ["x"]})
    got = gather([batch], np.zeros(1, np.uint16), np.zeros(1, np.int32))
    assert [got.column(at).chunk(0).buffers()[0] for at in range(2)] == [None, None]


def test_large_gather_of_many_chunks():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 1 << 60, 30_000)
    table = pa.table({"a": values, "s": [f"text {value % 977}" for value in values.tolist()]})
    sliced = pa.concat_tables(table.slice(at, 777) for at in range(0, 30_000, 777))
    run = rng.integers(0, 2, 50_000).astype(np.uint16)
    row = rng.integers(0, 30_000, 50_000).astype(np.int32)
    got = gather([table, sliced], run, row)
    assert got.equals(table.take(pa.array(row)).combine_chunks())


def test_no_rows_and_no_columns():
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    nothing = gather([batch], np.zeros(0, np.uint16), np.zeros(0, np.int32))
    assert nothing.num_rows == 0
    assert nothing.schema.equals(batch.schema)
