"""The trash: give back what maintenance took, or let it go for good."""

from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.meta.trash import TrashRecord
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.trash import TrashStore
from lsm_engine.table.ground.components import Removal
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.orphans import reachable_paths, root_paths
from lsm_engine.table.tags.roots import Roots

GIVEN_BACK = "lsm.given-back"
"""Property of a snapshot that came back from the trash: an id, another one each time."""


@record
class TrashReport:
    """Records that were emptied, and the files that went; or would, in a `dry_run`."""

    records: tuple[str, ...]
    paths: tuple[str, ...]
    dry_run: bool

    def __str__(self) -> str:
        if not self.records:
            return "no record of the trash is past its time"
        verb = "would delete" if self.dry_run else "deleted"
        return f"{verb} {counted(len(self.paths), 'file')} of {counted(len(self.records), 'record')} of the trash"


def trash_of(session: TableSession) -> TrashStore:
    """Return the table's trash."""
    return TrashStore(session.file_io, session.paths)


def undo(session: TableSession, name: str | None) -> TrashRecord:
    """Give back what one record holds (None: the newest): its snapshots, changelogs and tags.

    Nothing is changed unless all of it can come back. A kill leaves some of it back and the record
    there; undoing again finishes. Raises NotFoundError for an empty trash, InvalidInputError where
    the table has new snapshots so that those of the record no longer fit.
    """
    one = _record(session, name)
    branch = session
    if one.branch != session.paths.branch_name:
        raise InvalidInputError(
            f"that was taken from branch {one.branch or 'main'!r}; undo it there", record=one.name
        )
    missing = [path for path in one.paths if not session.file_io.exists(path)]
    if missing:
        raise CorruptFileError(
            "files of the trash are missing: no undo", file=missing[0], count=len(missing)
        )
    order = _fitting(branch, one)
    for tag in one.tags:
        there = branch.tags.find(tag.name)
        if there is not None and there != tag:
            raise AlreadyExistsError(
                f"tag {tag.name!r} was made anew since; rename it first", tag=tag.name
            )
    if not one.was_rolled_back:
        # Also those that are there: the expiry that takes them may go on.
        order = one.snapshots[::-1]
    for snapshot in order:
        _give_back(branch, snapshot)
    if order:
        branch.snapshots.announce(max(order, key=lambda snapshot: snapshot.id))
        oldest = branch.snapshots.stable_listing()[0].id
        branch.snapshots.hint_earliest(oldest)
    for changelog in one.changelogs:
        branch.changelogs.publish(changelog)
    for tag in one.tags:
        _give_tag_back(branch, tag)
        _notify_tagged(session, one, tag.name)
    trash_of(session).delete(one.name)
    return one


def _give_back(branch: TableSession, snapshot: Snapshot) -> None:
    """Create a snapshot file again, with a property that sets it apart from the one that was taken.

    So the maintenance that took it, if it goes on, deletes nothing of what is back.
    """
    properties = {**(snapshot.properties or {}), GIVEN_BACK: branch.ids.new_id()}
    if not branch.snapshots.give_back(replace(snapshot, properties=properties)):
        raise CommitConflictError(
            f"another file has the name of snapshot {snapshot.id}; remove orphan files, which takes "
            "what never counted, and undo again",
            snapshot_id=snapshot.id,
        )


def _give_tag_back(branch: TableSession, tag: Tag) -> None:
    """Make a tag again, or give it a new id, so that who deletes the one that was read fails."""
    back = replace(tag, id=branch.ids.new_id())
    there = branch.tags.find(tag.name)
    if there is not None and there == tag and branch.tags.replace(there, back) is not None:
        return
    branch.tags.create(back, numeric=True)


def _notify_tagged(session: TableSession, one: TrashRecord, name: str) -> None:
    tag = next(tag for tag in one.tags if tag.name == name)
    session.notify(lambda listener: listener.tagged(session.name, tag))


def _record(session: TableSession, name: str | None) -> TrashRecord:
    store = trash_of(session)
    if name is None:
        records = store.list()
        if records:
            return records[-1]
        raise NotFoundError(
            "the trash is empty; with 'maintenance.trash-retained' it is filled",
            kind=ErrorKind.NO_SUCH_FILE,
        )
    found = store.find(name)
    if found is None:
        raise NotFoundError(
            f"no record {name!r} in the trash", kind=ErrorKind.NO_SUCH_FILE, record=name
        )
    return found


def _fitting(branch: TableSession, one: TrashRecord) -> Sequence[Snapshot]:
    """Return the record's snapshots that are not back yet, in the order in which they come back.

    They have to join those that are there without a gap: below the oldest, newest first, or above the
    newest, oldest first.
    """
    there = {snapshot.id: snapshot for snapshot in branch.snapshots.stable_listing()}
    absent = [snapshot for snapshot in one.snapshots if snapshot.id not in there]
    wrong = [
        snapshot.id
        for snapshot in one.snapshots
        if snapshot.id in there and not same_state(there[snapshot.id], snapshot)
    ]
    if not absent and not wrong:
        return ()
    below = bool(there) and bool(absent) and absent[-1].id + 1 == min(there)
    above = bool(absent) and absent[0].id == max(there, default=0) + 1
    if wrong or not (below or above):
        raise InvalidInputError(
            "the table has new snapshots, and these no longer join the ones that are there; "
            "tag what you need with rollback_to_as_latest instead",
            snapshot_ids=[snapshot.id for snapshot in one.snapshots][:20],
        )
    return absent[::-1] if below else absent


def empty(session: TableSession, *, everything: bool, dry_run: bool) -> TrashReport:
    """Delete the files of records older than `maintenance.trash-retained`, or of `everything`.

    Files that some root names by now are kept. Nothing is deleted unless every root could be read.
    """
    store = trash_of(session)
    retained = session.options[core_options.MAINTENANCE_TRASH_RETAINED]
    now = session.clock.now_millis()
    over = [
        one
        for one in store.list()
        if everything or retained is None or now - one.created_millis > retained
    ]
    emptied: list[str] = []
    for one in over:
        reachable = reachable_paths(session, besides=one.name)
        held = root_paths(session, Roots(session).record_roots(one))
        paths = [
            path for path in dict.fromkeys([*one.paths, *sorted(held)]) if path not in reachable
        ]
        emptied += paths
        if dry_run:
            continue
        for path in paths:
            session.manifests.forget(path.rpartition("/")[2])
        session.file_io.delete_many(paths)
        store.delete(one.name)
        _notify_emptied(session, one, paths)
    return TrashReport(
        records=tuple(one.name for one in over), paths=tuple(emptied), dry_run=dry_run
    )


def _notify_emptied(session: TableSession, one: TrashRecord, paths: Sequence[str]) -> None:
    if not session.components.listeners:
        return
    removal = Removal(
        removal_id=session.ids.new_id(),
        kind="empty-trash",
        reason=f"{one.reason}; its time in the trash is over",
        at_millis=session.clock.now_millis(),
        files=tuple(path.rpartition("/")[2] for path in paths),
    )
    session.notify(lambda listener: listener.removed(session.name, removal))
