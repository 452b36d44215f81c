"""What a scan read, what it left alone and why; as facts, and as text for people."""

from collections.abc import Sequence

from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.plan.scan import Split


@record
class PruneCounts:
    """How many there were, and what each kind of pruning took out, in this order."""

    total: int
    by_partition: int = 0
    by_bucket: int = 0
    by_key_range: int = 0
    by_stats: int = 0
    by_level: int = 0

    @property
    def kept(self) -> int:
        """What is left to read."""
        pruned = self.by_partition + self.by_bucket + self.by_key_range + self.by_stats
        return self.total - pruned - self.by_level

    def text(self, noun: str) -> str:
        """Return the counts as one line: "12 of 40 data files (20 by partition, 8 by bucket)"."""
        causes = (
            ("partition", self.by_partition),
            ("bucket", self.by_bucket),
            ("key range", self.by_key_range),
            ("statistics", self.by_stats),
            ("level", self.by_level),
        )
        pruned = ", ".join(f"{count} by {cause}" for cause, count in causes if count)
        return f"{self.kept} of {counted(self.total, noun)}" + (
            f" ({pruned} pruned)" if pruned else ""
        )


@record
class ScanExplanation:
    """One planned scan. Filters are given as text; None: no filter."""

    snapshot_id: int | None
    pushed_filter: str | None
    residual_filter: str | None
    manifests: PruneCounts
    files: PruneCounts
    splits: Sequence[Split]
    fallback: "ScanExplanation | None" = None
    """Of the branch that gives the partitions which are not here; its splits are among these."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the data files to be read, before column projection."""
        return sum(split.size_bytes for split in self.splits)

    @property
    def row_count(self) -> int:
        """Rows to be read, before merging and filtering."""
        return sum(split.row_count for split in self.splits)

    def text(self, *, split_lines_max: int = 20) -> str:
        """Render for people; equal reasons beyond `split_lines_max` splits are counted, not listed."""
        state = "an empty table" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        raw = sum(split.raw for split in self.splits)
        lines = [
            f"scan of {state}",
            f"  filter below the merge: {self.pushed_filter or 'none'}",
            f"  filter after the merge: {self.residual_filter or 'none'}",
            f"  reads {self.manifests.text('manifest')}",
            f"  reads {self.files.text('data file')}",
            f"  reads {counted(self.row_count, 'row')}, {format_bytes(self.size_bytes)}, in "
            f"{counted(len(self.splits), 'split')} ({raw} raw, {len(self.splits) - raw} merged)",
        ]
        if self.fallback is not None:
            branch_snapshot = self.fallback.snapshot_id
            lines += [
                f"  falls back on {'an empty branch' if branch_snapshot is None else f'a branch, snapshot {branch_snapshot}'}",
                f"    reads {self.fallback.manifests.text('manifest')}",
                f"    reads {self.fallback.files.text('data file')}",
            ]
        lines += [_split_line(split) for split in self.splits[:split_lines_max]]
        if len(self.splits) > split_lines_max:
            lines.append(f"  … and {counted(len(self.splits) - split_lines_max, 'more split')}")
        return "\n".join(lines)


def _split_line(split: Split) -> str:
    levels = sorted({file.level for file in split.files})
    levels_text = ", ".join(f"L{level}" for level in levels)
    return (
        f"  {f'branch {split.branch} ' if split.branch else ''}bucket {split.bucket} {levels_text}: {split.reason} "
        f"({counted(split.row_count, 'row')}, {format_bytes(split.size_bytes)})"
    )


def prune_counts(total: int, kept_after: Sequence[tuple[str, int]]) -> PruneCounts:
    """Build counts from what was left after each step, in order: [("by_partition", 40), …]."""
    counts: dict[str, int] = {}
    remaining = total
    for step, step_remaining in kept_after:
        counts[step] = counts.get(step, 0) + remaining - step_remaining
        remaining = step_remaining
    return PruneCounts(total=total, **counts)
