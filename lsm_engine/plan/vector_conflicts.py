"""Why work done on one set of deletion vectors cannot land on another.

A rewrite leaves out the rows that were deleted when it was planned, and marks rows in files that
were live then. What was deleted meanwhile would come back, and a mark on a file that is gone is lost.
"""

from collections.abc import Iterable, Sequence

from lsm_engine.base.modes import EntryKind
from lsm_engine.meta.index_file import (
    DELETION_VECTORS,
    IndexFileMeta,
    IndexManifestEntry,
    VectorPlace,
)
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.commit import CommitPlan
from lsm_engine.plan.conflicts import Conflict, ConflictReason

DataFileKey = tuple[bytes, int, str]
"""(partition, bucket, data file name)."""


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
            return _conflict(
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
                return _conflict(
                    partition, bucket, name, f"rows of file {name!r} were deleted by another commit"
                )
    return None


def _changed_since(
    plan: CommitPlan,
    base_index: Sequence[IndexManifestEntry],
    planned_index: Sequence[IndexManifestEntry] | None,
) -> Conflict | None:
    """Files that the plan rewrites must have the vectors that the rewrite went by."""
    now, then = _places(base_index), _places(planned_index or ())
    moved = {_key(entry) for entry in plan.delta if entry.kind is EntryKind.ADD}
    for entry in plan.delta:
        key = _key(entry)
        if entry.kind is EntryKind.ADD or key in moved or key[:2] in plan.overwritten:
            continue
        if now.get(key) != then.get(key):
            return _conflict(*key, f"rows of file {key[2]!r} were deleted while it was rewritten")
    return None


def _marked_file_gone(plan: CommitPlan, live: Iterable[ManifestEntry]) -> Conflict | None:
    new = list(_new_vectors(plan))
    if not new:
        return None
    live_keys = {_key(entry) for entry in live}
    live_keys -= {_key(entry) for entry in plan.delta if entry.kind is EntryKind.DELETE}
    live_keys |= {_key(entry) for entry in plan.delta if entry.kind is EntryKind.ADD}
    for change in new:
        for key in _marked(change):
            if key not in live_keys:
                return _conflict(
                    *key, f"rows are deleted from file {key[2]!r}, which is not live any more"
                )
    return None


def _new_vectors(plan: CommitPlan) -> Iterable[IndexManifestEntry]:
    return (
        change
        for change in plan.step.index_changes
        if change.kind is EntryKind.ADD and change.index_file.index_type == DELETION_VECTORS
    )


def _key(entry: ManifestEntry) -> DataFileKey:
    return (entry.partition, entry.bucket, entry.file.file_name)


def _marked(entry: IndexManifestEntry) -> list[DataFileKey]:
    vectors = entry.index_file.deletion_vectors or ()
    return [(entry.partition, entry.bucket, vector.data_file_name) for vector in vectors]


def _places(entries: Iterable[IndexManifestEntry]) -> dict[DataFileKey, VectorPlace]:
    return {
        (entry.partition, entry.bucket, place.data_file_name): place
        for entry in entries
        for place in _places_in(entry.index_file)
    }


def _places_in(file: IndexFileMeta) -> list[VectorPlace]:
    vectors = file.deletion_vectors or ()
    return [VectorPlace(index_file=file.file_name, vector=vector) for vector in vectors]


def _conflict(partition: bytes, bucket: int, file_name: str, message: str) -> Conflict:
    return Conflict(
        reason=ConflictReason.VECTORS_CHANGED,
        message=message,
        partition=partition,
        bucket=bucket,
        file_name=file_name,
    )
