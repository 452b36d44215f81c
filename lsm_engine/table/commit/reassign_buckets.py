"""Dynamic buckets when somebody else assigned first: the later commit takes their answers over.

Two writers on one base may give one key to two buckets. Whoever lands later therefore looks which
partitions got new bucket indexes meanwhile, and writes its rows for those again, with the indexes
that are there now (decisions/0016). The rows are read from the staged files: a stream that a user
handed in has been read to its end by then.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lsm_engine.base.errors import CommitConflictError, ErrorKind, NotFoundError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.meta.commit_message import CommitMessage, Committable
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep, steps_of
from lsm_engine.schema.table_schema import VALUE_KIND
from lsm_engine.table.ground.bucket_context import Staging
from lsm_engine.table.ground.incoming import IncomingRows
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.staging import indexes_by_partition, staging_on
from lsm_engine.table.read.split_read import BucketReader

WriteAgain = Callable[[Staging, Iterable[IncomingRows]], list[CommitMessage]]
"""Writes rows on top of a newer snapshot; table/stage/writers.stage_incoming."""


def reassigned(
    session: TableSession,
    step: CommitStep,
    fitted_to: Snapshot | None,
    base: Snapshot,
    write_again: WriteAgain | None,
) -> CommitStep:
    """Return a step whose rows are in the buckets that `base` gives their keys.

    `fitted_to` is the snapshot whose indexes the step went by. Files written before are deleted.
    Raises CommitConflictError where rows would have to move and `write_again` is None.
    """
    moved = _moved_partitions(session, step, fitted_to, base)
    if not moved:
        return step
    if write_again is None:
        raise CommitConflictError(
            "another writer gave buckets to new keys of the same partition; try again",
            kind=ErrorKind.ROWS_CHANGED,
            table=session.name,
            partition_count=len(moved),
        )
    files = [entry for entry in step.delta if entry.partition in moved]
    # What the changelog holds is every row as it came; without one, the files hold what is left.
    logged = [entry for entry in step.changelog if entry.partition in moved]
    rows = _staged_rows(session, logged or files)
    messages = write_again(staging_on(session, base), rows)
    committable = Committable(commit_user=step.commit_user, messages=tuple(messages))
    (again,) = steps_of(committable, uuids=[step.uuid, step.uuid], force=True)
    session.delete_quietly(
        [
            *(session.data_path(entry) for entry in (*files, *logged)),
            *(
                session.paths.index_file(change.index_file.file_name)
                for change in step.index_changes
                if change.kind is EntryKind.ADD and change.partition in moved
            ),
        ]
    )
    return replace(
        step,
        delta=(*(e for e in step.delta if e.partition not in moved), *again.delta),
        changelog=(*(e for e in step.changelog if e.partition not in moved), *again.changelog),
        index_changes=(
            *(change for change in step.index_changes if change.partition not in moved),
            *again.index_changes,
        ),
    )


def _moved_partitions(
    session: TableSession, step: CommitStep, fitted_to: Snapshot | None, base: Snapshot
) -> frozenset[bytes]:
    """Return the step's partitions whose bucket indexes are not those that it went by."""
    if not session.schema.bucket_mode.policy.has_hash_index or step.kind is not CommitKind.APPEND:
        return frozenset()
    try:
        before = {} if fitted_to is None else _names(session, fitted_to)
    except NotFoundError:  # expired meanwhile: nobody knows, so all is done again
        before = {}
    now = _names(session, base)
    touched = {entry.partition for entry in step.delta}
    return frozenset(part for part in touched if before.get(part) != now.get(part))


def _names(session: TableSession, snapshot: Snapshot) -> dict[bytes, frozenset[str]]:
    indexes = indexes_by_partition(session.index_entries(snapshot))
    return {
        partition: frozenset(file.file_name for _, file in files)
        for partition, files in indexes.items()
    }


def _staged_rows(session: TableSession, entries: Iterable[ManifestEntry]) -> Iterator[IncomingRows]:
    """Yield rows that were staged; of one key in the order in which they came.

    `entries` are in the order of writing, which is not that of sequence numbers: the layers of a
    retract, and the files of one log, overlap in them.
    """
    names = session.schema.names
    for entry in entries:
        context = session.context([entry.file.schema_id])
        reader = BucketReader(context, entry.partition, entry.bucket)
        for batch in reader.file(entry.file, (*names, VALUE_KIND)):
            at = batch.schema.get_field_index(VALUE_KIND)
            yield IncomingRows(rows=batch.remove_column(at), kinds=batch.column(at))
