"""Options that a table can do without: each does what its line in docs/options.md says."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.table.history_tables import Story

DAYS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("day", pa.string())]
)


def live(story: Story) -> list[Any]:
    snapshot = story.table.latest_snapshot()
    assert snapshot is not None
    return story.table.session.live_entries(snapshot)


def is_full(story: Story) -> bool:
    """Whether everything lies on the last level."""
    last = story.table.options.level_count - 1
    return {entry.file.level for entry in live(story)} == {last}


@pytest.mark.parametrize(
    "option",
    [{"compaction.total-size-threshold": "1 gb"}, {"compaction.incremental-size-threshold": "1 b"}],
    ids=str,
)
def test_small_buckets_are_compacted_fully_each_time(option: dict[str, str]) -> None:
    plain = Story(options={"write-only": "false"})
    story = Story(options={"write-only": "false"} | option)
    for number in range(4):
        for each in (plain, story):
            each.put(k1=f"v{number}", k2="b")
        assert is_full(story) == (number > 0)  # one run alone stays where it is
    assert not is_full(plain)
    assert story.rows() == plain.rows() == {1: "v3", 2: "b"}


def test_a_bucket_is_compacted_fully_so_often() -> None:
    story = Story(options={"write-only": "false", "compaction.optimization-interval": "1 h"})
    full = []
    for value in "abcd":
        story.put(k1=value)
        full.append(is_full(story))
    assert full == [False, True, False, False]  # never before; and then not so soon again
    story.clock.advance(3_600_000)
    story.put(k1="e")
    assert is_full(story)
    assert story.rows() == {1: "e"}


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({}, {0}),
        ({"dynamic-bucket.assigner-parallelism": "3"}, {0, 1, 2}),
        (
            {"dynamic-bucket.assigner-parallelism": "3", "dynamic-bucket.initial-buckets": "2"},
            {0, 1},
        ),
    ],
)
def test_dynamic_buckets_are_filled_side_by_side(
    options: dict[str, str], buckets: set[int]
) -> None:
    story = Story(options={"bucket": "-1"} | options)
    story.put(**{f"k{number}": "a" for number in range(60)})
    assert {entry.bucket for entry in live(story)} == buckets
    story.put(**{f"k{number}": "b" for number in range(60)})
    assert story.rows() == dict.fromkeys(range(60), "b")
    story.check()


def test_a_higher_level_of_zstd_makes_smaller_files() -> None:
    chance = random.Random(5)
    rows = {f"k{number}": "".join(chance.choices("abcdef ", k=60)) for number in range(2_000)}
    sizes = []
    for level in ("1", "19"):
        story = Story(options={"file.compression.zstd-level": level})
        story.put(**rows)
        sizes.append(sum(entry.file.file_size for entry in live(story)))
    assert sizes[1] < sizes[0]


def test_rows_without_a_partition_lie_where_the_option_says() -> None:
    story = Story(
        DAYS, partitioned_by=("day",), key=("id", "day"), options={"partition.default-name": "nowhere"}
    )  # fmt: skip
    story.table.upsert([{"id": 1, "v": "a", "day": ""}, {"id": 2, "v": "b", "day": "monday"}])
    directories = {path.split("/")[0] for path in story.files("day=")}
    assert directories == {"day=nowhere", "day=monday"}
    assert story.rows() == {1: "a", 2: "b"}
    story.check()
