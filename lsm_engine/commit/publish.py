"""Publish a snapshot and confirm it, for commits and fast-forwards.

An outcome is LANDED or LOST. If it is unknown, a CommitUnknownError is raised, after which no file that the
snapshot names may be deleted (format section 14)."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options import core_options
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.ownership import PublishOutcome, resolve_publish, same_state
from lsm_engine.planning.proposal import CommitOutcome, retry_wait_millis, rewrite_wait_millis
from lsm_engine.planning.snapshot_chain import (
    believed,
    is_built_on,
    named_base,
    renamed_to,
    rollback_target,
)
from lsm_engine.table.bucket_context import discard
from lsm_engine.table.components import PublishedSnapshot
from lsm_engine.table.references import committed_files
from lsm_engine.table.session import PlannedSchema, TableSession
from lsm_engine.types.table_schema import TableSchema

# -- How long a commit goes on trying --------------------------------------------------------------
#
# For `commit.timeout`, with short waits that get shorter, so that a writer that has lost often wins.


class Retries:
    """Retries and timeout of one commit, which starts when the object is made. `lost` counts lost races.

    `rewrites`: each attempt rewrites rows, so that the waits get longer, not shorter.
    """

    def __init__(self, session: TableSession, *, rewrites: bool = False) -> None:
        self._wait_millis = rewrite_wait_millis if rewrites else retry_wait_millis
        self._session = session
        self._started_millis = session.clock.now_millis()
        self.lost = 0

    def turn(self) -> AbstractContextManager[None]:
        """Wait for the turn of an attempt among the writers of this machine, and hold it."""
        session = self._session
        directory = session.paths.snapshot_directory
        return session.components.commit_turns.turn(session.file_io, directory, session.clock)

    def wait(self) -> None:
        """Wait after a lost race; raises CommitConflictError where the options allow no other try."""
        self.lost += 1
        limit = self._session.options.commit_retries
        if self.is_late or (limit is not None and self.lost > limit):
            raise CommitConflictError(
                "other writers took every snapshot id that this commit tried for; nothing of it is "
                "visible, try again, or raise 'commit.timeout', and 'commit.max-retries' if it is set",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                retries=self.lost,
                waited_millis=self._waited_millis(),
                table=self._session.name,
            )
        self.sleep()

    def wait_for(self, snapshot_id: int) -> None:
        """Wait until the file that has the next snapshot id, and does not count, is deleted.

        Raises CommitConflictError after `commit.timeout`; the message has the remedy.
        """
        if self.is_late:
            to = self._session.snapshots.rollback_under_way()
            remedy = (
                "its writer may have died; remove orphan files, which takes it a day later"
                if to is None
                else f"a rollback to snapshot {to} is under way, or died; roll back to {to} again"
            )
            raise CommitConflictError(
                f"a file that does not count has the name of snapshot {snapshot_id}; {remedy}",
                kind=ErrorKind.RETRIES_EXHAUSTED,
                snapshot_id=snapshot_id,
                waited_millis=self._waited_millis(),
                table=self._session.name,
            )
        self.sleep()

    @property
    def is_late(self) -> bool:
        """Whether `commit.timeout` is over."""
        return self._waited_millis() > self._session.options[core_options.COMMIT_TIMEOUT]

    def _waited_millis(self) -> int:
        return self._session.clock.now_millis() - self._started_millis

    def sleep(self) -> None:
        """Wait for a random time that depends on `lost`, at least as after the first (planning/proposal.retry_wait_millis)."""
        options = self._session.options
        self._session.clock.sleep_millis(
            self._wait_millis(
                max(self.lost, 1),
                least=options[core_options.COMMIT_MIN_RETRY_WAIT],
                longest=options[core_options.COMMIT_MAX_RETRY_WAIT],
                fraction=self._session.ids.fraction(),
            )
        )


# -- Confirmation ----------------------------------------------------------------------------------
#
# A writer may have been paused for any time before its create. Meanwhile an expiry may have freed the
# id, or a rollback may have taken the snapshot below it. Both leave traces before they free an id, so
# that a writer sees them if it looks after its create (docs/commit-protocol.md).

log = logging.getLogger(__name__)
_TRIES = 3  # looks before a storage that does not answer leaves the commit unknown


def confirm(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool] = lambda: False,
) -> bool:
    """Whether a landed snapshot counts: then announce it by LATEST, else revoke it.

    `base`: the snapshot that it was made on. `is_dropped`: whether the table was dropped; asked if the base is
    missing. If the answer is False, nothing of the snapshot is visible, and the commit is planned again. Raises
    CommitUnknownError if an expiry, a rollback or a rename of the table took the file before it was looked at, or
    the storage does not answer; then nothing may be deleted.
    """
    try:
        counts = _counts_with_retries(snapshots, landed, base, is_dropped)
    except CommitUnknownError:
        # The look has decided that it cannot be known, and has a reason of its own.
        raise
    except LsmError as cause:
        # The snapshot is visible and may count: its files must stay.
        raise _unknown(landed, "the storage does not answer") from cause
    if not counts:
        try:
            snapshots.delete_state(landed)
        except LsmError as cause:
            # Others may see it, and build on it: its files must stay.
            raise _unknown(landed, "the storage does not answer") from cause
        log.info(
            "revoked snapshot %d: its id expired or was rolled back, or the table was dropped",
            landed.id,
        )
        return False
    # A first snapshot makes EARLIEST, and a rollback goes on once LATEST names its marker: both wait.
    if base is None or rollback_target(landed) is not None:
        snapshots.announce(landed, is_first=base is None)
    else:
        snapshots.announce_behind(landed)
    return True


def _counts_with_retries(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool],
) -> bool:
    for _ in range(_TRIES - 1):
        try:
            return _counts(snapshots, landed, base, is_dropped)
        except CommitUnknownError:
            # Another look cannot see more: what would decide is deleted.
            raise
        except LsmError as error:
            # A short failure of the storage must not make a commit unknown.
            log.warning("snapshot %d landed, and cannot be confirmed yet: %s", landed.id, error)
    return _counts(snapshots, landed, base, is_dropped)


def _counts(
    snapshots: SnapshotStore,
    landed: Snapshot,
    base: Snapshot | None,
    is_dropped: Callable[[], bool],
) -> bool:
    """Return whether a snapshot is on the snapshot chain, or was until it expired or was rolled back.

    With its base there it is: expiry and rollback delete upwards, so no id above that one was free.
    """
    if base is not None and same_state(snapshots.find(base.id), base):
        return True
    # The schema file is missing or another table's: the directory is not this table any more.
    if is_dropped():
        # It is still there, and no snapshot of the new table: revoking it hits the own file.
        if same_state(snapshots.find(landed.id), landed):
            return False
        # A rename moves the snapshot along with the directory, where it counts; a drop deletes it.
        raise _unknown(landed, "the table was renamed or dropped, and the snapshot with it")
    # The slow path. EARLIEST is read after the create: an expiry moves it before it frees an id.
    earliest = snapshots.earliest_hint()
    listed = snapshots.listed_ids()
    newer = snapshots.find(landed.id + 1)
    stored = snapshots.find(landed.id)  # after `newer`, as both go upwards
    # The process that built on it saw it on the chain, where it stays.
    if is_built_on(newer, landed):
        return True
    fence = believed(earliest, max(listed, default=0))
    is_newest = newer is None and not any(number > landed.id for number in listed)
    has_older = base is not None and any(fence <= number < landed.id for number in listed)
    if fence <= landed.id and is_newest and not has_older:
        # An expiry took the base, and nothing is newer; or a rollback did, and EARLIEST lies above its target.
        return base is None or not snapshots.is_rolled_back_below(landed, listed)
    if newer is not None and named_base(newer) is None:
        # Of another client, which moves EARLIEST last. EARLIEST names snapshots of the chain alone.
        if (fence or 1) == landed.id and stored is not None:
            return True
        raise _unknown(landed, "a client that names no base committed above it")
    # Others have deleted it, after it may have counted: nothing is acknowledged, and nothing
    # deleted.
    if not same_state(stored, landed):
        raise _unknown(landed, "an expiry or a rollback took it before it was confirmed")
    return False


def _unknown(landed: Snapshot, why: str) -> CommitUnknownError:
    return CommitUnknownError(
        f"snapshot {landed.id} has landed, and it is unknown whether it counts: {why}; look for its "
        "rows before trying again",
        snapshot_id=landed.id,
        uuid=landed.uuid,
    )


# -- Publish a snapshot, confirm it, and report it -------------------------------------------------


def publish(session: TableSession, snapshot: Snapshot, base: Snapshot | None) -> CommitOutcome:
    """Create and confirm a snapshot that was made on `base`.

    Raises StorageError if the snapshot does not exist, CommitUnknownError if it may exist, NotFoundError, with
    nothing visible, if the table was dropped or the branch is being renamed.
    """
    _require_not_renamed(session, base)
    newest_known = 0 if base is None else base.schema_id
    if snapshot.schema_id > newest_known:  # the first one of its schema
        schema_file = session.paths.schema_file(snapshot.schema_id)
        if not session.file_io.exists(schema_file):
            raise session.identity.dropped()
    if not _has_landed(session, snapshot):
        return CommitOutcome.LOST
    try:
        counts = confirm(session.snapshots, snapshot, base, session.identity.is_dropped)
    except CommitUnknownError:
        # An unknown outcome is an answer of its own.
        raise
    except LsmError as cause:
        # The snapshot has landed: no failure after that is a loss.
        raise _unknown_publish(snapshot) from cause
    # Planning again would write into the place of a dropped table.
    if not counts:
        session.identity.require_there()
    return CommitOutcome.LANDED if counts else CommitOutcome.LOST


def _require_not_renamed(session: TableSession, base: Snapshot | None) -> None:
    """Raise NotFoundError if a branch ends with the base, as it is being renamed: a commit would be lost with it.

    A rename that gives up opens the branch again in the same file.
    """
    if base is None or renamed_to(base) is None:
        return
    # A rename that gave up has rewritten the stop, which this process may remember.
    session.snapshots.forget_newest()
    new_name = renamed_to(session.snapshots.find_now(base.id))
    if new_name is not None:
        raise NotFoundError(
            f"the branch is being renamed to {new_name!r}, so that nothing was committed; open it by that name; if "
            "the rename died, rename it again, to any name",
            kind=ErrorKind.NO_SUCH_TABLE,
            table=session.name,
        )


def publish_schema(session: TableSession, messages: Sequence[CommitMessage]) -> None:
    """Publish the schema that a write was planned with, if any, as its rows are accepted by now.

    Raises, the staged files deleted, CommitConflictError where others have altered the table since, and what
    `alter` raises where they have committed rows that do not suit the schema; CommitUnknownError, all left.
    """
    planned = session.planned
    if planned is None or planned.published:
        return
    try:
        _publish_planned(session, planned)
    except CommitUnknownError:
        # The schema may be there, so that the staged rows may still be committed.
        raise
    except (LsmError, OSError):
        # No snapshot names the staged files.
        discard(session.context(), messages)
        raise


def _publish_planned(session: TableSession, planned: PlannedSchema) -> None:
    schema = session.schema
    # Rows that landed since the plan may not suit the schema.
    if not same_state(session.snapshots.latest(), planned.base):
        session.identity.require_there()
        if not session.file_io.exists(session.paths.schema_file(schema.id)):
            planned.check()
    ours = session.schemas.publish(schema)
    published = ours or _as_planned(session, schema)
    if published is None:
        raise CommitConflictError(
            "others have altered the table since this write was planned, so that nothing was written; "
            "open the table anew, and write again",
            table=session.name,
        )
    planned.is_there(published)
    if session.identity.is_dropped():
        if ours is not None:
            # The file would keep a new table from being made. A schema that such a table has there by now stays.
            with suppress(StorageError):
                session.schemas.take_back(schema)
        raise session.identity.dropped()
    session.notify_altered(published)


def _as_planned(session: TableSession, schema: TableSchema) -> TableSchema | None:
    """Return the schema that a writer whose rows need the same changes has published at another time."""
    stored = session.schemas.load(schema.id)
    return stored if replace(stored, time_millis=schema.time_millis) == schema else None


def report(session: TableSession, snapshot: Snapshot) -> None:
    """Report a snapshot that has landed to the log."""
    log.info(
        "published snapshot=%d kind=%s rows=%+d table=%s",
        snapshot.id,
        snapshot.commit_kind.value,
        snapshot.delta_record_count or 0,
        session.name,
    )


def notify_published(session: TableSession, snapshot: Snapshot, base: Snapshot | None) -> None:
    """Notify listeners of a snapshot that other clients may replace, so that it is recorded while its files are there."""
    published = PublishedSnapshot(
        snapshot=snapshot,
        base=base,
        branch=session.paths.branch_name or MAIN_BRANCH,
        read=partial(committed_files, session),
    )
    session.notify(lambda listener: listener.committed_beside_others(session.name, published))


def _has_landed(session: TableSession, snapshot: Snapshot) -> bool:
    may_be_there = False
    for _ in range(1 + session.options[core_options.COMMIT_MAX_RETRIES]):
        try:
            if session.snapshots.publish(snapshot):
                return True
        except CommitUnknownError:
            # The lost request may be applied later: from now on no failure proves that nothing
            # landed.
            log.warning("publish of snapshot %d gave no answer; looking for it", snapshot.id)
            may_be_there = True
        except LsmError as cause:
            # A refused create leaves nothing behind, unless an earlier one may have been applied.
            if may_be_there:
                raise _unknown_publish(snapshot) from cause
            raise
        match _outcome(session, snapshot):
            case PublishOutcome.LANDED:
                return True
            case PublishOutcome.LOST:
                return False
            case PublishOutcome.UNKNOWN:
                break
            case PublishOutcome.ABSENT:
                # Trying again is safe: of two creates of one file one loses.
                pass
    raise _unknown_publish(snapshot)


def _outcome(session: TableSession, snapshot: Snapshot) -> PublishOutcome:
    """Return which snapshot has the id. Raises CommitUnknownError if that cannot be read, as it may be this one."""
    snapshots = session.snapshots
    try:
        return resolve_publish(
            snapshot, stored=snapshots.find(snapshot.id), latest_id=snapshots.latest_id()
        )
    except LsmError as cause:
        raise _unknown_publish(snapshot) from cause


def _unknown_publish(snapshot: Snapshot) -> CommitUnknownError:
    return CommitUnknownError(
        "the storage did not report whether the commit is visible; look for its uuid in "
        "table.snapshots() before trying again",
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid,
    )
