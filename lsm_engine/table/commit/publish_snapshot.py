"""Publish a snapshot, find out what became of it, and report it: once for commits and fast-forwards.

Landed and lost are answers. An unknown outcome is a CommitUnknownError, after which no file may be
deleted that the snapshot would name (format section 14).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base import core_options
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ErrorKind,
    LsmError,
    NotFoundError,
)
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import renamed_to
from lsm_engine.plan.ownership import PublishOutcome, resolve_publish, same_state
from lsm_engine.plan.proposal import CommitOutcome
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.commit import fence
from lsm_engine.table.ground.components import CommittedFiles
from lsm_engine.table.ground.discard import discard
from lsm_engine.table.ground.session import PlannedSchema, TableSession

log = logging.getLogger(__name__)


def publish(session: TableSession, snapshot: Snapshot, base: Snapshot | None) -> CommitOutcome:
    """Publish a snapshot that was made on `base`, as often as it takes to know the answer.

    Raises StorageError only if the snapshot is known not to be there, CommitUnknownError if it may be,
    NotFoundError, with nothing visible, if the table was dropped or the branch is being renamed.
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
        counts = fence.confirm(session.snapshots, snapshot, base, session.identity.is_dropped)
    except CommitUnknownError:
        raise
    except LsmError as cause:
        raise _unknown(snapshot) from cause
    if not counts:
        _require_there(session)
    return CommitOutcome.LANDED if counts else CommitOutcome.LOST


def _require_not_renamed(session: TableSession, base: Snapshot | None) -> None:
    """Raise NotFoundError if a branch ends with the base, as it is being renamed: a commit would be lost with it.

    A rename that gives up opens the branch again in the same file.
    """
    if base is None or renamed_to(base) is None:
        return
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
        raise
    except (LsmError, OSError):
        discard(session.context(), messages)
        raise


def _publish_planned(session: TableSession, planned: PlannedSchema) -> None:
    schema = session.schema
    path = session.paths.schema_file(schema.id)
    if not same_state(session.snapshots.latest(), planned.base):
        _require_there(session)
        if not session.file_io.exists(path):
            planned.check()
    ours = session.schemas.publish(schema)
    made = ours or _as_planned(session, schema)
    if made is None:
        raise CommitConflictError(
            "others have altered the table since this write was planned, so that nothing was written; "
            "open the table anew, and write again",
            table=session.name,
        )
    planned.published = made
    if session.identity.is_dropped():
        if ours is not None:  # the file would keep a new table from being made
            session.delete_quietly([path])
        raise session.identity.dropped()
    session.notify_altered(made)


def _as_planned(session: TableSession, schema: TableSchema) -> TableSchema | None:
    """Return the schema that a writer whose rows need the same changes has published at another time."""
    there = session.schemas.load(schema.id)
    return there if replace(there, time_millis=schema.time_millis) == schema else None


def _require_there(session: TableSession) -> None:
    if session.identity.is_dropped():
        raise session.identity.dropped()


def report(session: TableSession, files: CommittedFiles) -> None:
    """Report what a snapshot that has landed published, to the log and to every listener."""
    snapshot = files.snapshot
    log.info(
        "published snapshot=%d kind=%s rows=%+d table=%s",
        snapshot.id,
        snapshot.commit_kind.value,
        snapshot.delta_record_count or 0,
        session.name,
    )
    session.notify(lambda listener: listener.committed(session.name, files))


def _has_landed(session: TableSession, snapshot: Snapshot) -> bool:
    may_be_there = False
    for _ in range(1 + session.options[core_options.COMMIT_MAX_RETRIES]):
        try:
            if session.snapshots.publish(snapshot):
                return True
        except CommitUnknownError:
            log.warning("publish of snapshot %d gave no answer; looking for it", snapshot.id)
            may_be_there = True
        except LsmError as cause:
            if may_be_there:
                raise _unknown(snapshot) from cause
            raise
        match _outcome(session, snapshot):
            case PublishOutcome.LANDED:
                return True
            case PublishOutcome.LOST:
                return False
            case PublishOutcome.UNKNOWN:
                break
            case PublishOutcome.ABSENT:
                pass
    raise _unknown(snapshot)


def _outcome(session: TableSession, snapshot: Snapshot) -> PublishOutcome:
    """Look who has the snapshot's id; what cannot be looked up is unknown, not lost."""
    snapshots = session.snapshots
    try:
        return resolve_publish(
            snapshot, stored=snapshots.find(snapshot.id), latest_id=snapshots.latest_id()
        )
    except LsmError as cause:
        raise _unknown(snapshot) from cause


def _unknown(snapshot: Snapshot) -> CommitUnknownError:
    return CommitUnknownError(
        "the storage did not report whether the commit is visible; look for its uuid in "
        "table.snapshots() before trying again",
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid,
    )
