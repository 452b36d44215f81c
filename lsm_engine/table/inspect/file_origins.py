"""Which commit wrote a file, and which one a row with a sequence number: read from delta lists."""

from collections.abc import Collection, Iterator, Mapping

from lsm_engine.base.errors import NotFoundError
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.session import TableSession

Bucket = tuple[bytes, int]
"""(partition, bucket)."""


@record
class FileOrigins:
    """Of one bucket: the snapshot that wrote each file, by name, and the commits by sequence range.

    `appends`: (first, last, snapshot id) of the sequence numbers of new rows. What was committed
    before the oldest snapshot that is left is not known.
    """

    file_snapshots: Mapping[str, int]
    appends: tuple[tuple[int, int, int], ...]

    def writer_of(self, sequence_number: int) -> int | None:
        """Return the snapshot that brought a row; None if it has expired, or if two may have."""
        writers = {
            snapshot for first, last, snapshot in self.appends if first <= sequence_number <= last
        }
        return writers.pop() if len(writers) == 1 else None


def origins_of(
    session: TableSession, snapshot: Snapshot, place: Bucket, names: Collection[str]
) -> FileOrigins:
    """Return where files of one bucket and their rows came from, as far as snapshots record it."""
    written: dict[str, int] = {}
    appends: list[tuple[int, int, int]] = []
    for at in snapshots_back(session, snapshot):
        try:
            entries = _delta_of(session, at, place)
        except NotFoundError:
            break  # expired meanwhile
        moved = {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE}
        for entry in entries:
            file = entry.file
            if entry.kind is EntryKind.DELETE or file.file_name in moved:
                continue
            if file.file_name in names:
                written[file.file_name] = at.id
            if file.file_source is not FileSource.COMPACT:
                appends.append((file.min_sequence_number, file.max_sequence_number, at.id))
    return FileOrigins(file_snapshots=written, appends=tuple(appends))


def snapshots_back(session: TableSession, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield a snapshot and those before it that are left, newest first."""
    found: Snapshot | None = snapshot
    while found is not None:
        yield found
        found = session.snapshots.before(found)


def _delta_of(session: TableSession, snapshot: Snapshot, place: Bucket) -> list[ManifestEntry]:
    return [
        entry
        for meta in session.manifest_list(snapshot, snapshot.delta_manifest_list)
        if _may_hold(meta, place[1])
        for entry in session.manifests.read_entries(meta)
        if (entry.partition, entry.bucket) == place
    ]


def _may_hold(meta: ManifestFileMeta, bucket: int) -> bool:
    if meta.min_bucket is None or meta.max_bucket is None:
        return True
    return meta.min_bucket <= bucket <= meta.max_bucket
