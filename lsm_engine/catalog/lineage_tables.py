"""All that is recorded of a table, newest first, for exports and pictures."""

from collections.abc import Mapping

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, and_, case, null, or_, select

from lsm_engine.base.modes import CommitKind
from lsm_engine.catalog.catalog_statements import live_deltas
from lsm_engine.catalog.lineage_answers import EDGE_COLUMNS, FILE_COLUMNS, OF_RUN
from lsm_engine.catalog.lineage_origins import LineageOrigins
from lsm_engine.catalog.models import (
    COLUMN_INPUTS,
    DATA,
    FILE_EDGES,
    FILES,
    INPUTS,
    MANIFEST_LISTS,
    MANIFESTS,
    RUNS,
    SNAPSHOTS,
    TABLES,
)
from lsm_engine.catalog.names import MAIN_BRANCH, TableName


class LineageTables(LineageOrigins):
    """Whole tables of the lineage. `since`: only what snapshots from this id on did."""

    def tables(self) -> list[TableName]:
        """Return the tables, and their branches, that anything was recorded of."""
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
        return [
            TableName(database=row["database_name"], table=row["table_name"], branch=row["branch"])
            for row in self._ask(statement).to_pylist()
        ]

    def live_recorded(self, since: Mapping[str, int]) -> dict[str, dict[int, str]]:
        """Return the snapshots recorded as live, by id, each with its delta manifest list.

        `since`: tables, by "database.table", and the id to begin at. One query a table, bounded by the
        ids from there on.
        """
        named = select(TABLES.c.database_name, TABLES.c.table_name, TABLES.c.table_id).where(
            TABLES.c.catalog_key == self._catalog_key, TABLES.c.branch == MAIN_BRANCH
        )

        def work(connection: Connection) -> dict[str, dict[int, str]]:
            numbers = {f"{one}.{two}": number for one, two, number in connection.execute(named)}
            return {
                name: live_deltas(connection, numbers[name], first)
                for name, first in since.items()
                if name in numbers
            }

        return self._read(work)

    def inputs_of_table(self, table: TableName, *, since: int = 0) -> pa.Table:
        """Return the inputs that each commit of a table records."""
        rows = INPUTS.c
        return self._ask(
            select(
                rows.snapshot_id, rows.position, rows.dataset, rows.input_snapshot_id,
                rows.after_snapshot_id, rows.input_version, rows.role,
            )
            .where(rows.table_id == self._number(table), rows.snapshot_id >= since)
            .order_by(rows.snapshot_id.desc(), rows.position)
        )  # fmt: skip

    def column_inputs_of_table(self, table: TableName, *, since: int = 0) -> pa.Table:
        """Return the columns that each commit of a table records as computed from which others."""
        rows = COLUMN_INPUTS.c
        return self._ask(
            select(rows.snapshot_id, rows.column_name, rows.dataset, rows.input_column)
            .where(rows.table_id == self._number(table), rows.snapshot_id >= since)
            .order_by(rows.snapshot_id.desc(), rows.column_name, rows.dataset, rows.input_column)
        )

    def manifests_of_table(self, table: TableName, *, since: int = 0) -> pa.Table:
        """Return the manifest lists of snapshots, and the manifests in each."""
        lists, rows = MANIFEST_LISTS.c, MANIFESTS.c
        same = and_(
            lists.table_id == rows.table_id,
            lists.snapshot_id == rows.snapshot_id,
            lists.kind == rows.kind,
        )
        return self._ask(
            select(
                rows.snapshot_id, rows.kind, lists.file_name.label("manifest_list"),
                rows.file_name, rows.file_size, rows.added_file_count, rows.deleted_file_count,
            )
            .join(MANIFEST_LISTS, same)
            .where(rows.table_id == self._number(table), rows.snapshot_id >= since)
            .order_by(rows.snapshot_id.desc(), rows.kind, rows.position)
        )  # fmt: skip

    def files_of_table(self, table: TableName, *, since: int = 0, limit: int = 10_000) -> pa.Table:
        """Return the files that snapshots added or deleted, the newest first."""
        touched: ColumnElement[bool] = (FILES.c.added_by >= since) | (FILES.c.deleted_by >= since)
        return self._ask(
            select(*FILE_COLUMNS)
            .where(FILES.c.table_id == self._number(table), touched)
            .order_by(FILES.c.added_by.desc(), FILES.c.file_name)
            .limit(limit)
        )

    def commits_of_table(self, table: TableName, *, after: int, before: int) -> pa.Table:
        """Return the commits between two snapshots, oldest first, and the partitions that each changed.

        Expired ones included, as long as they were recorded. One row per commit and partition; the
        partition is null where a commit changed no data file, and for compactions, which change no rows.
        `dagster_run_id`: the Dagster run that made it, else null.
        """
        rows, files = SNAPSHOTS.c, FILES.c
        changed = and_(
            files.table_id == rows.table_id,
            files.content == DATA,
            rows.commit_kind != CommitKind.COMPACT.value,
            or_(files.added_by == rows.snapshot_id, files.deleted_by == rows.snapshot_id),
        )
        return self._ask(
            select(
                rows.snapshot_id, rows.commit_kind, rows.delta_manifest_list, rows.index_manifest,
                files.partition_path, RUNS.c.dagster_run_id,
            )
            .select_from(SNAPSHOTS)
            .join(FILES, changed, isouter=True)
            .join(RUNS, OF_RUN, isouter=True)
            .where(
                rows.table_id == self._number(table),
                rows.snapshot_id > after,
                rows.snapshot_id < before,
            )
            .distinct()
            .order_by(rows.snapshot_id, files.partition_path)
        )  # fmt: skip

    def edges_of_table(self, table: TableName, *, since: int = 0, limit: int = 20_000) -> pa.Table:
        """Return which files compactions turned into which, the newest first."""
        return self._ask(
            select(*EDGE_COLUMNS)
            .where(FILE_EDGES.c.table_id == self._number(table), FILE_EDGES.c.snapshot_id >= since)
            .order_by(FILE_EDGES.c.snapshot_id.desc(), FILE_EDGES.c.target_name)
            .limit(limit)
        )
