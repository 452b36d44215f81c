"""Counts of sorted runs, files, rows and bytes of a table's LSM trees."""

from collections.abc import Iterable, Sequence

from lsm_engine import BucketTree as BucketRuns
from lsm_engine import record


@record
class LevelFacts:
    """Counts of one level of one bucket or of several buckets. A level-0 file is a sorted run of its own."""

    level: int
    runs: int
    files: int
    rows: int
    bytes: int


@record
class BucketTree:
    """The LSM tree of one bucket: its levels with files, level 0 first."""

    partition: str
    bucket: int
    levels: tuple[LevelFacts, ...]

    @property
    def runs(self) -> int:
        """Number of sorted runs, which readers of this bucket merge."""
        return sum(level.runs for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of this bucket's live data files."""
        return sum(level.bytes for level in self.levels)

    @property
    def label(self) -> str:
        """Path of the bucket below the table: `dt=2024-01-01/bucket-0`."""
        return (
            f"{self.partition}/bucket-{self.bucket}" if self.partition else f"bucket-{self.bucket}"
        )


@record
class TreeFacts:
    """The LSM trees of all buckets at one snapshot. The bucket with most sorted runs comes first."""

    buckets: tuple[BucketTree, ...]

    @property
    def levels(self) -> tuple[LevelFacts, ...]:
        """Sums over all buckets, level 0 first."""
        return sum_levels(level for bucket in self.buckets for level in bucket.levels)

    @property
    def runs_max(self) -> int:
        """Number of sorted runs of the bucket that has most of them; 0 without files."""
        return self.buckets[0].runs if self.buckets else 0

    @property
    def files(self) -> int:
        """Number of live data files."""
        return sum(level.files for level in self.levels)

    @property
    def rows(self) -> int:
        """Number of rows in all files, before merging."""
        return sum(level.rows for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of all live data files."""
        return sum(level.bytes for level in self.levels)


def count_tree(buckets: Iterable[BucketRuns]) -> TreeFacts:
    """Return the counts of a table's LSM trees from the engine's buckets."""
    trees = [
        BucketTree(
            partition=bucket.partition,
            bucket=bucket.bucket,
            levels=sum_levels(
                LevelFacts(
                    level=run.level,
                    runs=1,
                    files=run.file_count,
                    rows=run.row_count,
                    bytes=run.size_bytes,
                )
                for run in bucket.runs
            ),
        )
        for bucket in buckets
    ]
    # The sort is stable: buckets with the same number of runs stay in the order of partitions.
    return TreeFacts(buckets=tuple(sorted(trees, key=lambda bucket: -bucket.runs)))


def sum_levels(levels: Iterable[LevelFacts]) -> tuple[LevelFacts, ...]:
    """Return the sums of counts by level."""
    parts: dict[int, list[LevelFacts]] = {}
    for level in levels:
        parts.setdefault(level.level, []).append(level)
    return tuple(_sum_level(number, parts[number]) for number in sorted(parts))


def _sum_level(number: int, parts: Sequence[LevelFacts]) -> LevelFacts:
    return LevelFacts(
        level=number,
        runs=sum(part.runs for part in parts),
        files=sum(part.files for part in parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
    )
