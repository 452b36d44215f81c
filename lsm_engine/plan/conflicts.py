"""Why two commits cannot both be: a plan's entries against the files live in its buckets."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise

from lsm_engine.base.errors import CommitConflictError
from lsm_engine.base.modes import CommitKind, EntryKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.mergetree.sorted_run import KeyOrder
from lsm_engine.meta.manifest import FileIdentity, ManifestEntry
from lsm_engine.meta.snapshot import Snapshot


class ConflictReason(Enum):
    """What would be broken if the commit went ahead."""

    FILE_GONE = "file-gone"
    ADDED_TWICE = "added-twice"
    LEVEL_OVERLAP = "level-overlap"
    BUCKET_COUNT = "bucket-count"
    VECTORS_CHANGED = "vectors-changed"
    ROWS_MOVED = "rows-moved"


@record
class Conflict:
    """One broken rule. `others`: the commits made since the work began, as "COMPACT 12"."""

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
    since: Sequence[Snapshot] = (),
) -> Conflict | None:
    """Return the first rule that `delta` on top of `live` would break, or None.

    `live` holds the live entries of the base, at least those in the plan's scope; entries of other
    buckets do no harm. `key_order` None (tables without a key) leaves key ranges unchecked. `since`
    holds the snapshots committed after the work was planned; they only make the message readable.
    """
    entries_by_identity: dict[FileIdentity, ManifestEntry] = {}
    for entry in live:
        assert entry.kind is EntryKind.ADD, entry
        entries_by_identity[entry.identity] = entry
    after = dict(entries_by_identity)
    conflict = (
        _delete_all(delta, after)
        or _add_all(delta, after, entries_by_identity)
        or _bucket_counts(delta, after)
        or (_overlap(delta, after, key_order) if key_order is not None else None)
    )
    return None if conflict is None else conflict.since(since)


def _delete_all(
    delta: Sequence[ManifestEntry], after: dict[FileIdentity, ManifestEntry]
) -> Conflict | None:
    for entry in delta:
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
