"""Table: the facade. Each method is one line into a recipe of this floor."""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.arguments import checks_all_arguments
from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.ids import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.other_libraries import TABLE, missing_attribute
from lsm_engine.base.table_options import TableOptions
from lsm_engine.lookup.lookup_file import LookupCache
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.write_result import WriteResult
from lsm_engine.prune.where import Filter, Predicate
from lsm_engine.schema.changes import SchemaChange
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.compact import compact
from lsm_engine.table.ddl import alter
from lsm_engine.table.find.lookup import TableQuery
from lsm_engine.table.ground.given_names import names_of, only_one
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.merge_builder import Merge, changed_where, deleted_keys, merge_into
from lsm_engine.table.table_changes import TableChanges
from lsm_engine.table.table_history import TableHistory
from lsm_engine.table.table_inspect import TableInspect
from lsm_engine.table.table_maintenance import TableMaintenance
from lsm_engine.table.table_reads import TableReads
from lsm_engine.table.tags import branch
from lsm_engine.table.write import delete_rows, insert, overwrite, update_columns, write
from lsm_engine.table.write.merge_clauses import Action
from lsm_engine.table.write.stream_writer import StreamWriter


@checks_all_arguments
class Table(
    TableReads,
    TableHistory,
    TableMaintenance,
    TableInspect,
    TableChanges,
):
    """A primary-key table on a lake. Cheap to open; threads may share it.

    Reads see one snapshot from beginning to end. Writes are visible whole or not at all, and a
    method that raises leaves the table as it was (but see CommitUnknownError).
    """

    def __init__(self, session: TableSession, location: str = "") -> None:
        if not isinstance(session, TableSession):
            raise TypeError(
                "a table is opened by lsm.open_table(path), or catalog['database.table']"
            )
        super().__init__(session)
        self.location = location

    if not TYPE_CHECKING:  # a checker goes on refusing names that a table lacks

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Table", name, TABLE)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "cannot pickle 'Table' object: send its location, and call lsm.open_table(location) there"
        )

    def __repr__(self) -> str:
        latest = self.latest_snapshot()
        at = "empty" if latest is None else f"snapshot {latest.id}"
        return f"<Table {self.name!r} {at} at {self.location!r}>"

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

    # --- write -----------------------------------------------------------------------------------
    def upsert(
        self,
        rows: Any,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Insert rows, replacing those whose key is already there; one atomic commit.

        `rows`: anything with `__arrow_c_stream__` (a pyarrow Table, a polars or pandas frame, a
        DuckDB result), or a list of dictionaries; with a Spark executor also a Spark DataFrame. A
        column `_row_kind` may be +I, -U, +U or -D per row. Of several rows of one key the last one
        counts, or the one with the greatest `sequence.field`. Columns left out are null.

        Returns the snapshot made, None if there were no rows; as `after=` of `changes` and `follow` it
        is a bookmark. Its `visible` is False where the rows are committed and cannot be read yet:
        on first-row tables and with deletion vectors the write waits for the compaction that shows
        them (`lookup-wait`, `commit.timeout`), but not where it may not or does not compact
        (`write-only`, `lookup-compact` gentle, rows that wait for a bucket).

        A commit with a number is applied once: a `commit_identifier` that is not greater than the last one of its
        `commit_user` changes nothing, whatever was committed or expired since, and where that last one is not kept any more
        the commit is refused (InvalidInputError, kind UNKNOWN_IDENTIFIER).

        Raises InvalidInputError before anything is written for rows that do not fit,
        CommitConflictError when nothing became visible, CommitUnknownError when that could not be found out.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return write.upsert(self.session, rows, identity)

    def append(
        self,
        rows: Any,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Add rows to a table without a primary key; one atomic commit, and nothing is replaced.

        `rows`, the result and errors as in `upsert`, which is the verb of tables with a key.

        A commit with a number is applied once: a `commit_identifier` that is not greater than the last one of its
        `commit_user` changes nothing, whatever was committed or expired since, and where that last one is not kept any more
        the commit is refused (InvalidInputError, kind UNKNOWN_IDENTIFIER).
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return write.append(self.session, rows, identity)

    def add_files(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Take Parquet files over as they are, by hard links; one atomic commit, and no row is copied.

        Into a table without a primary key, partitions and fixed buckets, on the disk of the files,
        which have its columns, in any order. The files stay where they are, and nobody may change
        their bytes; whoever deletes them leaves the table's links. Raises UnsupportedError for other
        tables, InvalidInputError naming file and column, StorageError where the disk links none.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        rarely = import_module("lsm_engine.table.write.add_files")
        made: WriteResult | None = rarely.add_files(self.session, paths, identity)
        return made

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
        identity = self._identity(commit_user, BATCH_COMMIT_IDENTIFIER, properties)
        return StreamWriter(self.session, identity, background_compaction=background_compaction)

    def insert(
        self,
        rows: Any,
        existing: str = "refuse",
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Add rows whose keys are not there. With `existing="skip"` the others are left out.

        By default one key that is there, anywhere in the table where keys are unique across partitions,
        refuses all rows: InvalidInputError, kind ROW_EXISTS, naming some of the keys. That holds for the state
        that is committed on, whoever else writes. Of several rows of one key the first is inserted. The rows
        are held in memory. Else as `upsert`.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return insert.write_only(self.session, rows, identity, insert.KeyCondition.NEW, existing)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        condition: Filter | None = None,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> Merge:
        """Begin a MERGE of `source`, anything that `upsert` takes; `.when_…` add clauses, `.execute()` does it.

        `on`: the columns that have to be equal, one or several, by name or as {table's: source's}; by
        default the primary key. `condition`: what else two rows need to match. See `Merge`.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return merge_into(self.session, source, on, condition, identity)

    def update(
        self,
        rows: Any = None,
        missing: str = "refuse",
        *,
        set: Mapping[str, Any] | None = None,
        where: Filter | None = None,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Write rows whose keys are there, or `set` columns of the rows that `where` keeps.

        `set`: {column: value}; a value is SQL text ("price * 2", "'text'"), an Arrow expression or a Python
        value that is no text. `where`: any filter; without one every row. With `missing="skip"` rows
        whose keys are not there are left out.

        By default one key that is not there refuses all rows: InvalidInputError, kind ROW_MISSING. Else as
        `insert`; of several rows of one key the last one counts, as in `upsert`.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        if set is not None:
            only_one(rows, "rows", "set= and where=")
            return changed_where(self.session, Action.UPDATE, where, identity, set)
        if rows is None or where is not None or isinstance(rows, Mapping):
            raise InvalidInputError("update takes rows, or set={column: value} with where=")
        return insert.write_only(
            self.session, rows, identity, insert.KeyCondition.EXISTING, missing
        )

    def update_columns(
        self,
        rows: Any,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Give rows new values in some columns: `rows` has `_ROW_ID` and the columns to replace.

        Needs 'data-evolution.enabled'. No other column is rewritten. Where others changed the rows
        meanwhile, the values are put on top of theirs, up to `commit.max-retries` times. Raises
        InvalidInputError, and writes nothing, for ids that are nowhere (kind ROW_MISSING) or doubled.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return update_columns.update_columns(self.session, rows, identity)

    def delete(
        self,
        keys: Any = None,
        *,
        where: Filter | None = None,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Delete rows by key, or those that `where` keeps.

        `keys` holds the primary key columns, or the values alone where that is one column. Other columns go into the -D: values to take back, or `sequence.field`,
        by which it may be older than the row. Where that, or a column NOT NULL, is left out, the rows are looked up first.

        Keys that are not there do no harm. In a table without a primary key every row goes that
        equals one of `keys` in all of their columns, or is kept by `where`; that takes
        'deletion-vectors.enabled'. Returns and raises as `upsert` does; None also where `ignore-delete`
        leaves all of them out.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        if where is not None:
            only_one(keys, "keys", "where=")
            if self.schema.has_primary_key:
                return changed_where(self.session, Action.DELETE, where, identity)
            return delete_rows.delete_where(self.session, where, identity)
        if keys is None:
            raise InvalidInputError("delete takes keys, or where=; where='true' deletes every row")
        if isinstance(keys, str | Predicate | pc.Expression):
            raise InvalidInputError(
                "delete takes keys first; a condition is where=", given=str(keys)
            )
        if not self.schema.has_primary_key:
            return delete_rows.delete_rows(self.session, keys, identity)
        return deleted_keys(self.session, keys, identity)

    def overwrite(
        self,
        rows: Any,
        partition: Mapping[str, object] | Filter | None = None,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> WriteResult | None:
        """Replace what is there by `rows`, in one atomic commit.

        With `partition`, a value for some or all partition columns, or a filter over them such as
        "day >= '2024-01-01'", exactly those partitions are replaced, and a row outside them is refused. Without it, the partitions that the rows touch
        are (`dynamic-partition-overwrite`), or the whole table where that option is false or the
        table has no partitions.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return overwrite.overwrite(self.session, rows, partition, identity)

    def compact(
        self,
        full: bool = False,  # noqa: FBT001, FBT002 -- the documented front door
        partitions: Sequence[Mapping[str, object]] | None = None,
        buckets: Sequence[int] | None = None,
        *,
        commit_user: str | None = None,
        commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
        properties: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Merge sorted runs where that is due, or with `full` all of each bucket; rows stay the same.

        `partitions` and `buckets` limit where. Returns the COMPACT snapshot, None if nothing was due.
        """
        identity = self._identity(commit_user, commit_identifier, properties)
        return compact.compact(
            self.session, identity, full=full, partitions=partitions, buckets=buckets
        )

    def alter(self, *changes: SchemaChange) -> TableSchema:
        """Change columns and options; all of them or none. This table goes on with the new schema.

        `lsm.AddColumn`, `DropColumn`, `RenameColumn`, `ChangeType`, `SetNullable`, `SetColumnComment`,
        `SetColumnDefault`, `MoveColumn`, `SetOption`, `RemoveOption`, `SetComment`. No file is rewritten: stored columns are known by id, and older rows are read with the new schema.
        """
        schema = alter.alter(self.session, changes)
        self.session = self.session.with_schema(schema)
        return schema

    def altering(self, *changes: SchemaChange) -> "Table":
        """Return this table as `alter` would make it, to write rows that need the changes.

        The first commit through it publishes the new schema; rows that are refused leave the table as
        it was. Raises as `alter` does, CommitConflictError at the commit where others altered it first.
        """
        return Table(alter.altering(self.session, changes), self.location)

    # --- read ------------------------------------------------------------------------------------

    def lookup(self, keys: Any, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the newest row of each key, in the order of the keys, and `_found` for each.

        `keys`: Arrow data or a list of dictionaries with the primary key columns; where that is one column,
        its values alone as well: `lookup([3, 5])`. Columns that are not of the key are null where a key is not there. The data files that may hold keys become local lookup files when first asked (options `lookup.*`); `query` keeps hold of a snapshot.
        Raises InvalidInputError for keys of another type, and for missing or null ones.
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
        found = keys.locator.locate(rows, lambda: keys.query)
        return found.table.replace_schema_metadata({"lsm.how": "\n".join(found.how)})

    def query(self, cache: LookupCache | None = None) -> TableQuery:
        """Return a reader of keys that stays at one snapshot until it is refreshed; close it.

        Threads may share it; its `get` answers for a single key in microseconds.
        """
        return TableQuery(self.session, cache)

    # --- branches --------------------------------------------------------------------------------

    def branch(self, name: str) -> "Table":
        """Open a branch of this table ("main": the table itself), with snapshots, tags and a schema of its own."""
        return Table(branch.on_branch(self.session, name), self.location)
