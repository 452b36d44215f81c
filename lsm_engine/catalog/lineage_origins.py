"""Origins and dependents in the lineage: commits of files and rows, input columns, impact of expiry."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, and_, false, func, literal, or_, select

from lsm_engine.base.errors import ErrorKind, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.catalog.edges import REWRITE
from lsm_engine.catalog.lineage_answers import (
    FILE_COLUMNS,
    FILE_ORDER,
    OF_RUN,
    RUN_COLUMNS,
    held_by,
)
from lsm_engine.catalog.lineage_queries import LineageQueries, no_such_file
from lsm_engine.catalog.models import (
    COLUMN_INPUTS,
    DATA,
    FILE_EDGES,
    FILES,
    LIVE,
    RUNS,
    SNAPSHOTS,
    TABLES,
    TAGS,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.schema.type_text import columns_of_text

_COLUMNS_DEEP = 32
_RANGES_LOOKED_AT = 16


@record
class Origin:
    """The origin of a file, tag or row.

    `commits`: the commits whose rows are in it, each with its run, oldest first. `inputs`: what
    those commits read, through all tables of the catalog, nearest first (`lineage_walk.WALK_SCHEMA`).
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
        return [
            self._writer_of(self._number(table), partition_path, bucket, number)
            for number in sequence_numbers
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
