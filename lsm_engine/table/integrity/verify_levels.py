"""Verify the levels of buckets: files of a level below 0 do not overlap."""

from collections.abc import Iterable

import pyarrow as pa

from lsm_engine.base.errors import LsmError
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, PARTITION
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Finding


def overlaps(session: TableSession, entries: Iterable[ManifestEntry]) -> list[Finding]:
    """Return the overlaps among files that are all below level 0."""
    order = session.key_order
    assert order is not None
    context = session.context()
    buckets: dict[tuple[bytes, int], list[DataFileMeta]] = {}
    for entry in entries:
        buckets.setdefault((entry.partition, entry.bucket), []).append(entry.file)
    found = []
    for (partition, bucket), files in buckets.items():
        try:
            Levels.of(files, level_count=1, key_order=order)
        except LsmError as error:
            where = context.bucket_directory(partition, bucket)
            found.append(Finding(text=f"{where}: {error}"))
    return found


def identity_of(entry: ManifestEntry) -> tuple[bytes, int, str]:
    """Return what a file is known by: partition, bucket and name."""
    return entry.partition, entry.bucket, entry.file.file_name


def identities_of(entries: pa.Table) -> list[tuple[bytes, int, str]]:
    """Return what the files of decoded manifest entries are known by."""
    columns = (entries.column(name).to_pylist() for name in (PARTITION, BUCKET, FILE_NAME))
    return list(zip(*columns, strict=True))
