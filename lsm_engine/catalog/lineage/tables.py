"""Lineage in SQL: result columns, statements that record, and the whole lineage of a table, newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    case,
    func,
    not_,
    null,
    or_,
    select,
)
from sqlalchemy.dialects import sqlite

from lsm_engine.catalog.lineage.queries import (
    EDGE_COLUMNS,
    FILE_COLUMNS,
    IN_LIST,
    OF_RUN,
    LineageOrigins,
)
from lsm_engine.catalog.models import (
    COLUMN_INPUTS,
    DATA,
    FILE_EDGES,
    FILES,
    INPUTS,
    LIVE,
    MANIFEST_LISTS,
    MANIFESTS,
    RUNS,
    SNAPSHOTS,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.names import MAIN_BRANCH

# -- Statements that record and look up rows -------------------------------------------------------

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

Insert: TypeAlias = "postgresql.Insert | sqlite.Insert"

FROM_ADDITIONS = tuple(
    column.name
    for column in FILES.columns
    if not column.primary_key and column.name not in ("deleted_by", "removed")
)
"""The columns that the addition of a file fills; its deletion and removal fill the others."""

BRANCH_IDS = select(TABLES.c.branch, TABLES.c.table_id).where(
    *(TABLES.c[name] == bindparam(name) for name in ("catalog_key", "database_name", "table_name"))
)
"""The numbers of a table and its branches, by branch."""

LIVE_TAGS = select(TAGS).where(TAGS.c.table_id == bindparam("table_id"), TAGS.c.deleted.is_(False))
"""The rows of the tags of a table that are not deleted."""

RECORDED_DELTAS = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list).where(
    SNAPSHOTS.c.table_id == bindparam("table_id"),
    SNAPSHOTS.c.snapshot_id.in_(bindparam("snapshot_ids", expanding=True)),
)
"""The delta manifest lists of recorded snapshots, each of which no other snapshot has."""

_LIVE_DELTAS = select(SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list).where(
    SNAPSHOTS.c.table_id == bindparam("table_id"),
    SNAPSHOTS.c.snapshot_id >= bindparam("since"),
    SNAPSHOTS.c.state == LIVE,
)


def live_deltas(connection: Connection, table_id: int, since: int = 0) -> dict[int, str]:
    """Return the snapshots recorded as live, from an id on, each with its delta manifest list."""
    rows = connection.execute(_LIVE_DELTAS, {"table_id": table_id, "since": since})
    return {row.snapshot_id: row.delta_manifest_list for row in rows}


def _insert_into(dialect: str, model: Table) -> Insert:
    """Return an INSERT that knows ON CONFLICT, in a dialect."""
    if dialect == "postgresql":
        statement: Insert = import_module("sqlalchemy.dialects.postgresql").insert(model)
        return statement
    return sqlite.insert(model)


@cache
def added(dialect: str, model: Table) -> Insert:
    """Return an INSERT that retains existing rows."""
    return _insert_into(dialect, model).on_conflict_do_nothing()


@cache
def replacing(dialect: str, model: Table, columns: tuple[str, ...]) -> Insert:
    """Return an INSERT that replaces `columns` of existing rows."""
    new = _insert_into(dialect, model)
    keys = [column.name for column in model.primary_key]
    values = {name: new.excluded[name] for name in columns}
    return new.on_conflict_do_update(index_elements=keys, set_=values)


@cache
def run_added(dialect: str) -> Insert:
    """Return an INSERT of a run. Of differing facts the least is retained, whatever the order."""
    new = _insert_into(dialect, RUNS)
    chosen = {}
    for name in ("engine", "kind", "dagster_run_id", "user_name", "started_millis"):
        recorded, reported = RUNS.c[name], new.excluded[name]
        chosen[name] = case(
            (recorded.is_(None), reported), (reported < recorded, reported), else_=recorded
        )
    return new.on_conflict_do_update(index_elements=["run_id", "asset_key"], set_=chosen)


# -- The whole recorded lineage of a table ---------------------------------------------------------

_STRETCHES = 120
NO_END = 1 << 62
"""Above every snapshot id."""


class LineageTables(LineageOrigins):
    """The lineage of whole tables. `since`: only snapshots from this id on."""

    def tables(self, *, branches_of: TableName | None = None) -> list[TableName]:
        """Return the recorded tables and their branches.

        `branches_of`: of this table alone, main and all its branches.
        """
        statement = (
            select(TABLES.c.database_name, TABLES.c.table_name, TABLES.c.branch)
            .where(TABLES.c.catalog_key == self._catalog_key)
            .where(
                select(SNAPSHOTS.c.table_id)
                .where(SNAPSHOTS.c.table_id == TABLES.c.table_id)
                .exists()
            )
            .order_by(
                TABLES.c.database_name,
                TABLES.c.table_name,
                case((TABLES.c.branch == MAIN_BRANCH, null()), else_=TABLES.c.branch),
            )
        )
        if branches_of is not None:
            statement = statement.where(
                TABLES.c.database_name == branches_of.database,
                TABLES.c.table_name == branches_of.table,
            )
        self._before_reading(branches_of)
        return [
            TableName(database=row["database_name"], table=row["table_name"], branch=row["branch"])
            for row in self._ask(statement).to_pylist()
        ]

    def live_recorded(self, since: Mapping[TableName, int]) -> dict[TableName, dict[int, str]]:
        """Return the snapshots recorded as live, by id, each with its delta manifest list, as of the last sync.

        `since`: tables and branches, and the id to begin at; other branches of these tables are looked for
        from 0 on. One query a table or branch, bounded by the ids from there on.
        """
        recorded = TABLES.c
        tables = select(
            recorded.database_name, recorded.table_name, recorded.branch, recorded.table_id
        ).where(recorded.catalog_key == self._catalog_key)
        mains = {replace(name, branch=MAIN_BRANCH) for name in since}

        def work(connection: Connection) -> dict[TableName, dict[int, str]]:
            result = {}
            for database, table, branch, number in connection.execute(tables):
                name = TableName(database=database, table=table, branch=branch)
                is_branch = branch != MAIN_BRANCH
                if name in since or (is_branch and replace(name, branch=MAIN_BRANCH) in mains):
                    result[name] = live_deltas(connection, number, since.get(name, 0))
            return result

        return self._read(work)

    def newest_recorded(self) -> dict[TableName, Sequence[Any]]:
        """Return the newest live snapshot of each table and branch, its id and delta manifest list, as of the last sync."""
        newest = (
            select(func.max(SNAPSHOTS.c.snapshot_id))
            .where(SNAPSHOTS.c.table_id == TABLES.c.table_id, SNAPSHOTS.c.state == LIVE)
            .correlate(TABLES)
            .scalar_subquery()
        )
        statement = (
            select(
                TABLES.c.database_name, TABLES.c.table_name, TABLES.c.branch,
                SNAPSHOTS.c.snapshot_id, SNAPSHOTS.c.delta_manifest_list,
            )
            .join(SNAPSHOTS, SNAPSHOTS.c.table_id == TABLES.c.table_id)
            .where(TABLES.c.catalog_key == self._catalog_key, SNAPSHOTS.c.snapshot_id == newest)
        )  # fmt: skip
        recorded: dict[TableName, Sequence[Any]] = {}
        for row in self._ask(statement).to_pylist():
            name = TableName(
                database=row["database_name"], table=row["table_name"], branch=row["branch"]
            )
            recorded[name] = (row["snapshot_id"], row["delta_manifest_list"])
        return recorded

    def inputs_of_table(self, table: TableName, *, since: int = 0, upto: int = NO_END) -> pa.Table:
        """Return the inputs that each commit of a table records."""
        rows = INPUTS.c
        return self._ask(
            select(
                rows.snapshot_id, rows.position, rows.dataset, rows.input_snapshot_id,
                rows.after_snapshot_id, rows.input_version, rows.role,
            )
            .where(rows.table_id == self._number(table), rows.snapshot_id.between(since, upto))
            .order_by(rows.snapshot_id.desc(), rows.position)
        )  # fmt: skip

    def column_inputs_of_table(
        self, table: TableName, *, since: int = 0, upto: int = NO_END
    ) -> pa.Table:
        """Return the input columns of each column, as commits of a table record them."""
        rows = COLUMN_INPUTS.c
        return self._ask(
            select(rows.snapshot_id, rows.column_name, rows.dataset, rows.input_column)
            .where(rows.table_id == self._number(table), rows.snapshot_id.between(since, upto))
            .order_by(rows.snapshot_id.desc(), rows.column_name, rows.dataset, rows.input_column)
        )

    def manifests_of_table(
        self, table: TableName, *, since: int = 0, upto: int = NO_END
    ) -> pa.Table:
        """Return the manifest lists of snapshots, and the manifests in each."""
        lists, rows = MANIFEST_LISTS.c, MANIFESTS.c
        return self._ask(
            select(
                rows.snapshot_id, rows.kind, lists.file_name.label("manifest_list"),
                rows.file_name, rows.file_size, rows.added_file_count, rows.deleted_file_count,
            )
            .join(MANIFEST_LISTS, IN_LIST)
            .where(rows.table_id == self._number(table), rows.snapshot_id.between(since, upto))
            .order_by(rows.snapshot_id.desc(), rows.kind, rows.position)
        )  # fmt: skip

    def files_of_table(
        self, table: TableName, *, since: int = 0, upto: int = NO_END, limit: int = 10_000
    ) -> pa.Table:
        """Return the files that snapshots added or deleted, the newest first."""
        touched: ColumnElement[bool] = or_(
            FILES.c.added_by.between(since, upto), FILES.c.deleted_by.between(since, upto)
        )
        return self._ask(
            select(*FILE_COLUMNS)
            .where(FILES.c.table_id == self._number(table), touched)
            .order_by(FILES.c.added_by.desc(), FILES.c.file_name)
            .limit(limit)
        )

    def stretches_of_table(self, table: TableName) -> pa.Table:
        """Return the whole history in at most 120 stretches of ids of equal length, oldest first.

        Of each: its first and last snapshot, when they were made, and how many commits and compactions.
        """
        rows, number = SNAPSHOTS.c, self._number(table)
        ends = self._ask(
            select(func.min(rows.snapshot_id).label("low"), func.max(rows.snapshot_id).label("high"))
            .where(rows.table_id == number)
        ).to_pylist()[0]  # fmt: skip
        low, high = ends["low"] or 0, ends["high"] or 0
        length = max(1, -(-(high - low + 1) // _STRETCHES))
        offset = rows.snapshot_id - low
        stretch = (offset - offset % length) / length
        compacts = case((rows.commit_kind == CommitKind.COMPACT.value, 1), else_=0)
        shown: list[ColumnElement[Any]] = [
            func.min(rows.snapshot_id).label("first_id"),
            func.max(rows.snapshot_id).label("last_id"),
            func.min(rows.time_millis).label("first_millis"),
            func.max(rows.time_millis).label("last_millis"),
            func.count().label("commits"),
            func.sum(compacts).label("compactions"),
        ]
        oldest_first = func.min(rows.snapshot_id)
        statement = select(*shown).where(rows.table_id == number).group_by(stretch)
        return self._ask(statement.order_by(oldest_first))

    def newest_about(self, table: TableName, text: str) -> int | None:
        """Return the newest snapshot whose run, asset, tag or file contains a text; None without one."""
        number, like = self._number(table), f"%{_escaped(text)}%"
        ids = SNAPSHOTS.c.snapshot_id
        runs = [RUNS.c.run_id, RUNS.c.dagster_run_id, RUNS.c.asset_key]
        of_run = or_(*(column.like(like, escape="\\") for column in runs))
        tagged = select(TAGS.c.snapshot_id).where(
            TAGS.c.table_id == number, TAGS.c.tag_name.like(like, escape="\\")
        )
        files = select(FILES.c.added_by).where(
            FILES.c.table_id == number, FILES.c.file_name.like(like, escape="\\")
        )
        rows_of_newest = self._ask(
            select(func.max(ids).label("newest"))
            .select_from(SNAPSHOTS)
            .join(RUNS, OF_RUN, isouter=True)
            .where(SNAPSHOTS.c.table_id == number, or_(of_run, ids.in_(tagged), ids.in_(files)))
        ).to_pylist()
        newest: int | None = rows_of_newest[0]["newest"]
        return newest

    def commits_of_table(
        self,
        table: TableName,
        *,
        after: int,
        before: int,
        hides_level_0: bool = False,
        with_keys: bool = False,
    ) -> pa.Table:
        """Return the commits between two snapshots, oldest first, and their changed partitions.

        Expired commits are included if they were recorded. One row per commit and partition (as it is
        stored, and its path); null where a commit changed no data file, and for compactions, which
        change no rows. `with_keys`: one per least and greatest key of a file, `min_key` and `max_key`.
        `hides_level_0`, of the table: a commit changes what is read by what it does above level 0, a
        compaction by what it takes up from there.
        `dagster_run_id`: the Dagster run that made it, else null.
        """
        rows, files = SNAPSHOTS.c, FILES.c
        added, deleted = files.added_by == rows.snapshot_id, files.deleted_by == rows.snapshot_id
        compacts = rows.commit_kind == CommitKind.COMPACT.value
        visible = and_(not_(compacts), or_(added, deleted))
        if hides_level_0:
            written = and_(not_(compacts), or_(and_(added, files.level > 0), deleted))
            visible = or_(written, and_(compacts, deleted, files.level == 0))
        condition = and_(files.table_id == rows.table_id, files.content == DATA, visible)
        keys = (files.min_key, files.max_key) if with_keys else ()
        return self._ask(
            select(
                rows.snapshot_id, rows.commit_kind, rows.delta_manifest_list, rows.index_manifest,
                files.partition, files.partition_path, RUNS.c.dagster_run_id, *keys,
            )
            .select_from(SNAPSHOTS)
            .join(FILES, condition, isouter=True)
            .join(RUNS, OF_RUN, isouter=True)
            .where(
                rows.table_id == self._number(table),
                rows.snapshot_id > after,
                rows.snapshot_id < before,
            )
            .distinct()
            .order_by(rows.snapshot_id, files.partition_path)
        )  # fmt: skip

    def edges_of_table(
        self, table: TableName, *, since: int = 0, upto: int = NO_END, limit: int = 20_000
    ) -> pa.Table:
        """Return the edges from source files to target files of compactions, the newest first."""
        in_range = FILE_EDGES.c.snapshot_id.between(since, upto)
        return self._ask(
            select(*EDGE_COLUMNS)
            .where(FILE_EDGES.c.table_id == self._number(table), in_range)
            .order_by(FILE_EDGES.c.snapshot_id.desc(), FILE_EDGES.c.target_name)
            .limit(limit)
        )


def _escaped(text: str) -> str:
    """Return a text with the wildcards of LIKE escaped."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
