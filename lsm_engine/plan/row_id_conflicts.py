"""Why columns of rows cannot land beside what others have made of the rows meanwhile.

Files of one bucket hold columns of the same rows, or of none in common (plan/row_ids). New values were made
for rows as they were at one snapshot: who changed them since decides what they are now.
"""

from collections.abc import Iterable

from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.meta.manifest import ManifestEntry, by_bucket
from lsm_engine.plan.commit import CommitPlan
from lsm_engine.plan.conflicts import Conflict, ConflictReason
from lsm_engine.plan.row_ids import row_ids_of


def find_row_id_conflict(
    plan: CommitPlan, live: Iterable[ManifestEntry], *, planned_on_id: int
) -> Conflict | None:
    """Return the first file with row ids of its own that cannot land on top of `live`, or None.

    `live`: as in `conflicts.find_conflict`. `planned_on_id`: the snapshot that the values were made for.
    """
    placed = [
        entry
        for entry in plan.step.delta
        if entry.kind is EntryKind.ADD and entry.file.first_row_id is not None
    ]
    if not placed:
        return None
    deleted = {entry.identity for entry in plan.delta if entry.kind is EntryKind.DELETE}
    buckets = by_bucket(entry for entry in live if entry.identity not in deleted)
    for entry in placed:
        wrong = _wrong(entry, buckets.get((entry.partition, entry.bucket), ()), planned_on_id)
        if wrong is not None:
            return Conflict(
                reason=ConflictReason.ROWS_MOVED,
                message=f"file {entry.file.file_name!r} of bucket {entry.bucket} {wrong}",
                partition=entry.partition,
                bucket=entry.bucket,
                file_name=entry.file.file_name,
            )
    return None


def _wrong(
    entry: ManifestEntry, base_entries: Iterable[ManifestEntry], planned_on_id: int
) -> str | None:
    ids = row_ids_of(entry.file)
    meeting = []
    for base_entry in base_entries:
        theirs = row_ids_of(base_entry.file)
        if theirs.start < ids.stop and ids.start < theirs.stop:
            if theirs != ids:
                return (
                    f"shares some of its rows with file {base_entry.file.file_name!r}, and not all"
                )
            meeting.append(base_entry.file)
    if entry.file.file_source is not FileSource.APPEND:
        return None
    if not meeting:
        return "has new values of rows that are not there any more"
    if any(file.max_sequence_number > planned_on_id for file in meeting):
        return "has new values of rows that others have changed meanwhile"
    return None
