"""Each bucket's LSM tree as facts for people and pictures: sorted runs, newest first."""

import pyarrow as pa

from lsm_engine.base.record import record
from lsm_engine.cache.disk import CacheEntry
from lsm_engine.compact.lookup import compaction_owner
from lsm_engine.format.data_file import DataFileMeta
from lsm_engine.format.manifest import by_bucket
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lookup.lookup import process_cache
from lsm_engine.lsm.levels import Levels
from lsm_engine.planning.compaction import Amplification, amplification
from lsm_engine.table.references import References
from lsm_engine.table.session import TableSession
from lsm_engine.types.type_text import columns_of_text


@record
class TreeRun:
    """One sorted run."""

    level: int
    file_count: int
    row_count: int
    delete_row_count: int
    size_bytes: int
    min_sequence_number: int
    max_sequence_number: int


@record
class BucketTree:
    """One bucket: `runs` newest first; `partition` as its directory is called, "" if there is none."""

    partition: str
    bucket: int
    runs: tuple[TreeRun, ...]

    @property
    def row_count(self) -> int:
        """Rows on disk, not merged."""
        return sum(run.row_count for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk."""
        return sum(run.size_bytes for run in self.runs)


def bucket_trees(session: TableSession, snapshot: Snapshot | None = None) -> list[BucketTree]:
    """Return the trees of a snapshot (None: the newest), by partition and bucket."""
    base = snapshot or session.snapshots.latest()
    if base is None:
        return []
    context = session.context()
    trees = [
        BucketTree(
            partition=context.partition_path(partition),
            bucket=bucket,
            runs=_runs(session, [entry.file for entry in entries]),
        )
        for (partition, bucket), entries in by_bucket(session.live_entries(base)).items()
    ]
    return sorted(trees, key=lambda tree: (tree.partition, tree.bucket))


def _runs(session: TableSession, files: list[DataFileMeta]) -> tuple[TreeRun, ...]:
    if session.key_order is None:
        return (_run(0, files),)
    levels = Levels.from_files(
        files, level_count=session.options.level_count, key_order=session.key_order
    )
    return tuple(_run(run.level, list(run.files)) for run in levels.runs)


def _run(level: int, files: list[DataFileMeta]) -> TreeRun:
    return TreeRun(
        level=level,
        file_count=len(files),
        row_count=sum(file.row_count for file in files),
        delete_row_count=sum(file.delete_row_count or 0 for file in files),
        size_bytes=sum(file.file_size for file in files),
        min_sequence_number=min(file.min_sequence_number for file in files),
        max_sequence_number=max(file.max_sequence_number for file in files),
    )


# -- How much a table writes, reads and keeps beyond its rows, from the commits that are left ------


def measured(session: TableSession, *, commit_count: int | None = None) -> Amplification:
    """Return the amplification over the newest snapshots, all that are left or `commit_count`."""
    newest = list(session.snapshots.newest_first(limit=commit_count))
    live = session.live_entries(newest[0]) if newest else []
    return amplification(
        (
            (snapshot.commit_kind, list(References(session).delta_entries([snapshot])))
            for snapshot in reversed(newest)
        ),
        live,
    )


# -- Requests of lookup files ----------------------------------------------------------------------

LOOKUP_METRICS = columns_of_text(
    "lookup_file STRING NOT NULL, used_by STRING NOT NULL, file_size_in_bytes BIGINT, "
    "request_count BIGINT, hit_count BIGINT, removal_cause STRING"
)


def lookup_metrics(session: TableSession) -> pa.Table:
    """Return one row per lookup file of a table, those removed lately (see DiskCache) first."""
    cache, compacting = process_cache(), compaction_owner(session.file_io)

    def used_by(entry: CacheEntry) -> str | None:
        if entry.owner == compacting:
            return "compaction"
        return "lookup" if entry.owner.rpartition("#")[0] == session.name else None

    rows = [
        {
            "lookup_file": entry.name,
            "used_by": user,
            "file_size_in_bytes": entry.size,
            "request_count": entry.request_count,
            "hit_count": entry.hit_count,
            "removal_cause": entry.removal_cause,
        }
        for entry in (*cache.removed(), *cache.entries())
        if (user := used_by(entry)) is not None
    ]
    return pa.Table.from_pylist(rows, schema=LOOKUP_METRICS)
