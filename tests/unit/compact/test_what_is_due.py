"""`pressure()` calls a bucket due exactly where `compact()` would do something, and asking changes nothing."""

import pytest

import lsm_engine as lsm
from tests.unit.table.history_tables import Story

OPTIONS = {
    "universal": {},
    "early full": {"compaction.optimization-interval": "1 s"},
    "size": {"compaction.size-ratio": "0"},
    "forced": {"compaction.force-up-level-0": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "gentle": {
        "changelog-producer": "lookup",
        "lookup-compact": "gentle",
        "lookup-compact.max-interval": "3",
    },
    "first row": {"merge-engine": "first-row"},
    "vectors": {"deletion-vectors.enabled": "true"},
}

AT_ONCE = ("early full", "forced", "lookup", "first row", "vectors")
"""Every commit makes a compaction due."""


def due(table: lsm.Table) -> set[tuple[bytes, int]]:
    return {(one.partition, one.bucket) for one in table.pressure() if one.compactable}


@pytest.mark.parametrize("name", OPTIONS)
def test_due_is_what_a_compaction_picks(name: str) -> None:
    options = {"num-sorted-run.compaction-trigger": "3", **OPTIONS[name]}
    story = Story(options=options)
    writer = story.reopened()
    outcomes = set()
    for number in range(8):
        size = max(1, 60 >> number)
        story.clock.advance(1000)
        story.reopened().upsert([{"id": key + 7 * number, "v": f"{key:9}"} for key in range(size)])
        picked = due(writer)
        for _ in range(3):  # asking again and again brings nothing nearer
            assert due(writer) == writer.due_buckets() == picked
            lsm.doctor(writer, depth="shallow")
        assert len([one for one in writer.forecast() if one.due_in_millis == 0]) == len(picked)
        assert (writer.compact() is not None) == bool(picked)
        outcomes.add(bool(picked))
    assert outcomes >= {True}
    assert name in AT_ONCE or False in outcomes


@pytest.mark.parametrize(
    ("buckets", "chosen"),
    [("1", {1}), ("0-1, 3", {0, 1, 3}), ([2], {2}), ("2 - 9999999999", {2, 3})],
)
def test_buckets_of_a_compaction_are_numbers_or_ranges(
    buckets: str | list[int], chosen: set[int]
) -> None:
    story = Story(options={"bucket": "4", "write-only": "true"})
    for number in range(6):
        story.table.upsert([{"id": key, "v": str(number)} for key in range(40)])
    story.table.compact(full=True, buckets=buckets)
    one_run = {pressure.bucket for pressure in story.table.pressure() if pressure.run_count == 1}
    assert one_run == chosen


@pytest.mark.parametrize("buckets", ["", "a", "3-1", "1-", "-1", "1,,2", [-1]])
def test_buckets_that_are_none_are_refused(buckets: str | list[int]) -> None:
    story = Story()
    story.put(k1="a")
    with pytest.raises(lsm.InvalidInputError, match="buckets are number"):
        story.table.compact(full=True, buckets=buckets)
