"""Tags: create, replace, rename and delete them, and delete the files that only a deleted tag named."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace as changed
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, parse_age, parse_millis
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.metadata.snapshots import newest_lately
from lsm_engine.options import core_options
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning import tags
from lsm_engine.planning.expire import ExpirePlan, MetadataNames, plan_tag_removal
from lsm_engine.planning.names import checked_tag_name
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.tags import (
    BATCH_PREFIX,
    READ_PREFIX,
    TagPeriods,
    automatic_tags,
    created_at,
    expired_tags,
    is_lock,
    same_tag,
    surplus,
)
from lsm_engine.storage.bulk import both, results_of
from lsm_engine.storage.clock import wall_time
from lsm_engine.table.references import References, carry_out
from lsm_engine.table.session import TableSession

log = logging.getLogger(__name__)

AN_HOUR = 3_600_000
_RACES = 10
_REFERENCE_READS = 3  # times that retained references are read which expire meanwhile


def create(
    session: TableSession,
    name: str,
    *,
    snapshot_id: int | None = None,
    from_millis: int | None = None,
    retained: str | None = None,
) -> Tag:
    """Name a snapshot (None: the newest; `from_millis`: the first at or after it); return the tag."""
    checked_tag_name(name)
    lifetime = lifetime_of(session, retained, name)
    if from_millis is not None:
        if snapshot_id is not None:
            raise InvalidInputError("name a snapshot or a time, not both", tag=name)
        snapshot, holder = first_at(session, from_millis)
        return tag_snapshot(session, name, snapshot, lifetime, holder=holder)
    if snapshot_id is None and session.file_io.facts.is_remote:
        # A maker that is stopped for long and then killed may leave a tag of an expired snapshot; a lock would cost
        # two requests more.
        newest = newest_lately(session.file_io, session.paths) or snapshot_of(session, None)
        tag = _of_newest(session, name, newest, lifetime)
        if tag is not None:
            return tag
    return tag_snapshot(session, name, snapshot_of(session, snapshot_id), lifetime)


def tag_snapshot(
    session: TableSession,
    name: str,
    snapshot: Snapshot,
    lifetime: int | None,
    *,
    numeric: bool = False,
    holder: Tag | None = None,
) -> Tag:
    """Create a tag of a snapshot. A lock tag keeps the snapshot until then, so that no tag names deleted files.

    `numeric` allows names that are numbers, as tags make themselves. `holder`: a tag that keeps the snapshot, which may
    have expired otherwise. A kill leaves the lock tag for its hour. Raises NotFoundError (expired), AlreadyExistsError.
    """
    # A tag may keep what a rollback took long ago. Read before the lock tag is made: a rollback
    # under way is refused here.
    is_kept = holder is not None and was_rolled_back(session, snapshot)
    with locked(session, snapshot, "tagging-"):
        # An expiry that moved EARLIEST before it could see the lock may be deleting the files.
        if not _is_kept(session, snapshot, holder):
            raise _expired(snapshot)
        tag = session.tags.create(_new_tag(session, name, snapshot, lifetime), numeric=numeric)
        # A rollback that listed tags before takes the snapshot, and leaves the tag.
        if is_rolled_back_after(session, tag) and not is_kept:
            session.tags.delete(tag)
            raise rolled_back(snapshot)
    session.follow_iceberg()
    return tag


def is_rolled_back_after(session: TableSession, tag: Tag) -> bool:
    """Whether a rollback has taken the snapshot of a tag that was just made.

    Raises CommitUnknownError without an answer; NotFoundError, the tag deleted, where the directory holds another
    table by now, and CommitUnknownError where the table was renamed or dropped with the tag.
    """
    try:
        return is_rolled_back(session, tag.snapshot)
    except NotFoundError as cause:
        # The other table, if there is one, has no such snapshot.
        if session.tags.delete(tag):
            raise
        raise session.identity.taken_along(f"tag {tag.name!r}") from cause
    except StorageError as cause:
        # The tag stands there: "retry" alone would hide that.
        raise CommitUnknownError(
            "the tag was made, and the storage does not report whether its snapshot was rolled back meanwhile; look "
            "before trying again",
            tag=tag.name,
            path=cause.facts.get("path"),
        ) from cause


def _of_newest(
    session: TableSession, name: str, newest: Snapshot, lifetime: int | None
) -> Tag | None:
    """Create a tag of the snapshot that was the newest lately; None, and no tag, if it is not the newest any more.

    It is looked at after the tag is made, the successor first: what is there after that has never had one, so
    that no expiry has passed it.
    """
    tag = session.tags.create(_new_tag(session, name, newest, lifetime))
    newer = session.snapshots.find_now(newest.id + 1)
    if newer is not None or not same_state(session.snapshots.find_now(newest.id), newest):
        # A branch that is renamed takes the tag along.
        if not session.tags.delete(tag) and session.identity.is_dropped():
            raise session.identity.taken_along(f"tag {name!r}")
        return None
    session.follow_iceberg()
    return tag


def tag_for_operation(
    session: TableSession,
    name: str,
    snapshot: Snapshot,
    lifetime: int | None,
    *,
    holder: Tag | None = None,
) -> Tag:
    """Create a tag of a snapshot for as long as an operation runs. Other operations do not rely on it.

    `holder`: a tag that keeps the snapshot, which may have expired otherwise.
    """
    is_kept = holder is not None and was_rolled_back(session, snapshot)
    tag = session.tags.create(_new_tag(session, name, snapshot, lifetime))
    try:
        if not is_kept and is_rolled_back(session, snapshot):
            raise rolled_back(snapshot)
        # An expiry that moved the hint before it could see the tag may be deleting the tag's files.
        if not _is_kept(session, snapshot, holder):
            raise _expired(snapshot)
    except LsmError:
        # Nothing may rest on a tag of a snapshot whose files are being deleted.
        session.tags.delete(tag)
        raise
    return tag


def _is_kept(session: TableSession, snapshot: Snapshot, holder: Tag | None) -> bool:
    """Whether no process deletes the files of a snapshot: its tag is as it was read, or it has not expired."""
    # Every deletion spares the files of a tag, so that an unchanged tag is proof without EARLIEST.
    now = None if holder is None else session.tags.find(holder.name)
    if now is not None and holder is not None and now.content == holder.content:
        return True
    return not is_expiring(session, snapshot)


def replace(
    session: TableSession, name: str, *, snapshot_id: int | None = None, retained: str | None = None
) -> Tag:
    """Move a tag to another snapshot (None: the newest) or lifetime; delete the files that only it named.

    Its own snapshot may have expired: then only the lifetime changes.
    Raises NotFoundError if there is no such tag, CommitConflictError if others keep changing it. A kill leaves
    the old tag or the new one; files that only the old one named are then orphans.
    """
    lifetime = lifetime_of(session, retained, name)
    for _ in range(_RACES):
        old = session.tags.load(name)
        is_own = snapshot_id == old.snapshot.id
        snapshot = old.snapshot if is_own else snapshot_of(session, snapshot_id)
        tag = moved(session, old, snapshot, lifetime)
        if tag is not None:
            return tag
    raise _changing(session, name)


def moved(session: TableSession, old: Tag, snapshot: Snapshot, lifetime: int | None) -> Tag | None:
    """Replace a tag's snapshot in one atomic step, and delete the files that only the old one named.

    None, and no change, where the tag is not `old` any more. Meanwhile a tag of its own keeps the new snapshot:
    were the old name to come back because that is expiring, an expiry might have looked just then, and have
    taken the old one's files. A kill leaves that tag for its hour.
    """
    same = same_tag(old, snapshot)
    with nullcontext() if same else _both_kept(session, old, snapshot):
        tag = session.tags.replace(old, _new_tag(session, old.name, snapshot, lifetime))
        if tag is not None and not same and _is_rolled_back_after_move(session, tag):
            tag = _moved_back(session, old, tag)
    if tag is None:
        return None
    # While the old snapshot exists its files are its own, and expiry deletes them later.
    if not same and is_expiring(session, old.snapshot):
        try:
            reason = f"tag {old.name!r} has moved on"
            plan = plan_removal(session, [old], besides=(), reason=reason)
            # The tag names another snapshot by now: only the files are left to delete.
            carry_out(session, changed(plan, tags=()), kind="replace-tag")
        except (CorruptFileError, NotFoundError) as error:  # the tag has moved already
            log.warning("what tag %s named before becomes orphans: %s", old.name, error)
    session.follow_iceberg()
    return tag


def _is_rolled_back_after_move(session: TableSession, tag: Tag) -> bool:
    """Whether a rollback has taken the new snapshot of a tag; CommitUnknownError where the tag moved along with a rename."""
    try:
        return is_rolled_back(session, tag.snapshot)
    except NotFoundError as cause:
        # No other table has had the old content, which was replaced.
        raise session.identity.taken_along(f"tag {tag.name!r}") from cause


@contextmanager
def _both_kept(session: TableSession, old: Tag, snapshot: Snapshot) -> Iterator[None]:
    """Keep the snapshot that a tag gets, and its old one, which it gets back if a rollback takes the new one.

    Raises NotFoundError while a rollback takes the tag.
    """
    # Called for its error: a tag must not move away from a rollback that is about to delete it.
    was_rolled_back(session, old.snapshot)
    with (
        snapshot_retained(session, snapshot, "replacing-"),
        locked(session, old.snapshot, "replacing-"),
    ):
        yield


def _moved_back(session: TableSession, old: Tag, tag: Tag) -> Tag | None:
    """Give a tag its old snapshot back, as a rollback has taken the new one; return None then.

    A rollback that has taken both takes the tag. The tag is returned where others have changed it since.
    """
    if is_rolled_back(session, old.snapshot):
        session.tags.delete(tag)
        raise rolled_back(tag.snapshot)
    back = session.tags.replace(tag, changed(old, id=session.ids.new_id()))
    return None if back is not None else tag


def _changing(session: TableSession, name: str) -> CommitConflictError:
    return CommitConflictError(
        f"others keep changing tag {name!r}; nothing was changed, try again",
        tag=name,
        table=session.name,
    )


@contextmanager
def snapshot_retained(session: TableSession, snapshot: Snapshot, prefix: str) -> Iterator[None]:
    """Keep a snapshot by a lock tag, whose name begins with `prefix`, until another reference names its files.

    It may have expired and only another tag keep it. Raises NotFoundError (expired) where an expiry has got
    hold of it.
    """
    with locked(session, snapshot, prefix) as tag:
        # The deletion of another tag of it is planned once more after the tag is deleted, and then sees this one.
        if is_expiring(session, snapshot) and not _has_other_tag(session, tag):
            raise _expired(snapshot)
        yield


@contextmanager
def locked(session: TableSession, snapshot: Snapshot, prefix: str) -> Iterator[Tag]:
    """Create a lock tag of a snapshot, with a name that begins with `prefix`, and delete it at the end.

    The caller looks, once it is made, whether the files of the state are there. The tag stays for its hour
    where what is done meanwhile may take effect later, or by a kill.
    """
    name = f"{prefix}{session.ids.new_id()[-12:]}"
    tag = session.tags.create(_new_tag(session, name, snapshot, AN_HOUR))
    try:
        yield tag
    except (CommitUnknownError, StorageError, OSError):
        # What was begun may still land, so that the lock tag stays for its hour.
        raise
    except BaseException:
        # Nothing of the operation can land any more.
        _unlock(session, tag)
        raise
    _unlock(session, tag)


def _unlock(session: TableSession, tag: Tag) -> None:
    """Delete a lock tag, whose name no other has had; one that cannot be deleted lives for its hour."""
    try:
        session.file_io.delete(session.paths.tag_file(tag.name))
    except (LsmError, OSError) as error:
        # The operation is over, and the lock tag expires by itself.
        log.warning("tag %s stays until it expires: %s", tag.name, error)


def _has_other_tag(session: TableSession, tag: Tag) -> bool:
    """Whether a tag keeps the same state that is no lock tag: the maker of one may be about to give up."""
    return any(
        same_state(listed.snapshot, tag.snapshot) and not is_lock(listed.name)
        for listed in session.tags.list()
    )


def rename(session: TableSession, name: str, new_name: str) -> Tag:
    """Give a tag another name. A kill may leave both names; renaming again finishes.

    Raises NotFoundError if there is no such tag, AlreadyExistsError if the new name is taken.
    """
    checked_tag_name(new_name)
    for _ in range(_RACES):
        session.tags.require_no_copy(name)
        old = session.tags.find(name)
        existing = session.tags.find(new_name)
        if old is None:
            return session.tags.load(name)  # raises, naming the nearest
        if name == new_name:
            return old
        tag = _renamed(session, old, existing, new_name)
        if tag is not None:
            return tag
    raise _changing(session, name)


def _renamed(session: TableSession, old: Tag, existing: Tag | None, new_name: str) -> Tag | None:
    """Rename a tag; None where others have changed, renamed or deleted it: then nothing is changed.

    The old name gets an id of this renaming first, and the new name the same: so another rename of that tag
    can neither delete the old name nor the new one of this renaming without being seen. Meanwhile a tag of its own
    keeps the files: a kill leaves no new name of what another has deleted.
    """
    is_kept = was_rolled_back(session, old.snapshot)
    # With a new id a concurrent rename or deletion of the same tag fails, on either side.
    own = session.tags.replace(old, changed(old, id=session.ids.new_id()))
    if own is None:
        return None
    with locked(session, own.snapshot, "renaming-"):
        stored_old = session.tags.find(own.name)
        if stored_old is None or stored_old.content != own.content:
            return None  # its deletion may not have seen the lock tag
        stored = _given_new_name(session, old, own, existing, new_name)
        if stored is None:
            if session.identity.is_dropped():
                raise session.identity.taken_along(f"tag {new_name!r}")
            return None
        if is_rolled_back_after(session, stored) and not is_kept:
            # The rollback has seen the old name at most, which is deleted: it would have deleted the new one, too.
            session.tags.delete(stored)
            raise rolled_back(old.snapshot)
    session.follow_iceberg()
    return stored


def _given_new_name(
    session: TableSession, old: Tag, own: Tag, existing: Tag | None, new_name: str
) -> Tag | None:
    tag = changed(own, name=new_name)
    if existing is not None and existing == tag and old.id is not None and existing.id == old.id:
        # A renaming that was killed, or goes on, has made it.
        stored = session.tags.replace(existing, tag)
        if stored is None:
            return None
    else:
        stored = session.tags.create(tag)
    if not session.tags.delete(own):
        # The deletion of the old name may have taken the files, before the new name was made.
        session.tags.delete(stored)
        return None
    return stored


def delete(session: TableSession, name: str, *, kind: str = "delete-tag") -> None:
    """Delete a tag, and if its snapshot has expired, the files that only the tag named.

    Of a tag that cannot be read, or beside which some document cannot, or goes meanwhile, the tag's own
    file goes; what else it named is left for orphan removal. Raises NotFoundError if there is no such tag,
    CommitConflictError if others keep changing it. CorruptFileError: another tag's file is a copy of this
    one's.
    """
    session.notify_removing()
    for _ in range(_RACES):
        session.tags.require_no_copy(name)
        try:
            tag = session.tags.load(name)
        except CorruptFileError as error:
            # The files of an unreadable tag cannot be planned, so that only its own file is
            # deleted.
            if session.tags.delete_unread(name):
                _warn_of_orphans(name, error)
                session.follow_iceberg()
                return
            continue
        if _deleted(session, tag, kind):
            return
    raise _changing(session, name)


def delete_as_read(session: TableSession, tag: Tag, *, kind: str = "delete-tag") -> bool:
    """Delete a tag as `delete` does; False, and no change, if it has changed since it was read, or is deleted."""
    session.tags.require_no_copy(tag.name)
    return _deleted(session, tag, kind)


def _deleted(session: TableSession, tag: Tag, kind: str) -> bool:
    try:
        is_done = _delete(session, tag, kind=kind)
    except (CorruptFileError, NotFoundError) as error:
        # Some retained reference cannot be read, or has been deleted meanwhile: before the tag was deleted, or after.
        # The tags of a table or branch that was renamed are elsewhere.
        is_done = session.tags.delete(tag) or not (
            session.tags.exists(tag.name) or session.identity.is_dropped()
        )
        if is_done:
            _warn_of_orphans(tag.name, error)
    if is_done:
        session.follow_iceberg()
    return is_done


def _warn_of_orphans(name: str, error: LsmError) -> None:
    log.warning("tag %s is deleted unread; its files become orphans: %s", name, error)


def _delete(session: TableSession, tag: Tag, *, kind: str) -> bool:
    # While the snapshot exists its files are its own, and expiry deletes them later.
    if is_there(session, tag.snapshot):
        reason = f"tag {tag.name!r} was taken back; its snapshot is kept"
        return carry_out(session, ExpirePlan(reason=reason, tags=(tag,)), kind=kind)
    return carry_out(
        session, _with_files(session, tag), kind=kind, again=lambda: _with_files(session, tag)
    )


def _with_files(session: TableSession, tag: Tag) -> ExpirePlan:
    reason = f"tag {tag.name!r} was the last to name these"
    return plan_removal(session, [tag], besides=[tag.name], reason=reason)


def plan_removal(
    session: TableSession, tags: list[Tag], *, besides: Iterable[str], reason: str
) -> ExpirePlan:
    """Plan the files to delete with tags whose snapshots are deleted. `besides`: names that are no retained references.

    Retained references that expire while they are read are read again, as the table is then.
    """
    besides = tuple(besides)
    for _ in range(_REFERENCE_READS - 1):
        # A snapshot may expire between the listing and the read of its lists.
        with suppress(NotFoundError):
            return _planned_removal(session, tags, besides, reason)
    return _planned_removal(session, tags, besides, reason)


def _planned_removal(
    session: TableSession, tags: list[Tag], besides: Sequence[str], reason: str
) -> ExpirePlan:
    references = References(session)
    state: list[ManifestEntry] = []
    names = MetadataNames()
    for tag in tags:
        state += session.live_entries(tag.snapshot)
        names |= references.tag_names(tag.snapshot)
    buckets = {(entry.partition, entry.bucket) for entry in state}

    retained = references.retained_by_all(
        session.snapshots.stable_listing(), buckets, besides=besides
    )
    return plan_tag_removal(state, names, retained, reason=reason, tags=tags)


# --- which snapshot ------------------------------------------------------------------------------


def snapshot_of(session: TableSession, snapshot_id: int | None) -> Snapshot:
    """Return the snapshot of an id, None: the newest; raises NotFoundError."""
    if snapshot_id is not None:
        return session.snapshots.load(snapshot_id)
    latest = session.snapshots.latest()
    if latest is None:
        raise NotFoundError(
            "the table is empty; there is no snapshot to tag yet", kind=ErrorKind.NO_SUCH_SNAPSHOT
        )
    return latest


def first_at(session: TableSession, millis: int) -> tuple[Snapshot, Tag | None]:
    """Return the first snapshot at or after a time, and a tag that keeps it, as it may have expired.

    Raises NotFoundError if there is none.
    """
    snapshots = session.snapshots.all()
    # A listing asked twice has a tag that is renamed meanwhile. Nothing rests on the lock tag of another.
    tags_there = session.tags.stable_listing()
    holders = [tag for tag in tags_there if not is_lock(tag.name)]
    live_ids = {snapshot.id for snapshot in snapshots}
    candidates = [*snapshots, *(tag.snapshot for tag in holders if tag.snapshot.id not in live_ids)]
    later = [snapshot for snapshot in candidates if snapshot.time_millis >= millis]
    if not later:
        raise NotFoundError(
            "no snapshot was made at that time or after it",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            from_millis=millis,
        )
    first = min(later, key=lambda snapshot: snapshot.id)
    return first, next((tag for tag in holders if same_state(tag.snapshot, first)), None)


def is_there(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a snapshot is still one of the table's, and not another one under its id."""
    stored = session.snapshots.find(snapshot.id)
    return stored is not None and same_state(stored, snapshot)


def is_rolled_back(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a rollback takes a snapshot, or has taken it: asked once a tag of it is there.

    A rollback lists the tags that go once its marker is there, from which on the table is at the target. So it
    sees the tag, or the maker of the tag sees a newest snapshot that is older; or, where others have committed
    since, another snapshot under that id, or none: the newest is read first.
    """
    newest = session.snapshots.latest()
    if newest is None or newest.id < snapshot.id:
        return True
    stored = session.snapshots.find(snapshot.id)
    return stored is not None and not same_state(stored, snapshot)


def was_rolled_back(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a rollback has taken a snapshot, which a tag keeps all the same: asked before that is relied on.

    Raises NotFoundError while a rollback takes it, which is about to delete the tag.
    """
    if not is_rolled_back(session, snapshot):
        return False
    to = session.snapshots.rollback_under_way()
    if to is not None and to < snapshot.id:
        raise rolled_back(snapshot)
    return True


def without_changelog(session: TableSession, snapshot: Snapshot) -> Snapshot:
    """Return a tag's snapshot as it may be a snapshot again: without its deleted changelog.

    It is deleted, too, where a rollback has made the snapshot again from the tag. An expiry deletes the
    changelog before the snapshot file, and EARLIEST passes the snapshot before both.
    """
    stored, marked = both(
        session.file_io,
        lambda: session.snapshots.find(snapshot.id),
        lambda: session.snapshots.earliest_hint() or 0,
    )
    # EARLIEST passes a snapshot before its changelog is deleted: at or above EARLIEST it is whole.
    if stored is not None and same_state(stored, snapshot) and marked <= snapshot.id:
        return stored
    return tags.without_changelog(snapshot)


def is_expiring(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a snapshot is deleted, or EARLIEST has passed it (decisions/0004)."""
    is_passed, is_deleted = results_of(
        session.file_io,
        lambda: snapshot.id < (session.snapshots.earliest_hint() or 0),
        lambda: not is_there(session, snapshot),
    )
    return is_passed or is_deleted


def lifetime_of(session: TableSession, retained: str | None, name: str) -> int | None:
    """Return a lifetime in milliseconds, by default the option's; None: for ever."""
    if retained is None:
        return session.options[core_options.TAG_DEFAULT_TIME_RETAINED]
    try:
        return parse_millis(retained)
    except ValueError as cause:
        # The error names the tag, which the parser does not know.
        raise InvalidInputError(
            f"a tag is retained for a time such as '7 d', not {retained!r}", tag=name
        ) from cause


def _new_tag(session: TableSession, name: str, snapshot: Snapshot, lifetime: int | None) -> Tag:
    return Tag(
        name=name,
        snapshot=snapshot,
        created=session.clock.local_time() if lifetime is not None else None,
        retained_millis=lifetime,
        id=session.ids.new_id(),
    )


def _expired(snapshot: Snapshot) -> LsmError:
    return NotFoundError(
        f"snapshot {snapshot.id} has expired meanwhile; choose a newer one",
        kind=ErrorKind.EXPIRED,
        snapshot_id=snapshot.id,
    )


def rolled_back(snapshot: Snapshot) -> LsmError:
    """Return the error for a snapshot that a rollback has taken."""
    return NotFoundError(
        f"snapshot {snapshot.id} was just rolled back, or is being so; choose an older one, or the newest",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        snapshot_id=snapshot.id,
    )


# -- Read tag --------------------------------------------------------------------------------------
#
# Tags that a batch read makes for itself, so that what it reads outlives an expiry meanwhile.
#
# `scan.plan-auto-tag-for-read.time-retained` asks for them. A reader that reads to the end deletes the tag;
# one that does not know its end, or dies, leaves it for the time that the option sets.

BranchSnapshot = tuple[TableSession, Snapshot]
"""A branch of the table, and its snapshot that is read."""


def tag_for_read(branch: BranchSnapshot, lifetime_millis: int) -> Tag:
    """Tag what is about to be read.

    Raises NotFoundError (expired) for a snapshot that an expiry has got hold of.
    """
    session, snapshot = branch
    return tag_for_operation(
        session, f"{READ_PREFIX}{session.ids.new_id()}", snapshot, lifetime_millis
    )


@contextmanager
def tagged(branches: Iterable[BranchSnapshot], lifetime_millis: int | None) -> Iterator[None]:
    """Keep snapshots of branches while they are read; `lifetime_millis` None: do not."""
    with ExitStack() as stack:
        if lifetime_millis is not None:
            for branch in branches:
                stack.callback(_take_back, branch[0], tag_for_read(branch, lifetime_millis))
        yield


def _take_back(session: TableSession, tag: Tag) -> None:
    """Delete a tag, and the files that only it named; after a failure it expires."""
    try:
        if not delete_as_read(session, tag):
            log.info("tag %s of a read has expired or changed before its end", tag.name)
    except LsmError as error:
        # The rows have been read: the tag may wait for the end of its lifetime.
        log.warning("tag %s of a read stays until it expires: %s", tag.name, error)


# -- Expiry of tags whose lifetime is over, with the files that only they name ---------------------


@record
class TagExpiryReport:
    """Tags, by name, whose lifetime was over; they are deleted unless it was a `dry_run`."""

    names: tuple[str, ...]
    dry_run: bool

    def __str__(self) -> str:
        if not self.names:
            return "no tag is past its lifetime"
        verb = "would expire" if self.dry_run else "expired"
        return f"{verb} {counted(len(self.names), 'tag')}: {', '.join(self.names)}"


def expire_tags(
    session: TableSession,
    *,
    dry_run: bool,
    older_than: str | None = None,
    automatic: bool = False,
    listed: Sequence[Tag] | None = None,
) -> TagExpiryReport:
    """Delete tags whose lifetime is over. `older_than`: also those created before that age.

    `automatic`: on behalf of an expiry, which heeds `tag.time-expire-enabled`. `listed`: the tags, where they
    are known.
    """
    if automatic and not session.options[core_options.TAG_TIME_EXPIRE_ENABLED]:
        return TagExpiryReport(names=(), dry_run=dry_run)
    candidates = session.tags.stable_listing() if listed is None else listed
    if not candidates and not automatic:
        # The tags of a table that was renamed are elsewhere.
        session.identity.require_there()
    now = wall_time(session.clock)
    expired = list(expired_tags(candidates, local_now=now))
    if older_than is not None:
        age = parse_age(older_than)
        born = [(tag, created_at(tag)) for tag in candidates]
        expired += [
            tag
            for tag, birthday in born
            if tag not in expired
            and birthday is not None
            and (now - birthday).total_seconds() * 1000 > age
        ]
    expired.sort(key=lambda tag: tag.name)
    if expired and not dry_run:
        session.notify_removing()
        # One that others have given a longer life meanwhile, made anew or deleted is none of these any more.
        expiring = expired
        expired = [tag for tag in expiring if delete_as_read(session, tag, kind="expire-tags")]
        if len(expired) < len(expiring) and session.identity.is_dropped():
            if not expired:
                raise session.identity.dropped()
            raise session.identity.taken_along("tags that are over")
    return TagExpiryReport(names=tuple(tag.name for tag in expired), dry_run=dry_run)


# -- Auto tags -------------------------------------------------------------------------------------
#
# Tags that are created automatically, after a commit or on request
# (`tag.automatic-creation`).


@record
class AutoTagReport:
    """Automatic tags, by name, that were created and deleted, or would be in a `dry_run`."""

    created: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        would = "would " if self.dry_run else ""
        return (
            f"{would}create {counted(len(self.created), 'tag')}, {would}remove {len(self.removed)}"
        )


class AutoTags:
    """The automatic tags of one table."""

    def __init__(self, session: TableSession) -> None:
        self._session = session
        self._options = session.options
        self._mode = session.options[core_options.TAG_AUTOMATIC_CREATION]

    def after_commit(self, snapshot: Snapshot) -> None:
        """Tag what a commit made, if it closes a period. What fails is logged: the commit stands."""
        try:
            self.create_due([snapshot])
        except LsmError as error:
            log.warning("table %s was not tagged by itself: %s", self._session.name, error)

    def create_due(
        self, snapshots: Iterable[Snapshot] | None = None, *, dry_run: bool = False
    ) -> AutoTagReport:
        """Create the tags that are due for some snapshots, by default all since the last such tag."""
        if self._mode == "none":
            return AutoTagReport(dry_run=dry_run)
        if self._mode == "batch":
            return self._tag_batch(snapshots, dry_run=dry_run)
        return self._tag_periods(snapshots, dry_run=dry_run)

    def _tag_periods(self, snapshots: Iterable[Snapshot] | None, *, dry_run: bool) -> AutoTagReport:
        options, periods = self._options, periods_of(self._options)
        by_period = automatic_tags(self._session.tags.list(), periods)
        last = max(by_period, default=None)
        since = by_period[last].snapshot.id if last is not None else 0
        if snapshots is None:
            snapshots = [listed for listed in self._session.snapshots.all() if listed.id > since]
        by_name: dict[str, Tag | None] = {tag.name: tag for tag in by_period.values()}
        created: list[str] = []
        for snapshot in snapshots:
            moment = wall_clock(options, snapshot, self._mode)
            if moment is None:
                continue
            complete = options[core_options.TAG_AUTOMATIC_COMPLETION]
            for start in periods.closed_periods(moment, last, complete=complete):
                last = start
                name = periods.name_of(start)
                if name in by_name:
                    continue
                tag = None if dry_run else self._create(name, snapshot)
                if dry_run or tag is not None:
                    created.append(name)
                    by_name[name] = tag
        removed = surplus(list(by_name), options[core_options.TAG_NUM_RETAINED_MAX])
        if not dry_run:
            removed = self._remove(by_name[name] for name in removed)
        return AutoTagReport(created=tuple(created), removed=tuple(removed), dry_run=dry_run)

    def _tag_batch(self, snapshots: Iterable[Snapshot] | None, *, dry_run: bool) -> AutoTagReport:
        """One tag a day, or of one name, that always stands at the newest commit."""
        options = self._options
        newest = (
            max(snapshots or (), key=lambda snapshot: snapshot.id, default=None)
            or self._session.snapshots.latest()
        )
        if newest is None:
            return AutoTagReport(dry_run=dry_run)
        moment = wall_clock(options, newest, "process-time")
        name = options[core_options.TAG_BATCH_CUSTOMIZED_NAME] or (
            f"{BATCH_PREFIX}{moment:%Y-%m-%d}" if moment is not None else ""
        )
        old = self._session.tags.find(name)
        if not dry_run:
            self._move_on(name, newest)
        by_name = {
            tag.name: tag for tag in self._session.tags.list() if tag.name.startswith(BATCH_PREFIX)
        }
        removed = surplus(sorted({*by_name, name}), options[core_options.TAG_NUM_RETAINED_MAX])
        if not dry_run:
            removed = self._remove(by_name.get(name) for name in removed)
        return AutoTagReport(
            created=() if old is not None else (name,), removed=tuple(removed), dry_run=dry_run
        )

    def _move_on(self, name: str, newest: Snapshot) -> None:
        """Move a tag forward to a snapshot; a tag of a newer one is left alone. Others may move it, too."""
        lifetime = self._options[core_options.TAG_DEFAULT_TIME_RETAINED]
        for _ in range(_RACES):
            old = self._session.tags.find(name)
            if old is None:
                if self._create(name, newest) is not None:
                    return
            elif old.snapshot.id >= newest.id or moved(self._session, old, newest, lifetime):
                return
        log.info("tag %s does not stand at snapshot %d: others keep changing it", name, newest.id)

    def _create(self, name: str, snapshot: Snapshot) -> Tag | None:
        """Create one tag; None if it exists, or the snapshot is deleted."""
        lifetime = self._options[core_options.TAG_DEFAULT_TIME_RETAINED]
        try:
            return tag_snapshot(self._session, name, snapshot, lifetime, numeric=True)
        except AlreadyExistsError:
            # Each writer tags the period that its commit closes; the first one is enough.
            return None
        except NotFoundError:
            # The commit stands without its tag.
            log.info("snapshot %d expired before it was tagged %s", snapshot.id, name)
            return None

    def _remove(self, surplus_tags: Iterable[Tag | None]) -> list[str]:
        """Delete tags as they were read; return the names of those that were unchanged."""
        return [
            tag.name
            for tag in surplus_tags
            if tag is not None and delete_as_read(self._session, tag, kind="expire-tags")
        ]


def periods_of(options: TableOptions) -> TagPeriods:
    """Return a table's tag periods; raises InvalidOptionError for options that do not fit."""
    return TagPeriods.from_options(
        options[core_options.TAG_CREATION_PERIOD],
        length_millis=options[core_options.TAG_CREATION_PERIOD_DURATION],
        formatter=options[core_options.TAG_PERIOD_FORMATTER],
        delay_millis=options[core_options.TAG_CREATION_DELAY],
    )


def wall_clock(options: TableOptions, snapshot: Snapshot, mode: str) -> datetime | None:
    """Return the wall-clock time that a snapshot stands for; None for one without a watermark."""
    millis, zone = snapshot.time_millis, options[core_options.SINK_PROCESS_TIME_ZONE]
    if mode == "watermark":
        if snapshot.watermark is None:
            return None
        millis, zone = snapshot.watermark, options[core_options.SINK_WATERMARK_TIME_ZONE]
    try:
        moment = datetime.fromtimestamp(millis / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None  # a watermark that means "for ever" closes no period
    return moment.astimezone(_zone(zone)).replace(tzinfo=UTC)


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as cause:
        raise InvalidOptionError(f"there is no time zone {name!r}", value=name) from cause
