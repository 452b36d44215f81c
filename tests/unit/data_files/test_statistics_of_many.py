"""Statistics of many files in one pass: those that a look at every row of each file finds."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.data_files.writer import metas_of
from lsm_engine.format.binary_row import decode_columns, encode_stored
from lsm_engine.format.stats import (
    STATS_BYTES_MAX,
    ColumnExtremes,
    StatsCollector,
    StatsMode,
    stats_modes,
    stats_of_each,
)
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.types import parse_type
from tests.unit.data_files.tables import rows, schema, writer

COLUMNS = (
    ("k", "INT NOT NULL"),
    ("flag", "BOOLEAN"),
    ("whole", "BIGINT"),
    ("x", "DOUBLE"),
    ("text", "STRING"),
    ("data", "BYTES"),
    ("amount", "DECIMAL(20, 2)"),
    ("small", "DECIMAL(5, 1)"),
    ("at", "TIMESTAMP(3)"),
    ("day", "DATE"),
    ("list", {"type": "ARRAY", "element": "INT"}),
)
VALUES = {
    "flag": st.booleans(),
    "whole": st.integers(-(2**63), 2**63 - 1),
    "x": st.sampled_from([0.0, -0.0, 1.5, -2.5, float("nan"), float("inf")]),
    "text": st.sampled_from(["", "ä" * 20, "b" * 16, "\U0010ffff" * 17, "z", "a" * 40]),
    "data": st.binary(max_size=3),
    "amount": st.decimals(-(10**17), 10**17, places=2),
    "small": st.decimals(-999, 999, places=1),
    "at": st.integers(0, 2**32).map(
        lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    ),
    "day": st.dates(),
    "list": st.lists(st.integers(0, 3), max_size=2),
}
MODES = st.sampled_from(["full", "truncate(16)", "counts", "none"])


@st.composite
def groups_of_rows(draw):
    count = draw(st.integers(1, 4))
    return {
        name: draw(st.lists(st.none() | values, min_size=count, max_size=count))
        for name, values in VALUES.items()
    }


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@given(
    files=st.lists(st.lists(groups_of_rows(), min_size=1, max_size=3), min_size=1, max_size=4),
    mode=MODES,
)
def test_files_together_have_the_statistics_of_each(file_format, files, mode):
    of = schema(*COLUMNS, **{"metadata.stats-mode": mode, "file.format": file_format})
    types = [field.type for field in of.fields]
    written, expected = [], []
    for groups in files:
        made, collector = writer(MemoryFileIO(), of), StatsCollector(types, stats_modes(of))
        keys = []
        for group in groups:
            numbers = [len(keys) + at for at in range(len(group["x"]))]
            batch = rows(of, {"k": numbers, **group})
            made.write(batch)
            made.relieve()  # a row group of its own
            collector.update([batch.column(name) for name in of.names])
            keys += numbers
        written += made.finish()
        expected.append((collector.result(), keys[0], keys[-1]))
    for meta, (stats, first, last) in zip(metas_of(written), expected, strict=True):
        assert meta.value_stats == stats
        ends = encode_stored([pa.array([first, last], pa.int32())], types[:1])
        assert [meta.min_key, meta.max_key] == ends


def test_a_file_of_too_long_bounds_has_none_and_its_neighbours_keep_theirs():
    types = [parse_type("INT"), parse_type("STRING")]
    numbers = pa.array([1, 2, 3], pa.int32())
    texts = pa.array(["a", "b" * STATS_BYTES_MAX, "c"])
    columns = [
        ColumnExtremes(least=values, greatest=values, null_counts=[0, 0, 0])
        for values in (numbers, texts)
    ]
    found = stats_of_each(types, [StatsMode.parse("full")] * 2, columns, file_count=3)
    least = decode_columns(pa.array([stats.min_values for stats in found], pa.binary()), types)
    assert [values.to_pylist() for values in least] == [[1, None, 3], ["a", None, "c"]]
    assert [stats.min_values == stats.max_values for stats in found] == [True] * 3
    assert [stats.null_counts for stats in found] == [(0, 0)] * 3
