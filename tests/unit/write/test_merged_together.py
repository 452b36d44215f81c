"""Small buffers of many buckets, merged by one call, hand out the rows that each would by itself."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.read.buffer import merge_together
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.merge_rules import merge_rules
from lsm_engine.write import writers
from tests.bench.tables import new_table
from tests.model.column_kinds import to_plain
from tests.model.strategies import key_pool, picked_rows, picks, shapes
from tests.model.table_model import Shape
from tests.unit.read.test_merge_stream import (
    buffered,
    rows_and_kinds,
    table_schema,
    unpartitioned,
)

SCHEMA = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int64()),
        ("s", pa.string()),
    ]
)
OPTIONS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence field": {"sequence.field": "v"},
    "ignored deletes": {"ignore-delete": "true"},
    "first row": {"merge-engine": "first-row"},
    "sums, merged by themselves": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
    },
    "a log of the input, merged by themselves": {"changelog-producer": "input"},
    "numbers by snapshot": {"sequence.snapshot-ordering": "true"},
}


@given(
    shape=shapes(),
    buckets=st.lists(st.lists(picks, min_size=1, max_size=3), min_size=2, max_size=5),
    numbers=st.lists(st.integers(0, 40), min_size=5, max_size=5),
)
def test_buffers_merge_together_as_each_does(
    shape: Shape, buckets: list, numbers: list[int]
) -> None:
    shape = unpartitioned(shape)
    pool, rules = key_pool(shape), merge_rules(table_schema(shape))
    spills = SpillArea()

    def filled() -> list:
        return [
            buffered(shape, [picked_rows(shape, pool, chosen) for chosen in written], spills, first)
            for written, first in zip(buckets, numbers, strict=False)
        ]

    try:
        together, alone = filled(), filled()
        merge_together([buffer for buffer in together if not buffer.is_empty], rules)
        for one, other in zip(together, alone, strict=True):
            found, expected = list(one.merged()), list(other.merged())
            assert rows_and_kinds(shape, found) == rows_and_kinds(shape, expected)
            assert [to_plain(piece["_SEQUENCE_NUMBER"]) for piece in found] == [
                to_plain(piece["_SEQUENCE_NUMBER"]) for piece in expected
            ]
            assert one.is_empty
            assert one.next_sequence_number == other.next_sequence_number
    finally:
        spills.close()


def _written(folder: Path, options: dict[str, str]) -> tuple[list, pa.Table]:
    """What is known of the files of a few writes, and the rows, in order."""
    given_options = {"bucket": "2", "write-only": "true", **options}
    table = new_table(folder, SCHEMA, key=("p", "k"), options=given_options, partitioned_by=("p",))
    chance = np.random.default_rng(4)
    for number in range(3):
        ids = chance.integers(0, 400, 300)
        rows = pa.table(
            [
                pa.array((ids % 7).astype(np.int32)),
                pa.array(ids),
                pa.array(chance.integers(0, 9, 300)),
                pa.array([f"{number}"] * 300),
            ],
            schema=SCHEMA,
        )
        table.upsert(rows)
        if "merge-engine" not in options:
            table.delete(rows.slice(0, 20).select(["p", "k"]))
    files = table.system("files").sort_by(
        [(name, "ascending") for name in ("partition", "bucket", "min_sequence_number")]
    )
    skipped = {"file_path", "creation_time"}
    kept = [name for name in files.column_names if name not in skipped]
    return files.select(kept).to_pylist(), table.to_arrow()


@pytest.mark.parametrize("name", OPTIONS)
def test_files_are_those_of_buckets_by_themselves(
    tmp_path: Path, name: str, merges: Callable[[], int]
) -> None:
    found = _written(tmp_path / "together", OPTIONS[name])
    assert bool(merges()) is ("by themselves" not in name)
    with mock.patch.object(writers, "_TOGETHER_WRITERS", 1):
        before = merges()
        expected = _written(tmp_path / "alone", OPTIONS[name])
        assert merges() == before
    assert found[0] == expected[0]
    assert found[1].equals(expected[1])


@pytest.fixture
def merges() -> Callable[[], int]:
    """How often buffers were merged together so far."""
    with mock.patch.object(writers, "merge_together", wraps=merge_together) as watched:
        yield lambda: watched.call_count


def test_large_buffers_merge_by_themselves(tmp_path: Path, merges: Callable[[], int]) -> None:
    table = new_table(
        tmp_path, SCHEMA, key=("p", "k"), options={"bucket": "1"}, partitioned_by=("p",)
    )
    count = 12_000
    ids = np.arange(count)
    rows = pa.table(
        [
            pa.array((ids % 3).astype(np.int32)),
            pa.array(ids),
            pa.array(ids),
            pa.nulls(count, "string"),
        ],
        schema=SCHEMA,
    )
    table.upsert(rows)
    assert merges() == 0
    table.upsert(rows.slice(0, 30))
    assert merges() == 1
    assert table.to_arrow().sort_by("k").equals(rows)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path, SCHEMA, key=("p", "k"), options={"bucket": "4"})
    rows = [{"p": 1, "k": number, "v": 1, "s": "x"} for number in range(40)]
    with (
        mock.patch.object(writers.BucketWriter, "finish", side_effect=OSError("broken")),
        pytest.raises(OSError, match="broken"),
    ):
        table.upsert(rows)
    assert table.latest_snapshot() is None
    assert not list(Path(table.location).rglob("*.parquet"))
    table.upsert(rows)
    assert table.count() == 40
    assert isinstance(table, lsm.Table)
