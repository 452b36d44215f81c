"""The Table: reads and writes of rows, its snapshots, and accessors for everything else."""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.api.accessors import (
    Accessor,
    Branches,
    Changes,
    Consumers,
    Inspect,
    Maintenance,
    Tags,
    commit_identity,
)
from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.instant import Moment, millis_of
from lsm_engine.base.other_libraries import TABLE, missing_attribute, unknown_argument
from lsm_engine.base.record import html_table
from lsm_engine.commit.commit import committed_before, propose
from lsm_engine.commit.replays import last_identifier
from lsm_engine.compact import compact
from lsm_engine.ddl import alter
from lsm_engine.dml import delete, overwrite, update, write
from lsm_engine.dml.merge import Action
from lsm_engine.dml.merge_builder import Merge, changed_where, deleted_keys, merge_into
from lsm_engine.dml.stream_writer import StreamWriter
from lsm_engine.filter.where import Filter, Predicate
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.inspect.system_tables import SNAPSHOTS, snapshot_rows
from lsm_engine.lookup.levels import LookupCache
from lsm_engine.lookup.locate import NewestKeys
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.maintenance import rollback
from lsm_engine.maintenance.rollback import RollbackReport, snapshot_to_return_to
from lsm_engine.options.modes import CommitKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.proposal import CommitIdentity, CommitOptions, Proposal
from lsm_engine.read.scan import Scan
from lsm_engine.read.scan_plan import ScanRequest
from lsm_engine.table import branches
from lsm_engine.table.names import names_of, only_one
from lsm_engine.table.session import PublishedSchema, TableSession
from lsm_engine.table.time_travel import version_named
from lsm_engine.types.schema_changes import SchemaChange
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import type_text

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from lsm_engine.api.auto_cdc import AutoCdcWrite
    from lsm_engine.api.row_files import FileOptions
    from lsm_engine.read.engines import ArrowDataset

A = TypeVar("A", bound=Accessor)
P = ParamSpec("P")
R = TypeVar("R")


def _of_accessor(
    accessor: Callable[["Table"], A], method: Callable[Concatenate[A, P], R]
) -> Callable[Concatenate["Table", P], R]:
    """Return a method of `Table` that calls a method of an accessor, under its older name."""

    @functools.wraps(method)
    def call(table: "Table", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(accessor(table), *args, **kwargs)

    return call


@checks_all_arguments
class Table:
    """A primary-key table on a lake. Cheap to open; threads may share it.

    Reads see one snapshot from beginning to end. Writes are visible whole or not at all, and a
    method that raises leaves the table as it was (but see CommitUnknownError).
    """

    _cached_keys: NewestKeys | None = None

    def __init__(self, session: TableSession, location: str = "") -> None:
        if not isinstance(session, TableSession):
            raise TypeError(
                "a table is opened by lsm.open_table(path), or catalog['database.table']"
            )
        self._session = session
        self._published = PublishedSchema()
        self.location = location

    if not TYPE_CHECKING:  # a checker goes on refusing names that a table lacks

        def __getattr__(self, name: str) -> Any:
            session = self.__dict__.get("_session")
            if session is not None and name in session.schema.names:
                raise AttributeError(
                    f"'Table' object has no attribute {name!r}: to_arrow({name!r}) reads the column, "
                    f"and a filter names it by lsm.col({name!r})"
                )
            raise missing_attribute("Table", name, TABLE)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "cannot pickle 'Table' object: send its location, and call lsm.open_table(location) there"
        )

    def __repr__(self) -> str:
        latest = self.latest_snapshot()
        state = "empty" if latest is None else f"snapshot {latest.id}"
        return f"<Table {self.name!r} {state} at {self.location!r}>"

    def _repr_html_(self) -> str:
        """Return the table's columns, keys and newest snapshot for a notebook; no row is read."""
        keys = {"key": self.schema.primary_keys, "partition": self.schema.partition_keys}
        rows = [
            (
                field.name,
                type_text(field.type),
                ", ".join(role for role in keys if field.name in keys[role]),
            )
            for field in self.schema.fields
        ]
        title = f"{self.name} {self.latest_snapshot() or 'empty'}"
        return html_table(title, ("column", "type", ""), rows)

    @property
    def session(self) -> TableSession:
        """The open table, by the schema that this handle has published last, also through `altering`."""
        schema, session = self._published.schema, self._session
        # A plan that another one has overtaken stays, so that its commit is refused.
        is_behind = schema is not None and schema.id > session.schema.id
        if schema is not None and is_behind and not session.is_planned:
            self._session = session.with_schema(schema)
        return self._session

    @session.setter
    def session(self, session: TableSession) -> None:
        self._session = session

    @property
    def name(self) -> str:
        """The name in its catalog, "database.table", or the path it was opened from.

        A branch is named behind it: "shop.orders@fix".
        """
        at_branch = self.session.paths.branch_name
        return f"{self.session.name}@{at_branch}" if at_branch else self.session.name

    @property
    def schema(self) -> TableSchema:
        """Columns, keys and options. `schema.arrow` is the rows' pyarrow.Schema."""
        return self.session.schema

    @property
    def options(self) -> TableOptions:
        """The table's options; docs/options.md lists them."""
        return self.session.options

    @property
    def tags(self) -> Tags:
        """Tags: names of snapshots, whose files they keep."""
        return Tags(self)

    @property
    def branches(self) -> Branches:
        """Branches of this table, each with snapshots, tags and a schema of its own."""
        return Branches(self)

    @property
    def consumers(self) -> Consumers:
        """Named readers of changes."""
        return Consumers(self)

    @property
    def changes(self) -> Changes:
        """The changes between snapshots; a call is a read of them (`Changes.read`)."""
        return Changes(self)

    @property
    def inspect(self) -> Inspect:
        """System tables and explanations of the table."""
        return Inspect(self)

    @property
    def maintenance(self) -> Maintenance:
        """Expiry, repair, verification and undo."""
        return Maintenance(self)

    # --- write ---------------------------------------------------------------------------------

    def upsert(
        self,
        rows: Any,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Insert rows, replacing those whose key exists; one atomic commit.

        A commit with a number is applied once: a `commit_identifier` that is not greater than the last one of its
        `commit_user` changes nothing, also after other commits and expiries.

        Args:
            rows: Anything with `__arrow_c_stream__` (a pyarrow Table, a polars or pandas frame, a DuckDB
                result), or a list of dictionaries; with a Spark executor also a Spark DataFrame. A column
                `_row_kind` may be +I, -U, +U or -D per row. The last of several rows of one key counts, or the one
                with the greatest `sequence.field`. Columns left out are null.
            commit: `commit_user`, `commit_identifier` and `properties` of the snapshot.

        Returns:
            The new snapshot, None if there were no rows. It is a bookmark as `after=` of `changes` and
            `follow`. Its `visible` is False if the rows are committed and cannot be read yet: on first-row tables
            and with deletion vectors the write waits for the compaction that shows them (`lookup-wait`,
            `commit.timeout`), unless compaction is off or deferred (`write-only`, `lookup-compact` gentle, rows that
            wait for a bucket).

        Raises:
            InvalidInputError: The rows do not fit the table, or the last number of the commit user is unknown
                (kind UNKNOWN_IDENTIFIER); nothing was written.
            CommitConflictError: Another commit came first; nothing became visible.
            CommitUnknownError: The snapshot may be visible or not; look before you write again.
        """
        identity = self._identity(commit, "upsert")
        return write.upsert(self.session, rows, identity)

    def append(
        self,
        rows: Any,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Add rows to a table without a primary key; one atomic commit, and nothing is replaced.

        Args:
            rows: As in `upsert`, which writes to tables with a key.
            commit: As in `upsert`.

        Returns:
            The new snapshot, None if there were no rows.

        Raises:
            InvalidInputError: As in `upsert`.
            CommitConflictError: As in `upsert`.
            CommitUnknownError: As in `upsert`.
        """
        identity = self._identity(commit, "append")
        return write.append(self.session, rows, identity)

    def add_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Add Parquet files as they are, by hard links; one atomic commit, and no row is copied.

        Into a table without a primary key, partitions and fixed buckets, on the disk of the files,
        which have its columns, in any order. The files stay where they are, and their bytes may not be
        changed; deleting them leaves the table's links. Raises UnsupportedError for other
        tables, InvalidInputError naming file and column, StorageError where the disk links none.
        """
        identity = self._identity(commit, "append")
        rarely = import_module("lsm_engine.dml.add_files")
        result: WriteResult | None = rarely.add_files(self.session, paths, identity)
        return result

    def writer(
        self,
        *,
        background_compaction: bool = True,
        commit_user: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> StreamWriter:
        """Return a writer that stays open for many batches and commits; use it with `with`.

            with table.writer() as writer:
                for batch in batches:
                    writer.write(batch)
                    writer.commit()

        Each `upsert` compacts what it made due before it returns. A writer leaves that to a thread of
        its own, and waits for it only where compaction does not keep up. With
        `background_compaction=False` each commit compacts, as `upsert` does.
        """
        identity = self._identity(
            {"commit_user": commit_user, "properties": properties},
            "upsert" if self.schema.has_primary_key else "append",
        )
        return StreamWriter(self.session, identity, background_compaction=background_compaction)

    def insert(
        self,
        rows: Any,
        existing: str = "refuse",
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Insert rows whose keys do not exist.

        The condition holds for the state that is committed on, also beside other writers. The rows are held in memory.

        Args:
            rows: As in `upsert`; the first of several rows of one key is inserted.
            existing: `"refuse"`: one existing key refuses all rows; keys are compared in the whole table if they
                are unique across partitions. `"skip"`: rows with existing keys are left out.
            commit: As in `upsert`.

        Returns:
            The new snapshot, None if nothing was inserted.

        Raises:
            InvalidInputError: A key exists (kind ROW_EXISTS); the error names some of the keys.
        """
        identity = self._identity(commit, "insert")
        return update.write_only(self.session, rows, identity, update.KeyCondition.NEW, existing)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        condition: Filter | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Merge:
        """Begin a MERGE of `source`: `.when_…` methods add clauses, `.execute()` commits.

        Args:
            source: Rows, as in `upsert`.
            on: The columns that have to be equal: one or several names, or {table's: source's}. By default the
                primary key.
            condition: A further condition for two rows to match.
            commit: As in `upsert`.

        Returns:
            A `Merge`, which changes nothing before `execute`.
        """
        identity = self._identity(commit, "merge")
        return merge_into(self.session, source, on, condition, identity)

    def auto_cdc(self, source: Any, **options: "Unpack[AutoCdcWrite]") -> WriteResult | None:
        """Apply change events, which come in any order, late or twice, to a table that `create_auto_cdc_table` made.

        The newest event of a key by `sequence_by` decides what the row is, and an older one that comes later changes
        nothing (type 1), or is put in its place among the versions (type 2). The events, and of type 2 the versions of their keys, are held in memory.

        Args:
            source: Rows, as in `upsert`.
            options: `keys`, `sequence_by`, `apply_as_deletes`, `column_list` or `except_column_list`,
                `stored_as_scd_type` (1 or 2), as Spark's AutoCDC has them, and those of a commit, as in `upsert`.

        Returns:
            The new snapshot, None if the events change no row.

        Raises:
            InvalidInputError: The events do not fit the table, or one has no sequence; nothing was written.
        """
        cdc = import_module("lsm_engine.api.auto_cdc")
        flow, commit = cdc.flow_and_commit(options)
        identity = self._identity(commit, "auto_cdc")
        result: WriteResult | None = cdc.auto_cdc(self.session, source, flow, identity)
        return result

    def update(
        self,
        rows: Any = None,
        missing: str = "refuse",
        *,
        set: Mapping[str, Any] | None = None,
        where: Filter | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Update rows whose keys exist, or `set` columns of the rows that match `where`.

        Args:
            rows: As in `upsert`; the last of several rows of one key counts.
            missing: `"refuse"`: one missing key refuses all rows. `"skip"`: rows with missing keys are left out.
            set: {column: value}. A value is SQL text ("price * 2", "'text'"), an Arrow expression or a Python value
                that is no text.
            where: The filter for `set`; without one every row.
            commit: As in `upsert`.

        Returns:
            The new snapshot, None if nothing was updated.

        Raises:
            InvalidInputError: A key does not exist (kind ROW_MISSING); nothing was written.
        """
        identity = self._identity(commit, "update")
        if set is not None:
            only_one(rows, "rows", "set= and where=")
            return changed_where(self.session, Action.UPDATE, where, identity, set)
        if rows is None or where is not None or isinstance(rows, Mapping):
            raise InvalidInputError("update takes rows, or set={column: value} with where=")
        return update.write_only(
            self.session, rows, identity, update.KeyCondition.EXISTING, missing
        )

    def update_columns(
        self,
        rows: Any,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Give rows new values in some columns: `rows` has `_ROW_ID` and the columns to replace.

        Needs 'data-evolution.enabled'. No other column is rewritten. Where others changed the rows
        meanwhile, the values are put on top of theirs, up to `commit.max-retries` times. Raises
        InvalidInputError, and writes nothing, for ids that are nowhere (kind ROW_MISSING) or doubled.
        """
        identity = self._identity(commit, "update")
        return update.update_columns(self.session, rows, identity)

    def delete(
        self,
        keys: Any = None,
        *,
        where: Filter | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Delete rows by key, or the rows that match `where`.

        Keys that are not there do no harm. In a table without a primary key, which needs
        'deletion-vectors.enabled', every row goes that equals one of `keys` in all of their columns, or matches `where`.

        Args:
            keys: Rows with the primary key columns, or the values alone where that is one column. Other columns go
                into the -D: values to take back, or `sequence.field`, by which it may be older than the row. Where
                that, or a column NOT NULL, is left out, the rows are looked up first.
            where: A filter in place of keys; "true" deletes every row.
            commit: As in `upsert`.

        Returns:
            The new snapshot. None if nothing was committed: no keys, `ignore-delete`, or none of the keys is there. A
            delete of more than 1,000 keys looks for them only in small tables, or with `write.count-changes`. Its
            `row_counts` are None unless it looked for all of its keys.

        Raises:
            InvalidInputError: Keys have other columns or types, or neither keys nor a filter is given.
            CommitConflictError: As in `upsert`.
            CommitUnknownError: As in `upsert`.
        """
        identity = self._identity(commit, "delete")
        if where is not None:
            only_one(keys, "keys", "where=")
            if self.schema.has_primary_key:
                return changed_where(self.session, Action.DELETE, where, identity)
            return delete.delete_where(self.session, where, identity)
        if keys is None:
            raise InvalidInputError("delete takes keys, or where=; where='true' deletes every row")
        if isinstance(keys, str | Predicate | pc.Expression):
            raise InvalidInputError(
                "delete takes keys first; a condition is where=", given=str(keys)
            )
        if not self.schema.has_primary_key:
            return delete.delete_rows(self.session, keys, identity)
        return deleted_keys(self.session, keys, identity)

    def overwrite(
        self,
        rows: Any,
        partition: Mapping[str, object] | Filter | None = None,
        **commit: Unpack[CommitOptions],
    ) -> WriteResult | None:
        """Replace the rows of the table, or of partitions, by `rows`, in one atomic commit.

        Args:
            rows: As in `upsert`.
            partition: A value for some or all partition columns, or a filter over them such as "day >= '2024-01-01'":
                exactly those partitions are replaced, and a row outside them is refused. Without it, the partitions that
                the rows touch are (`dynamic-partition-overwrite`), or the whole table where that option is false or the
                table has no partitions.
            commit: As in `upsert`.

        Returns:
            The new snapshot, None if nothing was replaced or written.

        Raises:
            InvalidInputError: The rows do not fit the table, or lie outside of `partition`.
            CommitConflictError: As in `upsert`.
        """
        identity = self._identity(commit, "overwrite")
        return overwrite.overwrite(self.session, rows, partition, identity)

    def compact(
        self,
        full: bool = False,  # noqa: FBT001, FBT002 -- the documented front door
        partitions: Sequence[Mapping[str, object]] | None = None,
        buckets: Sequence[int] | str | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Merge sorted runs where that is due; rows stay the same.

        Args:
            full: Merge all runs of each bucket, also where that is not due.
            partitions: Only these partitions, such as [{"day": "2024-05-01"}].
            buckets: Only these: numbers, or ranges as a text such as "0-3,8".
            commit: As in `upsert`.

        Returns:
            The COMPACT snapshot, whose `compacted_files` counts what it replaced; None if nothing was due.
        """
        identity = self._identity(commit, "compact")
        return compact.compact(
            self.session, identity, full=full, partitions=partitions, buckets=buckets
        )

    # --- schema --------------------------------------------------------------------------------

    def alter(self, *changes: SchemaChange) -> TableSchema:
        """Change columns and options; all of them or none. This table goes on with the new schema.

        `lsm.AddColumn`, `DropColumn`, `RenameColumn`, `ChangeType`, `SetNullable`, `SetColumnComment`,
        `SetColumnDefault`, `MoveColumn`, `SetOption`, `RemoveOption`, `SetComment`. No file is rewritten: stored columns are known by id, and older rows are read with the new schema.
        """
        schema = alter.alter(self.session, changes)
        self.session = self.session.with_schema(schema)
        self._published.schema = schema
        return schema

    def altering(self, *changes: SchemaChange) -> "Table":
        """Return this table as `alter` would make it, to write rows that need the changes.

        The first commit through it publishes the new schema, with which this table goes on as well; rows that are
        refused leave both as they were. Raises as `alter` does, CommitConflictError at the commit where others altered
        it first.
        """
        session = alter.altering(self.session, changes)
        planned = Table(session, self.location)
        planned._published = self._published
        if session.planned is not None:
            session.planned.shared = self._published
        return planned

    # --- read ----------------------------------------------------------------------------------

    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        as_of_millis: int | None = None,
        limit: int | None = None,
        *,
        version: int | str | None = None,
        as_of: Moment | None = None,
    ) -> Scan:
        """Return a read of the newest snapshot, or of the one that an id, a tag or a time names.

        Nothing is read before the scan is asked for rows.

        Args:
            columns: One name, or several; all columns by default.
            where: A predicate, SQL text, or an Arrow expression (docs/filters.md).
            snapshot_id: Read this snapshot.
            tag: Read the snapshot of this tag.
            as_of_millis: Read the latest snapshot at or before this time, in milliseconds since 1970, UTC.
            limit: At most so many rows.
            version: A snapshot's id, or a tag's name.
            as_of: Read the latest snapshot at or before a datetime, ISO text or milliseconds; UTC without an
                offset.

        Raises:
            NotFoundError: The snapshot, tag or column does not exist.
            ExpiredError: The snapshot has expired.
            InvalidInputError: Two states are named.
        """
        if version is not None:
            if (snapshot_id, tag) != (None, None):
                raise InvalidInputError(
                    "version= names a snapshot or a tag; leave out snapshot_id= and tag=",
                    version=version,
                )
            version_fields = version_named(version)
            snapshot_id, tag = version_fields.get("snapshot_id"), version_fields.get("tag")
        request = ScanRequest(
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=self._time_of(as_of, as_of_millis),
            limit=limit,
        )
        return Scan(
            self.session, request, keys=self._keys if self.session.schema.has_primary_key else None
        )

    @property
    def _keys(self) -> NewestKeys:
        """The readers of keys; a change of the schema or the options makes new ones."""
        keys = self._cached_keys
        if keys is None or keys.session is not self.session:
            self._cached_keys = keys = NewestKeys(self.session)
        return keys

    def _time_of(self, as_of: Moment | None, as_of_millis: int | None) -> int | None:
        """Return the time that one of two arguments names, in milliseconds; None without either."""
        if as_of is None:
            return as_of_millis
        if as_of_millis is not None:
            raise InvalidInputError("as_of= and as_of_millis= both name a time; give one")
        try:
            return millis_of(as_of)
        except InvalidInputError as wrong:  # a tag is the usual text that is no time
            if isinstance(as_of, str) and self.session.tags.find(as_of) is not None:
                hint = f"{as_of!r} is a tag, which version= names"
                raise InvalidInputError(hint, tag=as_of) from wrong
            raise

    def to_arrow(self, columns: str | Sequence[str] | None = None, **read: Any) -> pa.Table:
        """Return the rows as an Arrow table; arguments as of `scan`."""
        return self.scan(columns, **read).to_arrow()

    def to_reader(
        self, columns: str | Sequence[str] | None = None, **read: Any
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches, in bounded memory; arguments as of `scan`."""
        return self.scan(columns, **read).to_reader()

    def to_pandas(self, columns: str | Sequence[str] | None = None, **read: Any) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame; arguments as of `scan`."""
        return self.scan(columns, **read).to_pandas()

    def to_polars(self, columns: str | Sequence[str] | None = None, **read: Any) -> "pl.LazyFrame":
        """Return the rows as a polars LazyFrame; arguments as of `scan`.

        Nothing is read before `collect`; the columns, filters and limits of the query reach the scan.
        The state is chosen now: later commits do not change what the frame gives.
        Raises UnsupportedError where polars is not installed.
        """
        engines = import_module("lsm_engine.read.engines")
        frame: pl.LazyFrame = engines.lazy_frame(self.scan(columns, **read))
        return frame

    def to_duckdb(
        self,
        connection: "duckdb.DuckDBPyConnection | None" = None,
        columns: str | Sequence[str] | None = None,
        **read: Any,
    ) -> "duckdb.DuckDBPyRelation":
        """Return the rows as a relation of a DuckDB connection (None: the default one); else as `scan`.

        `duckdb.sql("from orders")` then finds a variable `orders` that holds it. Nothing is read before
        the query runs; its columns and filters reach the scan. The state is chosen now.
        Raises UnsupportedError where DuckDB is not installed.
        """
        engines = import_module("lsm_engine.read.engines")
        relation: duckdb.DuckDBPyRelation = engines.duckdb_relation(
            self.scan(columns, **read), connection
        )
        return relation

    def to_dataset(self, columns: str | Sequence[str] | None = None, **read: Any) -> "ArrowDataset":
        """Return the rows as a pyarrow dataset; arguments as of `scan`.

        For DuckDB (`from orders`, where `orders` holds it), `polars.scan_pyarrow_dataset` and other libraries that
        take a dataset. The state is chosen now.
        """
        dataset: type[ArrowDataset] = import_module("lsm_engine.read.engines").ArrowDataset
        scan = self.scan(columns, **read)
        return dataset(scan.schema, scan.narrowed)

    def to_file(
        self,
        path: str | os.PathLike[str],
        columns: str | Sequence[str] | None = None,
        *,
        form: "FileOptions | None" = None,
        **read: Any,
    ) -> int:
        """Write the rows to a new CSV, JSON lines, Parquet or Arrow file; return their number.

        `form`: options of `lsm.write_file`; other arguments as of `scan`.
        """
        row_files = import_module("lsm_engine.api.row_files")
        count: int = row_files.write_rows(
            self.to_reader(columns, **read), path, {} if form is None else form
        )
        return count

    def head(self, n: int = 5, columns: str | Sequence[str] | None = None, **read: Any) -> pa.Table:
        """Return some `n` rows, to have a look; arguments as of `scan`."""
        return self.scan(columns, limit=n, **read).to_arrow()

    def count(self, where: Filter | None = None, **read: Any) -> int:
        """Return the number of rows; arguments as of `scan`."""
        return self.scan(where=where, **read).count()

    def __len__(self) -> int:
        """Return the number of rows, as `count` does.

        `list(table)` asks for it first, which reads the keys once more where rows have to be merged:
        `to_arrow().to_pylist()` does not.
        """
        return self.count()

    def __bool__(self) -> bool:
        return True  # a table is there, whether or not it has rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dictionaries; for people at a prompt, not for many rows."""
        for batch in self.scan().to_batches():
            yield from batch.to_pylist()

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError(
            "a table is not searched by `in`: `name in table.schema` asks for a column, "
            "lookup(keys) for rows"
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    # --- read by key ---------------------------------------------------------------------------

    def lookup(self, keys: Any, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the newest row of each key, in the order of the keys, and `_found` for each.

        The data files that may hold keys become local lookup files when first asked (options `lookup.*`); `query`
        stays at a snapshot.

        Args:
            keys: Arrow data or a list of dictionaries with the primary key columns; where that is one column, its values
                alone as well: `lookup([3, 5])`.
            columns: One name, or several; all columns by default.

        Returns:
            A row for each key. Columns that are not of the key are null where a key is not there.

        Raises:
            InvalidInputError: Keys are of another type, missing or null.
        """
        query = self._keys.query
        query.refresh()
        return query.lookup(keys, None if columns is None else names_of(columns, "columns"))

    def locate(self, rows: Any) -> pa.Table:
        """Return, per row, whether it would insert or update, and where what it replaces is.

        Columns: `action` (insert, update, or move: found in another partition, see the options
        `...update.partition.path`), `partition` (its path), `bucket`, `file_name`, and `snapshot_id`, that of
        the snapshot in which it was found. How rows are found is the table's `index.type`; what it
        could leave out, bucket by bucket, stands in words under `lsm.how` in the schema's metadata.
        Raises InvalidInputError for keys of another type, and for missing or null ones.
        """
        keys = self._keys
        located = keys.locator.locate(rows, lambda: keys.query)
        return located.table.replace_schema_metadata({"lsm.how": "\n".join(located.how)})

    def query(self, cache: LookupCache | None = None) -> TableQuery:
        """Return a reader of keys that stays at one snapshot until it is refreshed; close it.

        Threads may share it; its `get` answers for a single key in microseconds.
        """
        return TableQuery(self.session, cache)

    # --- snapshots and branches ----------------------------------------------------------------

    def snapshots(self) -> list[Snapshot]:
        """Return the retained snapshots, oldest first."""
        return self.session.snapshots.all()

    def newest_snapshots(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots backwards from the newest, at most `limit`, each read when asked for."""
        return self.session.snapshots.newest_first(limit)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """Return one snapshot. Raises ExpiredError if retention took it, NotFoundError if it never was."""
        return self.session.snapshots.load(snapshot_id)

    def snapshot_ids(self) -> list[int]:
        """Return the ids of the retained snapshots, oldest first, from one listing."""
        ids = self.session.snapshots.ids()
        if not ids:
            self.session.identity.require(None)  # NotFoundError if the table was dropped
        return ids

    def age_millis(self, snapshot: Snapshot) -> int:
        """Return the age of a snapshot, by the clock of the table."""
        return self.session.clock.now_millis() - snapshot.time_millis

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot; None for an empty table."""
        return self.session.snapshots.latest()

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the commits, newest first: an Arrow table with the columns of system table `snapshots`.

        `history().to_pylist()[0]` is the newest commit as a dictionary, `snapshots()[-1]` its snapshot.

        `limit`: only the newest so many, which are the only ones then read.
        """
        rows = snapshot_rows(self.session.snapshots.newest_first(limit))
        return pa.Table.from_pylist(rows, schema=SNAPSHOTS)

    def rollback_to(
        self,
        snapshot_id: int | str | None = None,
        tag: str | None = None,
        *,
        as_of: Moment | None = None,
        as_of_millis: int | None = None,
        watermark: int | None = None,
        dry_run: bool = False,
    ) -> RollbackReport:
        """Roll back to a snapshot: later snapshots and tags are removed, and their ids are used again.

        Name one of: a snapshot, by its id, a tag, by its name in place of that or as `tag` (its snapshot may have expired), a time or a watermark, which
        mean the newest snapshot at or before (`as_of` as in `scan`). Commits before the rollback's own are removed as well;
        later ones stay, and may wait for it. Data files are left to `remove_orphan_files`. Killed half
        way, the table is at the target already, and doing it again deletes the rest. Raises
        CommitConflictError beside another rollback or an expiry.
        """
        target = snapshot_to_return_to(
            self.session,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=self._time_of(as_of, as_of_millis),
            watermark=watermark,
        )
        return rollback.rollback(self.session, target, dry_run=dry_run)

    def rollback_to_as_latest(
        self,
        snapshot_id: int | str | None = None,
        tag: str | None = None,
        *,
        as_of: Moment | None = None,
        as_of_millis: int | None = None,
        watermark: int | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Restore a former state by one commit: history stays, and writers may go on. Name it as in `rollback_to`.

        Returns the OVERWRITE snapshot made, None if nothing differs. A replay of a numbered commit
        returns the snapshot that it made, and undoes nothing that others committed since.
        """
        identity = self._identity(commit, "restore")
        before = committed_before(self.session, identity, CommitKind.OVERWRITE)
        if before is not None:
            return before  # its target may have expired since
        target = snapshot_to_return_to(
            self.session,
            snapshot_id=snapshot_id,
            tag=tag,
            as_of_millis=self._time_of(as_of, as_of_millis),
            watermark=watermark,
        )
        return rollback.restore(self.session, target, identity)

    def last_commit_identifier(self, commit_user: str) -> int | None:
        """Return the greatest commit identifier of a commit user; None without one.

        Raises InvalidInputError, kind UNKNOWN_IDENTIFIER, where that is not kept any more.
        """
        return last_identifier(self.session, commit_user)

    def set_commit_identifier(
        self, commit_user: str, commit_identifier: int, *, others_are_new: bool = False
    ) -> Snapshot:
        """Set the last commit identifier of a commit user, by an empty commit; return its snapshot.

        From then on numbers up to `commit_identifier` are replays, which change nothing, and greater ones are new:
        after a refusal of kind UNKNOWN_IDENTIFIER, or for a user that begins anew with smaller numbers. A caller that states
        too small a number has rows committed twice, and too great a one leaves rows out. With `others_are_new` users
        of which nothing is known count as new as well, where another client's expiry took what was known of them.
        """
        identity = CommitIdentity(
            commit_user=commit_user,
            commit_identifier=commit_identifier,
            restates=True,
            others_are_new=others_are_new,
        )
        if not identity.is_numbered:
            raise InvalidInputError(
                "this number is that of commits without one; state a smaller one",
                commit_identifier=commit_identifier,
            )
        self.session.options.require_writable()
        snapshot = propose(self.session, Proposal(identity=identity))
        assert snapshot is not None, identity
        return snapshot

    def branch(self, name: str) -> "Table":
        """Open a branch of this table ("main": the table itself), with snapshots, tags and a schema of its own."""
        return Table(branches.on_branch(self.session, name), self.location)

    def _identity(self, commit: CommitOptions, operation: str) -> CommitIdentity:
        for name in commit.keys() - CommitOptions.__annotations__.keys():
            method = "rollback_to_as_latest" if operation == "restore" else operation
            raise unknown_argument(method, name)
        return commit_identity(self.session, **commit, operation=operation)

    # --- operations of accessors, under the names they had before ------------------------------

    create_tag = _of_accessor(Tags, Tags.create)
    replace_tag = _of_accessor(Tags, Tags.replace)
    rename_tag = _of_accessor(Tags, Tags.rename)
    delete_tag = _of_accessor(Tags, Tags.delete)
    tag = _of_accessor(Tags, Tags.get)
    tag_names = _of_accessor(Tags, Tags.names)
    expire_tags = _of_accessor(Tags, Tags.expire)
    create_due_tags = _of_accessor(Tags, Tags.create_due)
    create_branch = _of_accessor(Branches, Branches.create)
    rename_branch = _of_accessor(Branches, Branches.rename)
    delete_branch = _of_accessor(Branches, Branches.delete)
    fast_forward = _of_accessor(Branches, Branches.fast_forward)
    reset_consumer = _of_accessor(Consumers, Consumers.reset)
    clear_consumers = _of_accessor(Consumers, Consumers.clear)
    changelog = _of_accessor(Changes, Changes.to_arrow)
    follow = _of_accessor(Changes, Changes.follow)
    system = _of_accessor(Inspect, Inspect.system)
    tree = _of_accessor(Inspect, Inspect.tree)
    partition_path = _of_accessor(Inspect, Inspect.partition_path)
    partition_paths = _of_accessor(Inspect, Inspect.partition_paths)
    partition_rows = _of_accessor(Inspect, Inspect.partition_rows)
    key_rows = _of_accessor(Inspect, Inspect.key_rows)
    pressure = _of_accessor(Inspect, Inspect.pressure)
    due_buckets = _of_accessor(Inspect, Inspect.due_buckets)
    forecast = _of_accessor(Inspect, Inspect.forecast)
    amplification = _of_accessor(Inspect, Inspect.amplification)
    lookup_metrics = _of_accessor(Inspect, Inspect.lookup_metrics)
    diff_snapshots = _of_accessor(Inspect, Inspect.diff_snapshots)
    changed_partitions = _of_accessor(Inspect, Inspect.changed_partitions)
    changed_ranges = _of_accessor(Inspect, Inspect.changed_ranges)
    explain_key = _of_accessor(Inspect, Inspect.explain_key)
    explain_file = _of_accessor(Inspect, Inspect.explain_file)
    simulate_retention = _of_accessor(Inspect, Inspect.simulate_retention)
    expire_snapshots = _of_accessor(Maintenance, Maintenance.expire)
    remove_orphan_files = _of_accessor(Maintenance, Maintenance.remove_orphan_files)
    expire_partitions = _of_accessor(Maintenance, Maintenance.expire_partitions)
    rescale = _of_accessor(Maintenance, Maintenance.rescale)
    verify = _of_accessor(Maintenance, Maintenance.verify)
    restore_files = _of_accessor(Maintenance, Maintenance.restore_files)
    remove_damaged_files = _of_accessor(Maintenance, Maintenance.remove_damaged_files)
    remove_unexisting_files = _of_accessor(Maintenance, Maintenance.remove_unexisting_files)
    remove_broken_records = _of_accessor(Maintenance, Maintenance.remove_broken_records)
    repair_earliest_snapshot = _of_accessor(Maintenance, Maintenance.repair_earliest_snapshot)
    repair_latest_snapshot = _of_accessor(Maintenance, Maintenance.repair_latest_snapshot)
    compact_manifest = _of_accessor(Maintenance, Maintenance.compact_manifest)
    purge_files = _of_accessor(Maintenance, Maintenance.purge_files)
    forget = _of_accessor(Maintenance, Maintenance.forget)
    trash = _of_accessor(Maintenance, Maintenance.trash)
    empty_trash = _of_accessor(Maintenance, Maintenance.empty_trash)
    undo_maintenance = _of_accessor(Maintenance, Maintenance.undo)

    @property
    def hides_level_0(self) -> bool:
        """Whether rows are read once a compaction has taken them up: first-row, deletion vectors."""
        return self.inspect.hides_level_0
