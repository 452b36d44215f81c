"""Rollback: take back every snapshot and tag after one; their ids will be used again.

Snapshot files go newest first, so that at each moment the table is at one of its snapshots, without
gaps: a rollback that died has come part of the way, and doing it again finishes. Data files are left to
the removal of orphans: whoever still reads a snapshot that goes is not disturbed.

There is no lock: better stop the writers first, as a rollback gives up where one is in its way, or use
`rollback_to_as_latest`, which is a commit like others.
"""

from collections.abc import Sequence

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.base.modes import ExternalAccess
from lsm_engine.base.record import record
from lsm_engine.base.table_options import refuse_unsupported
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.expire import ExpirePlan, MetadataNames
from lsm_engine.plan.ownership import same_state
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_at
from lsm_engine.table.history.orphans import entry_paths, metadata_paths
from lsm_engine.table.tags import roots
from lsm_engine.table.tags import tag as tags
from lsm_engine.table.tags.removal import keep_in_trash, notify_removed
from lsm_engine.table.tags.tag import is_there, without_changelog

ROLLING_BACK = "rolling-back-"
"""Prefix of the names of tags that mark a rollback under way."""
_AN_HOUR = 3_600_000
_LOOKS = 5  # tries to give a snapshot back while somebody else has its id
_WAIT_MILLIS = 200  # between them


@record
class RollbackPlan:
    """What goes when a table returns to `target`: snapshots newest first, tags and changelogs after
    it. `consumers` stand beyond it and go back; `restores`: the target is only a tag's by now.
    """

    target: Snapshot
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    changelogs: tuple[Snapshot, ...]
    consumers: tuple[Consumer, ...]
    restores: bool

    @property
    def is_empty(self) -> bool:
        """Whether the table is there already."""
        return not (self.snapshots or self.tags or self.changelogs or self.restores)


@record
class RollbackReport:
    """What a rollback took back, or with `dry_run` would."""

    plan: RollbackPlan
    dry_run: bool

    def __str__(self) -> str:
        verb = "would roll back" if self.dry_run else "rolled back"
        plan = self.plan
        return (
            f"{verb} to snapshot {plan.target.id}: {len(plan.snapshots)} snapshots and "
            f"{len(plan.tags)} tags go"
        )


def rollback_target(
    session: TableSession,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    as_of_millis: int | None = None,
    watermark: int | None = None,
) -> Snapshot:
    """Return the snapshot that an id, a tag, a time or a watermark names: exactly one of them.

    Times and watermarks name the newest snapshot at or before them. Raises NotFoundError.
    """
    if sum(what is not None for what in (snapshot_id, tag, as_of_millis, watermark)) != 1:
        raise InvalidInputError("name one of a snapshot, a tag, a time and a watermark")
    if snapshot_id is not None:
        return session.snapshots.load(snapshot_id)
    if tag is not None:
        return session.tags.load(tag).snapshot
    if as_of_millis is not None:
        return snapshot_at(session, as_of_millis)
    for snapshot in session.snapshots.newest_first():
        if snapshot.watermark is not None and snapshot.watermark <= (watermark or 0):
            return snapshot
    raise NotFoundError(
        "no snapshot has a watermark at or before that one",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        watermark=watermark,
    )


def rollback(session: TableSession, target: Snapshot, *, dry_run: bool) -> RollbackReport:
    """Return to a snapshot, also one that only a tag still keeps.

    Raises CommitConflictError if somebody commits meanwhile; the table is then at their snapshot, and
    the fact `taken` has the ids of those snapshots that were deleted nevertheless.
    """
    refuse_unsupported(session.options, [ExternalAccess.WRITE])
    plan = plan_rollback(session, target)
    if not dry_run and plan.is_empty:
        _take_down(session, _signs_of(session, target))  # of one who died when all was done
    elif not dry_run:
        _carry_out(session, plan)
    return RollbackReport(plan=plan, dry_run=dry_run)


def plan_rollback(session: TableSession, target: Snapshot) -> RollbackPlan:
    """Find what goes.

    Raises ExpiredError and InvalidInputError for states one cannot return to, and CommitConflictError
    while an expiry is between the two.
    """
    there, ghosts = session.snapshots.stable_listing_with_ghosts()
    present = is_there(session, target)
    marked = session.snapshots.earliest_hint()
    known = session.tags.stable_listing()
    held = any(same_state(tag.snapshot, target) for tag in known)
    if not held and (not present or (marked is not None and target.id < marked)):
        raise ExpiredError(
            f"snapshot {target.id} is expiring; roll back to a newer one, or to a tag",
            snapshot_id=target.id,
        )
    older = [number for number in session.snapshots.listed_ids() if number <= target.id]
    if not present and older and marked is not None and min(older) < marked:
        raise CommitConflictError(
            f"snapshots before {marked} are just expiring, or an expiry of them died; nothing was "
            "changed, expire once more, remove orphan files, and try again",
            snapshot_id=target.id,
        )
    if not present and older:
        raise InvalidInputError(
            "the tag is of another history than the snapshots that are there; use "
            "rollback_to_as_latest, which makes its state the newest",
            snapshot_id=target.id,
        )
    session.live_entries(target)  # a state that cannot be read is none to return to
    # What a rollback that died has cut off goes as well: nobody could commit under its ids.
    above = (one for one in (*there, *ghosts) if one.id > target.id)
    later = sorted(above, key=lambda one: one.id)
    return RollbackPlan(
        target=target,
        snapshots=tuple(reversed(later)),
        tags=tuple(
            tag
            for tag in known
            if tag.snapshot.id > target.id and not tag.name.startswith(ROLLING_BACK)
        ),
        changelogs=tuple(one for one in session.changelogs.all() if one.id > target.id),
        consumers=tuple(
            one for one in session.consumers.list() if one.next_snapshot_id > target.id + 1
        ),
        restores=not present,
    )


def _carry_out(session: TableSession, plan: RollbackPlan) -> None:
    """Roll back what the plan names, under a tag that every expiry sees."""
    # Only a tag may keep the target: of a user's, or of a rollback that died when it was back.
    goes_on = any(same_state(one.snapshot, plan.target) for one in _signs(session))
    kept = [one for one in session.tags.list() if same_state(one.snapshot, plan.target)]
    sign = tags.of(
        session,
        f"{ROLLING_BACK}{session.ids.new_id()[-12:]}",
        plan.target,
        _AN_HOUR,
        holder=kept[0] if kept and (plan.restores or goes_on) else None,
    )
    try:
        _take_back(session, plan)
    except CommitConflictError:
        _take_down(session, [sign.name])
        raise
    # Also the signs of those who died on the way here. After any other error ours stays, too.
    _take_down(session, _signs_of(session, plan.target))


def _signs(session: TableSession) -> list[Tag]:
    return [one for one in session.tags.stable_listing() if one.name.startswith(ROLLING_BACK)]


def _signs_of(session: TableSession, target: Snapshot) -> list[str]:
    return [one.name for one in _signs(session) if same_state(one.snapshot, target)]


def _take_down(session: TableSession, signs: Sequence[str]) -> None:
    for name in signs:
        session.tags.delete(name)
        _notify_untagged(session, name)


def refuse_while_rolled_back(session: TableSession, newest: Snapshot) -> None:
    """Raise CommitConflictError if somebody rolls the table back, or has done so behind `newest`.

    Called by an expiry after it moved EARLIEST. Who rolls back makes a tag first and looks
    then: one of the two sees the other, or they would leave no snapshot between them. Who died over
    it leaves the tag for an hour.
    """
    for sign in _signs(session):
        raise CommitConflictError(
            f"the table is being rolled back to snapshot {sign.snapshot.id}; nothing was deleted, "
            f"try again later. If that rollback died, roll back to {sign.snapshot.id} again, or "
            f"delete its tag {sign.name!r} to stay where it came to; the tag expires in an hour",
            tag=sign.name,
        )
    if not is_there(session, newest):
        raise CommitConflictError(
            f"snapshot {newest.id} was rolled back meanwhile; nothing was deleted, try again",
            snapshot_id=newest.id,
        )


def _take_back(session: TableSession, plan: RollbackPlan) -> None:
    taken = _taken(plan)
    target, snapshots = plan.target, session.snapshots
    if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is not None:
        keep_in_trash(session, taken, paths=_only_theirs(session, plan))
    if plan.restores:
        # Before anything goes: the table is never without a snapshot.
        back = without_changelog(session, target)
        if not snapshots.publish_only(back) and not is_there(session, target):
            raise _overtaken(session, plan, target.id)
    marked = snapshots.earliest_hint()
    if plan.restores or (marked is not None and marked > target.id):
        snapshots.hint_earliest(target.id)
    # Others trust the hint without a look at the file: while snapshots go, there is none.
    snapshots.forget_latest()
    _take_snapshots(session, plan)
    snapshots.announce(target.id)
    for tag in plan.tags:
        session.tags.delete(tag.name)
        _notify_untagged(session, tag.name)
    for changelog in reversed(plan.changelogs):
        session.changelogs.delete(changelog.id)
    for consumer in plan.consumers:
        session.consumers.reset(consumer.name, target.id + 1)
    session.notify(lambda listener: listener.rolled_back(session.name, target.id))
    notify_removed(session, taken, "rollback")


def _notify_untagged(session: TableSession, name: str) -> None:
    session.notify(lambda listener: listener.untagged(session.name, name))


def _take_snapshots(session: TableSession, plan: RollbackPlan) -> None:
    for snapshot in plan.snapshots:
        _take(session, plan, snapshot)
    _require_no_gap(session, plan)


def _take(session: TableSession, plan: RollbackPlan, snapshot: Snapshot) -> None:
    """Delete the newest snapshot; if somebody has built on it, it stays, or comes back."""
    snapshots = session.snapshots
    if snapshots.exists(snapshot.id + 1):
        raise _overtaken(session, plan, snapshot.id + 1)
    if not snapshots.delete_state(snapshot) and snapshots.exists(snapshot.id):
        raise _overtaken(session, plan, snapshot.id)  # another rollback was here, and a commit
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    if durable:  # one by one: no power cut may leave a gap
        session.file_io.sync_directory(session.paths.snapshot_directory)
    if snapshots.exists(snapshot.id + 1):
        _give_back(session, snapshot)
        raise _overtaken(session, plan, snapshot.id + 1)


def _require_no_gap(session: TableSession, plan: RollbackPlan) -> None:
    """Give everything back if somebody built on it late and, unlike our writers, does not look back.

    From the oldest on, up to an id that a commit has used again: above that nothing of the old line
    may come back, or it would be newer than that commit, which it was not made on.
    """
    snapshots = session.snapshots
    newest = plan.snapshots[0].id if plan.snapshots else 0
    if newest and snapshots.exists(newest + 1) and not snapshots.exists(newest):
        all(_give_back(session, snapshot) for snapshot in reversed(plan.snapshots))
        raise _overtaken(session, plan, newest + 1)


def _give_back(session: TableSession, snapshot: Snapshot) -> bool:
    """Create a snapshot again; False if its id is another's and stays so.

    A writer that took the id meanwhile leaves it again when it sees the successor.
    """
    for _ in range(_LOOKS):
        if session.snapshots.publish_only(snapshot) or is_there(session, snapshot):
            return True
        session.clock.sleep_millis(_WAIT_MILLIS)
    return False


def _overtaken(session: TableSession, plan: RollbackPlan, snapshot_id: int) -> CommitConflictError:
    deleted = [one.id for one in reversed(plan.snapshots) if not is_there(session, one)]
    return CommitConflictError(
        f"somebody committed snapshot {snapshot_id} while the table was rolled back"
        f"{f', when snapshots {deleted} were deleted already' if deleted else ''}; stop the writers and try "
        "again, or use rollback_to_as_latest",
        snapshot_id=snapshot_id,
        taken=deleted,
    )


def _taken(plan: RollbackPlan) -> ExpirePlan:
    return ExpirePlan(
        expired=tuple(reversed(plan.snapshots)),
        data_files=(),
        changelog_files=(),
        metadata=MetadataNames(),
        new_earliest_id=None,
        reason=f"rolled back to snapshot {plan.target.id}; the removal of orphans frees the files",
        tags=plan.tags,
        expired_changelogs=plan.changelogs,
    )


def _only_theirs(session: TableSession, plan: RollbackPlan) -> list[str]:
    """Return the files that only what goes still names, for the trash to keep."""
    states = {one.delta_manifest_list: one for one in plan.snapshots}
    states |= {tag.snapshot.delta_manifest_list: tag.snapshot for tag in plan.tags}
    paths: dict[str, None] = {}
    names = MetadataNames()
    for one in states.values():
        names |= roots.tag_names(session, one)
        for entry in (*session.live_entries(one), *roots.changelog_entries(session, [one])):
            paths |= dict.fromkeys(entry_paths(session, entry))
    return [*paths, *metadata_paths(session.paths, names)]
