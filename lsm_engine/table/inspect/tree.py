"""Each bucket's LSM tree as facts for people and pictures: sorted runs, newest first."""

from lsm_engine.base.record import record
from lsm_engine.mergetree.levels import Levels
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.meta.manifest import by_bucket
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession


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
