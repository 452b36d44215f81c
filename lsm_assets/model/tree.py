"""What one table's LSM trees look like, counted from its sorted runs."""

from collections.abc import Iterable, Sequence

from lsm_engine import BucketTree as BucketRuns
from lsm_engine import record


@record
class LevelFacts:
    """One level of one bucket, or of many together. `runs`: sorted runs; a level-0 file is one."""

    level: int
    runs: int
    files: int
    rows: int
    bytes: int


@record
class BucketTree:
    """One bucket's levels, level 0 first; levels without files are absent."""

    partition: str
    bucket: int
    levels: tuple[LevelFacts, ...]

    @property
    def runs(self) -> int:
        """Sorted runs that a reader of this bucket has to merge."""
        return sum(level.runs for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of this bucket's live data files."""
        return sum(level.bytes for level in self.levels)

    @property
    def label(self) -> str:
        """How people call the bucket: `dt=2024-01-01/bucket-0`."""
        return (
            f"{self.partition}/bucket-{self.bucket}" if self.partition else f"bucket-{self.bucket}"
        )


@record
class TreeFacts:
    """Every bucket of a table at one snapshot, deepest debt (most sorted runs) first."""

    buckets: tuple[BucketTree, ...]

    @property
    def levels(self) -> tuple[LevelFacts, ...]:
        """All buckets together, level 0 first. `runs` is summed over buckets."""
        return summed(level for bucket in self.buckets for level in bucket.levels)

    @property
    def runs_max(self) -> int:
        """Sorted runs in the bucket that has most of them; 0 without files."""
        return self.buckets[0].runs if self.buckets else 0

    @property
    def files(self) -> int:
        """Live data files."""
        return sum(level.files for level in self.levels)

    @property
    def rows(self) -> int:
        """Rows in all files: versions of keys, not merged."""
        return sum(level.rows for level in self.levels)

    @property
    def bytes(self) -> int:
        """Bytes of all live data files."""
        return sum(level.bytes for level in self.levels)


def tree_of(buckets: Iterable[BucketRuns]) -> TreeFacts:
    """Count the trees of a table from the engine's own view of its buckets, run by run."""
    found = [
        BucketTree(
            partition=bucket.partition,
            bucket=bucket.bucket,
            levels=summed(
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
    # Stable: buckets with as many runs stay in the order of their partitions.
    return TreeFacts(buckets=tuple(sorted(found, key=lambda bucket: -bucket.runs)))


def summed(levels: Iterable[LevelFacts]) -> tuple[LevelFacts, ...]:
    """Add up levels, or runs given as levels, by number."""
    parts: dict[int, list[LevelFacts]] = {}
    for level in levels:
        parts.setdefault(level.level, []).append(level)
    return tuple(_sum_of(number, parts[number]) for number in sorted(parts))


def _sum_of(number: int, parts: Sequence[LevelFacts]) -> LevelFacts:
    return LevelFacts(
        level=number,
        runs=sum(part.runs for part in parts),
        files=sum(part.files for part in parts),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
    )
