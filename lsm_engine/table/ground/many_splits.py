"""Splits of very many files, made for some buckets at a time when they are asked for.

A million files as objects take gigabytes; as columns they take some hundred megabytes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.codec.manifest import entries_of
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.meta.manifest import ManifestEntry, by_bucket
from lsm_engine.plan.scan import Split
from lsm_engine.table.ground.live_files import (
    DELETE_ROW_COUNT,
    LEVEL,
    ROW_COUNT,
    bucket_pairs,
)

MANY_FILES = 5_000
"""Files from which on splits are made when asked for, where no filter has looked at each file."""

_ROWS_AT_FIRST, _ROWS_TOGETHER = 64, 1_000
PlanBucket = Callable[[list[ManifestEntry]], tuple[Split, ...]]


class ManySplits(Sequence[Split]):
    """The splits of live files given as columns, in order of partition and bucket.

    Going through them costs memory for some buckets at a time. Their number is only known once all
    have been made; asking for it makes them, and forgets them again.
    """

    def __init__(
        self, rows: pa.Table, plan_bucket: PlanBucket, *, counts_levels: bool = False
    ) -> None:
        """`counts_levels`: a bucket in one level below 0 has the rows that its files have, less none."""
        self._rows = rows
        self._counts_levels = counts_levels
        self._plan_bucket = plan_bucket
        pairs, of_row = bucket_pairs(rows)
        rank = np.empty(len(pairs), np.int64)
        rank[sorted(range(len(pairs)), key=pairs.__getitem__)] = np.arange(len(pairs))
        ranks = rank[of_row].astype(np.int32)
        del of_row
        self._order = np.argsort(ranks, kind="stable").astype(np.int32)
        self._starts = np.searchsorted(ranks[self._order], np.arange(len(pairs) + 1))

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[Split]:
        for entries in self._entries(self._buckets):
            yield from self._plan_bucket(entries)

    def __len__(self) -> int:
        return self._ends[-1]

    def counted_levels(self) -> tuple[int, Iterable[Split]]:
        """Return how many rows the buckets have that need no look at their files, and the splits of the others."""
        rows = self._rows
        if not self._counts_levels or DELETE_ROW_COUNT not in rows.column_names:
            return 0, self
        deletes = pc.fill_null(rows.column(DELETE_ROW_COUNT), 1).to_numpy()[self._order]
        levels = rows.column(LEVEL).to_numpy()[self._order]
        starts = self._starts[:-1]
        least, most = (extreme.reduceat(levels, starts) for extreme in (np.minimum, np.maximum))
        is_plain = (least == most) & (least > 0) & (np.maximum.reduceat(deletes, starts) == 0)
        counts = rows.column(ROW_COUNT).to_numpy()[self._order].astype(np.int64)
        count = int(np.add.reduceat(counts, starts)[is_plain].sum())
        others = self._entries(self._buckets[~is_plain])
        return count, chain.from_iterable(map(self._plan_bucket, others))

    @overload
    def __getitem__(self, index: int) -> Split: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Split, ...]: ...
    def __getitem__(self, index: int | slice) -> Split | tuple[Split, ...]:
        if isinstance(index, slice):
            begin, end = index.start or 0, index.stop
            if begin >= 0 and (end is None or end >= 0) and (index.step or 1) > 0:
                return tuple(islice(self, begin, end, index.step))  # each bucket is planned once
            return tuple(self)[index]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        bucket = int(np.searchsorted(self._ends, at, side="right")) - 1
        return self._of(bucket)[at - self._ends[bucket]]

    @cached_property
    def _ends(self) -> list[int]:
        """How many splits there are before each bucket, and in all."""
        counts: list[int] = []
        for entries in self._entries(self._buckets):
            found = Counter((one.partition, one.bucket) for one in self._plan_bucket(entries))
            counts += [found[place] for place in sorted(by_bucket(entries))]
        return list(accumulate(counts, initial=0))

    def _of(self, bucket: int) -> tuple[Split, ...]:
        (entries,) = self._entries(self._buckets[bucket : bucket + 1])
        return self._plan_bucket(entries)

    @property
    def _buckets(self) -> Longs:
        return np.arange(len(self._starts) - 1)

    def _entries(self, buckets: Longs) -> Iterator[list[ManifestEntry]]:
        """Yield the files of some buckets: a column takes as long for a row as for many, so those of several come together.

        Of few at first, as a limit may end with them.
        """
        ends = np.cumsum(self._starts[buckets + 1] - self._starts[buckets])
        first, room = 0, _ROWS_AT_FIRST
        while first < len(buckets):
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + room, side="right")))
            places = np.concatenate(
                [
                    self._order[self._starts[one] : self._starts[one + 1]]
                    for one in buckets[first:last]
                ]
            )
            # Files of a bucket mostly stand together: then nothing is copied.
            if (np.diff(places) == 1).all():
                rows = self._rows.slice(int(places[0]), len(places))
            else:
                rows = self._rows.take(pa.array(places))
            yield entries_of(rows)
            first, room = last, min(2 * room, _ROWS_TOGETHER)


def counted(splits: Sequence[Split]) -> tuple[int, list[Split]]:
    """Return how many rows metadata has of splits that are read without a filter, and those that are to be read."""
    rows, rest = splits.counted_levels() if isinstance(splits, ManySplits) else (0, splits)
    to_read = []
    for split in rest:
        if split.raw and split.is_counted:
            rows += split.row_count
        else:
            to_read.append(split)
    return rows, to_read
