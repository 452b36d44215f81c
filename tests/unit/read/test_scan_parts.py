"""Small sections of many buckets, merged by one call, give the rows that each of them gives by itself."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.commit.commit import propose
from lsm_engine.dml.write import stage
from lsm_engine.planning.proposal import CommitIdentity, Proposal
from lsm_engine.read import scan
from lsm_engine.read.merge import merge_runs
from lsm_engine.read.scan import Scan, merge_joined, scan_parts
from lsm_engine.read.split import BucketReader
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.merge_rules import merge_rules
from tests.bench.tables import new_table
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
        pa.field("k", pa.string(), nullable=False),
        ("v", pa.int64()),
        ("s", pa.string()),
    ]
)


@given(
    shape=shapes(),
    buckets=st.lists(st.lists(picks, min_size=1, max_size=3), min_size=1, max_size=4),
    cut=st.integers(1, 4),
)
def test_joined_buckets_merge_as_each_does(shape: Shape, buckets: list, cut: int) -> None:
    shape = unpartitioned(shape)
    pool, rules = key_pool(shape), merge_rules(table_schema(shape))
    alone: list[pa.Table] = []
    runs: list[list[pa.RecordBatch]] = []
    numbers: list[list[int]] = []
    spills = SpillArea()
    try:
        for number, written in enumerate(buckets):
            first, own = 0, []
            for at, chosen in enumerate(written):
                buffer = buffered(shape, [picked_rows(shape, pool, chosen)], spills, first)
                batches = [
                    batch
                    for rows in buffer.merged()
                    for batch in rows.to_batches(max_chunksize=cut)
                ]
                first = buffer.next_sequence_number
                own.append(batches)
                if at == len(runs):
                    runs.append([])
                    numbers.append([])
                runs[at] += batches
                numbers[at] += [number] * len(batches)
            alone += merge_runs([iter(run) for run in own], rules, drop_deletes=True)
        joined = merge_joined(runs, numbers, rules)
        assert rows_and_kinds(shape, [] if joined is None else [joined]) == rows_and_kinds(
            shape, alone
        )
    finally:
        spills.close()


def _rows(seed: int, count: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    picked = chance.choice(4_000, count, replace=False)
    values = chance.integers(0, 50, count)
    return pa.table(
        [
            pa.array((picked % 5).astype(np.int32)),
            pc.cast(pa.array(picked), pa.string()),
            pa.array(values, mask=values % 7 == 0),
            pc.cast(pa.array(values), pa.string()),
        ],
        schema=SCHEMA,
    )


def _table(folder: Path, **options: str) -> lsm.Table:
    """5 partitions of 4 buckets, each with four files that overlap, and deletes in the last."""
    given_options = {"bucket": "4", "write-only": "true", **options}
    table = new_table(folder, SCHEMA, key=("p", "k"), options=given_options, partitioned_by=("p",))
    for seed in range(3):
        table.upsert(_rows(seed, 900))
    table.delete(_rows(0, 900).slice(0, 200).select(["p", "k"]))
    return table


def _by_split(scan: Scan) -> pa.Table:
    plan = scan.plan
    batches = [batch for split in plan.splits for batch in plan.source.batches(split)]
    return pa.Table.from_batches(batches, schema=scan.schema)


OPTIONS: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence field": {"sequence.field": "v"},
    "ignored deletes": {"ignore-delete": "true"},
    "partial update, which is not joined": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
    },
    "merged under vectors": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.merge-on-read": "true",
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_scan_reads_what_its_splits_hold(tmp_path: Path, name: str) -> None:
    table = _table(tmp_path, bucket="2", **OPTIONS[name])
    for columns, where in (
        (None, None),
        (["v"], None),
        (["s"], "v < 10"),
        (None, "k = '17' or k > '35'"),
        (["p"], "p = 3 and v is null"),
    ):
        scan = table.scan(columns, where=where)
        found, alone = scan.to_arrow(), _by_split(scan)
        assert found.equals(alone)  # in one order too
        assert alone.num_rows
        assert table.count(where) == alone.num_rows


@pytest.mark.parametrize("name", [name for name in OPTIONS if "partial" not in name])
@pytest.mark.parametrize("interleaved", [False, True])
def test_numbers_are_read_where_runs_interleave(
    interleaved: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(tmp_path, **OPTIONS[name])
    if interleaved:  # files of one commit, written apart, number their rows alike
        messages = [one for seed in (7, 8) for one in stage(table.session, _rows(seed, 900), None)]
        identity = CommitIdentity(commit_user="w", commit_identifier=1, properties=None)
        propose(table.session, Proposal(identity=identity, messages=tuple(messages)))
    numbers: list[int | None] = []
    read = BucketReader.file

    def noted(self: BucketReader, *given: Any, number: int | None = None, **named: Any) -> Any:
        numbers.append(number)
        return read(self, *given, number=number, **named)

    monkeypatch.setattr(BucketReader, "file", noted)
    found = table.to_arrow()
    assert numbers
    assert (None in numbers) == interleaved
    table.compact(full=True)
    keys = [(key, "ascending") for key in ("p", "k")]
    assert found.sort_by(keys).equals(table.to_arrow().sort_by(keys))


def test_few_merges_read_many_buckets(tmp_path: Path) -> None:
    plan = _table(tmp_path).scan().plan
    sections = [section for split in plan.splits for section in split.sections]
    assert len(sections) >= 20
    files = sum(len(split.files) for split in plan.splits)
    assert len(list(scan_parts(plan.source, plan.splits))) <= 2 + files // 40


def test_what_is_merged_at_once_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path)
    everything = _by_split(table.scan())
    for limit, most in (("_ROWS", 500), ("_FILES", 5), ("_BYTES", 9_000)):
        with monkeypatch.context() as bounded:
            bounded.setattr(scan, limit, most)
            plan = table.scan().plan
            parts = list(scan_parts(plan.source, plan.splits))
            assert len(parts) >= 6
            assert pa.Table.from_batches(_read(parts)).equals(everything)


def _read(parts: Sequence) -> Iterable[pa.RecordBatch]:
    return [batch for part in parts for batch in part()]


def test_partitions_of_a_branch_come_with_the_others(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.create_branch("older")
    older = table.branch("older")
    for seed in (7, 8):
        there = _rows(seed, 600)
        older.upsert(
            there.set_column(0, SCHEMA.field("p"), pc.add(there["p"], pa.scalar(5, "int32")))
        )
    before, there = _by_split(table.scan()), _by_split(older.scan())
    table.alter(lsm.SetOption(key="scan.fallback-branch", value="older"))
    scan = table.scan()
    assert scan.to_arrow().equals(pa.concat_tables([before, there]))
    assert scan.count() == before.num_rows + there.num_rows
    assert table.count("v < 10") == sum(
        rows.filter(pc.field("v") < 10).num_rows for rows in (before, there)
    )
