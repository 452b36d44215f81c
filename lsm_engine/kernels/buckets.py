"""Buckets of rows: their hashes, the assignment of dynamic buckets, and rows grouped by bucket."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bytes, Longs, address_of
from lsm_engine.kernels.compiled import compiled, compiled_with, load_u32

# -- Hashing ---------------------------------------------------------------------------------------
#
# murmur3 over encoded rows, and the buckets that follow from it, as every client computes them.

DEFAULT_SEED = 42


def murmur32(
    data: Bytes, offsets: NDArray[np.integer], seed: int = DEFAULT_SEED
) -> NDArray[np.int32]:
    """Return the 32-bit murmur3 hash of each row of bytes; n + 1 offsets for n rows.

    Word version: the length of every row is a multiple of 4.
    """
    data = np.ascontiguousarray(data, np.uint8)
    places = np.ascontiguousarray(offsets, np.int64)
    assert not len(places) or int(places[-1]) <= len(data)
    assert not np.any(np.diff(places) & 3), "rows of whole words only"
    hashes = np.empty(max(len(places) - 1, 0), np.int32)
    _murmur(address_of(data), places, np.uint32(seed), hashes)
    return hashes


def bucket_of(hashes: NDArray[np.int32], count: int | NDArray[np.integer]) -> NDArray[np.int32]:
    """Return the bucket of each hash among `count`, or a count of its own: the remainder towards zero, made positive."""
    remainders = np.fmod(hashes.astype(np.int64), count)
    return np.abs(remainders).astype(np.int32)


# Compiles in about 0.3 s.
@compiled_with(work=lambda data, offsets, seed, hashes: int(offsets[-1] - offsets[0]) >> 2)
def _murmur(data: int, offsets: Longs, seed: np.uint32, hashes: NDArray[np.int32]) -> None:
    for row in range(len(hashes)):
        start, stop = offsets[row], offsets[row + 1]
        mixed = np.uint32(seed)
        for index in range(start, stop, 4):
            word = np.uint32(load_u32(data + index))
            word = np.uint32(word * np.uint32(0xCC9E2D51))
            word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
            word = np.uint32(word * np.uint32(0x1B873593))
            mixed = np.uint32(mixed ^ word)
            mixed = np.uint32((mixed << np.uint32(13)) | (mixed >> np.uint32(19)))
            mixed = np.uint32(mixed * np.uint32(5) + np.uint32(0xE6546B64))
        mixed = np.uint32(mixed ^ np.uint32(stop - start))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        hashes[row] = np.int32(mixed ^ (mixed >> np.uint32(16)))


# -- Dynamic buckets: a table from key hash to bucket, and the bucket of each hash that is new -----
#
# Hashes live in an open-addressing table, so that a batch costs one pass over its rows however
# many keys the partition has.

Hashes = NDArray[np.int32]
BUCKETS_MAX = 32_767
"""The greatest number of buckets of other clients."""
_EMPTY = -1
_SMALLEST = 1024


@record
class AssignmentRules:
    """How new hashes find a bucket: `lanes` buckets are filled side by side up to `target_rows`.

    A hash h goes to a bucket b with abs(h) % lanes == b % lanes. `max_buckets` -1: no limit.
    """

    target_rows: int
    lanes: int = 1
    max_buckets: int = -1

    @property
    def bucket_limit(self) -> int:
        """Buckets there may be."""
        return BUCKETS_MAX if self.max_buckets < 0 else min(self.max_buckets, BUCKETS_MAX)

    @property
    def limits(self) -> "_BucketLimits":
        """The rules as compiled loops take them."""
        return _BucketLimits(self.target_rows, self.bucket_limit, self.max_buckets >= 0)


class HashBuckets:
    """Which bucket each known hash of one partition is in. Hashes enter and never leave."""

    def __init__(self, rules: AssignmentRules) -> None:
        self._rules = rules
        self._hashes = np.zeros(_SMALLEST, np.int32)
        self._buckets = np.full(_SMALLEST, _EMPTY, np.int32)
        self._lanes = min(rules.lanes, rules.bucket_limit)
        self._open: Longs = np.arange(self._lanes, dtype=np.int64)
        self.counts: Longs = np.zeros(self._lanes, np.int64)
        self.count = 0

    def add(self, hashes: Hashes, bucket: int) -> None:
        """Take the hashes that an index file lists for a bucket; what is known stays where it is."""
        self._count_up_to(bucket + 1)
        self._reserve(len(hashes))
        self.count += int(_add(hashes, bucket, self._hashes, self._buckets, self.counts))

    def assign(self, hashes: Hashes) -> NDArray[np.int32] | None:
        """Return the bucket of each hash; new ones enter. None: there are more keys than buckets."""
        self._reserve(len(hashes))
        used = int(np.flatnonzero(self.counts).max(initial=-1)) + 1
        fresh = self._lanes * (len(hashes) // self._rules.target_rows + 2)
        self._count_up_to(max(used, self._lanes) + fresh)
        assigned = np.empty(len(hashes), np.int32)
        table = _BucketTable(self._hashes, self._buckets, self.counts)
        entered = int(_assign(hashes, table, self._open, self._rules.limits, assigned))
        if entered < 0:
            return None
        self.count += entered
        return assigned

    def hashes_of(self, buckets: NDArray[np.integer]) -> Iterator[Hashes]:
        """Yield the hashes of each bucket, in ascending order: what its index file lists."""
        slots = np.flatnonzero(np.isin(self._buckets, buckets))
        order = slots[np.lexsort((self._hashes[slots], self._buckets[slots]))]
        owners = self._buckets[order]
        for bucket in buckets:
            start, stop = np.searchsorted(owners, [bucket, bucket + 1])
            yield self._hashes[order[start:stop]]

    def _count_up_to(self, bucket_count: int) -> None:
        missing = bucket_count - len(self.counts)
        if missing > 0:
            self.counts = np.concatenate([self.counts, np.zeros(missing, np.int64)])

    def _reserve(self, count: int) -> None:
        needed = 2 * (self.count + count)
        # A table that is at most half full keeps its searches short.
        if needed <= len(self._hashes):
            return
        size = 1 << int(needed - 1).bit_length()
        hashes, buckets = np.zeros(size, np.int32), np.full(size, _EMPTY, np.int32)
        _move(self._hashes, self._buckets, hashes, buckets)
        self._hashes, self._buckets = hashes, buckets


# Each compiles in about 0.4 s.


@compiled
def _place(value: int, hashes: Hashes, buckets: Hashes) -> int:
    """Return the slot of a hash, or the empty one where it would stand."""
    mask = len(hashes) - 1
    # The hash is a murmur hash of the key, but its low bits chose the bucket elsewhere: mix again.
    slot = (
        int((np.uint64(np.uint32(value)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    )
    while buckets[slot] != -1 and hashes[slot] != value:
        slot = (slot + 1) & mask
    return slot


@compiled
def _add(new_hashes: Hashes, bucket: int, hashes: Hashes, buckets: Hashes, counts: Longs) -> int:
    entered = 0
    for row in range(len(new_hashes)):
        slot = _place(new_hashes[row], hashes, buckets)
        if buckets[slot] == -1:
            hashes[slot] = new_hashes[row]
            buckets[slot] = bucket
            counts[bucket] += 1
            entered += 1
    return entered


class _BucketTable(NamedTuple):
    """The slots of an open-addressing table, each a hash and its bucket, and the keys of each bucket."""

    hashes: Hashes
    buckets: Hashes
    counts: Longs


class _BucketLimits(NamedTuple):
    """Keys a bucket is filled up to, buckets there may be, and whether full buckets take more keys."""

    target_rows: int
    buckets: int
    spreads: bool


@compiled
def _assign(
    new_hashes: Hashes,
    table: _BucketTable,
    new_buckets: Longs,
    limits: _BucketLimits,
    assigned: Hashes,
) -> int:
    """Return how many hashes were new; -1 if there is no bucket for one of them."""
    (hashes, buckets, counts), (target, limit, spreads) = table, limits
    lanes = len(new_buckets)
    entered = 0
    for row in range(len(new_hashes)):
        value = new_hashes[row]
        place = _place(value, hashes, buckets)
        if buckets[place] == -1:
            lane = abs(np.int64(value)) % lanes
            bucket = new_buckets[lane]
            while bucket < limit and counts[bucket] >= target:
                bucket += lanes
            new_buckets[lane] = bucket
            if bucket >= limit:
                if not spreads:
                    return -1
                # All are full: spread by what the lane did not look at.
                own = (limit - lane + lanes - 1) // lanes
                bucket = lane + lanes * ((abs(np.int64(value)) // lanes) % own)
            hashes[place] = value
            buckets[place] = bucket
            counts[bucket] += 1
            entered += 1
        assigned[row] = buckets[place]
    return entered


@compiled
def _move(old_hashes: Hashes, old_buckets: Hashes, hashes: Hashes, buckets: Hashes) -> None:
    for slot in range(len(old_hashes)):
        if old_buckets[slot] != -1:
            place = _place(old_hashes[slot], hashes, buckets)
            hashes[place] = old_hashes[slot]
            buckets[place] = old_buckets[slot]


# -- Group rows by a small number each, such as the number of their bucket -------------------------

# Beyond this many groups per row, counting them costs more than sorting the rows.
_SPARSE = 8


@record
class RowGroups:
    """Rows grouped: `order[starts[i]:starts[i + 1]]` are the rows of group `ids[i]`, as they came.

    `ids` ascend and name groups that have rows only; `starts` has one entry more, the row count.
    """

    order: Longs
    ids: Longs
    starts: Longs

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield each group's id, and where its rows start and stop in `order`."""
        bounds = self.starts.tolist()
        yield from zip(self.ids.tolist(), bounds[:-1], bounds[1:], strict=True)


def group_rows(ids: NDArray[np.integer], group_count: int) -> RowGroups:
    """Group rows by `ids`, each in 0 to `group_count` - 1; rows of a group keep their order."""
    numbers = np.ascontiguousarray(ids, np.int64)
    assert not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < group_count
    # Where few of many groups have rows, a sort is cheaper than a count of each group.
    if group_count > max(_SPARSE * len(numbers), 1024):
        order = np.argsort(numbers, kind="stable").astype(np.int64, copy=False)
        present, firsts = np.unique(numbers[order], return_index=True)
        return RowGroups(order=order, ids=present, starts=np.append(firsts, len(numbers)))
    order = np.empty(len(numbers), np.int64)
    begins = np.zeros(group_count + 1, np.int64)
    _counting_sort(numbers, begins, np.empty_like(begins), order)
    present = np.flatnonzero(np.diff(begins))
    starts = np.append(begins[present], len(numbers))
    return RowGroups(order=order, ids=present, starts=starts)


# Compiles in about 0.3 s.
@compiled
def _counting_sort(numbers: Longs, begins: Longs, next_place: Longs, order: Longs) -> None:
    """Fill `begins` with the first place of each group, and `order` with the rows in their places."""
    for row in range(len(numbers)):
        begins[numbers[row] + 1] += 1
    for group in range(1, len(begins)):
        begins[group] += begins[group - 1]
    for group in range(len(begins)):
        next_place[group] = begins[group]
    for row in range(len(numbers)):
        place = next_place[numbers[row]]
        next_place[numbers[row]] = place + 1
        order[place] = row
