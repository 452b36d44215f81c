"""Which manifests become one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.format.manifest import ManifestFileMeta
from lsm_engine.planning.commit import (
    ENTRIES_MAX,
    Keep,
    ManifestMerge,
    changed_manifests,
    plan_full_merge,
    plan_manifest_merge,
    roll,
)
from tests.unit.planning.facts import entry, manifest

GONE = (entry("x").partition, entry("x").bucket, entry("x").file.level)


def manifests(sizes: str) -> list[ManifestFileMeta]:
    return [manifest(f"m{n}", int(size)) for n, size in enumerate(sizes.split())]


def told(merge: ManifestMerge) -> str:
    """The sizes, with groups in brackets."""
    return " ".join(
        str(part.meta.file_size)
        if isinstance(part, Keep)
        else "[" + " ".join(str(meta.file_size) for meta in part.metas) + "]"
        for part in merge.parts
    )


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("", ""),
        ("1", "1"),
        ("1 1 1", "1 1 1"),
        ("1 1 1 1", "[1 1 1 1]"),  # four are enough
        ("100 1 1 1", "100 1 1 1"),  # large ones do not count
        ("100 1 1 1 1", "100 [1 1 1 1]"),
        ("1 1 1 1 100", "[1 1 1 1] 100"),
        ("1 1 1 100 1 1 1", "1 1 1 100 1 1 1"),  # order is kept, so these are no neighbours
        ("50 60", "[50 60]"),  # together they fill one
        ("60 1 1", "60 1 1"),
        ("60 1 1 1", "60 [1 1 1]"),  # the old one is too big to be rewritten for three small ones
        ("60 3 2 1 1", "60 [3 2 1 1]"),
        ("99 99 1", "99 99 1"),  # nor are large ones for the sake of a small one
        ("99 99 60", "99 [99 60]"),  # what is filled takes in no more
        ("9 9 9 9 1", "9 9 9 9 1"),
        ("9 9 9 9 1 1 1 1 1", "[9 9 9 9 1 1 1 1 1]"),
    ],
)
def test_minor(sizes: str, expected: str) -> None:
    merge = plan_manifest_merge(manifests(sizes), target_size_bytes=100, min_count=4)
    assert told(merge) == expected


def test_a_manifest_of_as_many_entries_as_one_may_have_is_not_joined() -> None:
    metas = [manifest("m", 10, added=ENTRIES_MAX), *manifests("10 10 10 10")]
    assert (
        told(plan_manifest_merge(metas, target_size_bytes=100, min_count=4)) == "10 [10 10 10 10]"
    )
    merge = plan_full_merge(
        [*metas, manifest("d", 10, deleted=1)], [], target_size_bytes=100, may_hold=held()
    )
    assert told(merge) == "10 [10 10 10 10 10]"


def test_manifests_without_entries_go() -> None:
    merge = plan_manifest_merge([manifest("m", added=0)], target_size_bytes=100, min_count=4)
    assert merge.parts == ()


@given(st.lists(st.integers(1, 150), max_size=40), st.integers(2, 8))
def test_nothing_is_lost_and_order_is_kept(sizes: list[int], min_count: int) -> None:
    metas = [manifest(f"m{n}", size) for n, size in enumerate(sizes)]
    merge = plan_manifest_merge(metas, target_size_bytes=100, min_count=min_count)
    flat = [
        meta
        for part in merge.parts
        for meta in ((part.meta,) if isinstance(part, Keep) else part.metas)
    ]
    assert flat == metas
    assert all(len(group.metas) > 1 for group in merge.groups)


def test_commit_cost_stays_flat() -> None:
    """Bytes rewritten per commit, and manifests per list, over ten thousand commits."""
    metas: list[ManifestFileMeta] = []
    rewritten = longest = 0
    target = 8 << 20
    for commit in range(10_000):
        metas.append(manifest(f"delta{commit}", 2_000))
        merge = plan_manifest_merge(metas, target_size_bytes=target, min_count=30)
        metas = []
        for number, part in enumerate(merge.parts):
            if isinstance(part, Keep):
                metas.append(part.meta)
                continue
            size = sum(meta.file_size for meta in part.metas)
            rewritten += size
            metas.append(manifest(f"merged{commit}-{number}", size))
        longest = max(longest, len(metas))
    assert longest <= 40
    assert rewritten <= 10_000 * 2_000 * 10  # every entry moves a logarithmic number of times


def held(*names: str):
    return lambda metas, partitions: [meta.file_name in names for meta in metas]


def test_full_is_due_by_the_bytes_that_changed() -> None:
    metas = [manifest("a", 900), manifest("b", 60, deleted=1), manifest("c", 50, deleted=2)]
    assert changed_manifests(metas, full_threshold_bytes=111) == ()
    assert [m.file_name for m in changed_manifests(metas, full_threshold_bytes=110)] == ["b", "c"]
    assert changed_manifests(metas[:1], full_threshold_bytes=0) == ()


@pytest.mark.parametrize(
    ("metas", "deletes", "expected"),
    [
        # a holds a deleted file's partition; b does not; d is the delete itself
        ([manifest("a", 900), manifest("b", 900), manifest("d", 900, deleted=1)], [GONE], "900 [900 900]"),
        # nothing left to delete: only the manifests with deletes are written anew
        ([manifest("a", 900), manifest("d", 900, deleted=1)], [], "900 [900]"),
        # bucket and level ranges narrow it down
        ([manifest("a", 900, buckets=(1, 4)), manifest("d", 500, deleted=1)], [GONE], "900 [500]"),
        ([manifest("a", 900, buckets=(0, 4)), manifest("d", 500, deleted=1)], [GONE], "[900 500]"),
        ([manifest("a", 900, levels=(4, 5)), manifest("d", 500, deleted=1)], [GONE], "900 [500]"),
        # rows that wait for a bucket stay in their order
        ([manifest("w", 900, buckets=(-2, 0)), manifest("d", 500, deleted=1)], [], "[900 500]"),
        # small ones come along
        ([manifest("b", 10), manifest("d", 500, deleted=1)], [], "[10 500]"),
    ],
)  # fmt: skip
def test_full(metas: list[ManifestFileMeta], deletes: list, expected: str) -> None:
    merge = plan_full_merge(metas, deletes, target_size_bytes=100, may_hold=held("a"))
    assert told(merge) == expected
    assert all(group.is_complete for group in merge.groups)


def test_rolling() -> None:
    entries = [entry(str(n)) for n in range(7)]
    pieces = roll(entries, bytes_per_entry=10, target_size_bytes=30)
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    assert len(roll(entries, bytes_per_entry=100, target_size_bytes=30)) == 7
    assert roll([], bytes_per_entry=1, target_size_bytes=1) == []
