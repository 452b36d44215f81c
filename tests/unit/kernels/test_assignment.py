"""New hashes fill bucket after bucket, known ones stay: against a plain dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.kernels.buckets import BUCKETS_MAX, AssignmentRules, HashBuckets

HASHES = (
    st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1])
)


class Plain:
    """The same, a key at a time."""

    def __init__(self, rules: AssignmentRules) -> None:
        self.rules = rules
        self.known: dict[int, int] = {}

    def assign(self, value: int) -> int:
        if value not in self.known:
            rules = self.rules
            limit = rules.bucket_limit
            lanes = min(rules.lanes, limit)
            own = range(abs(value) % lanes, limit, lanes)
            held = list(self.known.values())
            room = (bucket for bucket in own if held.count(bucket) < rules.target_rows)
            bucket = next(room, None)
            if bucket is None:
                bucket = own[(abs(value) // lanes) % len(own)]
            self.known[value] = bucket
        return self.known[value]


@given(
    batches=st.lists(st.lists(HASHES, max_size=40), max_size=5),
    target=st.integers(1, 9),
    lanes=st.integers(1, 4),
    most=st.sampled_from([-1, 1, 2, 7]),
)
def test_as_a_dictionary_would(
    batches: list[list[int]], target: int, lanes: int, most: int
) -> None:
    rules = AssignmentRules(target_rows=target, lanes=lanes, max_buckets=most)
    table, plain = HashBuckets(rules), Plain(rules)
    for batch in batches:
        got = table.assign(np.array(batch, np.int32))
        assert got is not None
        assert got.tolist() == [plain.assign(value) for value in batch]
    assert table.count == len(plain.known)
    buckets = np.flatnonzero(table.counts)
    listed = dict(zip(buckets.tolist(), table.hashes_of(buckets), strict=True))
    for bucket, hashes in listed.items():
        assert hashes.tolist() == sorted(h for h, b in plain.known.items() if b == bucket)
    # What its index files list is all there is to know.
    again = HashBuckets(rules)
    for bucket, hashes in listed.items():
        again.add(hashes, bucket)
    everything = np.array(list(plain.known), np.int32)
    found = again.assign(everything)
    assert found is not None
    assert found.tolist() == list(plain.known.values())
    assert again.count == table.count


def test_it_grows_over_many_hashes() -> None:
    rules = AssignmentRules(target_rows=10_000)
    table = HashBuckets(rules)
    hashes = np.random.default_rng(5).permutation(np.arange(-50_000, 50_000, dtype=np.int32))
    for part in np.array_split(hashes, 13):
        table.assign(part)
    assert table.counts[table.counts > 0].tolist() == [10_000] * 10
    first = table.assign(hashes)
    assert first is not None
    assert np.bincount(first).tolist() == [10_000] * 10


def test_a_limit_that_was_lowered_keeps_what_is_there() -> None:
    table = HashBuckets(AssignmentRules(target_rows=1, max_buckets=2))
    table.add(np.array([5, 6], np.int32), 9)
    assert table.assign(np.array([5, 6, 7, 8, 9], np.int32)).tolist()[:4] == [9, 9, 0, 1]


def test_more_keys_than_buckets_of_one_key() -> None:
    table = HashBuckets(AssignmentRules(target_rows=1))
    assert table.assign(np.arange(BUCKETS_MAX, dtype=np.int32)) is not None
    assert table.assign(np.array([-1], np.int32)) is None
