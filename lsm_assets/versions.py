"""The data version of a table: a snapshot id and a hash of the commit.

The id alone is not enough, because the table assigns it again after a rollback."""

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from lsm_engine import Snapshot, record

COMMIT_HASH_LENGTH = 8
"""Characters of a commit hash: a CRC-32 in hexadecimal."""
_TEXT = re.compile(rf"([0-9]{{1,18}})(?:-([0-9a-f]{{{COMMIT_HASH_LENGTH}}}))?")


@record
class TableVersion:
    """One commit of a table. `commit_hash` distinguishes commits with the same id; "" if it is not known."""

    snapshot_id: int
    commit_hash: str = ""

    @property
    def text(self) -> str:
        """The data version in Dagster, such as `18-9f3a11c0`."""
        return (
            f"{self.snapshot_id}-{self.commit_hash}" if self.commit_hash else str(self.snapshot_id)
        )

    def is_same(self, version: "TableVersion") -> bool:
        """Whether both are the same commit. Without a hash on both sides the ids decide."""
        unmarked = not (self.commit_hash and version.commit_hash)
        return self.snapshot_id == version.snapshot_id and (
            unmarked or self.commit_hash == version.commit_hash
        )


def version_from_snapshot(snapshot: Snapshot) -> TableVersion:
    """Return the version of a snapshot. A tag, a branch and a fast-forward keep it."""
    return version_from_manifest(snapshot.id, snapshot.delta_manifest_list)


def version_from_manifest(snapshot_id: int, delta_manifest_list: str) -> TableVersion:
    """Return the version of the commit that wrote a delta manifest list. The name of that file is unique."""
    return TableVersion(
        snapshot_id=snapshot_id,
        commit_hash=f"{zlib.crc32(delta_manifest_list.encode()):0{COMMIT_HASH_LENGTH}x}",
    )


def parse_version(text: str) -> TableVersion | None:
    """Return a data version of Dagster as a table version; None for assets that are no tables."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    return TableVersion(snapshot_id=int(match[1]), commit_hash=match[2] or "")


# -- Find the state from which the rows of a recorded snapshot can still be read -------------------
#
# A step reads an upstream table at the version that Dagster has recorded as its input. The
# snapshot may have expired or may have been rolled back since. `resolve_pin` decides what to
# read instead.


@record
class RetainedReference:
    """A tag or a branch that retains the state of a commit. Exactly one of `tag` and `branch` is set."""

    version: TableVersion
    tag: str | None = None
    branch: str | None = None


Range: TypeAlias = tuple[Any, Any]
"""The least and the greatest value of a column in rows that may have changed."""
ChangedRanges: TypeAlias = Mapping[str, frozenset[Range] | None]
"""By partition path of a table, the ranges of a column in which rows may have changed; None: in any range."""


@record
class CommitFacts:
    """A commit and the rows that it may have changed.

    Attributes:
        version: The commit.
        partitions: Paths of the changed partitions, such as `dt=2024-01-01`; None if they are not known.
        dagster_run_id: The Dagster run that made the commit; None for other clients.
        ranges: By partition path, the changed ranges of the column that separates the asset's partitions.
    """

    version: TableVersion
    partitions: frozenset[str] | None
    dagster_run_id: str | None = None
    ranges: ChangedRanges = field(default_factory=dict)

    @property
    def changed_ranges(self) -> ChangedRanges | None:
        """The ranges in which rows may have changed; None if any row may have changed."""
        if self.partitions is None:
            return None
        return {path: self.ranges.get(path) for path in self.partitions}


FindReadPartitions: TypeAlias = Callable[[ChangedRanges], Collection[str]]
"""Returns the partitions, among those that the step reads, that may have changed."""


@record
class Pin:
    """The state that a step reads for a recorded input.

    Attributes:
        snapshot_id: The snapshot.
        tag: Read by the name of this tag.
        branch: Read the snapshot of this branch.
        reason: A sentence that says why another state than the recorded snapshot is read, else "".
        after: Read only the changes after this snapshot.
        is_partial: The changes are not complete: some are emitted by a later compaction.
    """

    snapshot_id: int
    tag: str | None = None
    branch: str | None = None
    reason: str = ""
    after: int | None = None
    is_partial: bool = False


@record
class StateLost:
    """The rows of a recorded input cannot be read any more."""

    reason: str


def resolve_pin(
    recorded: TableVersion,
    *,
    live: Mapping[int, TableVersion],
    references: Sequence[RetainedReference] = (),
    expired_commit: CommitFacts | None = None,
    later_commits: Iterable[CommitFacts] = (),
    find_read_partitions: FindReadPartitions | None = None,
) -> Pin | StateLost:
    """Return the state to read for a recorded input, or why none has its rows.

    1. The recorded snapshot, if it is live.
    2. A tag or a branch that retains it.
    3. The newest live snapshot before which no commit has changed the rows that are read. Compactions do not.

    Args:
        recorded: The recorded version.
        live: Versions of the live snapshots by id.
        references: Tags and branches that retain the recorded commit.
        expired_commit: The commit that the lineage has under the recorded id; None if it has none.
        later_commits: Commits after the recorded one, oldest first. They are read up to the first that changed rows.
        find_read_partitions: Returns the read partitions that a commit changed; None: the table is read as a whole.
    """
    snapshot_id = recorded.snapshot_id
    live_version = live.get(snapshot_id)
    # The id alone proves nothing: after a rollback another commit may have it.
    if live_version is not None and live_version.is_same(recorded):
        return Pin(snapshot_id=snapshot_id)
    for reference in references:
        if reference.version.is_same(recorded):
            return _pin_reference(reference)
    if not live:
        return StateLost(reason=f"the table has no snapshot, and {snapshot_id} is recorded")
    # The table was empty: any snapshot will do before which no commit has added rows to the partitions read.
    if not snapshot_id:
        return _pin_unchanged_state(snapshot_id, live, later_commits, find_read_partitions)
    # Expiry deletes the oldest snapshots. A missing id above the oldest live one was therefore rolled back.
    if live_version is not None or snapshot_id > min(live):
        return StateLost(
            reason=f"snapshot {snapshot_id} was rolled back, or the table was created anew"
        )
    if expired_commit is None:
        return StateLost(
            reason=f"snapshot {snapshot_id} has expired, and the catalog's lineage has no record of it"
        )
    if not expired_commit.version.is_same(recorded):
        return StateLost(
            reason=f"snapshot {snapshot_id} was replaced, or the table was created anew"
        )
    return _pin_unchanged_state(snapshot_id, live, later_commits, find_read_partitions)


def _pin_reference(reference: RetainedReference) -> Pin:
    snapshot_id = reference.version.snapshot_id
    location = f"tag {reference.tag!r}" if reference.tag else f"branch {reference.branch!r}"
    return Pin(
        snapshot_id=snapshot_id,
        tag=reference.tag,
        branch=reference.branch,
        reason=f"snapshot {snapshot_id} is no longer live; read from {location}, which retains it",
    )


def _pin_unchanged_state(
    snapshot_id: int,
    live: Mapping[int, TableVersion],
    later_commits: Iterable[CommitFacts],
    find_read_partitions: FindReadPartitions | None,
) -> Pin | StateLost:
    pinned_id, obstacle = None, "no later commit is recorded"
    for expected, commit in enumerate(later_commits, snapshot_id + 1):
        number = commit.version.snapshot_id
        # An unknown commit may have changed anything: no snapshot after it is safe to read.
        if number != expected:
            obstacle = f"the catalog's lineage has no record of snapshot {expected}"
            break
        if _changes_read_rows(commit, find_read_partitions):
            obstacle = f"snapshot {number} has changed rows that are read"
            break
        pinned_id = number if number in live else pinned_id
    cause = f"snapshot {snapshot_id} has expired" if snapshot_id else "the table had no rows"
    if pinned_id is None:
        return StateLost(reason=f"{cause}, and {obstacle}")
    subject = "the table is" if find_read_partitions is None else "the partitions read are"
    reason = f"{cause}; read at {pinned_id}, the newest in which {subject} unchanged"
    return Pin(snapshot_id=pinned_id, reason=reason)


def _changes_read_rows(
    commit: CommitFacts, find_read_partitions: FindReadPartitions | None
) -> bool:
    if commit.changed_ranges is None or find_read_partitions is None:
        return commit.partitions != frozenset()
    return bool(find_read_partitions(commit.changed_ranges))


# -- Changes that a table's writer yields ----------------------------------------------------------
#
# Each change becomes one commit.


@record
class Upsert:
    """Insert or update rows by primary key. A table without a primary key appends them.

    Attributes:
        rows: An object with `__arrow_c_stream__` (Arrow, polars, pandas) or a Spark DataFrame. The optional column
            `_row_kind` (+I, -U, +U, -D) marks deletes.
        label: A short description of the rows, shown on the page of the snapshot.
        properties: Snapshot properties.
    """

    rows: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Delete:
    """Delete rows by primary key. `keys` has the primary key columns; the other attributes are those of `Upsert`."""

    keys: Any
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@record
class Overwrite:
    """Replace the table, or one partition of it ({column: value}), by `rows`. Other attributes as in `Upsert`."""

    rows: Any
    partition: Mapping[str, Any] | None = None
    label: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


Change: TypeAlias = Upsert | Delete | Overwrite


def as_change(value: Any) -> Change:
    """Return a value that a writer yielded as a change: rows become an `Upsert`."""
    return value if isinstance(value, Upsert | Delete | Overwrite) else Upsert(rows=value)
