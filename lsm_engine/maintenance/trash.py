"""The trash: give back what maintenance took, or let it go for good."""

from collections.abc import Sequence
from dataclasses import replace

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
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance.orphans import reachable_paths, retained_paths
from lsm_engine.metadata.trash import TrashRecord, TrashStore
from lsm_engine.options import core_options
from lsm_engine.planning.ownership import same_state
from lsm_engine.table.references import References
from lsm_engine.table.session import TableSession

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
    """Restore what one record holds (None: the newest): its snapshots, changelogs and tags.

    Nothing is changed unless all of it can come back. The record is claimed first, and deleted last if it is still so:
    of several undos and emptyings one succeeds. A kill leaves some of it back and the record
    there; undoing again finishes. Raises NotFoundError for an empty trash, InvalidInputError where
    the table has new snapshots so that those of the record no longer fit.
    """
    trash_record = _record(session, name)
    branch = session
    if trash_record.branch != session.paths.branch_name:
        raise InvalidInputError(
            f"that was taken from branch {trash_record.branch or 'main'!r}; undo it there",
            record=trash_record.name,
        )
    store = trash_of(session)
    missing = [path for path in trash_record.paths if not session.file_io.exists(path)]
    if missing:
        if store.find(trash_record.name) is None:
            raise _taken_over(trash_record)
        raise CorruptFileError(
            "files of the trash are missing: no undo", file=missing[0], count=len(missing)
        )
    order = _fitting(branch, trash_record)
    for tag in trash_record.tags:
        stored = branch.tags.find(tag.name)
        if stored is not None and stored != tag:
            raise AlreadyExistsError(
                f"tag {tag.name!r} was made anew since; rename it first", tag=tag.name
            )
    if not trash_record.was_rolled_back:
        # Also those that are there: the expiry that takes them may go on.
        order = trash_record.snapshots[::-1]
    # The claim comes before the first file: of several undos, or an emptying, one goes on.
    claimed = store.claim(trash_record, session.ids.new_id())
    if claimed is None:
        raise _taken_over(trash_record)
    giving = _GivingBack(branch, store, claimed)
    try:
        giving.all(order)
    except (AlreadyExistsError, CommitConflictError):
        # Half of a record would be back otherwise.
        giving.take_back()
        raise
    session.follow_iceberg()
    return trash_record


def _taken_over(trash_record: TrashRecord) -> CommitConflictError:
    return CommitConflictError(
        f"others give record {trash_record.name!r} back, or empty it; nothing was given back, look at the trash again",
        record=trash_record.name,
    )


class _GivingBack:
    """What one undo has made again, each with its id: maintenance that took it, if it is still running, deletes nothing of it.

    Nothing is made once another has taken the record over, and what was made goes then.
    """

    def __init__(self, branch: TableSession, store: TrashStore, claimed: TrashRecord) -> None:
        self._branch = branch
        self._store = store
        self._claimed = claimed
        self._snapshots: list[Snapshot] = []
        self._changelogs: list[Snapshot] = []
        self._tags: list[Tag] = []

    def all(self, order: Sequence[Snapshot]) -> None:
        """Make again what the record holds, its snapshots in an order, and delete it."""
        branch, record = self._branch, self._claimed
        for snapshot in order:
            self.snapshot(snapshot)
        if order:
            branch.snapshots.announce(max(order, key=lambda snapshot: snapshot.id))
            # Of what an expiry takes meanwhile there would be a gap, which a listing leaves out.
            branch.snapshots.hint_earliest(branch.snapshots.stable_listing()[0].id)
        for changelog in record.changelogs:
            self.changelog(changelog)
        if record.changelogs:
            self._mend_earliest_changelog()
        if not record.was_rolled_back:
            self._stay()
        for tag in record.tags:
            self.tag(tag)
        # An emptying deletes the record first, and then looks what is named.
        if not self._store.delete_as_read(record):
            raise _taken_over(record)

    def _mend_earliest_changelog(self) -> None:
        """Let EARLIEST of the changelogs name the first of those that lead up to the newest without a gap."""
        ids = self._branch.changelogs.ids()[::-1]
        first = ids[0]
        for number in ids:
            if number < first - 1:
                break
            first = number
        self._branch.changelogs.hint_earliest(first)

    def _stay(self) -> None:
        """Write what is back once more, with another id, now that EARLIEST is back: an expiry may go on that saw a part.

        It takes nothing of it then, or has taken some of it before. Raises CommitConflictError in that case.
        """
        branch, undo_id = self._branch, self._branch.ids.new_id()
        for created, store in (
            (self._snapshots, branch.snapshots),
            (self._changelogs, branch.changelogs),
        ):
            for place, back in enumerate(created):
                again = _marked(back, undo_id)
                if not store.replace_unchanged(back, again):
                    raise CommitConflictError(
                        f"an expiry has taken snapshot {back.id} again; nothing was given back, look at the trash again",
                        snapshot_id=back.id,
                        record=self._claimed.name,
                    )
                created[place] = again
        branch.snapshots.forget_newest()

    def require(self) -> None:
        """Raise CommitConflictError where the record is another's by now."""
        stored = self._store.find(self._claimed.name)
        if stored is None or stored.undo_id != self._claimed.undo_id:
            raise _taken_over(self._claimed)

    def snapshot(self, snapshot: Snapshot) -> None:
        """Create a snapshot file again, or replace that of the same commit."""
        back = self._marked(snapshot)
        self._snapshots.append(back)
        if not self._branch.snapshots.give_back(back, self.require):
            raise CommitConflictError(
                f"another file has the name of snapshot {snapshot.id}; remove orphan files, which takes "
                "what never counted, and undo again",
                snapshot_id=snapshot.id,
            )

    def changelog(self, changelog: Snapshot) -> None:
        """Create a changelog file again, or replace that of the same commit."""
        back = self._marked(changelog)
        self._changelogs.append(back)
        self._branch.changelogs.give_back(back, self.require)

    def tag(self, tag: Tag) -> None:
        """Make a tag again, or give it a new id, so that a deletion of the one that was read fails."""
        back = replace(tag, id=self._branch.ids.new_id(), content=None)
        former = self._branch.tags.find(tag.name)
        # After the tag was read: a record that was taken over meanwhile gives nothing back.
        self.require()
        stored = None
        if former is not None and former == tag:
            stored = self._branch.tags.replace(former, back)
        self._tags.append(stored or self._branch.tags.create(back, numeric=True))

    def take_back(self) -> None:
        """Delete what this undo has made, and no other has replaced."""
        for tag in self._tags:
            self._branch.tags.delete(tag)
        for changelog in self._changelogs:
            self._branch.changelogs.delete_unchanged(changelog)
        for snapshot in self._snapshots[::-1]:
            self._branch.snapshots.delete_unchanged(snapshot)
        if self._snapshots and (ids := self._branch.snapshots.ids()):
            self._branch.snapshots.hint_earliest(ids[0])

    def _marked(self, snapshot: Snapshot) -> Snapshot:
        return _marked(snapshot, self._claimed.undo_id or "")


def _marked(snapshot: Snapshot, undo_id: str) -> Snapshot:
    return replace(snapshot, properties={**(snapshot.properties or {}), GIVEN_BACK: undo_id})


def _record(session: TableSession, name: str | None) -> TrashRecord:
    store = trash_of(session)
    if name is None:
        records = store.list()
        if records:
            return records[-1]
        raise NotFoundError(
            "the trash is empty; maintenance fills it from the time when 'maintenance.trash-retained' is set",
            kind=ErrorKind.NO_SUCH_FILE,
        )
    trash_record = store.find(name)
    if trash_record is None:
        raise NotFoundError(
            f"no record {name!r} in the trash", kind=ErrorKind.NO_SUCH_FILE, record=name
        )
    return trash_record


def _fitting(branch: TableSession, trash_record: TrashRecord) -> Sequence[Snapshot]:
    """Return the record's snapshots that are not back yet, in the order in which they come back.

    They have to join those that are there without a gap: below the oldest, newest first, or above the
    newest, oldest first.
    """
    by_id = {snapshot.id: snapshot for snapshot in branch.snapshots.stable_listing()}
    absent = [snapshot for snapshot in trash_record.snapshots if snapshot.id not in by_id]
    foreign_ids = [
        snapshot.id
        for snapshot in trash_record.snapshots
        if snapshot.id in by_id and not same_state(by_id[snapshot.id], snapshot)
    ]
    if not absent and not foreign_ids:
        return ()
    below = bool(by_id) and bool(absent) and absent[-1].id + 1 == min(by_id)
    above = bool(absent) and absent[0].id == max(by_id, default=0) + 1
    if foreign_ids or not (below or above):
        raise InvalidInputError(
            "the table has new snapshots, and these no longer join the ones that are there; "
            "tag what you need with rollback_to_as_latest instead",
            snapshot_ids=[snapshot.id for snapshot in trash_record.snapshots][:20],
        )
    return absent[::-1] if below else absent


def empty(session: TableSession, *, everything: bool, dry_run: bool) -> TrashReport:
    """Delete the files of records older than `maintenance.trash-retained`, or of `everything`.

    Files that a retained reference names by now stay. Nothing is deleted unless every such reference can be read.
    """
    store = trash_of(session)
    retained = session.options[core_options.MAINTENANCE_TRASH_RETAINED]
    now = session.clock.now_millis()
    expired_records = [
        trash_record
        for trash_record in store.list()
        if everything or retained is None or now - trash_record.created_millis > retained
    ]
    emptied: list[str] = []
    for trash_record in expired_records:
        reachable = reachable_paths(session, besides=trash_record.name)
        recorded_paths = retained_paths(
            session, References(session).retained_by_record(trash_record)
        )
        paths = [
            path
            for path in dict.fromkeys([*trash_record.paths, *sorted(recorded_paths)])
            if path not in reachable
        ]
        emptied += paths
        if dry_run:
            continue
        # An undo meanwhile has changed the record by now, or names its files before this looks again.
        if not store.delete_as_read(trash_record):
            continue
        # An undo that was faster has named the files again.
        reachable = reachable_paths(session)
        paths = [path for path in paths if path not in reachable]
        for path in paths:
            session.manifests.forget(path.rpartition("/")[2])
        session.file_io.delete_many(paths)
        reason = f"{trash_record.reason}; its time in the trash is over"
        names = tuple(path.rpartition("/")[2] for path in paths)
        session.notify_removed("empty-trash", reason, files=names)
    return TrashReport(
        records=tuple(trash_record.name for trash_record in expired_records),
        paths=tuple(emptied),
        dry_run=dry_run,
    )
