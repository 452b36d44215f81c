"""The state of the Iceberg metadata of a table: its snapshot and lag, the files that wait or cannot be named, and damage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import FIRST_SNAPSHOT_ID, counted, format_age
from lsm_engine.data_files.parquet_output import millisecond_leaves
from lsm_engine.format.manifest import ManifestEntry, by_bucket
from lsm_engine.format.manifest_file import WITHOUT_STATS
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.iceberg.manifest import (
    DELETES,
    Layout,
    avro_name,
    read_position_deletes,
    read_records,
)
from lsm_engine.iceberg.metadata import (
    SOURCE,
    TableMetadata,
    deletes_key,
    metadata_path,
    shown_levels,
    shows,
)
from lsm_engine.iceberg.schema import (
    JsonObject,
    has_lists_or_maps,
    iceberg_schema,
    of_avro,
    partition_spec,
)
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.compaction import FULL_COMPACTION
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.table.branches import on_branch
from lsm_engine.table.iceberg import IcebergStore, MetadataSync, open_store
from lsm_engine.table.session import TableSession
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import ScalarType

_COMMITS_MAX = 100
"""Commits that are looked at for how long rows wait."""


@record
class IcebergState:
    """The state of the Iceberg metadata of a table.

    `metadata_location`: the version that readers read; None without one. `snapshot_id`: the snapshot that it shows,
    `newest_snapshot_id` that of the table. `hidden_files`: live data files that it does not show, as their rows wait for a
    compaction; `waiting_commits`: how many commits since which some of these rows wait, at most 100, and
    `waiting_millis`: how long. `branches`: ids of their snapshots in the metadata; `branches_left_out` and
    `tags_left_out`: why others are not shown. `problem`: why it cannot show the newest snapshot; None if it can.
    """

    metadata_location: str | None
    format_version: int | None
    snapshot_id: int | None
    newest_snapshot_id: int | None
    data_files: int = 0
    delete_files: int = 0
    hidden_files: int = 0
    waiting_commits: int = 0
    waiting_millis: int = 0
    branches: Mapping[str, int] = field(default_factory=dict)
    branches_left_out: Mapping[str, str] = field(default_factory=dict)
    tags_left_out: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def lag(self) -> int:
        """How many snapshots it is behind."""
        return (self.newest_snapshot_id or 0) - (self.snapshot_id or 0)

    def facts(self) -> dict[str, object]:
        """Return the members and the lag by name."""
        return {
            "metadata_location": self.metadata_location,
            "format_version": self.format_version,
            "snapshot_id": self.snapshot_id,
            "newest_snapshot_id": self.newest_snapshot_id,
            "lag": self.lag,
            "data_files": self.data_files,
            "delete_files": self.delete_files,
            "hidden_files": self.hidden_files,
            "waiting_commits": self.waiting_commits,
            "waiting_millis": self.waiting_millis,
            "branches": dict(self.branches),
            "branches_left_out": dict(self.branches_left_out),
            "tags_left_out": dict(self.tags_left_out),
            "problem": self.problem,
        }

    def __str__(self) -> str:
        if self.metadata_location is None:
            text = "there is no Iceberg metadata"
        else:
            text = (
                f"{self.metadata_location} shows snapshot {self.snapshot_id} of {self.newest_snapshot_id}: "
                f"{counted(self.data_files, 'data file')}, {counted(self.delete_files, 'deletion vector')}; "
                f"{counted(self.hidden_files, 'file')} left out until a compaction"
            )
            if self.waiting_commits:
                text += f", of {counted(self.waiting_commits, 'commit')} in {format_age(self.waiting_millis)}"
            for name, reason in self.branches_left_out.items():
                text += f"; branch {name!r} is left out: {reason}"
            for name, reason in self.tags_left_out.items():
                text += f"; tag {name!r} is left out: {reason}"
        return f"{text}; {self.problem}" if self.problem else text


def state(session: TableSession) -> IcebergState:
    """Return what the Iceberg metadata shows, and what keeps it from showing the newest snapshot."""
    if session.paths.branch_name:
        session = on_branch(session, MAIN_BRANCH)
    snapshot = session.snapshots.latest()
    newest_id = None if snapshot is None else snapshot.id
    if not session.options.writes_iceberg:
        return IcebergState(
            metadata_location=None,
            format_version=None,
            snapshot_id=None,
            newest_snapshot_id=newest_id,
            problem=f"option {core_options.METADATA_ICEBERG_STORAGE.key!r} is not set",
        )
    store = open_store(session)
    metadata, problem = None, None
    try:
        metadata = store.current()
        attempt = MetadataSync(session, store, rebuild=False)
        if snapshot is not None:
            shown = metadata and metadata.current
            is_new = not shown or not shows(shown, snapshot)
            attempt.require_readable(attempt.shown_entries(snapshot), linked=is_new)
    except (CorruptFileError, NotFoundError, UnsupportedError) as error:
        problem = error.message
    lag = RowLag() if snapshot is None else row_lag(session, snapshot)
    current = None if metadata is None else metadata.current
    if current is not None and _is_foreign(session, current, newest_id or 0):
        problem = problem or (
            f"it shows snapshot {current['snapshot-id']}, which this table does not have: another engine has written "
            "it, and `lsm iceberg sync` writes it anew"
        )
        current = None
    summary = {} if current is None else current["summary"]
    return IcebergState(
        metadata_location=None
        if metadata is None
        else store.location_of(metadata_path(metadata.version)),
        format_version=None if metadata is None else metadata.members["format-version"],
        snapshot_id=None if current is None else current["snapshot-id"],
        newest_snapshot_id=newest_id,
        data_files=int(summary.get("total-data-files", 0)),
        delete_files=int(summary.get("total-delete-files", 0)),
        hidden_files=lag.files,
        waiting_commits=lag.commits,
        waiting_millis=lag.millis,
        branches={} if metadata is None else metadata.branches,
        branches_left_out={} if metadata is None else metadata.branches_left_out,
        tags_left_out={} if metadata is None else metadata.tags_left_out,
        problem=problem,
    )


def _is_foreign(session: TableSession, shown: JsonObject, newest_id: int) -> bool:
    """Whether a version of the metadata shows a snapshot that the table never had."""
    # Versions of Java name no manifest list of ours; snapshots may have expired, or were rolled back.
    if shown["snapshot-id"] <= newest_id or SOURCE in shown["summary"]:
        return False
    return session.snapshots.find(shown["snapshot-id"]) is None


def warnings_of(session: TableSession, *, deep: bool = False) -> Iterator[str]:
    """Yield the warnings of a verification about the Iceberg metadata: its lag with the reason, and unsound files.

    `deep`: the field ids of each file that it shows, too. With the same files, deleted rows and columns by the same
    ids a reader reads the rows of a scan, which need not be read a second time.
    """
    try:
        shown = state(session)
        store = open_store(session)
        current = store.current()
        unsound = set() if current is None else _unsound_files(store, current)
        difference = None
        if not unsound and shown.problem is None and not shown.lag and current is not None:
            difference = _difference(session, store, current)
        misread = _misread_file(session, store, current) if deep and difference is None else None
    except (LsmError, OSError) as error:
        yield f"the Iceberg metadata cannot be read, `lsm iceberg sync --rebuild` writes it anew: {error}"
        return
    if shown.problem is not None:
        yield f"the Iceberg metadata cannot follow the table: {shown.problem}"
    elif shown.lag:
        yield (
            f"the Iceberg metadata shows snapshot {shown.snapshot_id} of {shown.newest_snapshot_id}; "
            "`lsm iceberg sync` brings it to the newest"
        )
    if unsound:
        yield (
            f"the Iceberg metadata lacks {counted(len(unsound), 'file')}, or the file has another size, such as "
            f"{min(unsound)}; `lsm iceberg sync --rebuild` writes it anew"
        )
    elif difference is not None:
        yield (
            f"the Iceberg metadata shows other {difference} than snapshot {shown.snapshot_id} has; "
            "`lsm iceberg sync --rebuild` writes it anew"
        )
    elif misread is not None:
        yield (
            f"the Iceberg metadata shows file {misread[0]}, which {misread[1]}; "
            "a full compaction writes its rows anew"
        )


def _read(store: IcebergStore, path: str) -> list[JsonObject]:
    """Return the records of a file itself, not what this process remembers of it."""
    return read_records(store.file_io.read(path), path)


def _unsound_files(store: IcebergStore, current: TableMetadata) -> set[str]:
    """Return the files of a version that are not there, or have another size than their entry has."""
    sizes = {status.path: status.size for status in store.files()}
    lists = {store.path_of(shown["manifest-list"]) for shown in current.snapshots}
    unsound = lists - sizes.keys()
    manifests = {
        store.path_of(row["manifest_path"]): row
        for path in lists - unsound
        for row in _read(store, path)
    }
    for path, row in manifests.items():
        if sizes.get(path) != row["manifest_length"]:
            unsound.add(path)
        elif row["content"] == DELETES:
            vectors = {
                store.path_of(entry["data_file"]["file_path"]): entry["data_file"]
                for entry in _read(store, path)
            }
            unsound.update(
                path
                for path, file in vectors.items()
                if sizes.get(path) != file["file_size_in_bytes"]
            )
    return unsound


def _difference(session: TableSession, store: IcebergStore, current: TableMetadata) -> str | None:
    """Return what a version has otherwise than the newest snapshot, which it shows, so that readers see other rows."""
    snapshot, shown = session.snapshots.latest(), current.current
    if snapshot is None or shown is None or not shows(shown, snapshot):
        return None
    schema = session.schema
    if _columns_differ(current, schema):
        return "columns or partition columns"
    stored: dict[str, JsonObject] = {}
    deletes: dict[str, bytes | pa.Table] = {}
    for row in _read(store, store.path_of(shown["manifest-list"])):
        for entry in _read(store, store.path_of(row["manifest_path"])):
            location = entry["data_file"]["file_path"]
            if row["content"] == DELETES:
                data = store.file_io.read(store.path_of(location))
                is_puffin = entry["data_file"]["file_format"] == "PUFFIN"
                rows = data if is_puffin else read_position_deletes(data, location)
                deletes[deletes_key(entry["data_file"])] = rows
            else:
                stored[location] = entry["data_file"]
    attempt = MetadataSync(session, store, rebuild=False)
    expected = attempt.shown_files(snapshot)
    if stored.keys() != expected.keys():
        return "files"
    if deletes != attempt.deleted_rows(snapshot):
        return "deleted rows"
    for location, file in expected.items():
        member = _other_member(stored[location], file, attempt.layout)
        if member is not None:
            return f"{member} of file {location}"
    return None


def _misread_file(
    session: TableSession, store: IcebergStore, current: TableMetadata | None
) -> tuple[str, str] | None:
    """Return a file that the newest snapshot shows and whose columns readers would not find by their ids, and why."""
    snapshot, shown = session.snapshots.latest(), None if current is None else current.current
    if snapshot is None or shown is None or not shows(shown, snapshot):
        return None
    attempt = MetadataSync(session, store, rebuild=False)
    for entry in attempt.shown_entries(snapshot):
        problem = attempt.id_problem(entry, None)
        if problem is not None:
            return entry.file.file_name, problem
    return None


def _columns_differ(current: TableMetadata, schema: TableSchema) -> bool:
    """Whether the schema of an id, or the partition spec, is another than that of the table."""
    schemas = {stored["schema-id"]: stored for stored in current.members["schemas"]}
    if schema.id in schemas and schemas[schema.id] != iceberg_schema(schema):
        return True
    specs = [spec["fields"] for spec in current.members["partition-specs"]]
    return specs != [partition_spec(schema)]


def _other_member(stored: JsonObject, expected: JsonObject, layout: Layout) -> str | None:
    """Return the member of `data_file` that differs, so that a reader counts or skips rows wrongly."""
    for member in ("record_count", "file_size_in_bytes"):
        if stored[member] != expected[member]:
            return member
    for column in layout.partition_fields:
        assert isinstance(column.type, ScalarType), column.type
        values = [
            of_avro(file["partition"][avro_name(column.name)], column.type)
            for file in (stored, expected)
        ]
        # As text, in which NaN is NaN.
        if repr(values[0]) != repr(values[1]):
            return f"partition value {column.name!r}"
    for member in ("null_value_counts", "lower_bounds", "upper_bounds"):
        own = {pair["key"]: pair["value"] for pair in expected[member]}
        for pair in stored[member] or ():
            bound = own.get(pair["key"], pair["value"])
            # A column that was widened since has a longer bound, of the same value.
            is_widened = isinstance(bound, bytes) and (len(pair["value"]), len(bound)) == (4, 8)
            if bound != pair["value"] and not is_widened:
                return member
    return None


def unreadable_files(session: TableSession, entries: Sequence[ManifestEntry]) -> frozenset[str]:
    """Return the names of files that readers of Iceberg would misread, or filter wrongly."""
    attempt = MetadataSync(session, open_store(session), rebuild=False)
    misread = {name for name, _ in attempt.problems(entries)}
    return frozenset(misread.union(files_with_millis_bounds(session, entries)))


def files_with_millis_bounds(
    session: TableSession, entries: Iterable[ManifestEntry]
) -> Iterator[str]:
    """Yield the names of files with statistics or dictionaries of timestamps in milliseconds.

    Iceberg's own library, as on Spark, takes these for microseconds, and skips row groups whose rows match a filter.
    Other clients write them; files that this engine writes for readers of Iceberg have none.
    """
    if not millisecond_leaves(session.schema.arrow):
        return
    context = session.context()
    for entry in entries:
        if entry.file.file_name.endswith(".parquet") and entry.file.external_path is None:
            path = context.data_file(*entry.physical_file)
            with session.file_io.open_input(path, size=entry.file.file_size) as source:
                file = pq.ParquetFile(source)
                groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
                leaves = millisecond_leaves(file.schema_arrow)
            chunks = [group.column(leaf) for group in groups for leaf in leaves]
            if any(chunk.is_stats_set or chunk.has_dictionary_page for chunk in chunks):
                yield entry.file.file_name


def files_without_member_ids(session: TableSession, entries: Iterable[ManifestEntry]) -> int:
    """Return how many files lack field ids of members of lists and maps; older versions of this engine wrote none."""
    if not has_lists_or_maps(session.schema):
        return 0
    attempt = MetadataSync(session, open_store(session), rebuild=False)
    return sum(
        attempt.id_problem(entry, None) is not None
        for entry in entries
        if entry.file.file_name.endswith(".parquet") and entry.file.external_path is None
    )


# -- Rows that wait for a compaction ---------------------------------------------------------------


@record
class RowLag:
    """Live files that are not shown, and the commits and milliseconds since which some of their rows wait.

    `is_cut`: older commits, which have expired, may wait as well.
    """

    files: int = 0
    commits: int = 0
    millis: int = 0
    is_cut: bool = False


def row_lag(session: TableSession, snapshot: Snapshot) -> RowLag:
    """Return how far the shown rows of a snapshot are behind its own.

    A bucket is taken to be merged up to the last full compaction of the table, or to when the newest of its shown files
    was written: compactions of single buckets, and of other clients, leave no mark.
    """
    levels = shown_levels(session.schema)
    merged_millis = snapshot.time_millis
    hidden = 0
    for entries in by_bucket(session.live_entries(snapshot, columns=WITHOUT_STATS)).values():
        shown = levels.files(entries)
        if len(shown) < len(entries):
            hidden += len(entries) - len(shown)
            newest = max((entry.file.creation_millis or 0 for entry in shown), default=0)
            merged_millis = min(merged_millis, newest)
    if not hidden:
        return RowLag()
    waiting = [snapshot]
    is_cut = False
    for older in session.snapshots.down_from(snapshot, _COMMITS_MAX):
        is_merged = older.time_millis <= merged_millis or FULL_COMPACTION in (
            older.properties or {}
        )
        is_cut = not is_merged and older.id > FIRST_SNAPSHOT_ID
        if is_merged:
            break
        if older.commit_kind is not CommitKind.COMPACT:
            waiting.append(older)
    return RowLag(
        files=hidden,
        # What others committed beside the compaction lies below its snapshot.
        commits=max(1, len(waiting) - 1),
        millis=max(0, session.clock.now_millis() - waiting[-1].time_millis),
        is_cut=is_cut,
    )


def waits_for_full_compaction(session: TableSession) -> bool:
    """Whether readers of Iceberg see the rows of full compactions alone."""
    return shown_levels(session.schema).is_deepest


def exceeds_lag(session: TableSession, snapshot: Snapshot) -> bool:
    """Whether a snapshot's shown rows are further behind than `metadata.iceberg.max-lag`, so that a full compaction is due."""
    bound = session.options[core_options.METADATA_ICEBERG_MAX_LAG]
    if bound is None or not waits_for_full_compaction(session):
        return False
    lag = row_lag(session, snapshot)
    return lag.files > 0 and (lag.is_cut or bound.is_exceeded(lag.commits, lag.millis))
