"""Questions to the lineage. Every answer is an Arrow table, or a record of them.

Times are milliseconds since 1970 UTC. A table of which nothing was recorded gives no rows; a
snapshot or file that was never recorded is a NotFoundError.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    func,
    literal,
    null,
    or_,
    select,
)

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.catalog.arrow_rows import arrow_rows
from lsm_engine.catalog.database import Database
from lsm_engine.catalog.lineage_answers import (
    EDGE_COLUMNS,
    FILE_COLUMNS,
    FILE_ORDER,
    IN_LIST,
    OF_RUN,
    RUN_COLUMNS,
    SNAPSHOT_COLUMNS,
    CompactionLineage,
    FileLife,
    held_by,
)
from lsm_engine.catalog.lineage_walk import DEPTH_MAX, Walk
from lsm_engine.catalog.models import (
    COMPACTIONS,
    DATA,
    FILE_EDGES,
    FILES,
    INPUTS,
    MANIFEST_LISTS,
    MANIFESTS,
    REMOVALS,
    RUNS,
    SNAPSHOTS,
    STILL_LIVE,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import MAIN_BRANCH, TableName

T = TypeVar("T")

_NO_TABLE = -1


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
        self, database: Database, *, catalog_key: str, before_reading: Callable[[], None]
    ) -> None:
        self._database = database
        self._catalog_key = catalog_key
        self._before_reading = before_reading

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
        newest = (SNAPSHOTS.c.time_millis.desc(), SNAPSHOTS.c.snapshot_id.desc())
        return self._ask(statement.order_by(*newest, SNAPSHOTS.c.table_id).limit(limit))

    def snapshots_of_run(self, run_id: str) -> pa.Table:
        """Return the snapshots of a run, by its own id or by its Dagster run id, oldest first."""
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
        commit up to it. Columns: `lineage_walk.WALK_SCHEMA`.
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
        self._before_reading()
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
        """Return the number of a table; that of no table if nothing was recorded for it."""
        statement = select(TABLES.c.table_id).where(
            TABLES.c.catalog_key == self._catalog_key,
            TABLES.c.database_name == table.database,
            TABLES.c.table_name == table.table,
            TABLES.c.branch == table.branch,
        )

        def work(connection: Connection) -> int:
            number = connection.scalar(statement)
            return _NO_TABLE if number is None else int(number)

        return self._read(work)

    def _walk(self, go: Callable[[Walk], pa.Table], *, history: bool) -> pa.Table:
        return self._read(
            lambda connection: go(Walk(connection, self._catalog_key, history=history))
        )
