"""Two commits that cannot both be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.planning.conflicts import ConflictReason, find_conflict
from tests.unit.planning.facts import entry, key_order, snapshot

DELETE = EntryKind.DELETE
GONE, TWICE = ConflictReason.FILE_GONE, ConflictReason.ADDED_TWICE
OVERLAP, COUNT = ConflictReason.LEVEL_OVERLAP, ConflictReason.BUCKET_COUNT
P = b"partition"


@pytest.mark.parametrize(
    ("delta", "live", "expected"),
    [
        ([], [entry("a")], None),
        ([entry("b")], [entry("a")], None),
        ([entry("a", kind=DELETE)], [entry("a")], None),
        ([entry("a", kind=DELETE)], [], (GONE, "a")),
        ([entry("a", kind=DELETE)] * 2, [entry("a")], (GONE, "a")),
        ([entry("a", kind=DELETE)], [entry("a", level=1)], (GONE, "a")),
        ([entry("a", kind=DELETE)], [entry("a", bucket=1)], (GONE, "a")),
        ([entry("a", kind=DELETE)], [entry("a", partition=P)], (GONE, "a")),
        # upgraded: the same name at another level, once
        ([entry("a", kind=DELETE), entry("a", level=5)], [entry("a")], None),
        ([entry("a", level=5)], [entry("a")], (TWICE, "a")),
        ([entry("a"), entry("a")], [], (TWICE, "a")),
        ([entry("a", kind=DELETE), entry("a")], [entry("a")], (TWICE, "a")),
        ([entry("a"), entry("a", bucket=1)], [], None),
        # key ranges
        ([entry("b", 5, 9)], [entry("a", 0, 9)], None),
        ([entry("b", 5, 9, level=1)], [entry("a", 0, 4, level=1)], None),
        ([entry("b", 4, 9, level=1)], [entry("a", 0, 4, level=1)], (OVERLAP, "b")),
        ([entry("b", 4, 9, level=1)], [entry("a", 0, 4, level=2)], None),
        ([entry("b", 4, 9, level=1, bucket=1)], [entry("a", 0, 4, level=1)], None),
        ([entry("b", 0, 4, level=1), entry("c", 3, 9, level=1)], [], (OVERLAP, "b")),
        ([entry("b", 2, 3, level=1)], [entry("a", 0, 9, level=1)], (OVERLAP, "b")),
        ([entry("a", 0, 9, level=1, kind=DELETE), entry("b", 2, 3, level=1)], [entry("a", 0, 9, level=1)], None),
        ([entry("b", -5, 3, level=1)], [entry("a", 4, 9, level=1)], None),
        # a table that is broken already is not this commit's fault
        ([entry("d", 90, 99, level=1, bucket=7)], [entry("a", 0, 9, level=1), entry("b", 0, 9, level=1)], None),
        # bucket counts
        ([entry("b", total_buckets=2)], [entry("a", total_buckets=2)], None),
        ([entry("b", total_buckets=2)], [entry("a", bucket=3, total_buckets=4)], (COUNT, "b")),
        ([entry("b", total_buckets=2)], [entry("a", partition=P, total_buckets=4)], None),
        ([entry("a", kind=DELETE), entry("b", total_buckets=2)], [entry("a")], None),
        ([entry("b", total_buckets=2)], [entry("a", bucket=-2, total_buckets=-2)], None),
        ([entry("b", bucket=-2, total_buckets=-2)], [entry("a", total_buckets=2)], None),
        ([entry("a", kind=DELETE)], [entry("a"), entry("c", total_buckets=2)], None),
    ],
)  # fmt: skip
def test_conflicts(
    delta: list[ManifestEntry],
    live: list[ManifestEntry],
    expected: tuple[ConflictReason, str] | None,
) -> None:
    found = find_conflict(delta, live, key_order=key_order)
    assert (found and (found.reason, found.file_name)) == expected


def test_the_error_says_who_was_first() -> None:
    since = [snapshot(3), snapshot(4, CommitKind.COMPACT)]
    found = find_conflict([entry("a", kind=DELETE)], [], key_order=key_order)
    assert found is not None
    with pytest.raises(CommitConflictError, match=r"'a'.*COMPACT 4, APPEND 3.*reload"):
        raise found.since(since).error()


def test_without_a_key_order_ranges_are_not_compared() -> None:
    delta = [entry("b", 0, 9, level=1)]
    assert find_conflict(delta, [entry("a", 0, 9, level=1)], key_order=None) is None


ranges = st.tuples(st.integers(0, 20), st.integers(0, 6))


@given(st.lists(ranges, max_size=6), st.lists(ranges, max_size=4))
def test_overlaps_are_found_exactly(
    live: list[tuple[int, int]], new: list[tuple[int, int]]
) -> None:
    taken: set[int] = set()
    standing = []
    for number, (low, length) in enumerate(live):
        keys = set(range(low, low + length + 1))
        if not keys & taken:
            taken |= keys
            standing.append(entry(f"live{number}", low, low + length, level=1))
    delta = [entry(f"new{n}", low, low + length, level=1) for n, (low, length) in enumerate(new)]
    clash = False
    for low, length in new:
        keys = set(range(low, low + length + 1))
        clash |= bool(keys & taken)
        taken |= keys
    assert (find_conflict(delta, standing, key_order=key_order) is not None) == clash
