"""Rollback: delete every snapshot and tag after one; their ids will be used again.

It is decided by one commit, the rollback marker: a snapshot on the newest one with the state of the target. From
then on the table is at the target for every reader, and the rest is cleaning, which nothing turns back:
snapshot files go oldest first, the marker last. A rollback that died over it is finished by doing it
again. Data files are left to the removal of orphans: reads of a snapshot that goes are not
disturbed. A commit before the marker is rolled back, too; a commit after it stays
(docs/commit-protocol.md, decision 25)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from dataclasses import replace as changed

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.catalog.provenance import RESTORED
from lsm_engine.commit.commit import propose
from lsm_engine.commit.publish import Retries, publish
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance.orphans import metadata_paths
from lsm_engine.metadata.consumers import Consumer
from lsm_engine.metadata.trash import ROLLED_BACK
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.expire import ExpirePlan, MetadataNames
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import CommitIdentity, CommitOutcome, LiveChange, Proposal
from lsm_engine.planning.rollback import (
    as_fast_forward,
    as_rollback,
    divide_by_marker,
    leads_to,
    rollback_marker,
    takes_first,
)
from lsm_engine.planning.snapshot_chain import believed, follows, linked_run, rollback_target
from lsm_engine.storage.bulk import sync_directory
from lsm_engine.table import tags
from lsm_engine.table.references import (
    References,
    keep_in_trash,
    notify_removed,
    roll_identifiers_back,
)
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import (
    is_rolled_back,
    is_there,
    rolled_back,
    snapshot_retained,
    was_rolled_back,
    without_changelog,
)
from lsm_engine.table.time_travel import snapshot_to_read, version_named

# -- Plan of a rollback ----------------------------------------------------------------------------

ROLLING_BACK = "rolling-back-"
"""Prefix of the names of tags that mark a rollback under way."""
FORWARDING = "forwarding-"
"""Prefix of the names of main's tags that keep a branch's snapshots while main takes them over; no rollback takes them."""


@record
class RollbackPlan:
    """The parts of a table that a rollback to `target` deletes: snapshots oldest first, tags and changelogs after
    it. `consumers` stand beyond it and go back; `restores`: the target is only a tag's by now.

    `markers` decided it already, or are left of a rollback that died; oldest first. `has_begun`: some
    snapshots are deleted, so that new ones, and tags of them, may be above the target.
    """

    target: Snapshot
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    changelogs: tuple[Snapshot, ...]
    consumers: tuple[Consumer, ...]
    restores: bool
    markers: tuple[Snapshot, ...] = ()
    has_marker: bool = False
    has_begun: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the table is there already."""
        has_further = self.tags or self.changelogs or self.restores or self.markers
        return not (self.snapshots or has_further)


def _no_op() -> None:
    """Do nothing: a rollback brings neither schemas nor commit identifiers."""


@record
class Replacement:
    """The snapshots of a branch, oldest first, that a forced fast-forward puts in the places of those that go.

    `publish_schemas` is called once no commit can land any more, and `take_identifiers` before the first snapshot
    is replaced.
    """

    snapshots: tuple[Snapshot, ...] = ()
    publish_schemas: Callable[[], None] = _no_op
    take_identifiers: Callable[[], None] = _no_op

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is one of those that are put into place."""
        return any(same_state(new, snapshot) for new in self.snapshots)

    def take(self, session: TableSession, snapshot: Snapshot) -> None:
        """Replace or delete a snapshot that goes, in one step with the look whether it is still that.

        Raises CommitConflictError where another has its id, as what follows would stand on that.
        """
        successor = next((new for new in self.snapshots if new.id == snapshot.id), None)
        if successor is None:
            session.snapshots.delete_state(snapshot)
        elif not session.snapshots.replace_state(snapshot, successor) and not is_there(
            session, successor
        ):
            raise CommitConflictError(
                f"snapshot {snapshot.id} was rolled back by others while main was fast-forwarded; look at the plan again",
                snapshot_id=snapshot.id,
            )


_DELETION = Replacement()


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
    if sum(argument is not None for argument in (snapshot_id, tag, as_of_millis, watermark)) != 1:
        raise InvalidInputError("name one of a snapshot, a tag, a time and a watermark")
    if watermark is None:
        version = version_named(snapshot_id if tag is None else tag)
        snapshot_read = snapshot_to_read(session, as_of_millis=as_of_millis, **version)
        assert snapshot_read is not None
        return snapshot_read
    for snapshot in session.snapshots.newest_first():
        if snapshot.watermark is not None and snapshot.watermark <= watermark:
            return snapshot
    raise NotFoundError(
        "no snapshot has a watermark at or before that one",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        watermark=watermark,
    )


def plan_rollback(session: TableSession, target: Snapshot) -> RollbackPlan:
    """Plan which snapshots, tags, changelogs and consumers a rollback to `target` changes.

    Raises ExpiredError and InvalidInputError for states one cannot return to, and CommitConflictError
    while an expiry is between the two.
    """
    snapshots, orphan_snapshots = session.snapshots.stable_listing_with_orphans()
    divided = divide_by_marker(snapshots)
    # Only the rollback that was begun may be finished: one to another target would take its
    # snapshots away.
    # A marker whose snapshots are deleted, or were replaced, stands alone above the chain.
    newest_id = snapshots[-1].id if snapshots else 0
    above = [snapshot for snapshot in orphan_snapshots if snapshot.id > newest_id]
    for marker in (*above, *([] if divided.marker is None else [divided.marker])):
        if rollback_target(marker) is not None and not leads_to(marker, target):
            raise under_way(rollback_target(marker))
    present = is_there(session, target)
    marked = session.snapshots.earliest_hint()
    listed_tags = session.tags.stable_listing()
    is_held = divided.marker is not None or any(
        same_state(tag.snapshot, target) for tag in listed_tags
    )
    # Without a tag or a marker an expiry may be deleting the files of the target already.
    if not is_held and (not present or (marked is not None and target.id < marked)):
        raise ExpiredError(
            f"snapshot {target.id} is expiring; roll back to a newer one, or to a tag",
            snapshot_id=target.id,
        )
    if divided.marker is None and is_held:
        _refuse_beside_expiry(session, target)
    # A target that only a tag keeps comes back as the oldest snapshot: no file may be at or below
    # its id.
    older = [number for number in session.snapshots.listed_ids() if number <= target.id]
    if not present and older:
        raise InvalidInputError(
            "the tag is of another history than the snapshots that are there; use "
            "rollback_to_as_latest, which makes its state the newest",
            snapshot_id=target.id,
        )
    session.live_entries(target)  # a state that cannot be read is none to return to
    markers = tuple(
        snapshot for snapshot in (*orphan_snapshots, *snapshots) if leads_to(snapshot, target)
    )
    snapshots_above = tuple(snapshot for snapshot in divided.chain if snapshot.id > target.id)
    has_marker, has_begun = divided.marker is not None, False
    if divided.marker is not None:
        snapshots_above = divided.rolled_back
        has_begun = not any(takes_first(divided.marker, snapshot) for snapshot in snapshots_above)
    elif (
        present
        and markers
        and not any(takes_first(markers[-1], snapshot) for snapshot in snapshots_above)
    ):
        snapshots_above, has_marker, has_begun = (), True, True  # it died over its marker
    plan = RollbackPlan(
        target=target,
        snapshots=snapshots_above,
        tags=(),
        changelogs=(),
        consumers=(),
        restores=not present,
        markers=markers if has_marker else (),
        has_marker=has_marker,
        has_begun=has_begun,
    )
    return _with_what_names(session, plan, listed_tags)


def _refuse_beside_expiry(session: TableSession, target: Snapshot) -> None:
    """Raise CommitConflictError if snapshots are left that an expiry has passed, and the target is one of these.

    An expiry that goes on would take the target, or what is committed with the ids that become free.
    """
    listed_ids = session.snapshots.listed_ids()
    start = believed(session.snapshots.earliest_hint(), max(listed_ids, default=0))
    passed_ids = [number for number in listed_ids if number < start]
    if passed_ids == [target.id + 1]:
        # The placeholder of a rollback to the target that died is no snapshot that an expiry deletes.
        placeholder = session.snapshots.find(target.id + 1)
        passed_ids = [] if placeholder is not None and leads_to(placeholder, target) else passed_ids
    if target.id < start and passed_ids:
        raise CommitConflictError(
            f"snapshots before {start} are just expiring, or an expiry of them died; nothing was "
            "changed, expire once more, remove orphan files, and try again; or lsm repair TABLE earliest",
            snapshot_id=target.id,
        )


def _with_what_names(
    session: TableSession, plan: RollbackPlan, listed_tags: Sequence[Tag]
) -> RollbackPlan:
    """Return a plan with the tags, changelogs and consumers above the target, too."""
    plan = replace(plan, tags=tuple(tag for tag in listed_tags if _goes(tag, plan, _DELETION)))
    if plan.has_begun:
        return plan
    target_id = plan.target.id
    consumers_beyond = (
        listed for listed in session.consumers.list() if listed.next_snapshot_id > target_id + 1
    )
    return replace(
        plan,
        changelogs=tuple(listed for listed in session.changelogs.all() if listed.id > target_id),
        consumers=tuple(consumers_beyond),
    )


def with_tags_of_now(
    session: TableSession, plan: RollbackPlan, replacement: Replacement = _DELETION
) -> RollbackPlan:
    """Return a plan with the tags that are there once the table is at its target: a tag made after that sees it.

    Until the first snapshot goes no commit is made above the target, so that all of them are of what goes.
    """
    listed_tags = session.tags.stable_listing()
    return replace(plan, tags=tuple(tag for tag in listed_tags if _goes(tag, plan, replacement)))


def _goes(tag: Tag, plan: RollbackPlan, replacement: Replacement) -> bool:
    """Whether a tag is of what goes, and of no process that works on the table."""
    is_of_operation = tag.name.startswith((ROLLING_BACK, FORWARDING))
    if tag.snapshot.id <= plan.target.id or is_of_operation:
        return False
    if plan.has_begun:  # tags of what was committed since may be above the target
        snapshots = plan.snapshots
        return any(takes_first(marker, tag.snapshot) for marker in plan.markers) or any(
            same_state(tag.snapshot, snapshot) for snapshot in snapshots
        )
    return not replacement.holds(tag.snapshot)


def signs(session: TableSession) -> list[Tag]:
    """Return the signs: the tags of rollbacks under way."""
    return [tag for tag in session.tags.stable_listing() if tag.name.startswith(ROLLING_BACK)]


def signs_of(session: TableSession, target: Snapshot) -> list[Tag]:
    """Return the signs of rollbacks to a target."""
    return [sign for sign in signs(session) if same_state(sign.snapshot, target)]


def refuse_while_rolled_back(session: TableSession, newest: Snapshot) -> None:
    """Raise CommitConflictError if a rollback runs, or has taken `newest`.

    Called by an expiry after it moved EARLIEST. A rollback makes a tag first and looks
    then: one of the two sees the other, or they would leave no snapshot between them. One that died
    leaves the tag for an hour.
    """
    for sign in signs(session):
        raise CommitConflictError(
            f"the table is being rolled back to snapshot {sign.snapshot.id}; nothing was deleted, "
            f"try again later. If that rollback died, roll back to {sign.snapshot.id} again, or "
            f"delete its tag {sign.name!r}, which expires in an hour",
            tag=sign.name,
        )
    target_id = session.snapshots.rollback_under_way()
    if target_id is not None:
        raise under_way(target_id)
    # A rollback that has ended left neither sign nor marker; the missing snapshot shows it.
    if not is_there(session, newest):
        raise CommitConflictError(
            f"snapshot {newest.id} was rolled back meanwhile; nothing was deleted, try again",
            snapshot_id=newest.id,
        )


def refuse_unfinished(snapshots: Sequence[Snapshot]) -> None:
    """Raise CommitConflictError if a rollback is under way on a table of these snapshots, or died."""
    marker = divide_by_marker(snapshots).marker
    if marker is not None:
        raise under_way(rollback_target(marker))


def under_way(target_id: int | None) -> CommitConflictError:
    """Return the error of an operation that finds the marker of another rollback."""
    return CommitConflictError(
        f"the table is being rolled back to snapshot {target_id}; try again later. If that rollback "
        f"died, roll back to {target_id} again, which finishes it",
        snapshot_id=target_id,
    )


# -- Rollback: delete every snapshot and tag after one; their ids will be used again ---------------


@record
class RollbackReport:
    """The result of a rollback, or with `dry_run` of its plan."""

    plan: RollbackPlan
    dry_run: bool

    def __str__(self) -> str:
        verb = "would roll back" if self.dry_run else "rolled back"
        plan = self.plan
        return (
            f"{verb} to snapshot {plan.target.id}: {counted(len(plan.snapshots), 'snapshot')} and "
            f"{counted(len(plan.tags), 'tag')} go"
        )


def rollback(
    session: TableSession,
    target: Snapshot,
    *,
    dry_run: bool,
    replacement: Replacement = _DELETION,
) -> RollbackReport:
    """Return to a snapshot, also one that only a tag still keeps; finish what a dead one has begun.

    `replacement`: what gets the places of the snapshots that go, up to that of the marker.
    Raises CommitConflictError while another rollback, or an expiry of the target, is under way, and CommitUnknownError
    where the storage failed after the rollback was decided: the same rollback finishes it.
    """
    session.options.require_writable()
    plan = plan_rollback(session, target)
    if not dry_run:
        plan = _carry_out(session, plan, replacement)
    return RollbackReport(plan=plan, dry_run=dry_run)


def _carry_out(session: TableSession, plan: RollbackPlan, replacement: Replacement) -> RollbackPlan:
    """Carry out a rollback under a sign, which every expiry sees; return the plan as it was carried out."""
    is_first_free = plan.has_begun and not any(
        is_there(session, new) for new in replacement.snapshots[:1]
    )
    # Nothing may stand on an id that is free, or another's: what is left of a dead rollback is deleted first.
    if is_first_free or plan.restores:
        replacement = _DELETION
    if plan.is_empty:
        # A rollback that died after its last deletion leaves its sign, and nothing else to do.
        _take_down(session, signs_of(session, plan.target))
        return plan
    # A rollback that died after its marker has decided: the target comes back before anything else.
    if plan.has_marker:
        _restore(session, plan)
    # Only a tag may keep the target: of a user's, or of a rollback that died when it was back.
    goes_on = any(same_state(listed.snapshot, plan.target) for listed in signs(session))
    holders = [listed for listed in session.tags.list() if same_state(listed.snapshot, plan.target)]
    # The sign is created before EARLIEST is read. An expiry moves EARLIEST before it looks for
    # signs, so that one of the two sees the other.
    sign = tags.tag_for_operation(
        session,
        f"{ROLLING_BACK}{session.ids.new_id()[-12:]}",
        plan.target,
        tags.AN_HOUR,
        holder=holders[0] if holders and (plan.restores or goes_on) else None,
    )
    try:
        if holders and not plan.has_marker:  # an expiry that comes later sees the sign
            _refuse_beside_expiry(session, plan.target)
        had_marker, plan = plan.has_marker, _with_marker(session, plan, sign, replacement)
        if plan.has_marker and not had_marker and not session.tags.exists(sign.name):
            # Another rollback to the target deleted the sign before the marker landed, and has ended since; or it goes
            # on with the marker, and stops. No other process would finish this one.
            return _carry_out(session, plan_rollback(session, plan.target), replacement)
        former_signs = [tag for tag in signs_of(session, plan.target) if tag.name != sign.name]
        _take_down(session, former_signs)  # of dead rollbacks; one that is alive stops
        _restore(session, plan, sign)
        if plan.has_marker and not replacement.snapshots:
            _decide(session, plan)
            plan = with_tags_of_now(session, plan)
        _clean(session, plan, sign, replacement)
    except (CommitConflictError, NotFoundError) as cause:
        _take_down(session, [sign])
        # The sign goes with a table that is dropped or renamed, as it does when another rollback takes over.
        if session.identity.is_dropped():
            raise _of_dropped_table(session, plan) from cause
        raise
    except StorageError as cause:
        # A disk that refuses the marker decides nothing, and the sign would hold up every expiry for an hour. Once
        # the marker may be there, the sign stays: the rollback has to be done again.
        with suppress(LsmError):
            if not plan.has_marker and session.snapshots.rollback_under_way() is None:
                _take_down(session, [sign])
        # Readers may see the target by now: an error of which nothing is changed would be wrong.
        if plan.has_marker:
            raise CommitUnknownError(
                f"the rollback to snapshot {plan.target.id} was decided, and could not be finished; roll back to "
                f"{plan.target.id} again, which finishes it",
                snapshot_id=plan.target.id,
                reason=str(cause),
            ) from cause
        raise
    return plan


def _of_dropped_table(session: TableSession, plan: RollbackPlan) -> LsmError:
    """Return the error of a rollback whose table was renamed or dropped before its end."""
    if not plan.has_marker:
        return session.identity.dropped()
    return CommitUnknownError(
        f"the table was renamed or dropped while it was rolled back to snapshot {plan.target.id}; open it by its new "
        f"name and roll back to {plan.target.id} again, by its tag if only that keeps it, which finishes it",
        snapshot_id=plan.target.id,
        table=session.name,
    )


def _decide(session: TableSession, plan: RollbackPlan) -> None:
    """Let the marker of a forced fast-forward that died be that of a rollback: the table is at the target then."""
    for marker in plan.markers[-1:]:
        if marker != as_rollback(marker):
            session.snapshots.replace_state(marker, as_rollback(marker))


def _with_marker(
    session: TableSession, plan: RollbackPlan, sign: Tag, replacement: Replacement
) -> RollbackPlan:
    """Commit the marker on the newest snapshot, which may be another than that of the plan."""
    retries, target = Retries(session), plan.target
    own_placeholders: list[Snapshot] = []
    try:
        while plan.snapshots and not plan.has_marker:
            # A listing across another rollback mixes two chains. A marker names its snapshots, so
            # that they have to be one.
            newer_plan = plan if _is_linked(plan) else plan_rollback(session, target)
            if newer_plan.snapshots == plan.snapshots:
                _require_sign(session, sign)
                markers = _publish_marker(
                    session, plan, own_placeholders, replaces=bool(replacement.snapshots)
                )
                if markers:
                    return changed(plan, markers=markers, has_marker=True)
                retries.wait()
                newer_plan = plan_rollback(session, target)
            plan = newer_plan
            # Another rollback to the same target was faster, and may be alive: it cleans up by
            # itself.
            if plan.has_marker:
                raise under_way(target.id)
    except (CommitConflictError, NotFoundError):
        # Writers would wait for the id of a placeholder whose rollback never comes; so would those of a table that
        # was made anew here meanwhile.
        _delete_placeholders(session, own_placeholders)
        raise
    _delete_placeholders(session, own_placeholders)
    return plan


def _delete_placeholders(session: TableSession, own_placeholders: Sequence[Snapshot]) -> None:
    """Delete the own placeholders, as another rollback has ended: no commit could land there.

    One that goes on may rely on it, and deletes it: then there are greater ids, of the marker if no others.
    """
    retries = Retries(session)
    for placeholder in own_placeholders:
        while same_state(session.snapshots.find_now(placeholder.id), placeholder):
            if session.snapshots.listed_ids()[-1:] == [placeholder.id]:
                session.snapshots.delete_unchanged(placeholder)
            elif retries.is_late:
                break  # the other has died over its marker: finishing it deletes this, too
            else:
                retries.sleep()


def _is_linked(plan: RollbackPlan) -> bool:
    """Whether snapshots were made on each other; if not some are lost, or read across a rollback."""
    above = plan.snapshots if plan.restores else (plan.target, *plan.snapshots)
    return len(linked_run(above)) == len(above)


def _publish_marker(
    session: TableSession,
    plan: RollbackPlan,
    own_placeholders: list[Snapshot],
    *,
    replaces: bool,
) -> tuple[Snapshot, ...]:
    """Return the marker that landed, and before it the file below a target to come; empty: it lost.

    That file is added to `own_placeholders` where no other rollback has made it.
    """
    target, first, newest = plan.target, plan.snapshots[0], plan.snapshots[-1]
    marker = rollback_marker(
        target,
        newest,
        first,
        commit_user=session.ids.new_id(),
        uuid=session.ids.new_id(),
        now_millis=session.clock.now_millis(),
    )
    if replaces:
        marker = as_fast_forward(marker)
    # It holds the id above the target until that exists again: an orphan snapshot there would count
    # with it.
    placeholder = changed(marker, id=target.id + 1)
    placeholders = (
        ()
        if first.id == placeholder.id
        else _with_placeholder(session, placeholder, own_placeholders)
    )
    if placeholders is None or publish(session, marker, newest) is CommitOutcome.LOST:
        return ()
    try:
        # The sign lives for an hour. If it ended before the marker landed, an expiry saw neither.
        _require_not_passed(session, marker, target)
    except (CommitConflictError, NotFoundError) as cause:
        # The tags of a table that was renamed are elsewhere, and so is the marker.
        if session.identity.is_dropped():
            raise _of_dropped_table(session, changed(plan, has_marker=True)) from cause
        raise
    return (*placeholders, marker)


def _with_placeholder(
    session: TableSession, placeholder: Snapshot, own_placeholders: list[Snapshot]
) -> tuple[Snapshot] | None:
    """Create a file above a target that is not there yet; return it, or None if an orphan snapshot has the id.

    A writer that made it on the target, before that expired, revokes it. Were the target back before it
    did, others could build on it.
    """
    # Only an own placeholder may be deleted after a lost race.
    if session.snapshots.publish_only(placeholder):
        own_placeholders.append(placeholder)
    stored = session.snapshots.find(placeholder.id)
    return (
        (stored,) if stored is not None and rollback_target(stored) == placeholder.id - 1 else None
    )


def _require_not_passed(session: TableSession, marker: Snapshot, target: Snapshot) -> None:
    """Delete the marker if the sign's hour ended before it landed, and an expiry passed the target."""
    marked = session.snapshots.earliest_hint()
    if marked is None or marked <= target.id or signs_of(session, target):
        return
    session.snapshots.delete_state(marker)
    raise CommitConflictError(
        f"snapshot {target.id} expired while the table was rolled back to it; nothing was changed",
        snapshot_id=target.id,
    )


def _take_down(session: TableSession, signs: Sequence[Tag]) -> None:
    for sign in signs:
        session.tags.delete(sign)


def _restore(session: TableSession, plan: RollbackPlan, sign: Tag | None = None) -> None:
    """Create a target that only a tag kept, and move EARLIEST back where an expiry that gave up moved it."""
    if sign is not None:
        _require_sign(session, sign)
    target, snapshots = plan.target, session.snapshots
    # Another rollback to the same target may create it first, with the same state.
    restored = without_changelog(session, target)
    is_published = plan.restores and snapshots.publish_only(restored)
    if is_published and session.identity.is_dropped():
        # Another table that was made here meanwhile has no such snapshot.
        snapshots.delete_state(restored)
        raise session.identity.dropped()
    if plan.restores and not (is_published or is_there(session, target)):
        raise CommitConflictError(
            f"a file that never counted has the name of snapshot {target.id}; remove orphan files, "
            "and roll back again",
            snapshot_id=target.id,
        )
    marked = snapshots.earliest_hint()
    if plan.restores or (marked is not None and marked > target.id):
        # If another rollback has taken over, EARLIEST is its to move.
        if sign is not None:
            _require_sign(session, sign)
        snapshots.lower_earliest(target.id)


def _move_back(session: TableSession, consumer: Consumer, next_snapshot_id: int, sign: Tag) -> None:
    """Let a consumer read a snapshot next, unless it was deleted or put before that meanwhile."""

    def position_after(position: int | None) -> int | None:
        if position is None or position <= next_snapshot_id:
            return None
        # Once another rollback has ended the position may be in what was committed since.
        _require_sign(session, sign)
        return next_snapshot_id

    session.consumers.move(consumer.name, position_after)


def _clean(session: TableSession, plan: RollbackPlan, sign: Tag, replacement: Replacement) -> None:
    """Delete or replace what goes: first what names ids above the target, which writers then use again."""
    try:
        replacement.publish_schemas()
    except CommitConflictError:
        _take_marker_back(session, plan)
        raise
    # A replay of a commit that was taken back has to be a new commit.
    roll_identifiers_back(session, plan.target, lambda: _require_sign(session, sign))
    replacement.take_identifiers()
    expire_plan = _expire_plan(plan)
    if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is not None and not plan.has_begun:
        keep_in_trash(session, expire_plan, paths=_only_theirs(session, plan))
    snapshots = (*plan.markers[:-1], *plan.snapshots)
    if replacement.snapshots:
        # Who dies after the first replacement leaves no consumer that waits for snapshots that went.
        for consumer in plan.consumers:
            _move_back(session, consumer, plan.target.id + 1, sign)
        # Until the first snapshot is replaced the table is as before, and tags of it are made: they are listed then.
        _take_snapshots(session, snapshots[:1], plan, sign, replacement)
        plan, snapshots = with_tags_of_now(session, plan, replacement), snapshots[1:]
    # Tags and changelogs go before the snapshots. Once an id is free a writer may use it for a
    # snapshot that is not theirs.
    for tag in plan.tags:
        _take_above(session, tag, plan, sign, replacement)
    for changelog in reversed(plan.changelogs):
        session.changelogs.delete_unchanged(changelog)
    for consumer in plan.consumers:
        _move_back(session, consumer, plan.target.id + 1, sign)
    _take_snapshots(session, snapshots, plan, sign, replacement)
    _end(session, plan, sign, replacement)
    session.follow_iceberg()
    notify_removed(session, expire_plan, "rollback")


def _take_marker_back(session: TableSession, plan: RollbackPlan) -> None:
    """Delete the marker of a forced fast-forward that cannot go on: nothing was replaced, the table is as it was."""
    for marker in plan.markers[-1:]:
        if plan.snapshots and not plan.has_begun:
            session.snapshots.hint_latest(plan.snapshots[-1].id, may_skip=False)
            _force(session)
            session.snapshots.delete_state(marker)


def _take_snapshots(
    session: TableSession,
    going: Sequence[Snapshot],
    plan: RollbackPlan,
    sign: Tag,
    replacement: Replacement,
) -> None:
    """Delete or replace snapshots of a plan, oldest first: an id is free only once the one below is deleted."""
    snapshots = session.snapshots
    for marker in plan.markers[-1:]:
        # No file that has the id of one that goes may be trusted for it, nor be missed.
        _require_sign(session, sign)
        snapshots.hint_latest(marker.id, may_skip=False)
        _force(session)
        if not session.tags.exists(sign.name):
            # Another has finished: without the marker a table whose LATEST names it cannot be read.
            snapshots.forget_latest()
    # Oldest first: an id is free only when its base is missing, so that no commit on one of these
    # counts.
    for snapshot in going:
        _require_sign(session, sign)
        replacement.take(session, snapshot)
        _force(session)


def _end(session: TableSession, plan: RollbackPlan, sign: Tag, replacement: Replacement) -> None:
    """Delete or replace the marker, and before that what an expiry and another rollback look for."""
    snapshots, newest = session.snapshots, plan.target
    _require_sign(session, sign)
    for marker in plan.markers[-1:]:
        _require_not_built_on(session, marker)
        in_place = [new for new in replacement.snapshots if new.id < marker.id]
        newest = in_place[-1] if in_place else newest
    snapshots.hint_latest(newest.id, may_skip=False)
    _force(session)
    snapshots.announce(newest)
    # The sign goes before the marker: an expiry and a second rollback see one of the two until the
    # end.
    _take_down(session, [sign])
    for marker in plan.markers[-1:]:
        replacement.take(session, marker)
        _force(session)
    snapshots.mend_earliest()
    # A branch that is renamed takes the whole of a rollback along; a table that is renamed may take its marker.
    if not session.paths.branch_name:
        session.identity.require_there()


def _force(session: TableSession) -> None:
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    if durable:  # one by one: after a power cut the order must hold
        sync_directory(session.file_io, session.paths.snapshot_directory)


def _require_sign(session: TableSession, sign: Tag) -> None:
    """Stop if the sign is deleted: another rollback cleans, or has done so, and others use the ids again."""
    if not session.tags.exists(sign.name):
        raise CommitConflictError(
            f"the tag {sign.name!r} of this rollback was deleted, by hand, after an hour, or by another "
            f"rollback to snapshot {sign.snapshot.id} that finishes it; if none does, roll back again",
            tag=sign.name,
        )


def _require_not_built_on(session: TableSession, marker: Snapshot) -> None:
    """Keep a rollback marker that another client has committed on: the snapshot chain goes on from it."""
    newer = session.snapshots.find(marker.id + 1)
    if newer is not None and follows(newer, marker):
        # The chain begins at the marker now, as the snapshots below it are deleted.
        session.snapshots.hint_earliest(marker.id)
        raise CommitConflictError(
            f"another client committed snapshot {newer.id} while the table was rolled back; it has "
            f"the state of the target and that commit, and begins at snapshot {marker.id}",
            snapshot_id=newer.id,
        )


def _take_above(
    session: TableSession, tag: Tag, plan: RollbackPlan, sign: Tag, replacement: Replacement
) -> None:
    """Delete a tag of what is rolled back; one that others have moved to a snapshot that is kept is left alone."""
    above: Tag | None = tag
    # Others may move the tag meanwhile; its newest snapshot decides whether it goes.
    while above is not None and _goes(above, plan, replacement):
        # Without the sign the tag may be of what was committed after another rollback had ended.
        _require_sign(session, sign)
        session.tags.delete(above)
        above = session.tags.find(tag.name)


def _expire_plan(plan: RollbackPlan) -> ExpirePlan:
    return ExpirePlan(
        expired=plan.snapshots,
        reason=f"{ROLLED_BACK} {plan.target.id}; the removal of orphans frees the files",
        tags=plan.tags,
        expired_changelogs=plan.changelogs,
    )


def _only_theirs(session: TableSession, plan: RollbackPlan) -> list[str]:
    """Return the files that only rolled-back snapshots and tags name, for the trash to keep."""
    references = References(session)
    states = {snapshot.delta_manifest_list: snapshot for snapshot in plan.snapshots}
    states |= {tag.snapshot.delta_manifest_list: tag.snapshot for tag in plan.tags}
    paths: dict[str, None] = {}
    names = MetadataNames()
    for snapshot in states.values():
        names |= references.tag_names(snapshot)
        for entry in (*session.live_entries(snapshot), *references.changelog_entries([snapshot])):
            paths |= dict.fromkeys(session.data_paths(entry))
    return [*paths, *metadata_paths(session.paths, names)]


# -- Restore: make a former state the newest one, in a commit of its own ---------------------------
#
# History stays, and writers go on.

RESTORING = "restoring-"
"""Prefix of the names of tags that keep the state that is restored, until that is committed."""


def restore(session: TableSession, target: Snapshot, identity: CommitIdentity) -> Snapshot | None:
    """Publish an OVERWRITE snapshot with the files of `target`; None if they are the newest already.

    A commit that lands first is undone by it like those before: the answer is the target's state.
    But a replay of a numbered restore undoes nothing: it returns the snapshot that it made.
    Raises NotFoundError (expired) where an expiry, or the deletion of its last tag, has passed the target.
    """
    session.options.require_writable()
    # An expiry, or the deletion of its tag, would delete files that the new snapshot is going to name.
    is_kept = was_rolled_back(session, target)
    with snapshot_retained(session, target, RESTORING):
        restored = _restored(session, target, identity, is_kept=is_kept)
        if restored is None:
            # A table without a snapshot may be one that was renamed.
            session.identity.require_there()
        return restored


def _restored(
    session: TableSession, target: Snapshot, identity: CommitIdentity, *, is_kept: bool
) -> Snapshot | None:
    target_entries = {entry.identity: entry for entry in session.live_entries(target)}

    def difference(base: Snapshot | None) -> LiveChange | None:
        if base is None:
            return None
        # A rollback that takes the target deletes the own tag, too. One that comes after this look takes the base.
        if not is_kept and is_rolled_back(session, target):
            raise rolled_back(target)
        base_entries = {entry.identity: entry for entry in session.live_entries(base)}
        removed = tuple(entry for key, entry in base_entries.items() if key not in target_entries)
        restored = tuple(entry for key, entry in target_entries.items() if key not in base_entries)
        same_index = base.index_manifest == target.index_manifest
        if not removed and not restored and same_index:
            return None
        return LiveChange(deleted=removed, back=restored, state=target, rewrites_manifests=True)

    properties = {**(identity.properties or {}), RESTORED: str(target.id)}
    identity = replace(identity, properties=properties)
    proposal = Proposal(identity=identity, kind=CommitKind.OVERWRITE, choose=difference)
    return propose(session, proposal)
