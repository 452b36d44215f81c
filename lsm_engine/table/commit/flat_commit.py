"""A commit of files that are already there: a former state made the newest, manifests written anew.

Its base manifests hold the state before it as additions alone, so that a file which an older snapshot
took away may be added again: readers fold entries without looking at their order (format section 5).
Nothing of it is staged, so a lost race costs only the metadata of the attempt.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, CommitUnknownError, ErrorKind, LsmError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit import CommitPlan, SnapshotFiles, plan_commit, snapshot_of
from lsm_engine.plan.commit_steps import CommitStep
from lsm_engine.table.commit.commit import WRITER_VERSION, CommitIdentity
from lsm_engine.table.commit.commit_metadata import MetadataWriter, WrittenMetadata
from lsm_engine.table.commit.taken_back import withdrawn
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)


@record
class Change:
    """What the next snapshot takes from the newest one and adds to it: files that exist.

    `index_manifest` and `watermark` are those of the state that it makes; `keeps_index`: the base's.
    """

    kind: CommitKind
    gone: tuple[ManifestEntry, ...] = ()
    added: tuple[ManifestEntry, ...] = ()
    index_manifest: str | None = None
    keeps_index: bool = True
    watermark: int | None = None


def commit_flat(
    session: TableSession,
    identity: CommitIdentity,
    change_of: Callable[[Snapshot, Sequence[ManifestEntry]], Change | None],
) -> Snapshot | None:
    """Publish what `change_of(newest snapshot, its live files)` asks for; None if that is nothing.

    Asked again on every new base, until it lands. Raises CommitConflictError after
    `commit.max-retries` lost races, CommitUnknownError if the storage does not tell.
    """
    uuid = session.ids.new_id()
    for attempt in range(1 + session.options[core_options.COMMIT_MAX_RETRIES]):
        base = session.snapshots.latest()
        if base is None:
            return None
        live = session.live_entries(base)
        change = change_of(base, live)
        if change is None:
            return None
        made = _attempt(session, _step(identity, uuid, change), base, live, change)
        if made is not None:
            return made
        session.clock.sleep_millis(
            session.options[core_options.COMMIT_MIN_RETRY_WAIT] << min(attempt, 8)
        )
    raise CommitConflictError(
        "other writers took every snapshot id that this commit tried for; nothing of it is visible",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _step(identity: CommitIdentity, uuid: str, change: Change) -> CommitStep:
    return CommitStep(
        kind=change.kind,
        uuid=uuid,
        commit_user=identity.commit_user,
        commit_identifier=identity.commit_identifier,
        delta=(*_as(EntryKind.DELETE, change.gone), *_as(EntryKind.ADD, change.added)),
        properties=identity.properties,
    )


def _as(kind: EntryKind, entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    return [replace(entry, kind=kind) for entry in entries]


def _attempt(
    session: TableSession,
    step: CommitStep,
    base: Snapshot,
    live: Sequence[ManifestEntry],
    change: Change,
) -> Snapshot | None:
    plan = plan_commit(step, base, planned_on=base)
    writer = MetadataWriter(session)
    try:
        written = _written(writer, plan, live)
        snapshot = snapshot_of(
            plan,
            written.files,
            schema_id=session.schema.id,
            now_millis=session.clock.now_millis(),
            writer_version=WRITER_VERSION,
        )
        if not change.keeps_index:
            snapshot = replace(
                snapshot, index_manifest=change.index_manifest, watermark=change.watermark
            )
        durable: bool = session.options[core_options.COMMIT_FSYNC]
        if durable:
            session.file_io.sync(written.paths)
    except LsmError:
        session.delete_quietly(writer.paths)
        raise
    landed = _landed(session, snapshot, writer.paths)
    if not landed or withdrawn(session.snapshots, snapshot, base):
        session.delete_quietly(writer.paths)
        return None
    log.info("published snapshot=%d table=%s", snapshot.id, session.name)
    files = CommittedFiles(
        snapshot=snapshot,
        schema=session.schema,
        base_manifests=written.base,
        delta_manifests=written.delta,
        changelog_manifests=(),
        delta=plan.delta,
        changelog=(),
    )
    session.notify(lambda listener: listener.committed(session.name, files))
    return snapshot


def _written(
    writer: MetadataWriter, plan: CommitPlan, live: Sequence[ManifestEntry]
) -> WrittenMetadata:
    base = writer.manifests(live)
    delta = writer.manifests(plan.delta)
    base_list, base_size = writer.list(base)
    delta_list, delta_size = writer.list(delta)
    return WrittenMetadata(
        files=SnapshotFiles(
            base_manifest_list=base_list,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_list,
            delta_manifest_list_size=delta_size,
            checksums=writer.checksums,
        ),
        base=tuple(base),
        delta=tuple(delta),
        changelog=(),
        paths=tuple(writer.paths),
    )


def _landed(session: TableSession, snapshot: Snapshot, paths: Sequence[str]) -> bool:
    """Publish; where the storage does not tell, look who has the id. Unknown: nothing is deleted."""
    unknown = CommitUnknownError(
        "the storage did not say whether the commit is visible; look for its uuid in "
        "table.snapshots() before trying again",
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid,
    )
    try:
        return session.snapshots.publish(snapshot)
    except CommitUnknownError:
        log.warning("publish of snapshot %d gave no answer; looking for it", snapshot.id)
    except LsmError:
        session.delete_quietly(paths)
        raise
    try:
        found = session.snapshots.find(snapshot.id)
    except LsmError as cause:
        raise unknown from cause
    if found is None:
        raise unknown
    if found.uuid == snapshot.uuid:
        session.snapshots.announce(snapshot.id)
        return True
    return False
