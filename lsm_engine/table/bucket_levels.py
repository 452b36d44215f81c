"""The levels of buckets, from the manifests of a snapshot, which are read when a partition is asked for.

A commit touches few buckets. What a manifest records of its buckets is kept as long as there is room; of the
others only those are read whose range has the partition, so that a commit to a table of a million files
does not begin with a pass over all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.filter.partition import manifests_in
from lsm_engine.format.manifest import Bucket, BucketScope, ManifestFileMeta
from lsm_engine.metadata.manifests import ManifestStore
from lsm_engine.options.modes import EntryKind
from lsm_engine.table.live_files import (
    BUCKET,
    KIND,
    LEVEL,
    MAX_SEQUENCE_NUMBER,
    PARTITION,
    TOTAL_BUCKETS,
    bucket_pairs,
    live_entries,
)
from lsm_engine.types.table_schema import TableSchema

_COLUMNS = (KIND, PARTITION, BUCKET, LEVEL, MAX_SEQUENCE_NUMBER, TOTAL_BUCKETS)
_MANY = 20  # manifests from which on it pays to look at their ranges
_ALONE = 8  # partitions that are looked for one by one; for the next one all manifests are read
FEW_ROWS = 32
"""Entries up to which a loop in Python is faster."""
_BYTES_PER_LEVEL = 400  # in memory, measured


class LevelFacts(NamedTuple):
    """Of one level of a bucket: files added less deleted, the greatest sequence number, and the least and
    the greatest number of buckets that a file was written for.
    """

    bucket: int
    level: int
    file_count: int
    newest: int
    least_total: int
    most_total: int


@record
class ManifestLevels:
    """The levels in one manifest, by partition."""

    partitions: Mapping[bytes, Sequence[LevelFacts]]
    level_count: int

    @property
    def kept_bytes(self) -> int:
        """How much memory it takes."""
        return _BYTES_PER_LEVEL * self.level_count


def level_facts(entries: pa.Table) -> ManifestLevels:
    """Return what a manifest records of each level, for `ManifestStore.fact` to keep."""
    if entries.num_rows <= FEW_ROWS:
        return levels_of_rows(entries)
    pairs, of_row = bucket_pairs(entries)
    levels = entries.column(LEVEL).to_numpy().astype(np.int64)
    # Bucket and level share one number, as one sort of integers is much faster than one of pairs.
    places, first, of_row = np.unique(
        (of_row << 32) + levels, return_index=True, return_inverse=True
    )
    of_row = of_row.reshape(-1)
    added = entries.column(KIND).to_numpy() != EntryKind.DELETE
    counts = np.bincount(of_row, np.where(added, 1, -1)).astype(np.int64)
    numbers = entries.column(MAX_SEQUENCE_NUMBER).to_numpy()
    totals = entries.column(TOTAL_BUCKETS).to_numpy()
    newest, least, most = numbers[first], totals[first], totals[first]
    np.maximum.at(newest, of_row, numbers)
    np.minimum.at(least, of_row, totals)
    np.maximum.at(most, of_row, totals)
    partitions: dict[bytes, list[LevelFacts]] = {}
    columns = (column.tolist() for column in (places, counts, newest, least, most))
    for place, *facts in zip(*columns, strict=True):
        partition, bucket = pairs[place >> 32]
        level = LevelFacts(bucket, place & 0xFFFFFFFF, *facts)
        partitions.setdefault(partition, []).append(level)
    return ManifestLevels(partitions=partitions, level_count=len(places))


def levels_of_rows(entries: pa.Table) -> ManifestLevels:
    """Return the same as `level_facts`, row by row: of a few that is ten times as fast."""
    by_level: dict[tuple[bytes, int, int], tuple[int, int, int, int]] = {}
    for kind, partition, bucket, level, newest, total in zip(
        *(entries.column(name).to_pylist() for name in _COLUMNS), strict=True
    ):
        place, count = (partition, bucket, level), -1 if kind == EntryKind.DELETE.value else 1
        before, last, least, most = by_level.get(place, (0, newest, total, total))
        by_level[place] = (before + count, max(last, newest), min(least, total), max(most, total))
    partitions: dict[bytes, list[LevelFacts]] = {}
    for (partition, bucket, level), facts in by_level.items():
        partitions.setdefault(partition, []).append(LevelFacts(bucket, level, *facts))
    return ManifestLevels(partitions=partitions, level_count=len(by_level))


class BucketLevels:
    """The levels of the buckets of some manifests that make up a whole state."""

    def __init__(
        self,
        manifests: ManifestStore,
        metas: Sequence[ManifestFileMeta],
        schema: TableSchema,
    ) -> None:
        self._manifests = manifests
        self._metas = metas
        self._fields = schema.select(schema.partition_keys)
        self._found: dict[bytes, dict[int, list[LevelFacts]]] = {}
        self._is_whole = False
        self._alone = 0
        self._all: Sequence[ManifestLevels] | None = None

    def facts_of(self, partition: bytes) -> Mapping[int, Sequence[LevelFacts]]:
        """Return what all manifests record of each bucket of a partition."""
        cached = self._found.get(partition)
        if cached is not None:
            return cached
        by_bucket: dict[int, list[LevelFacts]] = {}
        for facts in self._facts_of(partition):
            for level in facts.partitions.get(partition, ()):
                by_bucket.setdefault(level.bucket, []).append(level)
        self._found[partition] = by_bucket
        return by_bucket

    def partitions(self) -> Iterable[bytes]:
        """Return the partitions that manifests name; all of these are read for it, in one pass."""
        if not self._is_whole:
            by_partition: dict[bytes, dict[int, list[LevelFacts]]] = {}
            for facts in self._facts_of_all():
                for partition, levels in facts.partitions.items():
                    by_bucket = by_partition.setdefault(partition, {})
                    for level in levels:
                        by_bucket.setdefault(level.bucket, []).append(level)
            self._found, self._is_whole = by_partition, True
        return [partition for partition, by_bucket in self._found.items() if by_bucket]

    def newest(self, partition: bytes, bucket: int) -> int | None:
        """Return the greatest sequence number that a bucket has ever seen; None if it has seen none."""
        return max(
            (level.newest for level in self.facts_of(partition).get(bucket, ())), default=None
        )

    def run_count(self, partition: bytes, bucket: int) -> int:
        """Return how many sorted runs a bucket has: its level-0 files, and the deeper levels in use."""
        files: dict[int, int] = {}
        for facts in self.facts_of(partition).get(bucket, ()):
            files[facts.level] = files.get(facts.level, 0) + facts.file_count
        return sum(count if level == 0 else min(count, 1) for level, count in files.items())

    def run_counts(self, chosen: Iterable[Bucket] | None = None) -> dict[Bucket, int]:
        """Return `run_count` of some buckets, or of all.

        From what is kept of each manifest: no entry is decoded again, none becomes an object.
        """
        if chosen is None:
            chosen = NewestNumbers(self)
        return {place: self.run_count(*place) for place in chosen}

    def total(self, partition: bytes) -> int | None:
        """Return how many buckets the live files of a partition were written for; None if it has none.

        Waiting rows (bucket -2) do not count. Where no bucket was rescaled nothing is folded.
        """
        levels = [
            level
            for bucket, bucket_levels in self.facts_of(partition).items()
            if bucket >= 0
            for level in bucket_levels
        ]
        if not sum(level.file_count for level in levels):
            return None
        totals = {total for level in levels for total in (level.least_total, level.most_total)}
        # Manifests count deleted files too: only where they differ the live files decide.
        if len(totals) > 1:
            live = live_entries(
                self._manifests,
                manifests_in(self._metas, _only(partition), self._fields),
                lambda part, bucket: part == partition and bucket >= 0,
            )
            totals = {entry.total_buckets for entry in live}
        return max(totals)

    def _facts_of(self, partition: bytes) -> Sequence[ManifestLevels]:
        """Return what the manifests record that may name a partition: all, where that is kept."""
        metas = self._metas
        if (
            self._all is not None
            or len(metas) <= _MANY
            or self._alone >= _ALONE
            or all(self._manifests.are_known(metas, level_facts))
        ):
            return self._facts_of_all()
        # Few partitions are looked up alone; beyond that all manifests are read, and kept.
        self._alone += 1
        candidates = manifests_in(metas, _only(partition), self._fields)
        return self._manifests.facts(candidates, level_facts, _COLUMNS)

    def _facts_of_all(self) -> Sequence[ManifestLevels]:
        if self._all is None:
            self._all = self._manifests.facts(self._metas, level_facts, _COLUMNS)
        return self._all


def _only(partition: bytes) -> BucketScope:
    return BucketScope(partitions=frozenset({partition}))


class NewestNumbers(Mapping[Bucket, int]):
    """The greatest sequence number of each bucket, looked up when it is asked for."""

    def __init__(self, levels: BucketLevels) -> None:
        self._levels = levels

    def __getitem__(self, place: Bucket) -> int:
        number = self._levels.newest(*place)
        if number is None:
            raise KeyError(place)
        return number

    def __iter__(self) -> Iterator[Bucket]:
        levels = self._levels
        return ((part, bucket) for part in levels.partitions() for bucket in levels.facts_of(part))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Any, ...]:  # other processes get them all
        return dict, (dict(self),)


class BucketTotals(Mapping[bytes, int]):
    """How many buckets each partition has, by its files, looked up when it is asked for."""

    def __init__(self, levels: BucketLevels) -> None:
        self._levels = levels

    def __getitem__(self, partition: bytes) -> int:
        total = self._levels.total(partition)
        if total is None:
            raise KeyError(partition)
        return total

    def __iter__(self) -> Iterator[bytes]:
        return (part for part in self._levels.partitions() if self._levels.total(part) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Any, ...]:  # other processes get them all
        return dict, (dict(self),)
