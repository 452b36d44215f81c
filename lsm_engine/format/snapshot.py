"""Snapshot: one committed state of a table. A changelog file has the same members."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NoReturn

from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.options.modes import CommitKind

SNAPSHOT_VERSION = 3

OPERATION = "lsm.operation"
"""The snapshot property with the name of the operation that made it."""
STARTED = "lsm.operation.started-millis"
"""The snapshot property with the time at which the operation began, in milliseconds since 1970 UTC."""
_RUN_KIND, _RUN_USER, _RUN_STARTED = "lsm.run.kind", "lsm.run.user", "lsm.run.started-millis"
_OPERATION_OF_KIND = {CommitKind.APPEND: "write"}
_COUNTS = "snapshot.row_counts"


@record
class Snapshot:
    """All members of a snapshot file (format section 3). Counts are of rows, not merged."""

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    total_record_count: int | None
    delta_record_count: int | None
    version: int | None = SNAPSHOT_VERSION
    changelog_manifest_list: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    log_offsets: Mapping[str, int] | None = None
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    uuid: str | None = None
    operation: str | None = None
    writer_version: str | None = None
    checksums: Mapping[str, int] | None = None  # of the files it names, by name, as far as known
    manifest_lists: str | None = None  # a copy of the base and the delta list (planning/commit)

    def __repr__(self) -> str:
        """Return the most important members for a person."""
        try:
            created = datetime.fromtimestamp(self.time_millis / 1000, UTC).isoformat(" ", "seconds")
        except (ValueError, OverflowError, OSError):  # a clock that was wrong, or damage
            created = f"{self.time_millis} ms"
        rows, counts = "", self.row_counts
        if self.commit_kind is CommitKind.COMPACT:
            # It writes rows that were there: its files are what it changed.
            rows = "" if self.compacted_files is None else f"{self.compacted_files}, "
        elif counts is not None:
            rows = f"{counts.inserted:,} inserted, {counts.updated:,} updated, {counts.deleted:,} deleted, "
        elif self.commit_kind is CommitKind.APPEND:
            rows = f"{counted(self.delta_record_count or 0, 'row')} written, "
        return (
            f"<{type(self).__name__} {self.id}: {self.operation_name} at {created}, "
            f"{rows}{self.total_record_count} in its files>"
        )

    def __getitem__(self, name: object) -> NoReturn:
        raise TypeError(f"a snapshot has attributes, such as id; what a merge did is {_COUNTS}")

    @property
    def operation_name(self) -> str:
        """The operation that made it: upsert, append, insert, update, delete, merge, overwrite, compact and so on.

        Of a snapshot that does not have it, as of other clients: write, compact, overwrite or analyze.
        """
        properties = self.properties or {}
        name = properties.get(OPERATION) or properties.get(_RUN_KIND)
        return name or _OPERATION_OF_KIND.get(self.commit_kind, self.commit_kind.value.lower())

    @property
    def row_counts(self) -> "RowCounts | None":
        """How many rows the commit inserted, updated, deleted and left as they were; None where that is unknown."""
        if self.operation_name == "append" and self.delta_record_count is not None:
            return RowCounts(inserted=self.delta_record_count)
        if self.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
            return RowCounts()
        return row_counts_of(self.properties)

    @property
    def compacted_files(self) -> "CompactedFiles | None":
        """The files that a compaction replaced; None of other commits, and where that is not recorded."""
        texts = self.properties or {}
        try:
            return CompactedFiles(
                files_before=int(texts[f"{_PREFIX}files-before"]),
                files_after=int(texts[f"{_PREFIX}files-after"]),
                bytes_before=int(texts[f"{_PREFIX}bytes-before"]),
                bytes_after=int(texts[f"{_PREFIX}bytes-after"]),
            )
        except (KeyError, ValueError):  # any client may write any text there
            return None

    @property
    def duration_millis(self) -> int | None:
        """Milliseconds from the begin of its run, or else of the operation, to the commit; None where neither is recorded."""
        texts = self.properties or {}
        try:
            return max(0, self.time_millis - int(texts.get(_RUN_STARTED) or texts[STARTED]))
        except (KeyError, ValueError):
            # Any client may write any text there.
            return None

    @property
    def user_name(self) -> str:
        """Who made it: the user of its run, else the commit user."""
        return (self.properties or {}).get(_RUN_USER) or self.commit_user

    @property
    def schema_name(self) -> str:
        """The name of the file of its schema."""
        return f"schema-{self.schema_id}"

    @checks_arguments
    def checksum_of(self, name: str | None) -> int | None:
        """Return the checksum that it keeps of a file it names; None if there is none."""
        return None if name is None or self.checksums is None else self.checksums.get(name)


# -- How many rows a commit inserted, updated, deleted and skipped ---------------------------------
#
# Carried in the snapshot's properties.
#
#     lsm.rows.inserted   keys that were not there before
#     lsm.rows.updated    keys that were there, and got a new version
#     lsm.rows.deleted    keys that were there, and went
#     lsm.rows.skipped    rows that change nothing, because their key was there, or was not
#     lsm.rows.at-most    "true": updated and deleted are upper bounds. How many rows the table's
#                         `sequence.field` leaves as they were is unknown until they are merged
#
# All values are whole numbers as text. Other clients ignore them. Each key counts once a
# commit.

_PREFIX = "lsm.compaction."
INSERTED = "lsm.rows.inserted"
UPDATED = "lsm.rows.updated"
DELETED = "lsm.rows.deleted"
SKIPPED = "lsm.rows.skipped"
AT_MOST = "lsm.rows.at-most"


@record
class RowCounts:
    """The counts of a commit. `skipped` rows are those that an insert or update left out, or first-row.

    `at_most`: fewer may be updated and deleted: a `sequence.field` keeps rows that are greater by it.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    skipped: int = 0
    at_most: bool = False

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
            deleted=self.deleted + other.deleted,
            skipped=self.skipped + other.skipped,
            at_most=self.at_most or other.at_most,
        )

    @property
    def properties(self) -> dict[str, str]:
        """The snapshot properties that carry the counts; skipped rows only where there are some."""
        counts = {
            INSERTED: str(self.inserted),
            UPDATED: str(self.updated),
            DELETED: str(self.deleted),
        }
        skipped = {SKIPPED: str(self.skipped)} if self.skipped else {}
        return {**counts, **skipped, **({AT_MOST: "true"} if self.at_most else {})}


def row_counts_of(properties: Mapping[str, str] | None) -> RowCounts | None:
    """Return the counts that a snapshot carries; None if it carries none that can be read."""
    texts = properties or {}
    if INSERTED not in texts:
        return None
    try:
        return RowCounts(
            inserted=int(texts[INSERTED]),
            updated=int(texts.get(UPDATED, "0")),
            deleted=int(texts.get(DELETED, "0")),
            skipped=int(texts.get(SKIPPED, "0")),
            at_most=texts.get(AT_MOST) == "true",
        )
    except ValueError:  # another client's property of this name: the snapshot itself is sound
        return None


# -- What a compaction read and wrote, in snapshot properties --------------------------------------
#
#     lsm.compaction.files-before, .files-after, .bytes-before, .bytes-after
#
# Whole numbers as text. Files that only change their level are not among them.


@record
class CompactedFiles:
    """How many files a compaction replaced, by how many, and their bytes."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{counted(self.files_before, 'file')} of {format_bytes(self.bytes_before)} to "
            f"{self.files_after:,} of {format_bytes(self.bytes_after)}"
        )

    @property
    def properties(self) -> dict[str, str]:
        """The snapshot properties that carry the numbers."""
        return {
            f"{_PREFIX}{name.replace('_', '-')}": str(getattr(self, name))
            for name in self.__dataclass_fields__
        }


# -- Metrics of background compactions, in snapshot properties -------------------------------------
#
#     lsm.compaction.thread-busy       percent of the last 60 s in which it compacted
#     lsm.compaction.avg-time          milliseconds that a bucket took, mean of the last 100
#     lsm.compaction.queued-count      buckets that waited
#     lsm.compaction.completed-count   buckets compacted since its writer was opened
#     lsm.compaction.total-count       the same, with those that failed or still ran
#
# Names and windows are those of Java Paimon's CompactionMetrics. Other clients ignore the
# properties.


@record
class CompactionMetrics:
    """Times in milliseconds, counts of buckets; `last_error`: the text of the newest failure, if any."""

    compaction_thread_busy: float = 0.0
    avg_compaction_time: float = 0.0
    compaction_queued_count: int = 0
    compaction_running_count: int = 0
    compaction_completed_count: int = 0
    compaction_total_count: int = 0
    last_error: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        """The snapshot properties that carry the metrics."""
        return {
            f"{_PREFIX}thread-busy": f"{self.compaction_thread_busy:.1f}",
            f"{_PREFIX}avg-time": f"{self.avg_compaction_time:.1f}",
            f"{_PREFIX}queued-count": str(self.compaction_queued_count),
            f"{_PREFIX}completed-count": str(self.compaction_completed_count),
            f"{_PREFIX}total-count": str(self.compaction_total_count),
        }


def compaction_metrics_of(properties: Mapping[str, str] | None) -> CompactionMetrics | None:
    """Return the metrics that a snapshot carries; None if it carries none that can be read."""
    texts = properties or {}
    try:
        return CompactionMetrics(
            compaction_thread_busy=float(texts[f"{_PREFIX}thread-busy"]),
            avg_compaction_time=float(texts[f"{_PREFIX}avg-time"]),
            compaction_queued_count=int(texts[f"{_PREFIX}queued-count"]),
            compaction_completed_count=int(texts[f"{_PREFIX}completed-count"]),
            compaction_total_count=int(texts[f"{_PREFIX}total-count"]),
        )
    except (KeyError, ValueError):  # metrics are for people: no read depends on them
        return None
