"""Verify the levels of buckets: files of a level below 0 do not overlap."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import LsmError
from lsm_engine.codec.manifest import entries_of
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.manifest import ManifestEntry, by_bucket
from lsm_engine.table.ground.live_files import BUCKET, FILE_NAME, LEVEL, PARTITION
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.integrity.findings import Finding


class LevelVerification:
    """Overlaps of one state after another: what did not change since the last one is known."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._below: frozenset[tuple[bytes, int, str]] = frozenset()
        self._found: list[Finding] = []

    def problems(self, live: pa.Table) -> list[Finding]:
        """Return the overlaps among a state's live files, as decoded manifest entries."""
        below = live.filter(pc.greater(live.column(LEVEL), 0)) if live.num_rows else live
        key = frozenset(identities_of(below))
        if self._session.key_order is None or not key:
            return []
        if key != self._below:
            self._below, self._found = key, _overlaps(self._session, entries_of(below))
        return self._found


def _overlaps(session: TableSession, entries: Iterable[ManifestEntry]) -> list[Finding]:
    """Return the overlaps among files that are all below level 0."""
    order = session.key_order
    assert order is not None
    context = session.context()
    findings = []
    for (partition, bucket), bucket_entries in by_bucket(entries).items():
        try:
            Levels.from_files(
                [entry.file for entry in bucket_entries], level_count=1, key_order=order
            )
        except LsmError as error:
            directory = context.bucket_directory(partition, bucket)
            findings.append(Finding(text=f"{directory}: {error}"))
    return findings


def identity_of(entry: ManifestEntry) -> tuple[bytes, int, str]:
    """Return what a file is known by: partition, bucket and name."""
    return entry.partition, entry.bucket, entry.file.file_name


def identities_of(entries: pa.Table) -> list[tuple[bytes, int, str]]:
    """Return what the files of decoded manifest entries are known by."""
    columns = (entries.column(name).to_pylist() for name in (PARTITION, BUCKET, FILE_NAME))
    return list(zip(*columns, strict=True))
