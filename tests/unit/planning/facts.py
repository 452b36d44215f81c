"""Small facts for plan tests: files, entries, snapshots, with everything that does not matter filled in."""

import struct

from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind, EntryKind

USER = "ada"


def key(number: int) -> bytes:
    """A stored row of one INT."""
    return struct.pack(">i", 1) + bytes(8) + struct.pack("<i", number) + bytes(4)


def key_order(stored: bytes) -> bytes:
    return struct.pack(">q", struct.unpack("<i", stored[12:16])[0] + 2**31)


def data_file(
    name: str, low: int = 0, high: int = 9, *, level: int = 0, rows: int = 10, size: int = 100,
    deletes: int | None = 0, sequence: int = 0,
) -> DataFileMeta:  # fmt: skip
    return DataFileMeta(
        file_name=name, file_size=size, row_count=rows, min_key=key(low), max_key=key(high),
        key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, min_sequence_number=sequence,
        max_sequence_number=sequence + rows, schema_id=0, level=level, delete_row_count=deletes,
    )  # fmt: skip


def entry(
    name: str, low: int = 0, high: int = 9, *, kind: EntryKind = EntryKind.ADD, level: int = 0,
    rows: int = 10, partition: bytes = EMPTY_ROW, bucket: int = 0, total_buckets: int = 1,
    size: int = 100, deletes: int | None = 0, sequence: int = 0,
) -> ManifestEntry:  # fmt: skip
    file = data_file(
        name, low, high, level=level, rows=rows, size=size, deletes=deletes, sequence=sequence
    )
    return ManifestEntry(
        kind=kind, partition=partition, bucket=bucket, total_buckets=total_buckets, file=file
    )


def snapshot(
    id: int, kind: CommitKind = CommitKind.APPEND, *, user: str = USER, identifier: int = 0,
    uuid: str | None = None, time_millis: int = 0, total: int | None = 0, schema_id: int = 0,
    index_manifest: str | None = None, watermark: int | None = None, statistics: str | None = None,
    changelog: str | None = None,
) -> Snapshot:  # fmt: skip
    return Snapshot(
        id=id, schema_id=schema_id, base_manifest_list=f"base-{id}",
        delta_manifest_list=f"delta-{id}", commit_user=user, commit_identifier=identifier,
        commit_kind=kind, time_millis=time_millis, total_record_count=total, delta_record_count=0,
        uuid=uuid, index_manifest=index_manifest, watermark=watermark, statistics=statistics,
        changelog_manifest_list=changelog,
    )  # fmt: skip


def manifest(
    name: str, size: int = 100, *, added: int = 1, deleted: int = 0,
    buckets: tuple[int, int] | None = None, levels: tuple[int, int] | None = None,
) -> ManifestFileMeta:  # fmt: skip
    return ManifestFileMeta(
        file_name=name, file_size=size, added_file_count=added, deleted_file_count=deleted,
        partition_stats=EMPTY_STATS, schema_id=0,
        min_bucket=buckets[0] if buckets else None, max_bucket=buckets[1] if buckets else None,
        min_level=levels[0] if levels else None, max_level=levels[1] if levels else None,
    )  # fmt: skip
