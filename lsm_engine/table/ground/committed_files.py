"""What a commit published, read again from its files."""

from collections.abc import Callable, Iterable, Iterator

from lsm_engine.base.errors import NotFoundError
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.session import TableSession


def committed_files(session: TableSession, snapshot: Snapshot) -> CommittedFiles:
    """Read again what a commit published."""
    manifests = session.manifests
    delta = tuple(session.manifest_list(snapshot, snapshot.delta_manifest_list))
    try:
        changelog_list = snapshot.changelog_manifest_list
        changelog = (
            () if changelog_list is None else tuple(session.manifest_list(snapshot, changelog_list))
        )
    except NotFoundError:
        changelog = ()  # it goes with its snapshot, though a tag keeps the rest
    return CommittedFiles(
        snapshot=snapshot,
        schema=session.schemas.load(snapshot.schema_id),
        base_manifests=tuple(session.manifest_list(snapshot, snapshot.base_manifest_list)),
        delta_manifests=delta,
        changelog_manifests=changelog,
        delta=tuple(_entries(delta, manifests.read_entries)),
        changelog=tuple(_entries(changelog, manifests.read_entries)),
    )


def _entries(
    metas: Iterable[ManifestFileMeta],
    read: Callable[[ManifestFileMeta], Iterable[ManifestEntry]],
) -> Iterator[ManifestEntry]:
    for meta in metas:
        yield from read(meta)
