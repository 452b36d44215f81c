"""Questions to the lineage. Every answer is an Arrow table, or a record of them.

A question first has the lineage brought up to the files of the tables that it is about.

Times are milliseconds since 1970 UTC. A table of which nothing was recorded gives no rows; a
snapshot or file that was never recorded is a NotFoundError."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import pyarrow as pa
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    null,
    or_,
    select,
)

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.lineage.facts import REWRITE
from lsm_engine.catalog.models import (
    COLUMN_INPUTS,
    COMPACTIONS,
    DATA,
    FILE_EDGES,
    FILES,
    INPUTS,
    LIVE,
    MANIFEST_LISTS,
    MANIFESTS,
    REMOVALS,
    RUNS,
    SNAPSHOTS,
    STILL_LIVE,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.types.type_text import columns_of_text

# -- The rows of a SELECT as an Arrow table --------------------------------------------------------


def arrow_rows(connection: Connection, statement: Select[Any]) -> pa.Table:
    """Return the rows of `statement`; types follow from its columns, so no rows have them too."""
    rows = connection.execute(statement).all()
    selected = list(statement.selected_columns)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(selected)
    return pa.table(
        {
            column.name: pa.array(values, type=_arrow_type(column.type))
            for column, values in zip(selected, columns, strict=True)
        }
    )


def _arrow_type(kind: object) -> pa.DataType:
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, Integer):
        return pa.int64()
    return pa.binary() if isinstance(kind, LargeBinary) else pa.string()


# -- Results of lineage queries: their columns, in order, and records of several tables ------------

SNAPSHOT_COLUMNS = (
    SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.commit_kind, SNAPSHOTS.c.time_millis, SNAPSHOTS.c.state,
    SNAPSHOTS.c.total_record_count, SNAPSHOTS.c.delta_record_count, SNAPSHOTS.c.files_added,
    SNAPSHOTS.c.files_deleted, SNAPSHOTS.c.bytes_added, SNAPSHOTS.c.bytes_deleted,
    SNAPSHOTS.c.schema_id, SNAPSHOTS.c.operation, SNAPSHOTS.c.commit_user, SNAPSHOTS.c.properties,
)  # fmt: skip

RUN_COLUMNS = (
    SNAPSHOTS.c.run_id, SNAPSHOTS.c.asset_key, RUNS.c.engine, RUNS.c.kind.label("run_kind"),
    RUNS.c.dagster_run_id, RUNS.c.user_name,
)  # fmt: skip

OF_RUN = and_(RUNS.c.run_id == SNAPSHOTS.c.run_id, RUNS.c.asset_key == SNAPSHOTS.c.asset_key)

IN_LIST = and_(
    MANIFEST_LISTS.c.table_id == MANIFESTS.c.table_id,
    MANIFEST_LISTS.c.snapshot_id == MANIFESTS.c.snapshot_id,
    MANIFEST_LISTS.c.kind == MANIFESTS.c.kind,
)

FILE_COLUMNS = (
    FILES.c.file_name, FILES.c.partition_path, FILES.c.bucket, FILES.c.level, FILES.c.content,
    FILES.c.row_count, FILES.c.delete_row_count, FILES.c.file_size, FILES.c.min_key,
    FILES.c.max_key, FILES.c.min_sequence_number, FILES.c.max_sequence_number, FILES.c.schema_id,
    FILES.c.creation_millis, FILES.c.file_source, FILES.c.added_by, FILES.c.deleted_by,
    FILES.c.removed, FILES.c.partition,
)  # fmt: skip

FILE_ORDER = (FILES.c.partition_path, FILES.c.bucket, FILES.c.level, FILES.c.file_name)

EDGE_COLUMNS = (
    FILE_EDGES.c.snapshot_id, FILE_EDGES.c.bucket, FILE_EDGES.c.source_name,
    FILE_EDGES.c.source_level, FILE_EDGES.c.kind, FILE_EDGES.c.target_name,
    FILE_EDGES.c.target_level,
)  # fmt: skip


TABLE_ID = select(TABLES.c.table_id).where(
    *(
        TABLES.c[name] == bindparam(name)
        for name in ("catalog_key", "database_name", "table_name", "branch")
    )
)
"""The number of a table, by its `table_identity`."""


def table_identity(catalog_key: str, table: TableName) -> dict[str, str]:
    """Return the columns by which a catalog names a table, or a branch of it."""
    return {
        "catalog_key": catalog_key,
        "database_name": table.database,
        "table_name": table.table,
        "branch": table.branch,
    }


@record
class FileLife:
    """The life of one data file.

    `stages`: one row per level it lay on, oldest first, `added_by` and `deleted_by` snapshots.
    `made_from`, `became`: edges of the compactions that wrote it and that read it. `pinned_by`:
    tags whose snapshot holds it.
    """

    stages: pa.Table
    made_from: pa.Table
    became: pa.Table
    pinned_by: pa.Table


@record
class CompactionLineage:
    """The lineage of a compaction: `buckets` with counts, `edges` from file to file."""

    buckets: pa.Table
    edges: pa.Table


def held_by(snapshot_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a file is part of the state of a snapshot."""
    return and_(
        or_(FILES.c.added_by.is_(None), FILES.c.added_by <= snapshot_id),
        or_(FILES.c.deleted_by.is_(None), FILES.c.deleted_by > snapshot_id),
    )


# -- Lineage walk ----------------------------------------------------------------------------------
#
# Walks over inputs from snapshot to snapshot, upstream to the sources or downstream to the
# results.
#
# A snapshot is one commit; its state is the result of all commits up to it. A walk follows
# either single commits (the inputs of that commit), or, with `history`, all commits of a state.
# Commits are followed as ranges (after, upto], so that a long history is one query.

DEPTH_MAX = 64

Range = tuple[int, int]
"""Snapshot ids (after, upto]."""

WALK_SCHEMA = pa.schema(
    [
        ("depth", pa.int64()),  # 1: one step from where the walk began
        ("table_name", pa.string()),  # what was made,
        ("snapshot_id", pa.int64()),  # by this commit,
        ("dataset", pa.string()),  # from this dataset,
        ("input_snapshot_id", pa.int64()),  # read at this state,
        ("after_snapshot_id", pa.int64()),  # or only the changes after this one
        ("input_version", pa.string()),
        ("role", pa.string()),
        ("run_id", pa.string()),
        ("time_millis", pa.int64()),
    ]
)


class Covered:
    """Visited ranges per dataset: no range is visited twice, and cycles end."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[Range]] = defaultdict(list)

    def add(self, dataset: str, new: Range) -> list[Range]:
        """Return the parts of `new` that are not covered yet, and cover them."""
        parts = [new] if new[0] < new[1] else []
        for after, upto in self._ranges[dataset]:
            parts = [
                part
                for start, end in parts
                for part in ((start, min(end, after)), (max(start, upto), end))
                if part[0] < part[1]
            ]
        self._ranges[dataset] = _joined([*self._ranges[dataset], *parts])
        return parts


def _joined(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for after, upto in sorted(ranges):
        if joined and after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(upto, joined[-1][1]))
        else:
            joined.append((after, upto))
    return joined


class Walk:
    """One walk over the inputs of a catalog, inside a transaction."""

    def __init__(self, connection: Connection, catalog_key: str, *, history: bool) -> None:
        self._connection = connection
        self._history = history
        self._covered = Covered()
        self._names = _table_names(connection, catalog_key)
        self._numbers = {name: number for number, name in self._names.items()}

    def upstream(self, start: TableName, snapshot_id: int, depth_max: int) -> pa.Table:
        """Return the inputs of the snapshot, nearest first."""
        frontier = {start.text: self._covered.add(start.text, self._contents(snapshot_id, None))}
        return self._collect(frontier, depth_max, self._inputs_of, self._above)

    def upstream_of_all(
        self, start: TableName, snapshot_ids: Sequence[int], depth_max: int = DEPTH_MAX
    ) -> pa.Table:
        """Return the inputs of several commits of a table, nearest first."""
        ranges = [part for number in snapshot_ids for part in self._commit(start, number)]
        frontier = {start.text: ranges} if ranges else {}
        return self._collect(frontier, depth_max, self._inputs_of, self._above)

    def _commit(self, start: TableName, snapshot_id: int) -> list[Range]:
        return self._covered.add(start.text, (snapshot_id - 1, snapshot_id))

    def downstream(self, start: TableName, snapshot_id: int, depth_max: int) -> pa.Table:
        """Return the commits that were computed from the snapshot, nearest first."""
        only = (snapshot_id - 1, snapshot_id)
        frontier = {start.text: self._covered.add(start.text, only)}
        return self._collect(frontier, depth_max, self._readers_of, self._below)

    def _collect(self, frontier: Any, depth_max: int, ask: Any, follow: Any) -> pa.Table:
        edges: dict[tuple[Any, ...], dict[str, Any]] = {}
        for depth in range(1, depth_max + 1):
            following: dict[str, list[Range]] = defaultdict(list)
            for dataset, ranges in sorted(frontier.items()):
                for row in ask(dataset, _joined(ranges)):
                    key = (row["table_id"], row["snapshot_id"], row["position"])
                    name = self._names.get(row["table_id"])
                    # An edge that was followed already ends a cycle.
                    if key in edges or name is None:
                        continue
                    edges[key] = {**row, "depth": depth, "table_name": name}
                    for next_dataset, part in follow(name, row):
                        following[next_dataset].append(part)
            # Nothing new was reached, so deeper levels are empty.
            if not following:
                break
            frontier = following
        return pa.Table.from_pylist(list(edges.values()), schema=WALK_SCHEMA)

    def _contents(self, snapshot_id: int, after: int | None) -> Range:
        """Return the range of commits that a read of `snapshot_id` covers."""
        if after is not None:
            return (after, snapshot_id)
        return (0 if self._history else snapshot_id - 1, snapshot_id)

    def _inputs_of(self, dataset: str, ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
        number = self._numbers.get(dataset)
        # The data set is no table of this catalog.
        if number is None:
            return []
        output_id = INPUTS.c.snapshot_id
        return [
            row
            for after, upto in ranges
            for row in self._rows(
                _edges().where(INPUTS.c.table_id == number, output_id > after, output_id <= upto)
            )
        ]

    def _above(self, _name: str, row: Mapping[str, Any]) -> list[tuple[str, Range]]:
        # The commit recorded no snapshot that it read.
        if row["input_snapshot_id"] is None:
            return []
        read = self._contents(row["input_snapshot_id"], row["after_snapshot_id"])
        parts = self._covered.add(row["dataset"], read)
        return [(row["dataset"], part) for part in parts]

    def _readers_of(self, dataset: str, ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
        read = INPUTS.c.input_snapshot_id
        lowest = 0 if self._history else read - 1
        from_after = func.coalesce(INPUTS.c.after_snapshot_id, lowest)
        return [
            row
            for after, upto in ranges
            for row in self._rows(
                _edges().where(INPUTS.c.dataset == dataset, read > after, from_after < upto)
            )
        ]

    def _below(self, name: str, row: Mapping[str, Any]) -> list[tuple[str, Range]]:
        commit = (row["snapshot_id"] - 1, row["snapshot_id"])
        return [(name, part) for part in self._covered.add(name, commit)]

    def _rows(self, statement: Select[Any]) -> list[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(statement).mappings()]


def _edges() -> Select[Any]:
    same = (SNAPSHOTS.c.table_id == INPUTS.c.table_id) & (
        SNAPSHOTS.c.snapshot_id == INPUTS.c.snapshot_id
    )
    return (
        select(INPUTS, SNAPSHOTS.c.run_id, SNAPSHOTS.c.time_millis)
        .join(SNAPSHOTS, same)
        .order_by(INPUTS.c.table_id, INPUTS.c.snapshot_id.desc(), INPUTS.c.position)
    )


def _table_names(connection: Connection, catalog_key: str) -> dict[int, str]:
    statement = select(TABLES).where(TABLES.c.catalog_key == catalog_key)
    return {
        row["table_id"]: TableName(
            database=row["database_name"], table=row["table_name"], branch=row["branch"]
        ).text
        for row in connection.execute(statement).mappings()
    }


# -- Questions to the lineage ----------------------------------------------------------------------

T = TypeVar("T")

_NO_TABLE = -1


def no_sync(table: TableName | None) -> None:
    """Answer from what is recorded."""


def no_such_file(table: TableName, file_name: str) -> NotFoundError:
    """Return the error for a data file that was never recorded."""
    return NotFoundError(
        "no such data file in the lineage; look at the table's files, or rebuild it",
        kind=ErrorKind.NO_SUCH_FILE,
        table=table.text,
        file=file_name,
    )


class LineageQueries:
    """Answers from one catalog key of a database."""

    def __init__(
        self,
        database: Database,
        *,
        catalog_key: str,
        before_reading: Callable[[TableName | None], None],
    ) -> None:
        self._database = database
        self._catalog_key = catalog_key
        self._before_reading = before_reading

    def synced(self, table: TableName | None = None) -> Self:
        """Record what the files of a table (None: of all) hold that is new; return the lineage as it is then.

        Questions to what is returned look at no file: for pages and reports that ask many.
        """
        self._before_reading(table)
        return self.as_recorded()

    def as_recorded(self) -> Self:
        """Return the lineage as it is recorded: questions to it look at no file."""
        return type(self)(self._database, catalog_key=self._catalog_key, before_reading=no_sync)

    # ---- snapshots and runs ---------------------------------------------------------------------

    def snapshots(
        self, table: TableName, *, limit: int | None = None, upto: int | None = None
    ) -> pa.Table:
        """Return snapshots, newest first, expired ones included, each with its run; from `upto` backwards."""
        statement = self._history().where(SNAPSHOTS.c.table_id == self._number(table))
        if upto is not None:
            statement = statement.where(SNAPSHOTS.c.snapshot_id <= upto)
        return self._ask(statement.order_by(SNAPSHOTS.c.snapshot_id.desc()).limit(limit))

    def recent_activity(self, *, limit: int = 50, table: TableName | None = None) -> pa.Table:
        """Return the newest commits of all tables, or of one, newest first."""
        statement = self._history().where(TABLES.c.catalog_key == self._catalog_key)
        if table is not None:
            statement = statement.where(SNAPSHOTS.c.table_id == self._number(table))
        else:
            self._before_reading(None)
        newest = (SNAPSHOTS.c.time_millis.desc(), SNAPSHOTS.c.snapshot_id.desc())
        return self._ask(statement.order_by(*newest, SNAPSHOTS.c.table_id).limit(limit))

    def snapshots_of_run(self, run_id: str) -> pa.Table:
        """Return the snapshots of a run, by its own id or by its Dagster run id, oldest first."""
        self._before_reading(None)
        mine = or_(RUNS.c.run_id == run_id, RUNS.c.dagster_run_id == run_id)
        statement = self._history().where(TABLES.c.catalog_key == self._catalog_key, mine)
        return self._ask(statement.order_by(SNAPSHOTS.c.time_millis, SNAPSHOTS.c.snapshot_id))

    def runs_of_snapshot(
        self, table: TableName, snapshot_id: int, *, history: bool = False
    ) -> pa.Table:
        """Return the run of a snapshot; with `history`, the runs of all commits up to it.

        A run without a recorded start began with its first snapshot; all end with their last.
        """
        ids = SNAPSHOTS.c.snapshot_id
        versions = ids <= snapshot_id if history else ids == snapshot_id
        of_table = SNAPSHOTS.c.table_id == self._number(table)
        busy = select(SNAPSHOTS.c.run_id).where(OF_RUN, of_table, versions).correlate(RUNS)
        first, last = (
            select(bound(SNAPSHOTS.c.time_millis)).where(OF_RUN).correlate(RUNS).scalar_subquery()
            for bound in (func.min, func.max)
        )
        started = func.coalesce(RUNS.c.started_millis, first).label("started_millis")
        statement = (
            select(
                RUNS.c.run_id, RUNS.c.asset_key, RUNS.c.engine, RUNS.c.kind, RUNS.c.dagster_run_id,
                RUNS.c.user_name, started, last.label("ended_millis"),
            )
            .where(busy.exists())
            .order_by(started, RUNS.c.run_id, RUNS.c.asset_key)
        )  # fmt: skip
        return self._ask_of_snapshot(table, snapshot_id, statement)

    def manifests_of_snapshot(self, table: TableName, snapshot_id: int) -> pa.Table:
        """Return the manifests of a snapshot in list order: base, changelog, delta."""
        lists, rows = MANIFEST_LISTS.c, MANIFESTS.c
        statement = (
            select(
                rows.kind, lists.file_name.label("manifest_list"), rows.position, rows.file_name,
                rows.file_size, rows.added_file_count, rows.deleted_file_count, rows.schema_id,
                rows.min_bucket, rows.max_bucket, rows.min_level, rows.max_level,
            )
            .join(MANIFEST_LISTS, IN_LIST)
            .where(rows.table_id == self._number(table), rows.snapshot_id == snapshot_id)
            .order_by(rows.kind, rows.position)
        )  # fmt: skip
        return self._ask_of_snapshot(table, snapshot_id, statement)

    # ---- inputs ---------------------------------------------------------------------------------

    def inputs_of_snapshot(self, table: TableName, snapshot_id: int) -> pa.Table:
        """Return the datasets that the commit of a snapshot records as read."""
        columns = INPUTS.c
        statement = (
            select(
                columns.dataset, columns.input_snapshot_id, columns.after_snapshot_id,
                columns.input_version, columns.role,
            )
            .where(columns.table_id == self._number(table), columns.snapshot_id == snapshot_id)
            .order_by(columns.position)
        )  # fmt: skip
        return self._ask_of_snapshot(table, snapshot_id, statement)

    def upstream_of(
        self,
        table: TableName,
        snapshot_id: int,
        *,
        history: bool = False,
        depth_max: int = DEPTH_MAX,
    ) -> pa.Table:
        """Return the inputs of a snapshot, through all tables of the catalog, nearest first.

        Without `history` the inputs of that very commit are followed, and of each commit whose
        state or changes it read. With it, everything that is in the snapshot: the inputs of every
        commit up to it. Columns: `WALK_SCHEMA`.
        """
        return self._walk(
            lambda walk: walk.upstream(table, snapshot_id, depth_max), history=history
        )

    def downstream_of(
        self,
        table: TableName,
        snapshot_id: int,
        *,
        history: bool = False,
        depth_max: int = DEPTH_MAX,
    ) -> pa.Table:
        """Return the commits that were computed from a snapshot, nearest first.

        Without `history`: commits that read that very state, or changes that include it. With it:
        all that read any state which holds this commit's rows.
        """
        return self._walk(
            lambda walk: walk.downstream(table, snapshot_id, depth_max), history=history
        )

    # ---- files ----------------------------------------------------------------------------------

    def files_of_snapshot(self, table: TableName, snapshot_id: int) -> pa.Table:
        """Return the files that a commit added and deleted; column `change` holds which."""
        added, deleted = FILES.c.added_by == snapshot_id, FILES.c.deleted_by == snapshot_id
        number = self._number(table)
        sides = [
            select(literal(word).label("change"), *FILE_COLUMNS)
            .where(FILES.c.table_id == number, side)
            .order_by(*FILE_ORDER)
            for word, side in (("added", added), ("deleted", deleted))
        ]
        self._require_snapshot(table, snapshot_id)
        return pa.concat_tables(self._ask_all(*sides))

    def live_files_at(
        self,
        table: TableName,
        snapshot_id: int,
        *,
        partition_path: str | None = None,
        bucket: int | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return the data files that make up a snapshot, by partition, bucket and level."""
        conditions: list[ColumnElement[bool]] = [
            FILES.c.table_id == self._number(table),
            or_(FILES.c.added_by.is_(None), FILES.c.added_by <= snapshot_id),
        ]
        if partition_path is not None:
            conditions.append(FILES.c.partition_path == partition_path)
        if bucket is not None:
            conditions.append(FILES.c.bucket == bucket)
        # Two queries, each with an index of its own; an OR of both would use none.
        deleted_since = and_(FILES.c.deleted_by > snapshot_id, FILES.c.content == DATA)
        columns = select(*FILE_COLUMNS).where(*conditions).order_by(*FILE_ORDER).limit(limit)
        self._require_snapshot(table, snapshot_id)
        live, deleted = self._ask_all(columns.where(STILL_LIVE), columns.where(deleted_since))
        if not deleted.num_rows:
            return live
        order = [(column.name, "ascending") for column in FILE_ORDER]
        return pa.concat_tables([live, deleted]).sort_by(order)[:limit]

    def life_of_file(self, table: TableName, file_name: str) -> FileLife:
        """Return the life of a data file: its levels, its sources, its successors, and tags that retain it."""
        number = self._number(table)
        mine = and_(FILES.c.table_id == number, FILES.c.file_name == file_name)
        stages = self._ask(select(*FILE_COLUMNS).where(mine).order_by(FILES.c.level))
        if not stages.num_rows:
            raise no_such_file(table, file_name)
        # Sorted by Arrow: for the order SQLite would scan all edges of the table.
        sources, became = (
            self._ask(
                select(*EDGE_COLUMNS).where(FILE_EDGES.c.table_id == number, side == file_name)
            ).sort_by([(name, "ascending") for name in ("snapshot_id", *order)])
            for side, order in (
                (FILE_EDGES.c.target_name, ("source_name", "source_level")),
                (FILE_EDGES.c.source_name, ("target_name", "target_level")),
            )
        )
        pinned = (
            select(TAGS.c.tag_name, TAGS.c.snapshot_id, FILES.c.level)
            .join(FILES, FILES.c.table_id == TAGS.c.table_id)
            .where(mine, TAGS.c.deleted.is_(False), held_by(TAGS.c.snapshot_id))
            .order_by(TAGS.c.tag_name)
        )
        return FileLife(
            stages=stages,
            made_from=sources,
            became=became,
            pinned_by=self._ask(pinned),
        )

    def compaction(self, table: TableName, snapshot_id: int) -> CompactionLineage:
        """Return the inputs and outputs of a COMPACT snapshot's compaction."""
        number, rows = self._number(table), COMPACTIONS.c
        buckets = (
            select(
                rows.partition_path, rows.bucket, rows.output_level, rows.files_read,
                rows.files_written, rows.files_upgraded, rows.rows_read, rows.rows_written,
                rows.bytes_read, rows.bytes_written,
            )
            .where(rows.table_id == number, rows.snapshot_id == snapshot_id)
            .order_by(rows.partition_path, rows.bucket)
        )  # fmt: skip
        edges = (
            select(*EDGE_COLUMNS)
            .where(FILE_EDGES.c.table_id == number, FILE_EDGES.c.snapshot_id == snapshot_id)
            .order_by(FILE_EDGES.c.bucket, FILE_EDGES.c.source_name, FILE_EDGES.c.target_name)
        )
        return CompactionLineage(
            buckets=self._ask_of_snapshot(table, snapshot_id, buckets), edges=self._ask(edges)
        )

    # ---- tags -----------------------------------------------------------------------------------

    def tags(self, table: TableName, *, with_deleted: bool = False) -> pa.Table:
        """Return the tags of a table and the snapshots that they pin, by snapshot."""
        same = and_(
            SNAPSHOTS.c.table_id == TAGS.c.table_id, SNAPSHOTS.c.snapshot_id == TAGS.c.snapshot_id
        )
        statement = (
            select(
                TAGS.c.tag_name, TAGS.c.snapshot_id, TAGS.c.created, TAGS.c.retained_millis,
                TAGS.c.deleted, SNAPSHOTS.c.time_millis, SNAPSHOTS.c.state,
                SNAPSHOTS.c.total_record_count, SNAPSHOTS.c.run_id,
            )
            .outerjoin(SNAPSHOTS, same)
            .where(TAGS.c.table_id == self._number(table))
            .order_by(TAGS.c.snapshot_id, TAGS.c.tag_name)
        )  # fmt: skip
        return self._ask(statement if with_deleted else statement.where(TAGS.c.deleted.is_(False)))

    # ---- how ------------------------------------------------------------------------------------

    def removals(self, table: TableName, *, limit: int | None = None) -> pa.Table:
        """Return the removals of maintenance from a table and their reasons, newest first.

        Columns: `removal_id`, `kind`, `reason`, `at_millis`, `snapshot_ids` ("3,4"), `tags` (a name
        to a line), `file_count`, `freed_bytes`. A rebuild of the catalog does not bring it back.
        """
        columns = [column for column in REMOVALS.c if column.name != "table_id"]
        removals = select(*columns).where(REMOVALS.c.table_id == self._number(table))
        newest = removals.order_by(REMOVALS.c.at_millis.desc(), REMOVALS.c.removal_id)
        return self._ask(newest.limit(limit))

    def _history(self) -> Select[Any]:
        branch = case((TABLES.c.branch == MAIN_BRANCH, null()), else_=TABLES.c.branch).label(
            "branch"
        )
        name = (TABLES.c.database_name + "." + TABLES.c.table_name).label("table_name")
        return (
            select(name, branch, *SNAPSHOT_COLUMNS, *RUN_COLUMNS)
            .select_from(SNAPSHOTS)
            .join(TABLES, TABLES.c.table_id == SNAPSHOTS.c.table_id)
            .outerjoin(RUNS, OF_RUN)
        )

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._database.read(work)

    def _ask(self, statement: Select[Any]) -> pa.Table:
        return self._read(lambda connection: arrow_rows(connection, statement))

    def _ask_all(self, *statements: Select[Any]) -> list[pa.Table]:
        """Return the rows of each statement, all from one state of the database."""
        return self._read(
            lambda connection: [arrow_rows(connection, statement) for statement in statements]
        )

    def _ask_of_snapshot(
        self, table: TableName, snapshot_id: int, statement: Select[Any]
    ) -> pa.Table:
        self._require_snapshot(table, snapshot_id)
        return self._ask(statement)

    def _require_snapshot(self, table: TableName, snapshot_id: int) -> None:
        snapshots = select(SNAPSHOTS.c.snapshot_id).where(
            SNAPSHOTS.c.table_id == self._number(table), SNAPSHOTS.c.snapshot_id == snapshot_id
        )
        if not self._ask(snapshots).num_rows:
            raise NotFoundError(
                "no such snapshot in the lineage; look at the table's snapshots, or rebuild it",
                kind=ErrorKind.NO_SUCH_SNAPSHOT,
                table=table.text,
                snapshot_id=snapshot_id,
            )

    def _number(self, table: TableName) -> int:
        """Bring the lineage of a table up to its files and return its number; that of no table if nothing is recorded."""
        self._before_reading(table)
        identity = table_identity(self._catalog_key, table)

        def work(connection: Connection) -> int:
            number = connection.scalar(TABLE_ID, identity)
            return _NO_TABLE if number is None else int(number)

        return self._read(work)

    def _walk(self, go: Callable[[Walk], pa.Table], *, history: bool) -> pa.Table:
        self._before_reading(None)
        return self._read(
            lambda connection: go(Walk(connection, self._catalog_key, history=history))
        )


# -- Origins and dependents in the lineage ---------------------------------------------------------
#
# Commits of files and rows, input columns, impact of expiry.

_COLUMNS_DEEP = 32
_RANGES_LOOKED_AT = 16


@record
class Origin:
    """The origin of a file, tag or row.

    `commits`: the commits whose rows are in it, each with its run, oldest first. `inputs`: what
    those commits read, through all tables of the catalog, nearest first (`WALK_SCHEMA`).
    `files`: of a file, every file that went into it, itself included; else no rows.
    """

    commits: pa.Table
    inputs: pa.Table
    files: pa.Table


@record
class ExpiryImpact:
    """The consequences of a snapshot's expiry.

    `readers`: commits that read this state, or changes that include it, and could not be repeated
    from it. `tags`: names that keep its state readable. `files`: data files that only it holds and
    that would go. `is_live`: whether it is still there.
    """

    is_live: bool
    readers: pa.Table
    tags: pa.Table
    files: pa.Table

    @property
    def verdict(self) -> str:
        """The impact as a sentence."""
        if not self.is_live and not self.tags.num_rows:
            return "it has expired already"
        if self.tags.num_rows:
            names = ", ".join(map(repr, self.tags.column("tag_name").to_pylist()))
            return f"its state remains readable through tag {names}; no file goes"
        count = self.readers.num_rows
        files = self.files.num_rows
        lost = f"{counted(files, 'file')} {'goes' if files == 1 else 'go'} with it"
        if not count:
            return f"nothing known was built from it; {lost}"
        return f"{counted(count, 'commit')} that read it could not be repeated; {lost}"


class LineageOrigins(LineageQueries):
    """Queries of the lineage that follow files and columns."""

    def origin_of_file(self, table: TableName, file_name: str) -> Origin:
        """Return the origin of a data file: the commits that wrote its rows, through all compactions.

        Raises NotFoundError for a file that was never recorded.
        """
        number = self._number(table)
        ancestors = select(literal(file_name).label("file_name")).cte("made", recursive=True)
        ancestors = ancestors.union(
            select(FILE_EDGES.c.source_name).where(
                FILE_EDGES.c.table_id == number,
                FILE_EDGES.c.kind == REWRITE,
                FILE_EDGES.c.target_name == ancestors.c.file_name,
            )
        )
        rewritten = (
            select(FILE_EDGES.c.target_name)
            .where(
                FILE_EDGES.c.table_id == number,
                FILE_EDGES.c.kind == REWRITE,
                FILE_EDGES.c.target_name == FILES.c.file_name,
            )
            .exists()
        )
        statement = (
            select(
                FILES.c.file_name, FILES.c.partition_path, FILES.c.bucket,
                func.min(FILES.c.level).label("level"), FILES.c.row_count, FILES.c.file_size,
                func.min(FILES.c.added_by).label("added_by"), (~rewritten).label("written"),
            )
            .join(ancestors, ancestors.c.file_name == FILES.c.file_name)
            .where(FILES.c.table_id == number, FILES.c.content == DATA)
            .group_by(
                FILES.c.file_name, FILES.c.partition_path, FILES.c.bucket, FILES.c.row_count,
                FILES.c.file_size,
            )
            .order_by(func.min(FILES.c.added_by), FILES.c.file_name)
        )  # fmt: skip
        files = self._ask(statement)
        if file_name not in files.column("file_name").to_pylist():
            raise no_such_file(table, file_name)
        commits = {
            row["added_by"]
            for row in files.select(["added_by", "written"]).to_pylist()
            if row["written"] and row["added_by"] is not None
        }
        return self._origin(table, commits, files)

    def origin_of_tag(self, table: TableName, tag_name: str) -> Origin:
        """Return the origin of a tag's snapshot, for deleted tags and expired snapshots too."""
        number = self._number(table)
        tags = self._ask(
            select(TAGS.c.snapshot_id).where(TAGS.c.table_id == number, TAGS.c.tag_name == tag_name)
        )
        if not tags.num_rows:
            raise NotFoundError(
                "no such tag in the lineage; look at the table's tags, or rebuild it",
                kind=ErrorKind.NO_SUCH_TAG,
                table=table.text,
                tag=tag_name,
            )
        return self.origin_of_snapshot(table, tags.column(0)[0].as_py())

    def origin_of_snapshot(self, table: TableName, snapshot_id: int) -> Origin:
        """Return every commit whose rows may be in a snapshot, and their inputs."""
        self._require_snapshot(table, snapshot_id)
        upto = SNAPSHOTS.c.snapshot_id <= snapshot_id
        return Origin(
            commits=self._commits(table, upto),
            inputs=self.upstream_of(table, snapshot_id, history=True),
            files=_no_files(),
        )

    def origin_of_commits(self, table: TableName, snapshot_ids: Iterable[int]) -> Origin:
        """Return commits with their runs and inputs."""
        return self._origin(table, set(snapshot_ids), _no_files())

    def writers_of(
        self, table: TableName, partition_path: str, bucket: int, sequence_numbers: Sequence[int]
    ) -> list[int | None]:
        """Return the commit that wrote each row, by its sequence number; None if unknown or ambiguous.

        `partition_path`: as the partition's directory is called, "" without partitions. Unlike the table's own snapshots, the lineage still knows commits that have expired.
        """
        table_id = self._number(table)
        return [
            self._writer_of(table_id, partition_path, bucket, number) for number in sequence_numbers
        ]

    def _writer_of(
        self, table_id: int, partition_path: str, bucket: int, sequence_number: int
    ) -> int | None:
        # Ranges of one bucket hardly overlap, so the last ones that begin before the number suffice.
        candidates = (
            select(FILES.c.added_by, FILES.c.max_sequence_number)
            .where(
                FILES.c.table_id == table_id,
                FILES.c.partition_path == partition_path,
                FILES.c.bucket == bucket,
                FILES.c.level == 0,
                FILES.c.min_sequence_number <= sequence_number,
                FILES.c.content == DATA,
            )
            .order_by(FILES.c.min_sequence_number.desc())
            .limit(_RANGES_LOOKED_AT)
        )
        writers = {
            row["added_by"]
            for row in self._ask(candidates).to_pylist()
            if row["max_sequence_number"] >= sequence_number and row["added_by"] is not None
        }
        return writers.pop() if len(writers) == 1 else None

    def impact_of_expiry(self, table: TableName, snapshot_id: int) -> ExpiryImpact:
        """Return the consequences of a snapshot's expiry; nothing changes."""
        self._require_snapshot(table, snapshot_id)
        number = self._number(table)
        state = self._ask(
            select(SNAPSHOTS.c.state).where(
                SNAPSHOTS.c.table_id == number, SNAPSHOTS.c.snapshot_id == snapshot_id
            )
        )
        tags = self._ask(
            select(TAGS.c.tag_name, TAGS.c.snapshot_id, TAGS.c.created).where(
                TAGS.c.table_id == number,
                TAGS.c.snapshot_id == snapshot_id,
                TAGS.c.deleted.is_(False),
            )
        )
        return ExpiryImpact(
            is_live=state.column(0)[0].as_py() == LIVE,
            readers=self.downstream_of(table, snapshot_id, depth_max=1),
            tags=tags,
            files=self._files_of_only(number, snapshot_id),
        )

    def _files_of_only(self, number: int, snapshot_id: int) -> pa.Table:
        """Return the files of one snapshot that no other live snapshot and no tag holds."""
        ids = SNAPSHOTS.c.snapshot_id
        live = [SNAPSHOTS.c.table_id == number, SNAPSHOTS.c.state == LIVE]
        around = self._ask(
            select(
                select(func.max(ids)).where(*live, ids < snapshot_id).scalar_subquery().label("a"),
                select(func.min(ids)).where(*live, ids > snapshot_id).scalar_subquery().label("z"),
            )
        ).to_pylist()[0]
        if around["z"] is None:
            return self._ask(select(*FILE_COLUMNS).where(false()))
        tagged = (
            select(TAGS.c.tag_name)
            .where(
                TAGS.c.table_id == number, TAGS.c.deleted.is_(False), held_by(TAGS.c.snapshot_id)
            )
            .correlate(FILES)
            .exists()
        )
        # Files that no live neighbour holds: added after the previous one, deleted by the next one.
        came = FILES.c.added_by <= snapshot_id
        if around["a"] is None:
            came = or_(FILES.c.added_by.is_(None), came)
        else:
            came = and_(came, FILES.c.added_by > around["a"])
        return self._ask(
            select(*FILE_COLUMNS)
            .where(
                FILES.c.table_id == number,
                FILES.c.deleted_by > snapshot_id,
                FILES.c.deleted_by <= around["z"],
                FILES.c.content == DATA,
                came,
                ~tagged,
            )
            .order_by(*FILE_ORDER)
        )

    def columns(self, table: TableName, column: str, *, downstream: bool = False) -> pa.Table:
        """Return the columns that a column was computed from, or with `downstream` what became of it.

        Through all tables of the catalog, as commits declared it, nearest first: `depth`,
        `table_name`, `column_name`, `dataset`, `input_column`, and the first and last such commit.
        """
        self._before_reading(None)
        edges: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        frontier = {(table.text, column)}
        for depth in range(1, _COLUMNS_DEEP + 1):
            following: set[tuple[str, str]] = set()
            for name, column_name in sorted(frontier):
                for row in self._column_rows(name, column_name, downstream=downstream):
                    edge = (
                        row["table_name"], row["column_name"], row["dataset"], row["input_column"]
                    )  # fmt: skip
                    if edge not in edges:
                        edges[edge] = {"depth": depth, **row}
                        following.add(edge[:2] if downstream else edge[2:])
            frontier = following
            if not frontier:
                break
        return pa.Table.from_pylist(list(edges.values()), schema=_COLUMN_EDGES)

    def _column_rows(self, name: str, column: str, *, downstream: bool) -> list[dict[str, Any]]:
        rows = COLUMN_INPUTS.c
        shown = (TABLES.c.database_name + "." + TABLES.c.table_name).label("table_name")
        if downstream:
            mine: ColumnElement[bool] = and_(rows.dataset == name, rows.input_column == column)
        else:
            database, _, table = name.partition(".")
            mine = and_(
                TABLES.c.database_name == database,
                TABLES.c.table_name == table,
                rows.column_name == column,
            )
        statement = (
            select(
                shown, rows.column_name, rows.dataset, rows.input_column,
                func.min(rows.snapshot_id).label("first_snapshot_id"),
                func.max(rows.snapshot_id).label("last_snapshot_id"),
            )
            .join(TABLES, TABLES.c.table_id == rows.table_id)
            .where(TABLES.c.catalog_key == self._catalog_key, mine)
            .group_by(shown, rows.column_name, rows.dataset, rows.input_column)
            .order_by(shown, rows.column_name, rows.dataset, rows.input_column)
        )  # fmt: skip
        edges: list[dict[str, Any]] = self._ask(statement).to_pylist()
        return edges

    def _origin(self, table: TableName, commits: set[int], files: pa.Table) -> Origin:
        ids = sorted(commits)
        return Origin(
            commits=self._commits(table, SNAPSHOTS.c.snapshot_id.in_(ids)),
            inputs=self._walk(lambda walk: walk.upstream_of_all(table, ids), history=False),
            files=files,
        )

    def _commits(self, table: TableName, condition: ColumnElement[bool]) -> pa.Table:
        statement = (
            select(
                SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.commit_kind, SNAPSHOTS.c.time_millis,
                SNAPSHOTS.c.state, SNAPSHOTS.c.delta_record_count, *RUN_COLUMNS,
            )
            .outerjoin(RUNS, OF_RUN)
            .where(SNAPSHOTS.c.table_id == self._number(table), condition)
            .order_by(SNAPSHOTS.c.snapshot_id)
        )  # fmt: skip
        return self._ask(statement)


_COLUMN_EDGES = columns_of_text(
    "depth BIGINT, table_name STRING, column_name STRING, dataset STRING, input_column STRING, "
    "first_snapshot_id BIGINT, last_snapshot_id BIGINT"
)
_FILES_OF_ORIGIN = columns_of_text(
    "file_name STRING, partition_path STRING, bucket BIGINT, level BIGINT, row_count BIGINT, "
    "file_size BIGINT, added_by BIGINT, written BOOLEAN"
)


def _no_files() -> pa.Table:
    return _FILES_OF_ORIGIN.empty_table()
