"""Find the conflict of a commit plan with the live files of its base, if there is one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.format.index_file import (
    DELETION_VECTORS,
    IndexFileMeta,
    IndexManifestEntry,
    VectorPlace,
)
from lsm_engine.format.manifest import FileIdentity, ManifestEntry, PhysicalFile, by_bucket
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lsm.levels import KeyOrder
from lsm_engine.options.modes import CommitKind, EntryKind, FileSource
from lsm_engine.planning.commit import CommitPlan
from lsm_engine.planning.row_ids import row_ids_of


class ConflictReason(Enum):
    """The rule that the commit would break."""

    FILE_GONE = "file-gone"
    ADDED_TWICE = "added-twice"
    LEVEL_OVERLAP = "level-overlap"
    BUCKET_COUNT = "bucket-count"
    VECTORS_CHANGED = "vectors-changed"
    ROWS_MOVED = "rows-moved"


@record
class Conflict:
    """One broken rule. `other_commits`: the commits since the work was planned, such as "COMPACT 12"."""

    reason: ConflictReason
    message: str
    partition: bytes
    bucket: int
    file_name: str
    other_commits: tuple[str, ...] = ()

    def since(self, snapshots: Sequence[Snapshot]) -> "Conflict":
        """Return the same conflict, naming the commits made since the work began."""
        # What breaks most plans is a compaction or an overwrite: name those first.
        ranked = sorted(snapshots, key=lambda snapshot: snapshot.commit_kind is CommitKind.APPEND)
        other_commits = tuple(
            f"{ranked_snapshot.commit_kind.value} {ranked_snapshot.id}"
            for ranked_snapshot in ranked[:5]
        )
        return replace(self, other_commits=other_commits)

    def error(self) -> CommitConflictError:
        """Return the error to raise: nothing is visible, reload and try again."""
        meanwhile = (
            f" (committed since: {', '.join(self.other_commits)})" if self.other_commits else ""
        )
        return CommitConflictError(
            f"{self.message}{meanwhile}; reload the table and try again",
            reason=self.reason.value,
            file=self.file_name,
            bucket=self.bucket,
        )


def find_conflict(
    delta: Sequence[ManifestEntry],
    live: Iterable[ManifestEntry],
    *,
    key_order: KeyOrder | None,
) -> Conflict | None:
    """Return the first rule that `delta` on top of `live` would break, or None.

    `live` holds the live entries of the base, at least those in the plan's scope; entries of other
    buckets do no harm. `key_order` None (tables without a key) leaves key ranges unchecked.
    """
    entries_by_identity: dict[FileIdentity, ManifestEntry] = {}
    for entry in live:
        assert entry.kind is EntryKind.ADD, entry
        entries_by_identity[entry.identity] = entry
    after = dict(entries_by_identity)
    return (
        _delete_all(delta, after)
        or _add_all(delta, after, entries_by_identity)
        or _bucket_counts(delta, after)
        or (_overlap(delta, after, key_order) if key_order is not None else None)
    )


def _delete_all(
    delta: Sequence[ManifestEntry], after: dict[FileIdentity, ManifestEntry]
) -> Conflict | None:
    for entry in delta:
        # Another commit has replaced or deleted the file: its rows would count twice.
        if entry.kind is EntryKind.DELETE and after.pop(entry.identity, None) is None:
            return _conflict(
                ConflictReason.FILE_GONE,
                entry,
                f"file {entry.file.file_name!r} at level {entry.file.level} of bucket "
                f"{entry.bucket} is not live any more, so it cannot be replaced",
            )
    return None


def _add_all(
    delta: Sequence[ManifestEntry],
    after: dict[FileIdentity, ManifestEntry],
    before: dict[FileIdentity, ManifestEntry],
) -> Conflict | None:
    touched = {(entry.partition, entry.bucket) for entry in delta}
    names = {
        (entry.partition, entry.bucket, entry.file.file_name)
        for entry in after.values()
        if (entry.partition, entry.bucket) in touched
    }
    for entry in delta:
        if entry.kind is not EntryKind.ADD:
            continue
        name = (entry.partition, entry.bucket, entry.file.file_name)
        # An identity taken away in this very commit may not come back either: some clients drop an
        # identity that has any DELETE, whatever the order (format section 5).
        if name in names or entry.identity in before:
            return _conflict(
                ConflictReason.ADDED_TWICE,
                entry,
                f"file {entry.file.file_name!r} of bucket {entry.bucket} is added twice",
            )
        names.add(name)
        after[entry.identity] = entry
    return None


def _bucket_counts(
    delta: Sequence[ManifestEntry], after: dict[FileIdentity, ManifestEntry]
) -> Conflict | None:
    """Rows are routed by the count, so that two counts in one partition double or hide keys."""
    added = {
        entry.partition: entry
        for entry in delta
        if entry.kind is EntryKind.ADD and _is_counted(entry)
    }
    for entry in after.values():
        ours = added.get(entry.partition)
        if ours is not None and _is_counted(entry) and entry.total_buckets != ours.total_buckets:
            return _conflict(
                ConflictReason.BUCKET_COUNT,
                ours,
                f"file {ours.file.file_name!r} was written for {counted(ours.total_buckets, 'bucket')}, but "
                f"its partition now holds files written for {entry.total_buckets}",
            )
    return None


def _is_counted(entry: ManifestEntry) -> bool:
    return entry.bucket >= 0  # postponed rows (bucket -2) wait beside the real buckets


def _overlap(
    delta: Sequence[ManifestEntry],
    after: dict[FileIdentity, ManifestEntry],
    key_order: KeyOrder,
) -> Conflict | None:
    runs: dict[tuple[bytes, int, int], list[ManifestEntry]] = {
        _run_of(entry): []
        for entry in delta
        if entry.kind is EntryKind.ADD and entry.file.level > 0
    }
    if not runs:
        return None
    for entry in after.values():
        run = runs.get(_run_of(entry))
        if run is not None:
            run.append(entry)
    ours = {entry.identity for entry in delta if entry.kind is EntryKind.ADD}
    # Neighbours in key order are enough: files of one run do not overlap before the commit.
    for entries in runs.values():
        ranges = sorted(
            (
                (key_order(entry.file.min_key), key_order(entry.file.max_key), entry)
                for entry in entries
            ),
            key=lambda bounds: (bounds[0], bounds[1]),
        )
        for (_, end, first), (start, _, second) in pairwise(ranges):
            if start <= end:
                mine, theirs = (first, second) if first.identity in ours else (second, first)
                return _conflict(
                    ConflictReason.LEVEL_OVERLAP,
                    mine,
                    f"keys of file {mine.file.file_name!r} and of {theirs.file.file_name!r} would "
                    f"overlap at level {mine.file.level} of bucket {mine.bucket}",
                )
    return None


def _run_of(entry: ManifestEntry) -> tuple[bytes, int, int]:
    return (entry.partition, entry.bucket, entry.file.level)


def _conflict(reason: ConflictReason, entry: ManifestEntry, message: str) -> Conflict:
    return Conflict(
        reason=reason,
        message=message,
        partition=entry.partition,
        bucket=entry.bucket,
        file_name=entry.file.file_name,
    )


# -- Conflicts of deletion vectors -----------------------------------------------------------------
#
# A rewrite leaves out the rows that were deleted when it was planned. Rows that were deleted
# meanwhile would come back, and a deletion vector of a file that was deleted meanwhile would be lost.


def find_vector_conflict(
    plan: CommitPlan,
    live: Iterable[ManifestEntry],
    *,
    base_index: Sequence[IndexManifestEntry],
    planned_index: Sequence[IndexManifestEntry] | None,
) -> Conflict | None:
    """Return the first deletion vector that stands against `plan`, or None.

    `live`: the live entries of the base, at least those in the plan's scope. `base_index` and
    `planned_index`: the index files of the base, and of the snapshot that the work was planned on;
    None for the latter: it has expired, so no vector of the base is known to have been there.
    """
    return (
        _replaced_file_gone(plan, base_index)
        or _second_file(plan, base_index)
        or _changed_since(plan, base_index, planned_index)
        or _marked_file_gone(plan, live)
    )


def _replaced_file_gone(
    plan: CommitPlan, base_index: Sequence[IndexManifestEntry]
) -> Conflict | None:
    live_indexes = {
        (entry.partition, entry.bucket, entry.index_file.file_name) for entry in base_index
    }
    for change in plan.step.index_changes:
        identity = (change.partition, change.bucket, change.index_file.file_name)
        if change.kind is EntryKind.DELETE and identity not in live_indexes:
            return _vector_conflict(
                change.partition,
                change.bucket,
                change.index_file.file_name,
                f"index file {change.index_file.file_name!r} of bucket {change.bucket} was replaced "
                "by another commit",
            )
    return None


def _second_file(plan: CommitPlan, base_index: Sequence[IndexManifestEntry]) -> Conflict | None:
    """Two vectors of one data file: rows were deleted from it on both sides."""
    deleted = {
        change.index_file.file_name
        for change in plan.step.index_changes
        if change.kind is EntryKind.DELETE
    }
    remaining = [entry for entry in base_index if entry.index_file.file_name not in deleted]
    marked = {key for entry in remaining for key in _marked(entry)}
    for change in _new_vectors(plan):
        for partition, bucket, name in _marked(change):
            if (partition, bucket, name) in marked:
                return _vector_conflict(
                    partition, bucket, name, f"rows of file {name!r} were deleted by another commit"
                )
    return None


def _changed_since(
    plan: CommitPlan,
    base_index: Sequence[IndexManifestEntry],
    planned_index: Sequence[IndexManifestEntry] | None,
) -> Conflict | None:
    """Files that the plan rewrites must still have the deletion vectors that the rewrite applied."""
    now, then = _places(base_index), _places(planned_index or ())
    moved = {entry.physical_file for entry in plan.delta if entry.kind is EntryKind.ADD}
    for entry in plan.delta:
        key = entry.physical_file
        # A file that only changes its level keeps its vector, and an overwrite deletes every row
        # anyway.
        if entry.kind is EntryKind.ADD or key in moved or key[:2] in plan.overwritten:
            continue
        if now.get(key) != then.get(key):
            return _vector_conflict(
                *key, f"rows of file {key[2]!r} were deleted while it was rewritten"
            )
    return None


def _marked_file_gone(plan: CommitPlan, live: Iterable[ManifestEntry]) -> Conflict | None:
    new = list(_new_vectors(plan))
    if not new:
        return None
    live_keys = {entry.physical_file for entry in live}
    live_keys -= {entry.physical_file for entry in plan.delta if entry.kind is EntryKind.DELETE}
    # A commit may mark rows of files that it adds itself.
    live_keys |= {entry.physical_file for entry in plan.delta if entry.kind is EntryKind.ADD}
    for change in new:
        for key in _marked(change):
            if key not in live_keys:
                return _vector_conflict(
                    *key, f"rows are deleted from file {key[2]!r}, which is not live any more"
                )
    return None


def _new_vectors(plan: CommitPlan) -> Iterable[IndexManifestEntry]:
    return (
        change
        for change in plan.step.index_changes
        if change.kind is EntryKind.ADD and change.index_file.index_type == DELETION_VECTORS
    )


def _marked(entry: IndexManifestEntry) -> list[PhysicalFile]:
    vectors = entry.index_file.deletion_vectors or ()
    return [(entry.partition, entry.bucket, vector.data_file_name) for vector in vectors]


def _places(entries: Iterable[IndexManifestEntry]) -> dict[PhysicalFile, VectorPlace]:
    return {
        (entry.partition, entry.bucket, place.data_file_name): place
        for entry in entries
        for place in _places_in(entry.index_file)
    }


def _places_in(file: IndexFileMeta) -> list[VectorPlace]:
    vectors = file.deletion_vectors or ()
    return [VectorPlace(index_file=file.file_name, vector=vector) for vector in vectors]


def _vector_conflict(partition: bytes, bucket: int, file_name: str, message: str) -> Conflict:
    return Conflict(
        reason=ConflictReason.VECTORS_CHANGED,
        message=message,
        partition=partition,
        bucket=bucket,
        file_name=file_name,
    )


# -- Conflicts of row ids --------------------------------------------------------------------------
#
# Files of one bucket hold columns of the same rows, or of none in common (planning/row_ids).
# New values were made for rows as they were at one snapshot: who changed them since decides
# what they are now.


def find_row_id_conflict(
    plan: CommitPlan, live: Iterable[ManifestEntry], *, planned_on_id: int
) -> Conflict | None:
    """Return the first file with row ids of its own that cannot land on top of `live`, or None.

    `live`: as in `find_conflict`. `planned_on_id`: the snapshot that the values were made for.
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
