"""Fast-forward: main takes over the snapshots that a branch has made since it began.

The branch's snapshots after the one that both share are published on main one by one, each a state of
its own: a fast-forward that died has come part of the way, and doing it again finishes. What main
committed since is never dropped unless that is asked for; then main is rolled back first.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.plan.live_snapshots import renamed_to
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.proposal import CommitOutcome
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.commit.publish_snapshot import publish, report
from lsm_engine.table.ground.committed_files import committed_files
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.rollback import rollback
from lsm_engine.table.history.rollback_plan import FORWARDING, RollbackPlan, plan_rollback
from lsm_engine.table.tags.branch import on_branch
from lsm_engine.table.tags.removal import identifiers_up_to, take_identifiers_over
from lsm_engine.table.tags.tag import AN_HOUR, is_expiring, locked

log = logging.getLogger(__name__)


@record
class FastForwardPlan:
    """What main takes over from a branch after `common_id`, oldest first; 0: from the beginning.

    `dropped` is what main loses first, None if nothing.
    """

    branch: str
    common_id: int
    schemas: tuple[TableSchema, ...]
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    dropped: RollbackPlan | None = None


@record
class FastForwardReport:
    """What a fast-forward did, or with `dry_run` would do."""

    plan: FastForwardPlan
    dry_run: bool

    def __str__(self) -> str:
        verb = "would take" if self.dry_run else "took"
        dropped = () if self.plan.dropped is None else self.plan.dropped.snapshots
        loss = f", and lose {len(dropped)} of its own" if dropped else ""
        return f"main {verb} {counted(len(self.plan.snapshots), 'snapshot')} of {self.plan.branch!r}{loss}"


def fast_forward(
    session: TableSession, name: str, *, force: bool, dry_run: bool
) -> FastForwardReport:
    """Bring main to where a branch is. `force` drops what main committed since they parted.

    Raises CommitConflictError where that would be needed, or where both changed the schema.
    """
    session.options.require_writable()
    if session.paths.branch_name:
        raise InvalidInputError("only the table itself is fast-forwarded", branch=name)
    branch = on_branch(session, name)
    plan = _plan(session, branch, name, force=force)
    if not dry_run:
        _carry_out(session, branch, plan)
    return FastForwardReport(plan=plan, dry_run=dry_run)


def _plan(
    session: TableSession, branch: TableSession, name: str, *, force: bool
) -> FastForwardPlan:
    own, theirs = session.snapshots.stable_listing(), branch.snapshots.stable_listing()
    new_name = renamed_to(theirs[-1]) if theirs else None
    if new_name is not None:
        raise CommitConflictError(
            f"branch {name!r} is being renamed to {new_name!r}; nothing was taken over, name it so",
            branch=name,
        )
    common = _common(own, theirs, name)
    lost = [one for one in own if common is None or one.id > common.id]
    dropped = None
    if lost and (not force or common is None):
        raise CommitConflictError(
            f"main has new snapshots since branch {name!r} began: {len(lost)} of them would "
            "be lost; look at them, and pass force=True to drop them",
            branch=name,
            snapshot_ids=[one.id for one in lost[:20]],
        )
    if force and common is not None:
        rolled_back = plan_rollback(session, common)
        # A rollback that died is finished, too: its seal has the id of a snapshot that is to come.
        dropped = rolled_back if lost or rolled_back.seals else None
    on_branch(session, name)  # a listing of one that is being deleted is not whole
    after = 0 if common is None else common.id
    mine = {tag.name for tag in session.tags.stable_listing()}
    began = theirs[0].id if theirs else 0
    return FastForwardPlan(
        branch=name,
        common_id=after,
        schemas=_new_schemas(session, branch, name),
        snapshots=tuple(one for one in theirs if one.id > after),
        tags=tuple(
            tag
            for tag in branch.tags.stable_listing()
            if tag.snapshot.id > began and tag.name not in mine
        ),
        dropped=dropped,
    )


def _common(own: Sequence[Snapshot], theirs: Sequence[Snapshot], name: str) -> Snapshot | None:
    """Return the newest snapshot that both have; None if main has none at all."""
    by_id = {one.id: one for one in theirs}
    for one in reversed(own):
        if same_state(by_id.get(one.id), one):
            return one
    if own:
        raise InvalidInputError(
            f"the table and branch {name!r} have no snapshot in common; nothing can be taken over",
            branch=name,
        )
    return None


def _new_schemas(session: TableSession, branch: TableSession, name: str) -> tuple[TableSchema, ...]:
    own = {schema.id: schema for schema in session.schemas.all()}
    theirs = branch.schemas.all()
    for schema in theirs:
        if schema.id in own and own[schema.id] != schema:
            raise CommitConflictError(
                f"the table and branch {name!r} have both changed their schema, each in its way",
                branch=name,
                schema_id=schema.id,
            )
    return tuple(schema for schema in theirs if schema.id not in own)


def _carry_out(session: TableSession, branch: TableSession, plan: FastForwardPlan) -> None:
    schemas = [(schema, branch.schemas.copied(schema.id)) for schema in plan.schemas]
    identifiers = identifiers_up_to(branch, plan.snapshots[-1]) if plan.snapshots else None
    with _held(session, branch, plan):
        if plan.dropped is not None:
            rollback(session, plan.dropped.target, dry_run=False)
        for schema, data in schemas:
            if not session.schemas.publish(schema, data):
                raise _overtaken(plan, f"schema {schema.id}")
        base = session.snapshots.find(plan.common_id)
        take_identifiers_over(session, identifiers, is_done=False)
        for snapshot in plan.snapshots:
            if publish(session, snapshot, base) is CommitOutcome.LOST:
                raise _overtaken(plan, f"snapshot {snapshot.id}")
            if session.components.listeners:
                report(session, committed_files(session, snapshot))
            base = snapshot
        take_identifiers_over(session, identifiers, is_done=True)
    for tag in plan.tags:
        _take_tag_over(session, branch, tag)


def _take_tag_over(session: TableSession, branch: TableSession, tag: Tag) -> None:
    """Make a branch's tag on main; none where it went meanwhile, with its files.

    A lock tag of main keeps the files until the tag is there: the branch's may be the last to name them, and be deleted.
    """
    with locked(session, tag.snapshot, FORWARDING):
        there = branch.tags.find(tag.name)
        is_there = there is not None and there.content == tag.content
        if not is_there and is_expiring(session, tag.snapshot):
            log.info("tag %s of branch %s went meanwhile", tag.name, branch.paths.branch_name)
            return
        made = session.tags.create(replace(tag, id=session.ids.new_id()), numeric=True)
    _notify_tagged(session, made)


@contextmanager
def _held(session: TableSession, branch: TableSession, plan: FastForwardPlan) -> Iterator[None]:
    """Keep the snapshots of a branch by tags of main until they are main's; what becomes of the branch does not matter.

    The tags stay for their hour where what is done meanwhile may take effect later, or by a kill. Raises
    NotFoundError, and main is as it was, where the branch is deleted or an expiry has got hold of a snapshot.
    """
    names: list[str] = []
    try:
        for snapshot in plan.snapshots:
            tag = Tag(
                name=f"{FORWARDING}{session.ids.new_id()[-12:]}",
                snapshot=snapshot,
                created=session.clock.local_time(),
                retained_millis=AN_HOUR,
            )
            session.tags.create(tag)
            names.append(tag.name)
        for snapshot in plan.snapshots:
            # Who deletes another tag of it plans after that which files are deleted, and so sees this one.
            if is_expiring(branch, snapshot) and not _is_tagged(branch, snapshot):
                raise NotFoundError(
                    f"snapshot {snapshot.id} of branch {plan.branch!r} has expired meanwhile, so that nothing "
                    "was taken over; look at the plan again",
                    kind=ErrorKind.EXPIRED,
                    snapshot_id=snapshot.id,
                )
        on_branch(session, plan.branch)
        yield
    except (CommitUnknownError, StorageError, OSError):
        raise
    except BaseException:
        session.delete_quietly(map(session.paths.tag_file, names))
        raise
    session.delete_quietly(map(session.paths.tag_file, names))


def _is_tagged(branch: TableSession, snapshot: Snapshot) -> bool:
    return any(same_state(tag.snapshot, snapshot) for tag in branch.tags.list())


def _notify_tagged(session: TableSession, tag: Tag) -> None:
    session.notify(lambda listener: listener.tagged(session.name, tag))


def _overtaken(plan: FastForwardPlan, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"somebody else made {what} while the table was fast-forwarded; what both have in common "
        "has changed, look at the plan again",
        branch=plan.branch,
    )
