"""Which tables a catalog knows: named, adopted, let go of, and all of them anew from the warehouse."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from lsm_engine.base.errors import AlreadyExistsError, InvalidInputError, LsmError
from lsm_engine.catalog.names import DATABASE_SUFFIX, TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.storage_options import StorageOptions
from lsm_engine.io.warehouse import (
    database_directories,
    move_directory,
    open_directory,
    table_directories,
)
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ddl.create import refuse_beside_drop
from lsm_engine.table.ddl.open_session import load_schema
from lsm_engine.table.lineage_listener import rebuild_lineage, record_commits
from lsm_engine.table.table import Table

log = logging.getLogger(__name__)


class CatalogRegistry(ABC):
    """The part of a Catalog that names tables whose directories are there already."""

    _names: SqlCatalog
    _storage: StorageOptions

    @abstractmethod
    def table(self, name: str) -> Table:
        """Open a table."""

    @abstractmethod
    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of tables."""

    def register_table(self, name: str) -> Table:
        """Name a table whose directory is already in the warehouse, at "<database>.db/<table>".

        Raises NotFoundError if there is none, AlreadyExistsError if the name is taken, or while the table
        that was there is being dropped.
        """
        table_name = TableName.parse(name)
        return self._named(table_name.checked(), self._schema_of(table_name))

    def unregister_table(self, name: str) -> None:
        """Take a table's name and lineage out of the catalog; its files, if there are any, stay."""
        self._names.drop_table(TableName.parse(name))

    def adopt_table(self, path: str, name: str) -> Table:
        """Move a table's directory from elsewhere on the same disk or cluster into the warehouse, and name it.

        Raises NotFoundError if there is no table, AlreadyExistsError if the name or its directory is
        taken, and UnsupportedError on an object store, from another disk or store, and for a table that
        this version cannot read; then nothing has changed.
        """
        table_name = TableName.parse(name)
        location = self._names.table_location(table_name)
        schema = load_schema(self._directory(path), path)
        move_directory(path, location, self._storage)
        try:
            self.name_table(table_name, schema)
        except LsmError:
            move_directory(location, path, self._storage)
            raise
        return self.table(name)

    def unknown_tables(self) -> list[str]:
        """Return the tables in the warehouse that the catalog has no name for, from listings alone."""
        known = set(self.list_tables())
        return [name for name in self.found_tables() if name not in known]

    def found_tables(self) -> list[str]:
        """Return the tables whose directories lie in the warehouse, from listings alone.

        Those that a catalog cannot name are left out: `unnameable_tables`.
        """
        return self.found_and_unnameable()[0]

    def unnameable_tables(self) -> dict[str, str]:
        """Return tables in the warehouse whose directories no name means, by path in it, and why."""
        return self.found_and_unnameable()[1]

    def found_and_unnameable(self) -> tuple[list[str], dict[str, str]]:
        """Return what `found_tables` and `unnameable_tables` do, from the same listings."""
        found, unnameable = [], {}
        for database, table in table_directories(self._names.warehouse, self._storage):
            try:
                found.append(TableName(database=database, table=table).checked().text)
            except LsmError as error:
                path = f"{database}{DATABASE_SUFFIX}/{table}"
                unnameable[path] = error.message.partition(";")[0]
        return found, unnameable

    @property
    def is_in_memory(self) -> bool:
        """Whether the catalog's names go with this process."""
        return self._names.database.is_in_memory

    def register_found_tables(self) -> list[str]:
        """Name every table in the warehouse that has no name yet, whoever made it; return these names.

        A catalog in memory takes databases without tables as well.

        A table whose schema cannot be read gets its name all the same: opening it raises why.
        """
        found = self.unknown_tables()
        databases = (
            database_directories(self._names.warehouse, self._storage) if self.is_in_memory else ()
        )
        for database in databases:
            with suppress(InvalidInputError):  # a directory that no database's name means
                self._names.create_database(database, ignore_existing=True)
        for name in found:
            table_name = TableName.parse(name)
            try:
                schema = None if self.is_in_memory else self._schema_of(table_name)
            except LsmError as error:
                log.warning("table %s is named, and cannot be opened: %s", name, error)
                schema = None
            self.name_table(table_name, schema)
        return found

    def _schema_of(self, name: TableName) -> TableSchema:
        location = self._names.table_location(name)
        return load_schema(self._directory(location), location)

    def name_table(self, name: TableName, schema: TableSchema | None) -> None:
        """Give a table its name, with a copy of its options if they can be read."""
        self._names.register_table(
            name,
            options=None if schema is None else schema.options.texts,
            primary_key=() if schema is None else schema.primary_keys,
            partitioned_by=() if schema is None else schema.partition_keys,
            create_database=True,
        )

    def rebuild(self) -> dict[str, int]:
        """Make a lost catalog anew from the warehouse: names first, then lineage, for every table.

        Returns the number of snapshots recorded, per table; one that cannot be read is left out, with a
        warning. What the catalog knows already is kept. A damaged file has to be moved aside first:
        `set_damaged_file_aside`.
        """
        self.register_found_tables()
        return self.rebuild_lineage()

    def rebuild_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Record anew what files of tables (default: all) and their branches hold.

        Returns how many snapshots of main were recorded, per table.
        """
        names = tables if tables is not None else self.list_tables()
        self._names.outbox.drain(patiently=True)  # it knows of snapshots that have expired since
        recorded = {}
        for name in names:
            try:
                table = self.table(name)
                recorded[name] = rebuild_lineage(table.session, self._names.lineage)
                self._rebuild_branches(table)
            except LsmError as error:
                if tables is not None:
                    raise
                log.warning("the lineage of table %s is not recorded: %s", name, error)
        return recorded

    def _rebuild_branches(self, table: Table) -> None:
        """Record anew what files of a table's branches hold, and forget deleted branches.

        A branch that cannot be read is left out, with a warning.
        """
        lineage, there = self._names.lineage, table.branches()
        for branch in there:
            try:
                rebuild_lineage(table.branch(branch).session, lineage)
            except LsmError as error:
                log.warning(
                    "the lineage of branch %s of table %s is not recorded: %s",
                    branch,
                    table.name,
                    error,
                )
        name = TableName.parse(table.name)
        for known in lineage.tables(branches_of=name):
            if known.branch not in (*there, name.branch):
                lineage.rebuild(known, [])

    def record_commits(self, name: str, snapshot_ids: Iterable[int]) -> int:
        """Record snapshots of a table that the lineage does not have; return how many they were.

        Those of this catalog's own commits are there already: this is for commits of other clients.
        """
        self._names.outbox.drain(patiently=True)
        return record_commits(self.table(name).session, self._names.lineage, snapshot_ids)

    def _named(self, name: TableName, schema: TableSchema) -> Table:
        """Name a table and open it; where a drop takes its files meanwhile, it loses the name again."""
        self.name_table(name, schema)
        try:
            refuse_beside_drop(self._directory(self._names.table_location(name)), is_made=True)
        except AlreadyExistsError:
            self._names.drop_table(name, ignore_missing=True)
            raise
        return self.table(str(name))

    def _directory(self, location: str) -> FileIO:
        return open_directory(location, storage=self._storage)
