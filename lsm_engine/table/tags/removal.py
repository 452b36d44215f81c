"""Carry out what maintenance has planned: delete files in an order that a kill may cut anywhere.

With `maintenance.trash-retained` the files are kept, and a record protects them from others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.meta.commit_message import RecordedIdentifiers
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.plan.expire import DeadFile, ExpirePlan
from lsm_engine.plan.live_snapshots import is_of_another_client
from lsm_engine.plan.ownership import (
    IdentifiersOfLine,
    Limits,
    has_property,
    recorded_before,
    rolled_back,
)
from lsm_engine.store.snapshot_removal import delete_states
from lsm_engine.store.trash import TrashStore
from lsm_engine.table.ground.components import Removal
from lsm_engine.table.ground.session import TableSession

_BESIDE = 500
"""So many files go while the first snapshot is looked at, which is to be deleted a round later."""


def carry_out(
    session: TableSession,
    plan: ExpirePlan,
    *,
    kind: str = "expire-snapshots",
    again: Callable[[], ExpirePlan] | None = None,
) -> bool:
    """Delete what a plan names, in its order. Files that are deleted already are no error.

    A plan has one tag at most. False, and nothing is deleted, if that has changed since it was read, or is
    deleted. `again` plans anew once it is deleted: who made another tag of it meanwhile is a root then, or has
    seen that it was deleted.
    """
    _keep_changelogs(session, plan)
    kept = keep_in_trash(session, plan)
    if not all(map(session.tags.delete, plan.tags)):
        if kept is not None:
            TrashStore(session.file_io, session.paths).delete(kept.name)
        return False
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    if plan.tags and durable:
        # After a power cut a tag must not be back without its files.
        session.file_io.sync_directory(session.paths.tag_directory)
    if again is not None and not kept:
        plan = again()
    directories: set[str] = set()

    def delete_files() -> None:
        if not kept:
            directories.update(_delete_files(session, plan))

    if kept is not None:
        _delete_recorded(session, plan)
    elif sum(1 for _ in islice(planned_paths(session, plan), _BESIDE + 1)) > _BESIDE:
        delete_files()
        delete_states(session.file_io, session.snapshots, plan.expired)
    else:
        delete_states(session.file_io, session.snapshots, plan.expired, files=delete_files)
    for changelog in plan.expired_changelogs:
        _delete_changelog(session, changelog)
    if session.options[core_options.SNAPSHOT_CLEAN_EMPTY_DIRECTORIES]:
        for directory in sorted(directories):
            session.file_io.remove_empty_directory(directory)
    notify_removed(session, plan, kind)
    return True


def _delete_changelog(session: TableSession, changelog: Snapshot) -> None:
    """Delete a changelog's file as it was read. Raises CommitConflictError where it was given back since."""
    if session.changelogs.delete_unchanged(changelog):
        return
    if session.changelogs.exists(changelog.id):
        raise CommitConflictError(
            f"changelog {changelog.id} was given back from the trash while it expired; nothing more was deleted, "
            "expire again if it is to go",
            snapshot_id=changelog.id,
            table=session.name,
        )


def _delete_recorded(session: TableSession, plan: ExpirePlan) -> None:
    """Delete the snapshot files that a record of the trash holds, each only as it was read.

    What is given back meanwhile has another content. Raises CommitConflictError then.
    """
    for snapshot in plan.expired:
        if session.snapshots.delete_unchanged(snapshot):
            continue
        if session.snapshots.find_now(snapshot.id) is not None:  # and not deleted by another expiry
            raise CommitConflictError(
                f"snapshot {snapshot.id} was given back from the trash while it expired; nothing more was "
                "deleted, expire again if it is to go",
                snapshot_id=snapshot.id,
                table=session.name,
            )


def notify_removed(session: TableSession, plan: ExpirePlan, kind: str) -> None:
    """Notify listeners which snapshots and tags a plan removed, and why."""
    snapshots = (*plan.expired, *plan.expired_changelogs)
    if not session.components.listeners:
        return
    removal = Removal(
        removal_id=session.ids.new_id(),
        kind=kind,
        reason=plan.reason,
        at_millis=session.clock.now_millis(),
        branch=session.paths.branch_name,
        snapshot_ids=tuple(snapshot.id for snapshot in snapshots),
        tags=tuple(tag.name for tag in plan.tags),
        files=tuple(file.file_name for file in (*plan.data_files, *plan.changelog_files)),
        freed_bytes=plan.freed_bytes,
    )
    session.notify(lambda listener: listener.removed(session.name, removal))


def keep_in_trash(
    session: TableSession, plan: ExpirePlan, *, paths: Iterable[str] | None = None
) -> TrashRecord | None:
    """Write a record of what a plan takes, if the table has a trash; None without one.

    `paths`: the files to keep, by default all that the plan would delete.
    """
    if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is None:
        return None
    now = session.clock.now_millis()
    record = TrashRecord(
        name=f"trash-{now:013d}-{session.ids.new_id()}",
        created_millis=now,
        reason=plan.reason,
        branch=session.paths.branch_name,
        snapshots=plan.expired,
        changelogs=plan.expired_changelogs,
        tags=plan.tags,
        paths=tuple(planned_paths(session, plan) if paths is None else paths),
    )
    TrashStore(session.file_io, session.paths).put(record)
    return record


def planned_paths(session: TableSession, plan: ExpirePlan) -> Iterator[str]:
    """Yield the files that a plan deletes, in the order in which they go: data before metadata."""
    for file in chain(plan.data_files, plan.changelog_files):
        yield from _paths_of(session, file)
    yield from _metadata_paths(session, plan)


def _keep_changelogs(session: TableSession, plan: ExpirePlan) -> None:
    """Write the changelogs that outlive their snapshots, before anything of those goes.

    EARLIEST names the first of all before it is there, so that one that is lost is missed.
    """
    changelogs = session.changelogs
    if plan.outlived:
        marked = changelogs.earliest_hint()
        if marked is None or not changelogs.exists(marked):
            there = changelogs.ids()
            if marked is None or not there:
                changelogs.hint_earliest(min([*there, plan.outlived[0].id]))
    for snapshot in plan.outlived:
        session.changelogs.publish(snapshot)
    if plan.outlived:
        session.changelogs.hint_latest(plan.outlived[-1].id)


def _delete_files(session: TableSession, plan: ExpirePlan) -> set[str]:
    """Delete files; return the directories that data files went from."""
    directories = set()

    def data_paths() -> Iterator[str]:
        for file in chain(plan.data_files, plan.changelog_files):
            for path in _paths_of(session, file):
                directories.add(path.rpartition("/")[0])
                yield path

    metadata = list(_metadata_paths(session, plan))
    for path in metadata:
        session.manifests.forget(path.rpartition("/")[2])
    if not session.file_io.facts.has_directories:  # batches, in this order
        session.file_io.delete_many(chain(data_paths(), metadata))
        return directories
    session.file_io.delete_many(data_paths())
    lists_at = len(metadata) - len(plan.metadata.manifest_lists)
    # Lists name the others: whoever tries again finds by them what an error left.
    for paths in (metadata[:lists_at], metadata[lists_at:]):
        session.file_io.delete_many(paths)
    return directories


def _metadata_paths(session: TableSession, plan: ExpirePlan) -> Iterator[str]:
    names, paths = plan.metadata, session.paths
    yield from map(paths.manifest, sorted(names.manifests | names.index_manifests))
    yield from map(paths.index_file, sorted(names.index_files))
    yield from map(paths.statistics_file, sorted(names.statistics))
    yield from map(paths.manifest, sorted(names.manifest_lists))


def _paths_of(session: TableSession, file: DeadFile) -> Iterator[str]:
    """A file outside of the table (`external_path`) is nobody's to delete but its owner's."""
    if file.external_path is None:
        context = session.context()
        for name in (file.file_name, *file.extra_files):
            yield context.data_file(file.partition, file.bucket, name)


# --- commit identifiers -----------------------------------------------------------------------

Changed = Callable[[RecordedIdentifiers | None], RecordedIdentifiers | None]


def limits_of(session: TableSession) -> Limits:
    """Return how much the options of a table keep."""
    options = session.options
    return Limits(
        users=options[core_options.COMMIT_IDENTIFIER_NUM_RETAINED],
        seconds=options[core_options.COMMIT_IDENTIFIER_TIME_RETAINED] // 1000,
    )


def now_seconds(session: TableSession) -> int:
    """Return the time by the table's clock, in seconds since 1970."""
    return session.clock.now_millis() // 1000


def change_file(session: TableSession, changed: Changed) -> None:
    """Change the file, durably: what rests on it may not outlive it in a power cut."""
    session.commit_identifiers.change(changed)
    if session.options[core_options.COMMIT_FSYNC]:
        session.file_io.sync([session.paths.commit_identifier_file])


def keep_identifiers(session: TableSession, snapshots: Sequence[Snapshot], count: int) -> None:
    """Write down what the first `count` of some snapshots, oldest first, witness before they expire.

    Nothing has to be written where one of those that stay carries the commit identifiers. Else they are of
    other clients, and the next numbered commit reads them down to the oldest, and then the file.
    """
    if not count or any(map(has_property, snapshots[count:])):
        return
    is_ours = any(
        snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER and not is_of_another_client(snapshot)
        for snapshot in snapshots
    )
    if (
        not is_ours
        and not any(map(has_property, snapshots))
        and not session.commit_identifiers.read()
    ):
        return
    newest = snapshots[-1]
    line = session.commit_identifiers.up_to(newest)
    change_file(session, lambda recorded: _up_to(session, line, recorded, newest))


def roll_identifiers_back(session: TableSession, target: Snapshot) -> None:
    """Take back what a rollback takes back: a replay of it is a new commit."""
    if session.commit_identifiers.read() is None:
        return
    line = session.commit_identifiers.up_to(target)

    def changed(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers | None:
        if recorded is None:
            return None
        return _up_to(session, line, rolled_back(recorded, line, target.id), target)

    change_file(session, changed)


def recorded_at(session: TableSession, snapshot: Snapshot) -> RecordedIdentifiers | None:
    """Return what the file of a branch holds that begins with a snapshot; None: it needs none."""
    line, recorded = session.commit_identifiers.up_to(snapshot), session.commit_identifiers.read()
    if recorded is None and not line.identifiers.has_file:
        return None
    former = None if recorded is None else rolled_back(recorded, line, snapshot.id)
    return _up_to(session, line, former, snapshot)


def identifiers_up_to(branch: TableSession, newest: Snapshot) -> RecordedIdentifiers | None:
    """Return the commit identifiers of a branch up to a snapshot, for main; None: its snapshots have them all."""
    line, recorded = branch.commit_identifiers.up_to(newest), branch.commit_identifiers.read()
    if recorded is None and not line.identifiers.has_file:
        return None
    return _up_to(branch, line, recorded, newest)


def take_identifiers_over(
    session: TableSession, added: RecordedIdentifiers | None, *, is_done: bool
) -> None:
    """Write down for main what a branch has, whose snapshots main takes over.

    Before that (not `is_done`) what main has of its own users stays: a fast-forward that dies has come part of the way.
    """
    if added is None:
        return

    def changed(recorded: RecordedIdentifiers | None) -> RecordedIdentifiers:
        if recorded is None:
            return added if is_done else replace(added, snapshot_id=0, is_recorded=False)
        users = {**added.users, **recorded.users}
        if is_done:
            newer = {
                key: last
                for key, last in added.users.items()
                if key not in recorded.users or recorded.users[key].snapshot_id < last.snapshot_id
            }
            users = {**recorded.users, **newer}
        return RecordedIdentifiers(
            snapshot_id=max(recorded.snapshot_id, added.snapshot_id)
            if is_done
            else recorded.snapshot_id,
            users=users,
            pending={**added.pending, **recorded.pending},
            forgotten=recorded.forgotten | added.forgotten,
            is_recorded=recorded.is_recorded and added.is_recorded,
        )

    change_file(session, changed)


def _up_to(
    session: TableSession,
    line: IdentifiersOfLine,
    recorded: RecordedIdentifiers | None,
    newest: Snapshot,
) -> RecordedIdentifiers:
    return recorded_before(
        "", line, recorded, newest.id, limits=limits_of(session), now_seconds=now_seconds(session)
    )
