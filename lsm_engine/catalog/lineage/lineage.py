"""Recording of the lineage that a table's files hold.

Every method is idempotent: late, out of order and concurrent calls with the same facts give the same
rows. The files are the truth: what is not recorded is recorded by the next sync. Failures are a LineageError, never anything else."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import LsmError
from lsm_engine.base.record import record
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.lineage.facts import (
    BucketCompaction,
    CommitFacts,
    Fact,
    FileEdge,
    InheritedFiles,
    LineageError,
    ManifestListFacts,
    RemovalFacts,
    TagFacts,
)
from lsm_engine.catalog.lineage.queries import TABLE_ID, no_sync, table_identity
from lsm_engine.catalog.lineage.tables import (
    BRANCH_IDS,
    FROM_ADDITIONS,
    LIVE_TAGS,
    RECORDED_DELTAS,
    LineageTables,
    added,
    live_deltas,
    replacing,
    run_added,
)
from lsm_engine.catalog.models import (
    CHANGELOG,
    COLUMN_INPUTS,
    COMPACTIONS,
    DATA,
    EXPIRED,
    FILE_EDGES,
    FILES,
    INPUTS,
    LIVE,
    MANIFEST_LISTS,
    MANIFESTS,
    OF_A_SNAPSHOT,
    OF_A_TABLE,
    REMOVALS,
    RUNS,
    SNAPSHOTS,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import EntryKind

# -- Rows of lineage facts -------------------------------------------------------------------------
#
# Pure functions: the same facts give the same rows.

Row = dict[str, Any]

_AS_THEY_ARE = (
    "schema_id", "base_manifest_list", "base_manifest_list_size", "delta_manifest_list",
    "delta_manifest_list_size", "changelog_manifest_list", "changelog_manifest_list_size",
    "index_manifest", "commit_user", "commit_identifier", "time_millis", "total_record_count",
    "delta_record_count", "changelog_record_count", "watermark", "statistics", "version",
    "next_row_id", "uuid", "operation", "writer_version",
)  # fmt: skip


def run_row(facts: CommitFacts) -> Row:
    """Return the row of a snapshot's run, from its properties."""
    run = facts.run
    return {
        "run_id": run.run_id,
        "asset_key": run.asset_key or "",
        "engine": run.engine,
        "kind": run.kind,
        "dagster_run_id": run.dagster_run_id,
        "user_name": run.user,
        "started_millis": run.started_millis,
    }


def snapshot_row(table_id: int, facts: CommitFacts) -> Row:
    """Return the row of a snapshot, with the sums of its added and deleted files."""
    snapshot = facts.snapshot
    added = [entry.file for entry in facts.entries if entry.kind is EntryKind.ADD]
    deleted = [entry.file for entry in facts.entries if entry.kind is EntryKind.DELETE]
    return {
        "table_id": table_id,
        "snapshot_id": snapshot.id,
        "state": EXPIRED if facts.expired else LIVE,
        "run_id": facts.run.run_id,
        "asset_key": facts.run.asset_key or "",
        **{name: getattr(snapshot, name) for name in _AS_THEY_ARE},
        "commit_kind": snapshot.commit_kind.value,
        "log_offsets": _json(snapshot.log_offsets),
        "properties": _json(snapshot.properties),
        "files_added": len(added),
        "files_deleted": len(deleted),
        "bytes_added": sum(file.file_size for file in added),
        "bytes_deleted": sum(file.file_size for file in deleted),
    }


def manifest_list_rows(
    table_id: int, snapshot: Snapshot, lists: Iterable[ManifestListFacts]
) -> tuple[list[Row], list[Row]]:
    """Return the rows of a snapshot's manifest lists, and of their manifests."""
    list_rows: list[Row] = []
    manifest_rows: list[Row] = []
    for listed in lists:
        of_list = {"table_id": table_id, "snapshot_id": snapshot.id, "kind": listed.kind}
        list_rows.append(
            {
                **of_list,
                "file_name": listed.file_name,
                "file_size": listed.file_size,
                "manifest_count": len(listed.manifests),
                "added_file_count": sum(manifest.added_file_count for manifest in listed.manifests),
                "deleted_file_count": sum(
                    manifest.deleted_file_count for manifest in listed.manifests
                ),
            }
        )
        manifest_rows += [
            {
                **of_list,
                "position": position,
                "file_name": manifest.file_name,
                "file_size": manifest.file_size,
                "added_file_count": manifest.added_file_count,
                "deleted_file_count": manifest.deleted_file_count,
                "schema_id": manifest.schema_id,
                "min_bucket": manifest.min_bucket,
                "max_bucket": manifest.max_bucket,
                "min_level": manifest.min_level,
                "max_level": manifest.max_level,
            }
            for position, manifest in enumerate(listed.manifests)
        ]
    return list_rows, manifest_rows


def added_file_rows(table_id: int, facts: CommitFacts) -> Iterator[Row]:
    """Yield rows of the files that a snapshot added, changelog files included."""
    for content, entries in ((DATA, facts.entries), (CHANGELOG, facts.changelog_entries)):
        for entry in entries:
            if entry.kind is EntryKind.ADD:
                row = file_row(table_id, entry, facts.partitions, content)
                yield {**row, "added_by": facts.snapshot.id}


def deleted_file_rows(table_id: int, facts: CommitFacts) -> Iterator[Row]:
    """Yield rows of the files that a snapshot deleted, without the snapshot that added them."""
    for entry in facts.entries:
        if entry.kind is EntryKind.DELETE:
            row = file_row(table_id, entry, facts.partitions, DATA)
            yield {**row, "deleted_by": facts.snapshot.id}


def file_row(
    table_id: int, entry: ManifestEntry, partitions: Mapping[bytes, str], content: str
) -> Row:
    """Return the row of a file whose adding and deleting snapshots are unknown."""
    file = entry.file
    return {
        "table_id": table_id,
        "file_name": file.file_name,
        "level": file.level,
        "bucket": entry.bucket,
        "partition": entry.partition,
        "partition_path": partitions[entry.partition],
        "content": content,
        "total_buckets": entry.total_buckets,
        "row_count": file.row_count,
        "delete_row_count": file.delete_row_count,
        "file_size": file.file_size,
        "min_key": file.min_key,
        "max_key": file.max_key,
        "min_sequence_number": file.min_sequence_number,
        "max_sequence_number": file.max_sequence_number,
        "schema_id": file.schema_id,
        "creation_millis": file.creation_millis,
        "file_source": None if file.file_source is None else file.file_source.name.lower(),
        "extra_files": json.dumps(file.extra_files) if file.extra_files else None,
        "external_path": file.external_path,
        "added_by": None,
        "deleted_by": None,
        "removed": False,
    }


def compaction_rows(table_id: int, facts: CommitFacts) -> list[Row]:
    """Return the rows of a compaction, one per bucket."""
    return [
        {
            "table_id": table_id,
            "snapshot_id": facts.snapshot.id,
            "bucket": compaction.bucket,
            "partition": compaction.partition,
            "partition_path": facts.partitions[compaction.partition],
            "output_level": compaction.output_level,
            "files_upgraded": len(compaction.upgraded),
            **_sums(compaction),
        }
        for compaction in facts.compactions
    ]


def _sums(compaction: BucketCompaction) -> Row:
    return {
        "files_read": len(compaction.read),
        "files_written": len(compaction.written),
        "rows_read": sum(file.row_count for file in compaction.read),
        "rows_written": sum(file.row_count for file in compaction.written),
        "bytes_read": sum(file.file_size for file in compaction.read),
        "bytes_written": sum(file.file_size for file in compaction.written),
    }


def edge_rows(table_id: int, snapshot: Snapshot, edges: Iterable[FileEdge]) -> list[Row]:
    """Return the rows of edges between files."""
    return [
        {
            "table_id": table_id,
            "snapshot_id": snapshot.id,
            "bucket": edge.bucket,
            "partition": edge.partition,
            "source_name": edge.source_name,
            "source_level": edge.source_level,
            "target_name": edge.target_name,
            "target_level": edge.target_level,
            "kind": edge.kind,
        }
        for edge in edges
    ]


def input_rows(table_id: int, facts: CommitFacts) -> tuple[list[Row], list[Row]]:
    """Return the rows of a snapshot's inputs: datasets, and columns if they are recorded."""
    of_snapshot = {"table_id": table_id, "snapshot_id": facts.snapshot.id}
    datasets: list[Row] = []
    columns: list[Row] = []
    for position, item in enumerate(facts.inputs):
        of_input = {**of_snapshot, "position": position, "dataset": item.dataset}
        datasets.append(
            {
                **of_input,
                "input_snapshot_id": item.snapshot_id,
                "after_snapshot_id": item.after_snapshot_id,
                "input_version": item.version,
                "role": item.role,
            }
        )
        columns += [
            {**of_input, "column_name": output, "input_column": source}
            for output, source in dict.fromkeys(item.columns)
        ]
    return datasets, columns


def tag_row(table_id: int, tag: Tag) -> Row:
    """Return the row of a tag."""
    return {
        "table_id": table_id,
        "tag_name": tag.name,
        "snapshot_id": tag.snapshot.id,
        "created": _wall_clock(tag.created),
        "retained_millis": tag.retained_millis,
        "deleted": False,
    }


def _wall_clock(created: tuple[int, ...] | None) -> str | None:
    # Some writers record no time.
    if created is None:
        return None
    year, month, day, hour, minute, second, nanos = (*created, 0, 0, 0, 0, 0)[:7]
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}"


def _json(members: Mapping[str, Any] | None) -> str | None:
    return None if members is None else json.dumps(dict(members), sort_keys=True)


# -- Writing lineage inside a transaction: facts become rows of the catalog's tables ---------------

T = TypeVar("T")
_Other = InheritedFiles | TagFacts | RemovalFacts

ROWS_PER_STATEMENT = 2_000
IDS_PER_STATEMENT = 500


class Recorder:
    """Writes rows inside a transaction. Every insert handles a row that is already there."""

    def __init__(self, database: Database, catalog_key: str) -> None:
        self._database = database
        self._catalog_key = catalog_key

    def table_id(self, connection: Connection, table: TableName) -> int:
        """Return the number of a table; a new table gets one."""
        identity = table_identity(self._catalog_key, table)
        number = connection.scalar(TABLE_ID, identity)
        if number is None:
            connection.execute(added(self._database.dialect, TABLES), [identity])
            number = connection.scalars(TABLE_ID, identity).one()
        return int(number)

    def facts(self, connection: Connection, facts: Iterable[Fact]) -> None:
        """Write facts of any tables, in their order; successive commits are written together."""
        of_tables: dict[TableName, list[Fact]] = {}
        for fact in facts:
            of_tables.setdefault(fact.table, []).append(fact)
        for table, of_table in of_tables.items():
            table_id = self.table_id(connection, table)
            for commits, other_fact in _runs(of_table):
                if commits:
                    self._commits(connection, table_id, commits)
                if other_fact is not None:
                    self._record_other(connection, table_id, other_fact)

    def _record_other(self, connection: Connection, table_id: int, fact: _Other) -> None:
        match fact:
            case InheritedFiles():
                self._inherited(connection, table_id, fact)
            case TagFacts():
                self.tag(connection, table_id, fact.tag)
            case RemovalFacts():
                self._removal(connection, table_id, fact)

    def _commits(
        self, connection: Connection, table_id: int, commits: Sequence[CommitFacts]
    ) -> None:
        """Write all rows of snapshots of ascending ids."""
        self._forget_others(connection, table_id, commits)
        lists, manifests, inputs, columns = [], [], [], []
        for facts in commits:
            of_lists, of_manifests = manifest_list_rows(
                table_id, facts.snapshot, facts.manifest_lists
            )
            lists += of_lists
            manifests += of_manifests
            of_datasets, of_columns = input_rows(table_id, facts)
            inputs += of_datasets
            columns += of_columns
        runs = {tuple(row.values()): row for row in map(run_row, commits)}
        connection.execute(run_added(self._database.dialect), list(runs.values()))
        self._add(connection, SNAPSHOTS, [snapshot_row(table_id, facts) for facts in commits])
        self._add(connection, MANIFEST_LISTS, lists)
        self._add(connection, MANIFESTS, manifests)
        self._add(connection, INPUTS, inputs)
        self._add(connection, COLUMN_INPUTS, columns)
        self._add(connection, COMPACTIONS, _rows_of_commits(compaction_rows, table_id, commits))
        edges = (edge_rows(table_id, facts.snapshot, facts.edges) for facts in commits)
        self._add(connection, FILE_EDGES, chain.from_iterable(edges))
        # A deletion may be recorded before the addition: either makes the row, the addition fills it.
        self._upsert(
            connection, FILES, _rows_of_commits(added_file_rows, table_id, commits), FROM_ADDITIONS
        )
        self._upsert(
            connection,
            FILES,
            _rows_of_commits(deleted_file_rows, table_id, commits),
            ("deleted_by",),
        )
        for facts in commits:
            for tag in facts.tags:
                self.tag(connection, table_id, tag)

    def _inherited(self, connection: Connection, table_id: int, files: InheritedFiles) -> None:
        """Write files whose adding snapshot is unknown."""
        rows = (file_row(table_id, entry, files.partitions, DATA) for entry in files.entries)
        self._add(connection, FILES, rows)

    def tag(self, connection: Connection, table_id: int, tag: Tag) -> None:
        """Write a tag, in place of an older one of the same name."""
        replaced = ("snapshot_id", "created", "retained_millis", "deleted")
        self._upsert(connection, TAGS, [tag_row(table_id, tag)], replaced)

    def _removal(self, connection: Connection, table_id: int, fact: RemovalFacts) -> None:
        """Write a removal, and mark its files as removed."""
        row = {
            "table_id": table_id,
            "removal_id": fact.removal_id,
            "kind": fact.kind,
            "reason": fact.reason,
            "at_millis": fact.at_millis,
            "snapshot_ids": ",".join(map(str, fact.snapshot_ids)),
            "tags": "\n".join(fact.tags),
            "file_count": fact.file_count,
            "freed_bytes": fact.freed_bytes,
        }
        self._add(connection, REMOVALS, [row])
        if fact.kind == EXPIRY:
            for numbers in pieces(fact.snapshot_ids, IDS_PER_STATEMENT):
                rows = and_(SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id.in_(numbers))
                connection.execute(update(SNAPSHOTS).where(rows).values(state=EXPIRED))
        for batch in pieces(sorted(fact.removed_files), IDS_PER_STATEMENT):
            rows = and_(FILES.c.table_id == table_id, FILES.c.file_name.in_(batch))
            connection.execute(update(FILES).where(rows).values(removed=True))

    def reconcile(
        self,
        connection: Connection,
        table_id: int,
        live_ids: Mapping[int, bool],
        tags: Sequence[Tag],
        before: Mapping[int, str],
    ) -> None:
        """Set the states of snapshots and tags by the table's files, after what they hold is recorded.

        `live_ids`: True for snapshots whose files were read, False for those that were recorded as live before. If one of
        these is recorded as expired by now, another process has let it expire meanwhile.
        Snapshots newer than all of `live_ids` may have been committed meanwhile and are retained, unless they
        were recorded `before` the files were read. Then they were rolled back, and are forgotten.
        """
        newest = max(live_ids, default=0)
        taken_back = [name for number, name in before.items() if number > newest]
        for batch in pieces(taken_back, IDS_PER_STATEMENT):
            self._forget(connection, table_id, SNAPSHOTS.c.delta_manifest_list.in_(batch))
        oldest = min(live_ids, default=0)
        recorded = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.state).where(
            SNAPSHOTS.c.table_id == table_id,
            SNAPSHOTS.c.snapshot_id <= newest,
            # Expired ones below the oldest stay so: a long history is not read.
            or_(SNAPSHOTS.c.state == LIVE, SNAPSHOTS.c.snapshot_id >= oldest),
        )
        changes: dict[str, list[int]] = {LIVE: [], EXPIRED: []}
        for snapshot_id, state in connection.execute(recorded):
            if state == LIVE and snapshot_id not in live_ids:
                changes[EXPIRED].append(snapshot_id)
            elif state != LIVE and live_ids.get(snapshot_id):
                changes[LIVE].append(snapshot_id)
        for state, ids in changes.items():
            self._set_state(connection, table_id, ids, state)
        connection.execute(update(TAGS).where(TAGS.c.table_id == table_id).values(deleted=True))
        for tag in tags:
            self.tag(connection, table_id, tag)

    def _set_state(
        self, connection: Connection, table_id: int, ids: Sequence[int], state: str
    ) -> None:
        for batch in pieces(ids, IDS_PER_STATEMENT):
            rows = and_(SNAPSHOTS.c.table_id == table_id, SNAPSHOTS.c.snapshot_id.in_(batch))
            connection.execute(update(SNAPSHOTS).where(rows).values(state=state))

    def clear(self, connection: Connection, table_id: int) -> None:
        """Forget all lineage of a table."""
        for model in OF_A_TABLE:
            connection.execute(delete(model).where(model.c.table_id == table_id))
        self._drop_idle_runs(connection)

    def _forget(
        self, connection: Connection, table_id: int, condition: ColumnElement[bool]
    ) -> None:
        """Forget the snapshots that meet `condition`, and their changes of files."""
        ids = select(SNAPSHOTS.c.snapshot_id).where(SNAPSHOTS.c.table_id == table_id, condition)
        for batch in pieces(connection.scalars(ids).all(), IDS_PER_STATEMENT):
            for model in (*OF_A_SNAPSHOT, TAGS, SNAPSHOTS):
                rows = and_(model.c.table_id == table_id, model.c.snapshot_id.in_(batch))
                connection.execute(delete(model).where(rows))
            files = FILES.c.table_id == table_id
            connection.execute(delete(FILES).where(files, FILES.c.added_by.in_(batch)))
            connection.execute(
                update(FILES).where(files, FILES.c.deleted_by.in_(batch)).values(deleted_by=None)
            )
        self._drop_idle_runs(connection)

    def _forget_others(
        self, connection: Connection, table_id: int, commits: Sequence[CommitFacts]
    ) -> None:
        """Forget snapshots whose id a new snapshot with another content has: they were rolled back."""
        recorded: dict[int, str] = {}
        for batch in pieces([facts.snapshot.id for facts in commits], IDS_PER_STATEMENT):
            parameters = {"table_id": table_id, "snapshot_ids": batch}
            rows = connection.execute(RECORDED_DELTAS, parameters)
            recorded.update((number, name) for number, name in rows)
        for snapshot in (facts.snapshot for facts in commits):
            recorded_list = recorded.get(snapshot.id)
            # The same snapshot is recorded already, or none is.
            if recorded_list is None or recorded_list == snapshot.delta_manifest_list:
                continue
            # Successors of the new one may be recorded already; they are not older than it.
            older = and_(
                SNAPSHOTS.c.snapshot_id > snapshot.id,
                SNAPSHOTS.c.time_millis < snapshot.time_millis,
            )
            self._forget(connection, table_id, or_(SNAPSHOTS.c.snapshot_id == snapshot.id, older))

    def _drop_idle_runs(self, connection: Connection) -> None:
        busy = select(SNAPSHOTS.c.run_id).where(
            SNAPSHOTS.c.run_id == RUNS.c.run_id, SNAPSHOTS.c.asset_key == RUNS.c.asset_key
        )
        connection.execute(delete(RUNS).where(~busy.exists()))

    def _add(self, connection: Connection, model: Table, rows: Iterable[Row]) -> None:
        """Insert rows; existing rows are retained."""
        statement = added(self._database.dialect, model)
        for batch in pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, batch)

    def _upsert(
        self, connection: Connection, model: Table, rows: Iterable[Row], replaced: tuple[str, ...]
    ) -> None:
        """Insert rows; of existing rows, replace the columns `replaced`."""
        statement = replacing(self._database.dialect, model, replaced)
        for batch in pieces(rows, ROWS_PER_STATEMENT):
            connection.execute(statement, batch)


def _runs(
    facts: Iterable[Fact],
) -> Iterator[tuple[list[CommitFacts], _Other | None]]:
    """Split facts of a table after each that is no commit, and between commits of falling ids."""
    commits: list[CommitFacts] = []
    for fact in facts:
        # Other facts depend on the commits before them.
        if not isinstance(fact, CommitFacts):
            yield commits, fact
            commits = []
            continue
        # A falling id shows a rollback, which must be recorded in its place.
        if commits and fact.snapshot.id <= commits[-1].snapshot.id:
            yield commits, None
            commits = []
        commits.append(fact)
    yield commits, None


def _rows_of_commits(
    rows: Callable[[int, CommitFacts], Iterable[Row]], table_id: int, commits: Iterable[CommitFacts]
) -> Iterator[Row]:
    return chain.from_iterable(rows(table_id, facts) for facts in commits)


def pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` items."""
    source = iter(items)
    while piece := list(islice(source, size)):
        yield piece


# -- Recording of the lineage that a table's files hold --------------------------------------------

FACTS_PER_TRANSACTION = 64
EXPIRY = "expire-snapshots"
"""The kind of removals that say which snapshots they took: no file of the table is read to mark them."""
# Errors of the database, and of facts that do not fit into it.
_FAILURES = (LsmError, SQLAlchemyError, OSError, ValueError, TypeError, KeyError, OverflowError)


@record
class RecordedState:
    """The recorded state of a table or branch, to compare with its files.

    `live`: the snapshots recorded as live, by id, each with its delta manifest list. `tags`: the rows of the tags
    that are recorded and not deleted, by name.
    """

    live: Mapping[int, str]
    tags: Mapping[str, Row]


def _tag_rows(connection: Connection, table_id: int) -> dict[str, Row]:
    rows = connection.execute(LIVE_TAGS, {"table_id": table_id})
    return {row["tag_name"]: dict(row) for row in rows.mappings()}


_NEWEST_LIVE = (
    select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list)
    .where(SNAPSHOTS.c.table_id == TABLE_ID.scalar_subquery(), SNAPSHOTS.c.state == LIVE)
    .order_by(SNAPSHOTS.c.snapshot_id.desc())
    .limit(1)
)


@checks_all_arguments
class Lineage(LineageTables):
    """The lineage of a catalog: inputs, runs and files of commits. `LineageQueries`, `LineageOrigins` and
    `LineageTables` have the queries."""

    def __init__(
        self,
        database: Database,
        *,
        catalog_key: str,
        before_reading: Callable[[TableName | None], None] = no_sync,
    ) -> None:
        super().__init__(database, catalog_key=catalog_key, before_reading=before_reading)
        self._recorder = Recorder(database, catalog_key)

    def __repr__(self) -> str:
        return f"<Lineage in {self._database.shown_url!r}>"

    def record(self, *facts: Fact) -> None:
        """Record facts, all or none.

        A snapshot of the same id but another content was rolled back: it goes, and with it the
        older ones that followed it.
        """
        self._write(
            lambda connection: self._recorder.facts(connection, facts),
            table=", ".join(sorted({fact.table.text for fact in facts})),
        )

    def recorded_states(self, table: TableName) -> dict[str, RecordedState]:
        """Return the recorded state of a table and its branches, by branch, from one state of the catalog."""
        parameters = {
            "catalog_key": self._catalog_key,
            "database_name": table.database,
            "table_name": table.table,
        }
        return self._read_recorded(
            lambda connection: {
                branch: RecordedState(
                    live=live_deltas(connection, number), tags=_tag_rows(connection, number)
                )
                for branch, number in connection.execute(BRANCH_IDS, parameters).all()
            }
        )

    def newest_live(self, table: TableName) -> tuple[int, str] | None:
        """Return the id and the delta manifest list of the newest snapshot that is recorded as live; None without one."""
        identity = table_identity(self._catalog_key, table)
        row = self._read_recorded(
            lambda connection: connection.execute(_NEWEST_LIVE, identity).first()
        )
        return None if row is None else (row[0], row[1])

    def has_snapshot(self, table: TableName, snapshot_id: int) -> bool:
        """Whether a snapshot of a table is recorded, be it live or expired."""
        rows = select(SNAPSHOTS.c.snapshot_id).where(
            SNAPSHOTS.c.table_id == TABLE_ID.scalar_subquery(),
            SNAPSHOTS.c.snapshot_id == snapshot_id,
        )
        identity = table_identity(self._catalog_key, table)
        return self._read_recorded(
            lambda connection: connection.execute(rows, identity).first() is not None
        )

    def _read_recorded(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` reads for a sync, which cannot record where it cannot read."""
        try:
            return self._read(work)
        except _FAILURES as error:
            raise LineageError(
                "the lineage cannot be read, so that nothing is recorded; the table itself is in order",
                catalog=self._database.shown_url,
            ) from error

    def rebuild(
        self,
        table: TableName,
        facts: Iterable[CommitFacts | InheritedFiles],
        tags: Iterable[TagFacts] = (),
        *,
        keep_history: bool = True,
    ) -> int:
        """Record all facts in a table's files; return the number of snapshots recorded.

        `facts` may stream; they are written in pieces, so that others can write in between, and a
        rebuild that died is finished by the next. Snapshots and tags that the files no longer know
        stay as expired and deleted; those above the newest, which others rolled back, are forgotten.
        Unless `keep_history` the table starts empty.
        """
        if not keep_history:
            self.forget(table)
        recorded = self.recorded_states(table).get(table.branch)
        before = {} if recorded is None else recorded.live
        return self.catch_up(table, facts, tags, live_ids=(), before=before)

    def catch_up(
        self,
        table: TableName,
        facts: Iterable[CommitFacts | InheritedFiles],
        tags: Iterable[TagFacts],
        *,
        live_ids: Iterable[int],
        before: Mapping[int, str],
    ) -> int:
        """Record facts that are new, and let the states of snapshots and tags follow; return the number of commits.

        `live_ids`: the snapshots in the table's files that are recorded already. `before`: the snapshots that were
        recorded as live before the files were read, with their delta manifest lists.
        """
        live, count = dict.fromkeys(live_ids, False), 0
        last_piece: list[CommitFacts | InheritedFiles] = []
        for piece in pieces(facts, FACTS_PER_TRANSACTION):
            if last_piece:
                self._write(partial(self._recorder.facts, facts=last_piece))
            last_piece = piece
            commits = [fact for fact in piece if isinstance(fact, CommitFacts)]
            live.update((fact.snapshot.id, True) for fact in commits if not fact.expired)
            count += len(commits)
        known_tags = [fact.tag for fact in tags]

        def finish(connection: Connection, table_id: int) -> None:
            # One transaction for both, as a sync after a commit has one piece: each waits for the disk.
            self._recorder.facts(connection, last_piece)
            self._recorder.reconcile(connection, table_id, live, known_tags, before)

        self._of_table(table, finish)
        return count

    def forget(self, table: TableName) -> None:
        """Forget all lineage of a table or branch."""
        self._of_table(table, self._recorder.clear)

    def _of_table(self, table: TableName, work: Callable[[Connection, int], object]) -> None:
        self._write(lambda connection: work(connection, self._recorder.table_id(connection, table)))

    def _write(self, work: Callable[[Connection], object], **about: Any) -> None:
        try:
            self._database.write(work)
        except _FAILURES as error:
            raise LineageError(
                "lineage was not recorded; the table itself is in order, and the next question records it",
                catalog=self._database.shown_url,
                **about,
            ) from error
