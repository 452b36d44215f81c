"""What an LSM tree costs beside its rows: bytes written again, runs read together, bytes kept twice.

The three amplifications of O'Neil et al., The Log-Structured Merge-Tree (1996), as RocksDB's tuning
guide names them.
"""

from collections.abc import Iterable, Sequence

from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestEntry


@record
class Amplification:
    """Counts over some commits and the state after them. Sizes are bytes of data files.

    `written_bytes`: by writers. `compacted_bytes`: written by compactions, which read
    `compaction_read_bytes` for it; files that only changed their level count nowhere. `run_counts`:
    sorted runs of each bucket. `live_bytes`: of all files; `last_level_bytes`: of the deepest run
    of each bucket.
    """

    commit_count: int
    compaction_count: int
    written_bytes: int
    compacted_bytes: int
    compaction_read_bytes: int
    run_counts: tuple[int, ...]
    live_bytes: int
    last_level_bytes: int

    @property
    def write(self) -> float | None:
        """Bytes written in all, per byte that a writer wrote; None: no writer did."""
        if not self.written_bytes:
            return None
        return (self.written_bytes + self.compacted_bytes) / self.written_bytes

    @property
    def read(self) -> float | None:
        """Sorted runs that a read of a bucket merges, in the mean; None: there is no bucket."""
        return sum(self.run_counts) / len(self.run_counts) if self.run_counts else None

    @property
    def space(self) -> float | None:
        """Bytes kept per byte of the deepest runs; None: there are none."""
        return self.live_bytes / self.last_level_bytes if self.last_level_bytes else None


def amplification(
    commits: Iterable[tuple[CommitKind, Sequence[ManifestEntry]]], live: Iterable[ManifestEntry]
) -> Amplification:
    """Return what commits, each with the files that it added and deleted, and their outcome cost."""
    commit_count = compaction_count = written = compacted = read = 0
    for kind, entries in commits:
        added = {entry.file.file_name for entry in entries if entry.kind is EntryKind.ADD}
        deleted = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
        new = _size(entries, EntryKind.ADD, added - deleted)
        if kind is CommitKind.COMPACT:
            compaction_count += 1
            compacted += new
            read += _size(entries, EntryKind.DELETE, deleted - added)
        else:
            commit_count += 1
            written += new
    buckets: dict[tuple[bytes, int], dict[int | str, int]] = {}
    for entry in live:
        runs = buckets.setdefault((entry.partition, entry.bucket), {})
        run = entry.file.level or entry.file.file_name  # each file of level 0 is a run
        runs[run] = runs.get(run, 0) + entry.file.file_size
    return Amplification(
        commit_count=commit_count,
        compaction_count=compaction_count,
        written_bytes=written,
        compacted_bytes=compacted,
        compaction_read_bytes=read,
        run_counts=tuple(len(runs) for runs in buckets.values()),
        live_bytes=sum(size for runs in buckets.values() for size in runs.values()),
        last_level_bytes=sum(_deepest(runs) for runs in buckets.values()),
    )


def _size(entries: Sequence[ManifestEntry], kind: EntryKind, names: set[str]) -> int:
    return sum(
        entry.file.file_size
        for entry in entries
        if entry.kind is kind and entry.file.file_name in names
    )


def _deepest(runs: dict[int | str, int]) -> int:
    """Bytes of the deepest level, or of the largest file where all are on level 0."""
    levels = [level for level in runs if isinstance(level, int)]
    return runs[max(levels)] if levels else max(runs.values())
