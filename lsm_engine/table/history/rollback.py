"""Rollback: take back every snapshot and tag after one; their ids will be used again.

It is decided by one commit, the seal: a snapshot on the newest one with the state of the target. From
then on the table is at the target for every reader, and the rest is cleaning, which nothing turns back:
snapshot files go oldest first, the seal last. A rollback that died over it is finished by doing it
again. Data files are left to the removal of orphans: whoever still reads a snapshot that goes is not
disturbed. Who commits before the seal is rolled back, too; who commits after it stays
(docs/commit-protocol.md, decision 25).
"""

from collections.abc import Sequence
from dataclasses import replace as changed

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.meta.trash import ROLLED_BACK
from lsm_engine.plan.expire import ExpirePlan, MetadataNames
from lsm_engine.plan.live_snapshots import follows, linked_run, rollback_target
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.proposal import CommitOutcome
from lsm_engine.plan.rollback_seal import seal_of
from lsm_engine.table.commit.commit import WRITER_VERSION
from lsm_engine.table.commit.publish_snapshot import publish
from lsm_engine.table.commit.retries import Retries
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.orphans import entry_paths, metadata_paths
from lsm_engine.table.history.rollback_plan import (
    ROLLING_BACK,
    RollbackPlan,
    plan_rollback,
    signs,
    signs_of,
    under_way,
    with_tags_of_now,
)
from lsm_engine.table.tags import tag as tags
from lsm_engine.table.tags.removal import keep_in_trash, notify_removed, roll_identifiers_back
from lsm_engine.table.tags.roots import Roots
from lsm_engine.table.tags.tag import is_there, without_changelog


@record
class RollbackReport:
    """What a rollback took back, or with `dry_run` would."""

    plan: RollbackPlan
    dry_run: bool

    def __str__(self) -> str:
        verb = "would roll back" if self.dry_run else "rolled back"
        plan = self.plan
        return (
            f"{verb} to snapshot {plan.target.id}: {counted(len(plan.snapshots), 'snapshot')} and "
            f"{counted(len(plan.tags), 'tag')} go"
        )


def rollback(session: TableSession, target: Snapshot, *, dry_run: bool) -> RollbackReport:
    """Return to a snapshot, also one that only a tag still keeps; finish what a dead one has begun.

    Raises CommitConflictError while another rollback, or an expiry of the target, is under way.
    """
    session.options.require_writable()
    plan = plan_rollback(session, target)
    if not dry_run and plan.is_empty:
        _take_down(session, signs_of(session, target))  # of one who died when all was done
    elif not dry_run:
        plan = _carry_out(session, plan)
    return RollbackReport(plan=plan, dry_run=dry_run)


def _carry_out(session: TableSession, plan: RollbackPlan) -> RollbackPlan:
    """Roll back what the plan names, under a tag that every expiry sees; return the plan as it came out."""
    if plan.is_sealed:
        _restore(session, plan)
    # Only a tag may keep the target: of a user's, or of a rollback that died when it was back.
    goes_on = any(same_state(one.snapshot, plan.target) for one in signs(session))
    kept = [one for one in session.tags.list() if same_state(one.snapshot, plan.target)]
    sign = tags.of(
        session,
        f"{ROLLING_BACK}{session.ids.new_id()[-12:]}",
        plan.target,
        tags.AN_HOUR,
        holder=kept[0] if kept and (plan.restores or goes_on) else None,
    )
    try:
        plan = _sealed(session, plan)
        others = [tag for tag in signs_of(session, plan.target) if tag.name != sign.name]
        _take_down(session, others)  # of those who died, and stop one who did not
        _restore(session, plan, sign)
        if plan.is_sealed:
            plan = with_tags_of_now(session, plan)
        _clean(session, plan, sign)
    except CommitConflictError:
        _take_down(session, [sign])
        raise  # after any other error the sign stays, too
    return plan


def _sealed(session: TableSession, plan: RollbackPlan) -> RollbackPlan:
    """Commit the seal on the newest snapshot, which may be another than that of the plan."""
    retries, target = Retries(session), plan.target
    own_plugs: list[Snapshot] = []
    try:
        while plan.snapshots and not plan.is_sealed:
            again = plan if _is_linked(plan) else plan_rollback(session, target)
            if again.snapshots == plan.snapshots:
                seals = _publish_seal(session, plan, own_plugs)
                if seals:
                    return changed(plan, seals=seals, is_sealed=True)
                retries.wait()
                again = plan_rollback(session, target)
            plan = again
            if plan.is_sealed:
                raise under_way(target.id)
    except CommitConflictError:
        _unplug(session, own_plugs)
        raise
    _unplug(session, own_plugs)
    return plan


def _unplug(session: TableSession, own_plugs: Sequence[Snapshot]) -> None:
    """Take back what was put above the target, as another rollback has ended: nobody could commit there.

    One that goes on may rely on it, and deletes it: then there are greater ids, of the seal if no others.
    """
    retries = Retries(session)
    for plug in own_plugs:
        while same_state(session.snapshots.find_now(plug.id), plug):
            if session.snapshots.listed_ids()[-1:] == [plug.id]:
                session.snapshots.delete_unchanged(plug)
            elif retries.is_late:
                break  # the other has died over its seal: who finishes it deletes this, too
            else:
                retries.sleep()


def _is_linked(plan: RollbackPlan) -> bool:
    """Whether snapshots were made on each other; if not some are lost, or read across a rollback."""
    above = plan.snapshots if plan.restores else (plan.target, *plan.snapshots)
    return len(linked_run(above)) == len(above)


def _publish_seal(
    session: TableSession, plan: RollbackPlan, own_plugs: list[Snapshot]
) -> tuple[Snapshot, ...]:
    """Return the seal that landed, and before it the file below a target to come; empty: it lost.

    That file is added to `own_plugs` where no other rollback has made it.
    """
    target, first, newest = plan.target, plan.snapshots[0], plan.snapshots[-1]
    seal = seal_of(
        target,
        newest,
        first,
        commit_user=session.ids.new_id(),
        uuid=session.ids.new_id(),
        now_millis=session.clock.now_millis(),
        writer_version=WRITER_VERSION,
    )
    plug = changed(seal, id=target.id + 1)
    plugs = () if first.id == plug.id else _plugged(session, plug, own_plugs)
    if plugs is None or publish(session, seal, newest) is CommitOutcome.LOST:
        return ()
    _require_not_passed(session, seal, target)
    return (*plugs, seal)


def _plugged(
    session: TableSession, plug: Snapshot, own_plugs: list[Snapshot]
) -> tuple[Snapshot] | None:
    """Create a file above a target that is not there yet; return it, or None if a ghost has the id.

    A writer that made it on the target, before that expired, revokes it. Were the target back before it
    did, others could build on it.
    """
    if session.snapshots.publish_only(plug):
        own_plugs.append(plug)
    found = session.snapshots.find(plug.id)
    return (found,) if found is not None and rollback_target(found) == plug.id - 1 else None


def _require_not_passed(session: TableSession, seal: Snapshot, target: Snapshot) -> None:
    """Take the seal back if the sign's hour passed before it landed, and with it the target."""
    marked = session.snapshots.earliest_hint()
    if marked is None or marked <= target.id or signs_of(session, target):
        return
    session.snapshots.delete_state(seal)
    raise CommitConflictError(
        f"snapshot {target.id} expired while the table was rolled back to it; nothing was changed",
        snapshot_id=target.id,
    )


def _take_down(session: TableSession, signs: Sequence[Tag]) -> None:
    for sign in signs:
        session.tags.delete(sign)
        _notify_untagged(session, sign.name)


def _restore(session: TableSession, plan: RollbackPlan, sign: Tag | None = None) -> None:
    """Bring a target back that only a tag kept, and EARLIEST where an expiry that gave up moved it."""
    if sign is not None:
        _require_sign(session, sign)
    target, snapshots = plan.target, session.snapshots
    back = without_changelog(session, target)
    if plan.restores and not (snapshots.publish_only(back) or is_there(session, target)):
        raise CommitConflictError(
            f"a file that never counted has the name of snapshot {target.id}; remove orphan files, "
            "and roll back again",
            snapshot_id=target.id,
        )
    marked = snapshots.earliest_hint()
    if plan.restores or (marked is not None and marked > target.id):
        if sign is not None:
            _require_sign(session, sign)
        snapshots.lower_earliest(target.id)


def _move_back(session: TableSession, consumer: Consumer, next_snapshot_id: int) -> None:
    """Let a consumer read a snapshot next unless somebody has forgotten it, or put it before that, meanwhile."""
    session.consumers.move(
        consumer.name,
        lambda there: next_snapshot_id if there is not None and there > next_snapshot_id else None,
    )


def _clean(session: TableSession, plan: RollbackPlan, sign: Tag) -> None:
    """Delete what the seal takes: first what names ids above the target, which writers then use again."""
    roll_identifiers_back(session, plan.target)
    taken = _taken(plan)
    if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is not None and not plan.has_begun:
        keep_in_trash(session, taken, paths=_only_theirs(session, plan))
    for tag in plan.tags:
        _take_above(session, tag, plan.target)
    for changelog in reversed(plan.changelogs):
        session.changelogs.delete(changelog.id)
    for consumer in plan.consumers:
        _move_back(session, consumer, plan.target.id + 1)
    delete_sealed(session, plan, sign)
    # What is committed after the seal stays, whenever this is recorded.
    sealed_millis = max((seal.time_millis for seal in plan.seals), default=None)
    session.notify(
        lambda listener: listener.rolled_back(session.name, plan.target.id, sealed_millis)
    )
    notify_removed(session, taken, "rollback")


def delete_sealed(session: TableSession, plan: RollbackPlan, sign: Tag) -> None:
    """Delete the snapshots of a plan, oldest first: an id is free only once the one below is deleted.

    The seal goes last, and before it what an expiry and another rollback look for.
    """
    snapshots = session.snapshots
    for seal in plan.seals[-1:]:
        # No file that has the id of one that goes may be trusted for it, nor be missed.
        _require_sign(session, sign)
        snapshots.hint_latest(seal.id, may_skip=False)
        _force(session)
        if not session.tags.exists(sign.name):
            # Another has finished: without the seal nobody reads a table whose LATEST names it.
            snapshots.forget_latest()
    for one in (*plan.seals[:-1], *plan.snapshots):
        _require_sign(session, sign)
        snapshots.delete_state(one)
        _force(session)
    for seal in plan.seals[-1:]:
        _require_not_built_on(session, seal)
    snapshots.hint_latest(plan.target.id, may_skip=False)
    _force(session)
    snapshots.announce(plan.target)
    _take_down(session, [sign])
    for seal in plan.seals[-1:]:
        snapshots.delete_state(seal)
        _force(session)
    snapshots.mend_earliest()


def _force(session: TableSession) -> None:
    durable: bool = session.options[core_options.COMMIT_FSYNC]
    if durable:  # one by one: after a power cut the order must hold
        session.file_io.sync_directory(session.paths.snapshot_directory)


def _require_sign(session: TableSession, sign: Tag) -> None:
    """Stop if the sign is deleted: two that clean could delete what has an id for a second time."""
    if not session.tags.exists(sign.name):
        raise CommitConflictError(
            f"the tag {sign.name!r} of this rollback was deleted, by hand, after an hour, or by another "
            f"rollback to snapshot {sign.snapshot.id} that finishes it; if none does, roll back again",
            tag=sign.name,
        )


def _require_not_built_on(session: TableSession, seal: Snapshot) -> None:
    """Keep a seal that another client has committed on: the line goes on from it."""
    newer = session.snapshots.find(seal.id + 1)
    if newer is not None and follows(newer, seal):
        session.snapshots.hint_earliest(seal.id)
        raise CommitConflictError(
            f"another client committed snapshot {newer.id} while the table was rolled back; it has "
            f"the state of the target and that commit, and begins at snapshot {seal.id}",
            snapshot_id=newer.id,
        )


def _take_above(session: TableSession, tag: Tag, target: Snapshot) -> None:
    """Delete a tag of a snapshot above the target; one that others have moved below it meanwhile stays."""
    above: Tag | None = tag
    while above is not None and above.snapshot.id > target.id:
        if session.tags.delete(above):
            _notify_untagged(session, tag.name)
        above = session.tags.find(tag.name)


def _notify_untagged(session: TableSession, name: str) -> None:
    session.notify(lambda listener: listener.untagged(session.name, name))


def _taken(plan: RollbackPlan) -> ExpirePlan:
    return ExpirePlan(
        expired=plan.snapshots,
        reason=f"{ROLLED_BACK} {plan.target.id}; the removal of orphans frees the files",
        tags=plan.tags,
        expired_changelogs=plan.changelogs,
    )


def _only_theirs(session: TableSession, plan: RollbackPlan) -> list[str]:
    """Return the files that only what goes still names, for the trash to keep."""
    roots = Roots(session)
    states = {one.delta_manifest_list: one for one in plan.snapshots}
    states |= {tag.snapshot.delta_manifest_list: tag.snapshot for tag in plan.tags}
    paths: dict[str, None] = {}
    names = MetadataNames()
    for one in states.values():
        names |= roots.tag_names(one)
        for entry in (*session.live_entries(one), *roots.changelog_entries([one])):
            paths |= dict.fromkeys(entry_paths(session, entry))
    return [*paths, *metadata_paths(session.paths, names)]
