"""Which buckets want a compaction."""

import pytest

from lsm_engine.planning.compaction import BucketPressure, pressure_of, pressures
from tests.unit.planning.facts import data_file, entry


def bucket(shape: str, *, due: bool = False) -> BucketPressure:
    """ "0 0 5 5d": files by level, d: with deletes, ?: that do not say."""
    files = [
        data_file(
            f"f{n}", level=int(word[0]), deletes={"": 0, "d": 2, "?": None}[word[1:]]
        )
        for n, word in enumerate(shape.split())
    ]  # fmt: skip
    return pressure_of(b"", 0, files, run_trigger=3, stop_trigger=5, is_picked=due)


@pytest.mark.parametrize(
    ("shape", "runs", "debt", "due", "stopping", "reason"),
    [
        ("", 0, 0, False, False, "in shape: 0 sorted runs"),
        ("0", 1, 0, False, False, "in shape: 1 sorted run"),
        ("5 5 5", 1, 0, False, False, "in shape: 1 sorted run"),
        ("0d", 1, 100, False, False, "2 more runs until due"),
        ("5 5?", 1, 200, False, False, "2 more runs until due"),
        ("0 5 5", 2, 300, False, False, "1 more run until due"),
        ("0 0 5", 3, 300, True, False, "due: 3 sorted runs, trigger 3"),
        ("0 0 5", 3, 300, False, False, "not due: 3 sorted runs, trigger 3, of sizes"),
        ("0", 1, 0, True, False, "due: 1 sorted run"),
        ("0 0 3 4 5", 5, 500, True, False, "due: 5"),
        ("0 0 0 3 4 5", 6, 600, True, True, "writers wait: 6 sorted runs, above the stop trigger 5"),
    ],
)  # fmt: skip
def test_pressure(shape: str, runs: int, debt: int, due: bool, stopping: bool, reason: str) -> None:
    found = bucket(shape, due=due)
    assert (found.run_count, found.debt_bytes) == (runs, debt)
    assert (found.compactable, found.stopping) == (due, stopping)
    assert found.reason.startswith(reason)


def test_the_most_urgent_comes_first() -> None:
    live = [
        entry("a", bucket=0),
        entry("b", bucket=1), entry("c", bucket=1, level=5),
        entry("d", bucket=2), entry("e", bucket=2, level=5, size=900),
        entry("f", bucket=3, deletes=3),
    ]  # fmt: skip
    found = pressures(live, run_trigger=2, stop_trigger=5, picked={(live[1].partition, 1)})
    assert [one.bucket for one in found] == [2, 1, 3, 0]
    assert [one.compactable for one in found] == [False, True, False, False]
    assert found[2].delete_row_count == 3
