"""Edges from the source files to the target files of a compaction, from its manifest entries alone."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry

KeyOrder = Callable[[bytes], Any]
"""Stored key -> a value that sorts as the key does."""

BucketIdentity = tuple[bytes, int]
"""(partition, bucket)."""

REWRITE = "rewrite"
UPGRADE = "upgrade"


@record
class FileEdge:
    """Rows of `source` went into `target`. `kind`: "rewrite", or "upgrade" (same bytes, deeper)."""

    partition: bytes
    bucket: int
    source_name: str
    source_level: int
    target_name: str
    target_level: int
    kind: str = REWRITE


@record
class BucketCompaction:
    """The files that a compaction read and wrote in one bucket. Upgraded files are in neither tuple."""

    partition: bytes
    bucket: int
    read: tuple[DataFileMeta, ...]
    written: tuple[DataFileMeta, ...]
    upgraded: tuple[tuple[DataFileMeta, DataFileMeta], ...]  # (before, after)

    @property
    def output_level(self) -> int | None:
        """The deepest level that received a file; None if everything cancelled out."""
        levels = [file.level for file in (*self.written, *(after for _, after in self.upgraded))]
        return max(levels, default=None)


def bucket_compactions(entries: Iterable[ManifestEntry]) -> tuple[BucketCompaction, ...]:
    """Return the compactions of a COMPACT snapshot's delta, in order of (partition, bucket)."""
    deleted: dict[BucketIdentity, list[DataFileMeta]] = defaultdict(list)
    added: dict[BucketIdentity, list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        side = added if entry.kind is EntryKind.ADD else deleted
        side[(entry.partition, entry.bucket)].append(entry.file)
    return tuple(
        _bucket_compaction(bucket, deleted.get(bucket, []), added.get(bucket, []))
        for bucket in sorted(deleted.keys() | added.keys())
    )


def _bucket_compaction(
    identity: BucketIdentity, deleted: Sequence[DataFileMeta], added: Sequence[DataFileMeta]
) -> BucketCompaction:
    after_by_name = {file.file_name: file for file in added}
    before_by_name = {file.file_name: file for file in deleted}
    both = after_by_name.keys() & before_by_name.keys()
    return BucketCompaction(
        partition=identity[0],
        bucket=identity[1],
        read=tuple(file for file in deleted if file.file_name not in both),
        written=tuple(file for file in added if file.file_name not in both),
        upgraded=tuple((before_by_name[name], after_by_name[name]) for name in sorted(both)),
    )


def file_edges(
    compactions: Iterable[BucketCompaction], key_order: KeyOrder | None = None
) -> tuple[FileEdge, ...]:
    """Return the edges from source files to target files.

    A rewritten file has an edge to each output whose key range overlaps its own; without `key_order`, to
    every output of its bucket. The manifest entries suffice, so a rebuild returns the same edges.
    """
    edges: list[FileEdge] = []
    for bucket in compactions:
        pairs = [(before, after, UPGRADE) for before, after in bucket.upgraded]
        pairs += [(*pair, REWRITE) for pair in _rewrites(bucket, key_order)]
        edges += [
            FileEdge(
                partition=bucket.partition,
                bucket=bucket.bucket,
                source_name=source.file_name,
                source_level=source.level,
                target_name=target.file_name,
                target_level=target.level,
                kind=kind,
            )
            for source, target, kind in pairs
        ]
    return tuple(edges)


def _rewrites(
    bucket: BucketCompaction, key_order: KeyOrder | None
) -> Iterable[tuple[DataFileMeta, DataFileMeta]]:
    if key_order is None:
        return [(source, target) for source in bucket.read for target in bucket.written]
    outputs = sorted(
        ((key_order(file.min_key), key_order(file.max_key), file) for file in bucket.written),
        key=lambda output: output[0],
    )
    first_keys = [first for first, _, _ in outputs]
    pairs: list[tuple[DataFileMeta, DataFileMeta]] = []
    for source in bucket.read:
        lowest, highest = key_order(source.min_key), key_order(source.max_key)
        reachable = outputs[: bisect_right(first_keys, highest)]
        pairs += [(source, target) for _, last, target in reachable if last >= lowest]
    return pairs
