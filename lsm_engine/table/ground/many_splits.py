"""Splits of very many files, made bucket by bucket when they are asked for.

A million files as objects take gigabytes; as columns they take some hundred megabytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.codec.manifest import entries_of
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.scan import Split
from lsm_engine.table.ground.live_files import DELETE_ROW_COUNT, LEVEL, ROW_COUNT, bucket_pairs

MANY_FILES = 5_000
"""Files from which on splits are made when asked for, where no filter has looked at each file."""

PlanBucket = Callable[[list[ManifestEntry]], tuple[Split, ...]]


class ManySplits(Sequence[Split]):
    """The splits of live files given as columns, in order of partition and bucket.

    Going through them costs memory for one bucket at a time. Their number is only known once all
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
        for bucket in range(len(self._starts) - 1):
            yield from self._of(bucket)

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
        others = np.flatnonzero(~is_plain).tolist()
        return count, (split for bucket in others for split in self._of(bucket))

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
        buckets = range(len(self._starts) - 1)
        return list(accumulate((len(self._of(bucket)) for bucket in buckets), initial=0))

    def _of(self, bucket: int) -> tuple[Split, ...]:
        places = self._order[self._starts[bucket] : self._starts[bucket + 1]]
        # Files of a bucket mostly stand together: then nothing is copied.
        together = len(places) == int(places[-1]) - int(places[0]) + 1
        rows = (
            self._rows.slice(int(places[0]), len(places))
            if together
            else self._rows.take(pa.array(places))
        )
        return self._plan_bucket(entries_of(rows))


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
