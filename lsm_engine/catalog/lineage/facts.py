"""Facts of the lineage: commits, tags, and removals of maintenance.

All but removals are read from the table's files, wall clocks included, so recording them again gives
the same rows. Facts need no SQL."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lsm_engine.base.errors import StorageError
from lsm_engine.base.record import record
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.provenance import Input, Run, inputs_of, run_of
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import Bucket, ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import CommitKind, EntryKind

# -- Edges -----------------------------------------------------------------------------------------
#
# Edges from the source files to the target files of a compaction, from its manifest entries
# alone.

KeyOrder = Callable[[bytes], Any]
"""Stored key -> a value that sorts as the key does."""

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
    deleted: dict[Bucket, list[DataFileMeta]] = defaultdict(list)
    added: dict[Bucket, list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        side = added if entry.kind is EntryKind.ADD else deleted
        side[(entry.partition, entry.bucket)].append(entry.file)
    return tuple(
        _bucket_compaction(bucket, deleted.get(bucket, []), added.get(bucket, []))
        for bucket in sorted(deleted.keys() | added.keys())
    )


def _bucket_compaction(
    identity: Bucket, deleted: Sequence[DataFileMeta], added: Sequence[DataFileMeta]
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
    # Without an order of keys any input may have reached any output.
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
        # Only outputs that begin at or before the last key can hold rows of the source.
        reachable = outputs[: bisect_right(first_keys, highest)]
        pairs += [(source, target) for _, last, target in reachable if last >= lowest]
    return pairs


# -- Facts of the lineage: commits, tags, and the files of expired commits -------------------------

BASE_LIST = "base"
DELTA_LIST = "delta"
CHANGELOG_LIST = "changelog"


class LineageError(StorageError):
    """Lineage was not recorded. The table's files have it: the next question records it."""


@record
class ManifestListFacts:
    """One manifest list of a snapshot. `kind`: "base", "delta" or "changelog"."""

    kind: str
    file_name: str
    file_size: int | None
    manifests: tuple[ManifestFileMeta, ...]


@record
class TagFacts:
    """A tag of `table` as its file holds it."""

    table: TableName
    tag: Tag


@record
class CommitFacts:
    """All facts of one snapshot. Build it with `commit_facts`.

    `entries` are those of the delta list, in order; `changelog_entries` those of the changelog
    list. `partitions` gives the path text ("dt=2013-01-01") of every partition in them. `expired`:
    the snapshot's file is deleted, and the facts come from a tag or changelog.
    """

    table: TableName
    snapshot: Snapshot
    run: Run
    inputs: tuple[Input, ...]
    manifest_lists: tuple[ManifestListFacts, ...]
    entries: tuple[ManifestEntry, ...]
    changelog_entries: tuple[ManifestEntry, ...]
    partitions: Mapping[bytes, str]
    compactions: tuple[BucketCompaction, ...]
    edges: tuple[FileEdge, ...]
    tags: tuple[Tag, ...] = ()
    expired: bool = False


@record
class InheritedFiles:
    """Files in the base of the oldest known snapshot. The snapshots that added them are unknown.

    Needed once per table, when its first snapshots have expired before they were recorded. May be
    recorded in pieces of any size. `entries` are folded: ADD entries only.
    """

    table: TableName
    entries: tuple[ManifestEntry, ...]
    partitions: Mapping[bytes, str]


def commit_facts(
    table: TableName,
    snapshot: Snapshot,
    *,
    manifest_lists: Iterable[ManifestListFacts],
    entries: Iterable[ManifestEntry],
    changelog_entries: Iterable[ManifestEntry] = (),
    partition_text: Callable[[bytes], str],
    key_order: KeyOrder | None = None,
    tags: Iterable[Tag] = (),
    expired: bool = False,
) -> CommitFacts:
    """Return the facts of one snapshot, run and inputs taken from its properties.

    Use it both in a sync and in a rebuild: that is what makes the two agree. `key_order` makes
    the edges of a compaction exact (see `file_edges`); give it always or never.
    """
    delta, changelog = tuple(entries), tuple(changelog_entries)
    is_compaction = snapshot.commit_kind is CommitKind.COMPACT
    compactions = bucket_compactions(delta) if is_compaction else ()
    return CommitFacts(
        table=table,
        snapshot=snapshot,
        run=run_of(snapshot),
        inputs=inputs_of(snapshot),
        manifest_lists=tuple(manifest_lists),
        entries=delta,
        changelog_entries=changelog,
        partitions=partition_texts((*delta, *changelog), partition_text),
        compactions=compactions,
        edges=file_edges(compactions, key_order),
        tags=tuple(tags),
        expired=expired,
    )


def inherited_files(
    table: TableName, entries: Iterable[ManifestEntry], partition_text: Callable[[bytes], str]
) -> InheritedFiles:
    """Return the facts of files whose adding snapshot is no longer known."""
    live = tuple(entries)
    return InheritedFiles(
        table=table, entries=live, partitions=partition_texts(live, partition_text)
    )


def partition_texts(
    entries: Iterable[ManifestEntry], partition_text: Callable[[bytes], str]
) -> dict[bytes, str]:
    """Return the text of each distinct partition, in order of first appearance."""
    distinct = dict.fromkeys(entry.partition for entry in entries)
    return {partition: partition_text(partition) for partition in distinct}


@record
class RemovalFacts:
    """A removal of maintenance and its reason. `removal_id`: the same for a replay.

    `removed_files`: bare names of the files that were deleted with it.
    """

    table: TableName
    removal_id: str
    kind: str
    reason: str
    at_millis: int
    snapshot_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    file_count: int = 0
    freed_bytes: int = 0
    removed_files: tuple[str, ...] = ()


Fact = CommitFacts | TagFacts | InheritedFiles | RemovalFacts
