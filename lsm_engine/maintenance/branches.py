"""Branches that are merged into main by fast-forward, and branches that get another name."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.commit.commit import propose
from lsm_engine.commit.publish import Retries, publish, report
from lsm_engine.format.documents import decode_snapshot, encode_hint, encode_snapshot
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.maintenance.rollback import (
    FORWARDING,
    ROLLING_BACK,
    Replacement,
    RollbackPlan,
    plan_rollback,
    rollback,
    under_way,
)
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.publishing import deleted, published, replaced, unclaimed
from lsm_engine.metadata.snapshots import ids_of
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.names import MAIN_BRANCH, checked_branch_name
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.proposal import CommitIdentity, CommitOutcome, Proposal
from lsm_engine.planning.snapshot_chain import RENAMED_TO, renamed_to, rollback_target
from lsm_engine.storage.paths import EARLIEST, LATEST, TAG_PREFIX
from lsm_engine.table.branches import (
    Branch,
    branches,
    claim_on,
    missing,
    on_branch,
    require_not_fallen_back_on,
)
from lsm_engine.table.references import identifiers_up_to, take_identifiers_over
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import AN_HOUR, is_expiring, is_rolled_back_after, is_there, locked
from lsm_engine.types.table_schema import TableSchema

# -- Fast-forward: main takes over the snapshots that a branch has made since it began -------------
#
# The branch's snapshots after the one that both share are published on main one by one, each a
# state of its own: a fast-forward that died has come part of the way, and doing it again
# finishes. What main committed since is never dropped unless that is asked for; then main is
# rolled back first.

log = logging.getLogger(__name__)
_RACES = 10  # times that a tag is read anew which others keep changing


@record
class FastForwardPlan:
    """What main takes over from a branch after the snapshot `common` of both, oldest first; None: from the beginning.

    `dropped` is what main loses first, None if nothing. `first_id`: the branch's oldest snapshot; tags up to that are
    not taken over.
    """

    branch: str
    common: Snapshot | None
    schemas: tuple[TableSchema, ...]
    snapshots: tuple[Snapshot, ...]
    tags: tuple[Tag, ...]
    dropped: RollbackPlan | None = None
    first_id: int = 0


@record
class FastForwardReport:
    """The result of a fast-forward, or with `dry_run` of its plan."""

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
        with _snapshots_retained(session, branch, plan):
            _carry_out(session, branch, plan, force=force)
        for tag in plan.tags:
            _take_tag_over(session, branch, tag, plan)
        session.follow_iceberg(with_branches=True)
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
    _require_whole(session, own)
    _require_whole(branch, theirs)
    common = _common(_below_marker(session, own), theirs, name)
    lost = [snapshot for snapshot in own if common is None or snapshot.id > common.id]
    dropped = None
    if lost and (not force or common is None):
        raise CommitConflictError(
            f"main has new snapshots since branch {name!r} began: {len(lost)} of them would "
            "be lost; look at them, and pass force=True to drop them",
            branch=name,
            snapshot_ids=[snapshot.id for snapshot in lost[:20]],
        )
    if force and common is not None:
        rolled_back = plan_rollback(session, common)
        # A rollback that died is finished, too: its marker has the id of a snapshot that is to come.
        dropped = rolled_back if lost or rolled_back.markers else None
    on_branch(session, name)  # a listing of one that is being deleted is not whole
    common_id = 0 if common is None else common.id
    # A rollback takes main's tags above the common snapshot, also what another fast-forward has just taken over.
    own_tag_names = {
        tag.name
        for tag in session.tags.stable_listing()
        if dropped is None or tag.snapshot.id <= common_id
    }
    first_id = theirs[0].id if theirs else 0
    snapshots = tuple(snapshot for snapshot in theirs if snapshot.id > common_id)
    _refuse_rolled_back(branch, name, snapshots)
    return FastForwardPlan(
        branch=name,
        common=common,
        schemas=_new_schemas(session, branch, name),
        snapshots=snapshots,
        tags=tuple(
            tag
            for tag in branch.tags.stable_listing()
            if tag.snapshot.id > first_id and tag.name not in own_tag_names
        ),
        dropped=dropped,
        first_id=first_id,
    )


def _require_whole(session: TableSession, listed: Sequence[Snapshot]) -> None:
    """Raise CommitConflictError if a listing has not the newest snapshot: it was read across an expiry or a rollback.

    An empty one would be a table without any snapshot, in which everything of the branch could land.
    """
    newest = session.snapshots.latest()
    if newest is not None and not any(same_state(newest, snapshot) for snapshot in listed):
        raise CommitConflictError(
            "the snapshots changed while they were read; nothing was changed, try again",
            branch=session.paths.branch_name or MAIN_BRANCH,
            snapshot_id=newest.id,
        )


def _refuse_rolled_back(branch: TableSession, name: str, snapshots: Sequence[Snapshot]) -> None:
    """Raise CommitConflictError while a branch is being rolled back: no process would finish its marker on main.

    The marker may have landed after `snapshots` were listed, or be deleted since.
    """
    for target_id in (branch.snapshots.rollback_under_way(), *map(rollback_target, snapshots)):
        if target_id is not None:
            raise _rolled_back_error(name, target_id)


def _rolled_back_error(name: str, target_id: int) -> CommitConflictError:
    return CommitConflictError(
        f"branch {name!r} is being rolled back to snapshot {target_id}; nothing was changed, try again later. If "
        f"that rollback died, roll the branch back to {target_id} again, which finishes it",
        branch=name,
        snapshot_id=target_id,
    )


def _below_marker(session: TableSession, own: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Return the snapshots that main is being rolled back to: a fast-forward that died is finished from its target on."""
    target_id = session.snapshots.rollback_under_way()
    if target_id is None:
        return own
    below = [snapshot for snapshot in own if snapshot.id <= target_id]
    if not below:
        raise under_way(target_id)
    return below


def _common(own: Sequence[Snapshot], theirs: Sequence[Snapshot], name: str) -> Snapshot | None:
    """Return the newest snapshot that both have; None if main has none at all."""
    by_id = {snapshot.id: snapshot for snapshot in theirs}
    for snapshot in reversed(own):
        if same_state(by_id.get(snapshot.id), snapshot):
            return snapshot
    if own:
        raise InvalidInputError(
            f"the table and branch {name!r} have no snapshot in common; nothing can be taken over: a "
            "branch that is created from a tag begins with a snapshot of the table",
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


def _carry_out(
    session: TableSession, branch: TableSession, plan: FastForwardPlan, *, force: bool
) -> None:
    """Take over what a plan states; with `force` also where others commit between two of its snapshots.

    Raises CommitUnknownError once main has taken something over.
    """
    retries, pending = Retries(session), plan
    while True:
        try:
            overtaken = _take_over(session, branch, pending)
        except (CommitConflictError, StorageError) as cause:
            if _taken_over(session, plan):
                raise _unfinished(session, plan, cause) from cause
            raise
        if overtaken is None:
            return
        # Who passes force drops what main commits until it is where the branch is.
        if not force and not _taken_over(session, plan):
            raise overtaken
        if not force or retries.is_late:
            raise _unfinished(session, plan, overtaken) from overtaken
        retries.sleep()
        try:
            pending = _plan(session, branch, plan.branch, force=True)
        except LsmError as cause:
            # Main was rolled back, so that its state has to be reported.
            raise _unfinished(session, plan, cause) from cause


def _taken_over(session: TableSession, plan: FastForwardPlan) -> str:
    """Return what main has of what it takes over; an empty text: nothing."""
    own_schemas = session.schemas.all()
    schemas = [f"schema {schema.id}" for schema in plan.schemas if schema in own_schemas]
    snapshots = [snapshot for snapshot in plan.snapshots if is_there(session, snapshot)]
    return ", ".join((*schemas, *(f"snapshot {snapshot.id}" for snapshot in snapshots)))


def _unfinished(
    session: TableSession, plan: FastForwardPlan, cause: LsmError
) -> CommitUnknownError:
    return CommitUnknownError(
        f"main has {_taken_over(session, plan) or 'nothing'} of branch {plan.branch!r}, and is not where that is; look "
        "at the plan again, and fast-forward again to finish, by force if others have committed on main",
        branch=plan.branch,
        reason=str(cause),
    )


def _take_over(
    session: TableSession, branch: TableSession, plan: FastForwardPlan
) -> CommitConflictError | None:
    """Take a branch over; return the error, and stop, where others have committed between two of its snapshots."""
    # Read first: the branch may be deleted while main takes it over.
    schemas = [(schema, branch.schemas.copied(schema.id)) for schema in plan.schemas]
    identifiers = identifiers_up_to(branch, plan.snapshots[-1]) if plan.snapshots else None

    def publish_schemas() -> None:
        for schema, data in schemas:
            if session.schemas.publish(schema, data) is None and schema != session.schemas.load(
                schema.id
            ):
                raise _overtaken(plan, f"schema {schema.id}")

    def take_identifiers() -> None:
        # Before the snapshots that rest on it: a stop leaves a file that has more than they.
        take_identifiers_over(session, identifiers, is_done=False)

    # As it was planned, not as it is read now: a rollback may have taken it, and then nothing lands on it.
    base, snapshots = plan.common, plan.snapshots
    if plan.dropped is not None:
        replacement = Replacement(
            snapshots=snapshots, publish_schemas=publish_schemas, take_identifiers=take_identifiers
        )
        rollback(session, plan.dropped.target, dry_run=False, replacement=replacement)
        in_place = [snapshot for snapshot in snapshots if is_there(session, snapshot)]
        for snapshot in in_place[-1:]:
            base, snapshots = snapshot, snapshots[len(in_place) :]
            session.snapshots.announce_behind(snapshot)
    if base is plan.common:
        publish_schemas()
        take_identifiers()
    for snapshot in snapshots:
        # Each snapshot is confirmed on the one before, so that a commit on main in between
        # wins.
        if publish(session, snapshot, base) is CommitOutcome.LOST:
            return _overtaken(plan, f"snapshot {snapshot.id}")
        report(session, snapshot)
        base = snapshot
    take_identifiers_over(session, identifiers, is_done=True)
    return None


def _take_tag_over(
    session: TableSession, branch: TableSession, tag: Tag, plan: FastForwardPlan
) -> None:
    """Make a branch's tag on main as it is by now; none where it went, with its files, or main is rolled back below it.

    A lock tag of main keeps the files until the tag is there: the branch's may be the last to name them, and be deleted.
    """
    for _ in range(_RACES):
        stored = branch.tags.find(tag.name) or tag  # of a branch that was deleted since: as it was
        with locked(session, stored.snapshot, FORWARDING):
            now = branch.tags.find(tag.name)
            # A tag that is unchanged keeps its files; of one that changed the new content is taken over.
            if now is not None and now.content != stored.content:
                continue
            if now is None and session.identity.is_dropped():
                raise session.identity.taken_along(f"what main has of branch {plan.branch!r}")
            if now is None and is_expiring(session, stored.snapshot):
                log.info("tag %s of branch %s went meanwhile", tag.name, branch.paths.branch_name)
                return
            if stored.snapshot.id > plan.first_id:  # or it was moved back since the plan
                _make_tag(session, stored, plan)
        session.follow_iceberg()
        return
    raise CommitUnknownError(
        f"main is where branch {plan.branch!r} is, and others keep changing tag {tag.name!r}; fast-forward again, "
        "which takes it over",
        branch=plan.branch,
        tag=tag.name,
    )


def _make_tag(session: TableSession, tag: Tag, plan: FastForwardPlan) -> None:
    """Make a branch's tag on main, unless main has one of the name since, or a rollback takes its snapshot."""
    try:
        copied = session.tags.create(replace(tag, id=session.ids.new_id()), numeric=True)
    except AlreadyExistsError:
        # Made since the plan, by another fast-forward for example: it keeps its own snapshot.
        log.info("main has a tag %s since", tag.name)
        return
    is_taken_over = any(same_state(snapshot, tag.snapshot) for snapshot in plan.snapshots)
    # A rollback that listed main's tags before would leave this one. A state that the branch itself was rolled
    # back from is kept by its tag alone, on main as on the branch.
    if is_rolled_back_after(session, copied) and is_taken_over:
        session.tags.delete(copied)
        log.info("tag %s was rolled back on main", tag.name)


@contextmanager
def _snapshots_retained(
    session: TableSession, branch: TableSession, plan: FastForwardPlan
) -> Iterator[None]:
    """Keep the snapshots of a branch by tags of main until they are main's, whatever happens to the branch.

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
            # The deletion of another tag of it is planned once more after the tag is deleted, and then sees this one.
            if is_expiring(branch, snapshot) and not _is_tagged(branch, snapshot):
                raise NotFoundError(
                    f"snapshot {snapshot.id} of branch {plan.branch!r} has expired meanwhile, so that nothing "
                    "was taken over; look at the plan again",
                    kind=ErrorKind.EXPIRED,
                    snapshot_id=snapshot.id,
                )
        # Raises for a branch that was deleted before the lock tags could keep its files.
        on_branch(session, plan.branch)
        yield
    except (CommitUnknownError, StorageError, OSError):
        # A snapshot of main may still land: the lock tags stay for their hour.
        raise
    except BaseException:
        # Main names nothing of the branch, and nothing can land any more.
        session.delete_quietly(map(session.paths.tag_file, names))
        raise
    session.delete_quietly(map(session.paths.tag_file, names))


def _is_tagged(branch: TableSession, snapshot: Snapshot) -> bool:
    return any(same_state(tag.snapshot, snapshot) for tag in branch.tags.list())


def _overtaken(plan: FastForwardPlan, change: str) -> CommitConflictError:
    return CommitConflictError(
        f"another process made {change} while the table was fast-forwarded; what both have in common "
        "has changed, look at the plan again",
        branch=plan.branch,
    )


# -- Rename a branch -------------------------------------------------------------------------------
#
# Stopped by one commit, copied, made under the new name, and deleted.
#
# The stop is an empty snapshot that names the new name. It lands or loses like any commit: what
# landed before it is copied, and no commit is made on it. Until the branch is there by its new
# name, all of it can be read by the old one.

_RENAME = "lsm.rename"
"""Property of a stop: an id of the rename, so that no two write the same file."""
_DELETABLE = ("tag/", "consumer/")
_CARRIED = (*_DELETABLE, "schema/")
"""The parts of a branch that change without commits, by acknowledged operations."""


def rename(session: TableSession, name: str, new_name: str) -> Branch:
    """Rename a branch. A kill may leave both names, the old one without commits; renaming again finishes.

    So does a store that fails once the new name is there, which raises CommitUnknownError. Raises
    CommitConflictError, with nothing changed, where the branch was tagged or expired while it was copied. A
    commit beside it is there under the new name, or fails with an error that names it.
    """
    session.options.require_writable()
    checked_branch_name(new_name)
    require_not_fallen_back_on(session, name)
    store = branches(session)
    if not store.exists(name):
        raise missing(name)
    if name == new_name:
        return Branch(name=name)
    old = on_branch(session, name)
    stop: Snapshot | None
    copied: Mapping[str, bytes] | None = None
    if store.exists(new_name):
        stop = _stop_of_copy(session, old, new_name)
    else:
        stop, copied = _copied(session, old, new_name)
    if stop is None:
        raise _exists(new_name)
    try:
        _delete_old(session, old, new_name, stop, copied)
    except (CommitConflictError, CommitUnknownError):
        raise
    except LsmError as cause:
        # The branch exists by its new name, so that the rename counts, and is not finished.
        raise CommitUnknownError(
            f"branch {name!r} is there as {new_name!r}, and its old name could not be deleted; "
            "rename it again to finish",
            branch=new_name,
            reason=str(cause),
        ) from cause
    session.follow_iceberg(with_branches=True)
    return Branch(name=new_name)


def _exists(name: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"branch {name!r} exists", branch=name)


def _copied(
    session: TableSession, old: TableSession, new_name: str
) -> tuple[Snapshot, Mapping[str, bytes]]:
    """Make the branch under its new name; return the stop, and what it was made of, by paths below its directory."""
    store, name = branches(session), old.paths.branch_name

    def require_free(content: bytes | None) -> None:
        if content is not None and store.schema_in(new_name, content) is not None:
            raise _exists(new_name)

    claim = claim_on(session, new_name, f"renaming {name}")
    # The new name is claimed before the old branch stops, so that a taken name costs no commit.
    claim.take(require_free)
    stop: Snapshot | None = None
    try:
        stop = _stopped(old, new_name)
        files = _contents(store, old, stop)
        directory = store.paths(new_name).of_branch()
        paths = {f"{directory}/{path}": content for path, content in files.items()}
        if not (claim.empty() and claim.fill(paths)):
            raise _exists(new_name)
        schema = old.schemas.copied(0)
        # No commit is made on the stop, but tags, consumers and schemas can change beside the copy.
        if _contents(store, old, stop) != files:
            raise _changed_error(name)
        if not claim.give(schema):
            raise _exists(new_name)
    except CommitUnknownError:
        raise  # the branch may be there by its new name: renaming again finishes
    except LsmError:
        # The new name is free again, and the old branch takes commits as before.
        claim.give_up()
        if stop is not None:
            _reopen(old, stop)
        raise
    return stop, files


def _changed_error(name: str) -> CommitConflictError:
    return CommitConflictError(
        f"branch {name!r} changed while it was renamed; nothing was changed, try again", branch=name
    )


def _rename_id(stop: Snapshot | None) -> str | None:
    return None if stop is None else (stop.properties or {}).get(_RENAME)


def _stopped(old: TableSession, new_name: str) -> Snapshot:
    """Commit the stop, or take over that of a rename that died; return it."""
    marks = {RENAMED_TO: new_name, _RENAME: old.ids.new_id()}
    newest = old.snapshots.latest()
    # A rename that died left its stop. With another id on it, a rename that was only paused fails.
    while newest is not None and renamed_to(newest) is not None:
        stop_taken_over = _rewritten(old, newest, {**(newest.properties or {}), **marks})
        if stop_taken_over is not None:
            return stop_taken_over
        newest = old.snapshots.latest()
    forced = {core_options.COMMIT_FORCE_CREATE_SNAPSHOT.key: "true"}
    stop = propose(
        old.with_options(old.options.with_texts(forced)),
        Proposal(
            identity=CommitIdentity(commit_user=old.ids.new_id(), properties=marks),
            planned_on=newest,
            kind=CommitKind.COMPACT,
        ),
    )
    assert stop is not None, "an empty snapshot was asked for"
    return stop


def _reopen(old: TableSession, stop: Snapshot) -> None:
    """Make a stop an empty snapshot like others, unless another rename has taken it over."""
    marks = (RENAMED_TO, _RENAME)
    properties = {key: text for key, text in (stop.properties or {}).items() if key not in marks}
    with suppress(LsmError):  # then renaming again, under any name, goes on from it
        _rewritten(old, stop, properties)


def _rewritten(old: TableSession, stop: Snapshot, properties: Mapping[str, str]) -> Snapshot | None:
    """Give a stop other properties; None if another rename has done so since."""
    path = old.paths.snapshot_file(stop.id)
    # The remembered snapshot has the former properties.
    old.snapshots.forget_newest()
    content = old.file_io.read(path)
    snapshot = decode_snapshot(content, file_name=path)
    if not same_state(snapshot, stop) or _rename_id(snapshot) != _rename_id(stop):
        return None
    rewritten = replace(snapshot, properties=properties or None)
    is_rewritten = replaced(old.file_io, path, encode_snapshot(rewritten), expected=content)
    return rewritten if is_rewritten else None


def _contents(store: BranchStore, old: TableSession, stop: Snapshot) -> dict[str, bytes]:
    """Return the files of a branch without schema-0 and the stop, by path below its directory, the hints last.

    Raises StorageError for a short answer, CommitConflictError where the snapshot below the stop is missing.
    """
    paths, directory = old.paths, old.paths.of_branch()
    hints = {paths.snapshot_hint(LATEST), paths.snapshot_hint(EARLIEST)}
    besides = {paths.schema_file(0), paths.snapshot_file(stop.id), *hints}
    files = {}
    listed = store.files(paths.branch_name)
    # Nothing is committed on the stop: what is above it belongs to a rollback, which would go on in the old branch.
    if max(ids_of(listed), default=0) > stop.id:
        target_id = old.snapshots.rollback_under_way()
        if target_id is None:
            raise _changed_error(paths.branch_name)
        raise _rolled_back_error(paths.branch_name, target_id)
    for status in listed:
        if status.name.startswith(".") or status.path in besides or _is_sign(status.name):
            continue
        content = old.file_io.read(status.path)
        if len(content) != status.size:
            raise StorageError(
                "the storage gave part of a file; nothing was changed, try again", path=status.path
            )
        document = unclaimed(old.file_io, paths, status.path, content)
        if document is not None:
            files[status.path.removeprefix(directory + "/")] = document
    if stop.id > 1:
        # The branch is being deleted, or expires: a hint alone would be a branch that has lost its newest snapshot.
        if f"snapshot/snapshot-{stop.id - 1}" not in files:
            raise _changed_error(paths.branch_name)
        earliest = old.snapshots.earliest_hint()
        if earliest is not None:
            files[f"snapshot/{EARLIEST}"] = encode_hint(earliest)
        files[f"snapshot/{LATEST}"] = encode_hint(stop.id - 1)
    return files


def _is_sign(file_name: str) -> bool:
    """Whether a file is the sign of a rollback: that ends with the old name, and would hold up expiry by the new one."""
    return file_name.startswith(f"{TAG_PREFIX}{ROLLING_BACK}")


def _stop_of_copy(session: TableSession, old: TableSession, new_name: str) -> Snapshot | None:
    """Return the stop of a rename that died once it had made the branch under its new name; None: another made that.

    Nothing may be in the old one that the new one has not.
    """
    stop = old.snapshots.latest()
    if stop is None or renamed_to(stop) != new_name:
        return None
    new = on_branch(session, new_name)
    newest = old.snapshots.find(stop.id - 1)
    is_copy = (
        (newest is None or same_state(new.snapshots.find(newest.id), newest))
        and set(old.tags.names()) <= set(new.tags.names())
        and set(old.consumers.names()) <= set(new.consumers.names())
        and set(old.schemas.ids()) <= set(new.schemas.ids())
    )
    return stop if is_copy else None


def _delete_old(
    session: TableSession,
    old: TableSession,
    new_name: str,
    stop: Snapshot,
    copied: Mapping[str, bytes] | None,
) -> None:
    """Delete the branch by its old name; what was added or moved there since it was copied moves along.

    `copied` None: nothing was. Another may have renamed it, too, or have deleted it and made one of the same name: then
    the stop is not in the branch that is held.
    """
    name = old.paths.branch_name
    before, after = old.paths.of_branch(), branches(session).paths(new_name).of_branch()
    claim = claim_on(session, name, f"renaming to {new_name}")
    schema = claim.hold()
    # Another rename may have taken the stop over, or the name may be another branch's by now.
    is_same = _rename_id(old.snapshots.find_now(stop.id)) == _rename_id(stop)
    if schema is not None and not is_same:
        claim.let_go(schema)
    if schema is None or not is_same or not claim.take_held(schema):
        if schema is None and copied is None:
            return  # another has finished what a dead one began
        if session.identity.is_dropped():
            raise session.identity.taken_along(f"branch {new_name!r}")
        raise CommitConflictError(
            f"branch {name!r} was renamed or deleted by another at the same time, and is there as {new_name!r}, "
            "too; delete that if it is not wanted",
            branch=new_name,
        )

    stored: set[str] = set()

    def carry(path: str, content: bytes) -> None:
        relative = path.removeprefix(before + "/")
        stored.add(relative)
        if copied is None or not relative.startswith(_CARRIED) or _is_sign(path.rpartition("/")[2]):
            return
        copy = copied.get(relative)
        # What was made after the copy was acknowledged under the old name, and must not be lost.
        if copy is None:
            published(session.file_io, f"{after}/{relative}", content)
        # A newer one under the new name stays.
        elif copy != content:
            replaced(session.file_io, f"{after}/{relative}", content, expected=copy)

    if claim.empty(carry):
        # A tag or a consumer that was deleted after the copy does not come back by the new name. No other process
        # deleted the files of the branch: the claim was held until the last one.
        for relative, copy in (copied or {}).items():
            if relative.startswith(_DELETABLE) and relative not in stored:
                deleted(session.file_io, f"{after}/{relative}", expected=copy)
        claim.release()
