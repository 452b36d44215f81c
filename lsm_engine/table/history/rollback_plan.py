"""What a rollback takes back, and who else is in its way: other rollbacks, and expiries."""

from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    NotFoundError,
)
from lsm_engine.base.record import record
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.live_snapshots import rollback_target
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.rollback_seal import leads_to, takes_first, unsealed
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_to_read, version_named
from lsm_engine.table.tags.tag import is_there

ROLLING_BACK = "rolling-back-"
"""Prefix of the names of tags that mark a rollback under way."""
FORWARDING = "forwarding-"
"""Prefix of the names of main's tags that keep a branch's snapshots while main takes them over; no rollback takes them."""


@record
class RollbackPlan:
    """What goes when a table returns to `target`: snapshots oldest first, tags and changelogs after
    it. `consumers` stand beyond it and go back; `restores`: the target is only a tag's by now.

    `seals` decided it already, or are left of a rollback that died; oldest first. `has_begun`: some
    snapshots are deleted, so that new ones, and tags of them, may be above the target.
    """

    target: Snapshot
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    changelogs: tuple[Snapshot, ...]
    consumers: tuple[Consumer, ...]
    restores: bool
    seals: tuple[Snapshot, ...] = ()
    is_sealed: bool = False
    has_begun: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the table is there already."""
        rest = self.tags or self.changelogs or self.restores or self.seals
        return not (self.snapshots or rest)


def snapshot_to_return_to(
    session: TableSession,
    *,
    snapshot_id: int | str | None = None,
    tag: str | None = None,
    as_of_millis: int | None = None,
    watermark: int | None = None,
) -> Snapshot:
    """Return the snapshot that an id, a tag, a time or a watermark names: exactly one of them.

    Times and watermarks name the newest snapshot at or before them; a text in place of an id is a tag's
    name. Raises NotFoundError.
    """
    if sum(what is not None for what in (snapshot_id, tag, as_of_millis, watermark)) != 1:
        raise InvalidInputError("name one of a snapshot, a tag, a time and a watermark")
    if watermark is None:
        named = version_named(snapshot_id if tag is None else tag)
        found = snapshot_to_read(session, as_of_millis=as_of_millis, **named)
        assert found is not None
        return found
    for snapshot in session.snapshots.newest_first():
        if snapshot.watermark is not None and snapshot.watermark <= watermark:
            return snapshot
    raise NotFoundError(
        "no snapshot has a watermark at or before that one",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        watermark=watermark,
    )


def plan_rollback(session: TableSession, target: Snapshot) -> RollbackPlan:
    """Find what goes.

    Raises ExpiredError and InvalidInputError for states one cannot return to, and CommitConflictError
    while an expiry is between the two.
    """
    there, ghosts = session.snapshots.stable_listing_with_ghosts()
    found = unsealed(there)
    if found.seal is not None and not leads_to(found.seal, target):
        raise under_way(rollback_target(found.seal))
    present = is_there(session, target)
    marked = session.snapshots.earliest_hint()
    known = session.tags.stable_listing()
    held = found.seal is not None or any(same_state(tag.snapshot, target) for tag in known)
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
    left = tuple(one for one in (*ghosts, *there) if leads_to(one, target))
    taken = tuple(one for one in found.line if one.id > target.id)
    is_sealed, has_begun = found.seal is not None, False
    if found.seal is not None:
        taken = found.rolled_back
        has_begun = not any(takes_first(found.seal, one) for one in taken)
    elif present and left and not any(takes_first(left[-1], one) for one in taken):
        taken, is_sealed, has_begun = (), True, True  # it died over its seal
    plan = RollbackPlan(
        target=target,
        snapshots=taken,
        tags=(),
        changelogs=(),
        consumers=(),
        restores=not present,
        seals=left if is_sealed else (),
        is_sealed=is_sealed,
        has_begun=has_begun,
    )
    return plan if has_begun else _with_what_names(session, plan, known)


def _with_what_names(
    session: TableSession, plan: RollbackPlan, known: Sequence[Tag]
) -> RollbackPlan:
    """Return a plan with the tags, changelogs and consumers above the target, too."""
    upto = plan.target.id
    beyond = (one for one in session.consumers.list() if one.next_snapshot_id > upto + 1)
    return replace(
        plan,
        tags=_above(known, plan),
        changelogs=tuple(one for one in session.changelogs.all() if one.id > upto),
        consumers=tuple(beyond),
    )


def with_tags_of_now(session: TableSession, plan: RollbackPlan) -> RollbackPlan:
    """Return a plan with the tags that are there once its seal is: who makes one after that sees the seal.

    Until the first snapshot goes nobody commits above the target, so that all of them are of what goes.
    """
    return (
        plan if plan.has_begun else replace(plan, tags=_above(session.tags.stable_listing(), plan))
    )


def _above(known: Sequence[Tag], plan: RollbackPlan) -> tuple[Tag, ...]:
    return tuple(
        tag
        for tag in known
        if tag.snapshot.id > plan.target.id and not tag.name.startswith((ROLLING_BACK, FORWARDING))
    )


def signs(session: TableSession) -> list[Tag]:
    """Return the tags of rollbacks under way."""
    return [one for one in session.tags.stable_listing() if one.name.startswith(ROLLING_BACK)]


def signs_of(session: TableSession, target: Snapshot) -> list[Tag]:
    """Return those that return to a target."""
    return [sign for sign in signs(session) if same_state(sign.snapshot, target)]


def refuse_while_rolled_back(session: TableSession, newest: Snapshot) -> None:
    """Raise CommitConflictError if somebody rolls the table back, or has done so behind `newest`.

    Called by an expiry after it moved EARLIEST. Who rolls back makes a tag first and looks
    then: one of the two sees the other, or they would leave no snapshot between them. Who died over
    it leaves the tag for an hour.
    """
    for sign in signs(session):
        raise CommitConflictError(
            f"the table is being rolled back to snapshot {sign.snapshot.id}; nothing was deleted, "
            f"try again later. If that rollback died, roll back to {sign.snapshot.id} again, or "
            f"delete its tag {sign.name!r}, which expires in an hour",
            tag=sign.name,
        )
    to = session.snapshots.rollback_under_way()
    if to is not None:
        raise under_way(to)
    if not is_there(session, newest):
        raise CommitConflictError(
            f"snapshot {newest.id} was rolled back meanwhile; nothing was deleted, try again",
            snapshot_id=newest.id,
        )


def refuse_unfinished(there: Sequence[Snapshot]) -> None:
    """Raise CommitConflictError if a rollback is under way on a table of these snapshots, or died."""
    seal = unsealed(there).seal
    if seal is not None:
        raise under_way(rollback_target(seal))


def under_way(target_id: int | None) -> CommitConflictError:
    """Return the error of who finds the seal of another's rollback."""
    return CommitConflictError(
        f"the table is being rolled back to snapshot {target_id}; try again later. If that rollback "
        f"died, roll back to {target_id} again, which finishes it",
        snapshot_id=target_id,
    )
