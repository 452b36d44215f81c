"""How many sorted runs a bucket has is known without looking at its files one by one."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.format.binary_row import encode_stored
from lsm_engine.format.manifest_columns import rows_of
from lsm_engine.lsm.levels import Levels
from lsm_engine.options.modes import EntryKind
from lsm_engine.table.bucket_levels import (
    FEW_ROWS,
    BucketTotals,
    NewestNumbers,
    level_facts,
    levels_of_rows,
)
from lsm_engine.table.staging import bucket_levels
from tests.unit.planning.facts import entry
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int64(), nullable=False)]
)


def counted_from_files(session):
    """By bucket: the runs of the levels that its live files make."""
    buckets = {}
    for one in session.live_entries(session.snapshots.latest()):
        buckets.setdefault((one.partition, one.bucket), []).append(one.file)
    return {
        place: len(Levels.from_files(files, level_count=6, key_order=session.key_order).runs)
        for place, files in buckets.items()
    }


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_levels(seed):
    chance = random.Random(seed)
    options = {"bucket": "3", "write-only": "false", "num-sorted-run.compaction-trigger": "4"}
    if seed % 2:
        options["manifest.merge-min-count"] = "2"
    story = Story(COLUMNS, key=("id", "p"), partitioned_by=("p",), options=options)
    for _ in range(25):
        rows = [{"id": chance.randrange(60), "p": chance.randrange(2)} for _ in range(4)]
        story.clock.advance(1000)
        story.table.upsert(rows)
        if chance.random() < 0.1:
            story.table.compact(full=chance.random() < 0.5)
        if chance.random() < 0.1:
            story.table.overwrite([{"id": 1, "p": 0}], partition={"p": 0})
        session = story.reopened().session
        counts = bucket_levels(session, session.snapshots.latest()).run_counts()
        assert {place: n for place, n in counts.items() if n} == counted_from_files(session)


def test_a_write_whose_buckets_are_in_shape_makes_no_file_an_object(monkeypatch):
    story = Story(options={"write-only": "false", "num-sorted-run.compaction-trigger": "3"})
    story.put(k1="a")
    read = []
    monkeypatch.setattr(
        "lsm_engine.table.session.live_entries",
        lambda *_: read.append(1) or pytest.fail("the files were looked at"),
    )
    story.put(k2="b")
    monkeypatch.undo()
    story.put(k3="c")
    assert len(story.table.tree()[0].runs) == 1
    assert story.rows() == {1: "a", 2: "b", 3: "c"}


@given(
    st.lists(
        st.builds(
            entry, st.sampled_from("abcdef"), kind=st.sampled_from(EntryKind),
            partition=st.sampled_from([b"p", b"q"]), bucket=st.sampled_from([-2, 0, 1]),
            level=st.integers(0, 2), total_buckets=st.integers(1, 2), sequence=st.integers(0, 99),
        ),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_few_rows_and_many_give_the_same_levels(entries):
    def told(found):
        levels = {partition: sorted(some) for partition, some in found.partitions.items()}
        return levels, found.level_count

    again = 1 + FEW_ROWS // len(entries)  # as often as makes them many
    rows = rows_of(entries * again)
    levels, count = told(levels_of_rows(rows))
    assert rows.num_rows > FEW_ROWS
    assert told(level_facts(rows)) == (levels, count)
    assert told(level_facts(rows_of(entries)))[1] == count


def test_all_buckets_take_one_pass_over_the_manifests(monkeypatch):
    options = {"write-only": "true", "manifest.merge-min-count": "1000"}
    story = Story(COLUMNS, key=("id", "p"), partitioned_by=("p",), options=options)
    for part in range(60):
        story.table.upsert([{"id": 1, "p": part}, {"id": 2, "p": part // 2}])
    session = story.reopened().session
    passes, facts = [], type(session.manifests).facts
    monkeypatch.setattr(
        type(session.manifests), "facts",
        lambda self, metas, *more: passes.append(len(metas)) or facts(self, metas, *more),
    )  # fmt: skip
    levels = bucket_levels(session, session.snapshots.latest())
    assert len(NewestNumbers(levels)) == len(dict(BucketTotals(levels))) == 60
    assert len(levels.run_counts()) == 60
    assert passes == [60]
    passes.clear()
    again = bucket_levels(story.reopened().session, session.snapshots.latest())
    for part in range(60):
        assert sum(map(len, again.facts_of(levels_key(session, part)).values())) >= 1
    assert len(passes) == 9
    assert max(passes[:8]) <= 12
    assert passes[8] == 60


def levels_key(session, part):
    """A partition as a stored row."""
    (field,) = session.schema.select(("p",))
    return encode_stored([pa.array([part], pa.int64())], [field.type])[0]
