"""Manifest entries, and the metadata of manifests."""

from collections.abc import Iterable

from lsm_engine.base.errors import CommitConflictError, CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.format.data_file import DataFileMeta, SimpleStats
from lsm_engine.options.modes import EntryKind

Bucket = tuple[bytes, int]
"""(partition, bucket): what holds one LSM tree. The partition is a stored row."""
PhysicalFile = tuple[bytes, int, str]
"""(partition, bucket, file name): a file on disk, on whatever level an entry has it."""
FileIdentity = tuple[bytes, int, int, str]
"""(partition, bucket, level, file name): what a DELETE entry must match."""


@record
class BucketScope:
    """Whole partitions, and single buckets: whose files are looked at."""

    partitions: frozenset[bytes] = frozenset()
    buckets: frozenset[Bucket] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is looked at."""
        return not (self.partitions or self.buckets)

    def __call__(self, partition: bytes, bucket: int) -> bool:
        """Whether files of this bucket are looked at."""
        return partition in self.partitions or (partition, bucket) in self.buckets

    def may_be_in(self, meta: "ManifestFileMeta") -> bool:
        """Whether a manifest may name files of these buckets, by the range of their numbers."""
        low, high = meta.min_bucket, meta.max_bucket
        if self.partitions or low is None or high is None:
            return True
        return any(low <= bucket <= high for _, bucket in self.buckets)


@record
class ManifestEntry:
    """One file added to or taken from a table. `partition` is a stored row."""

    kind: EntryKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file, equal for its ADD and its DELETE."""
        return (self.partition, self.bucket, self.file.level, self.file.file_name)

    @property
    def physical_file(self) -> PhysicalFile:
        """The file on disk that the entry names."""
        return (self.partition, self.bucket, self.file.file_name)


@record
class ManifestFileMeta:
    """One row of a manifest list. The optional members are None when the writer left them out."""

    file_name: str
    file_size: int
    added_file_count: int
    deleted_file_count: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    total_buckets: int | None = None
    extra_files: tuple[str, ...] | None = None
    checksum: int | None = None  # of the manifest's bytes


@record
class StoredKeys:
    """Keys of a table as stored rows, by partition; under None where a key determines no partition.

    `emptied_partitions` hold no row any more. `texts` are the keys' long values, as they stand in files.
    """

    by_partition: tuple[tuple[bytes | None, frozenset[bytes]], ...]
    emptied_partitions: frozenset[bytes]
    texts: tuple[bytes, ...]


def by_bucket(entries: Iterable[ManifestEntry]) -> dict[Bucket, list[ManifestEntry]]:
    """Return entries by the bucket that their files are of, in the order given."""
    entries_by_bucket: dict[Bucket, list[ManifestEntry]] = {}
    for entry in entries:
        entries_by_bucket.setdefault((entry.partition, entry.bucket), []).append(entry)
    return entries_by_bucket


def fold(entries: Iterable[ManifestEntry], *, strict: bool = True) -> list[ManifestEntry]:
    """Return the live entries after ADD and DELETE entries, oldest first, in order of first addition.

    A DELETE whose ADD is not among `entries` remains an entry, as it belongs to a file of an older
    manifest. With `strict`, adding a live file twice raises CommitConflictError.
    """
    live: dict[FileIdentity, ManifestEntry] = {}
    for entry in entries:
        added = live.get(entry.identity)
        if entry.kind is EntryKind.ADD:
            if strict and added is not None and added.kind is EntryKind.ADD:
                raise CommitConflictError(
                    "a file is added twice; reload the table and try again",
                    file=entry.file.file_name,
                )
            live[entry.identity] = entry
        elif added is not None and added.kind is EntryKind.ADD:
            del live[entry.identity]
        else:
            live[entry.identity] = entry
    return list(live.values())


def live_files(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the files that a whole history of entries leaves live; raises CorruptFileError if a
    DELETE has no ADD before it.
    """
    folded = fold(entries)
    for entry in folded:
        if entry.kind is EntryKind.DELETE:
            raise CorruptFileError(
                "a manifest deletes a file that no manifest added; run verify",
                file=entry.file.file_name,
            )
    return folded
