"""Catalog: names in SQL, tables in directories; what is created, opened, renamed and dropped."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from lsm_engine.base import core_options
from lsm_engine.base.errors import LsmError, NotFoundError
from lsm_engine.base.redaction import without_secrets
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.catalog.lineage_page import lineage_page
from lsm_engine.catalog.locations import LINEAGE_PAGE, default_catalog_url
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions
from lsm_engine.io.stores import STORES
from lsm_engine.io.warehouse import (
    clear_directory,
    move_directory,
    open_directory,
    table_directories,
)
from lsm_engine.prune.where import Filter
from lsm_engine.schema.given_columns import columns_of
from lsm_engine.table.ddl.create import create_table, load_schema
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.executor import Executor, LocalExecutor
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_to_read
from lsm_engine.table.inspect.explain_row import RowOrigin, row_origin
from lsm_engine.table.lineage_listener import CatalogListener, rebuild_lineage
from lsm_engine.table.table import Table
from lsm_engine.table.warehouse_tables import Named, catalog_table

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_catalog(
    url: str | os.PathLike[str] | None = None,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    storage: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> "Catalog":
    """Open the catalog in a database, created if absent; tables live below `warehouse`.

    `url`: a database URL, or the warehouse: a directory or a URL such as s3://bucket/lake. Without a
    database the catalog is `catalog.db` in the warehouse's directory, or a file below ./lake for one with
    a scheme, as for the command line and Dagster; without a warehouse that is `./lake`. `storage` has
    that store's options (docs/object-stores.md), before those of the environment. `executor` None:
    this process. Raises InvalidOptionError for a URL that is none and InvalidInputError for a
    database that holds something else.
    """
    database, directory = _places(url, warehouse)
    options = StorageOptions(storage)
    if scheme_of(directory) is not None:  # what is wrong with it is known before a file is made
        open_directory(directory, storage=options)
    return Catalog(
        SqlCatalog.open(database, warehouse=directory),
        storage=options,
        executor=executor or LocalExecutor(),
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
    )


def _places(
    url: str | os.PathLike[str] | None, warehouse: str | os.PathLike[str] | None
) -> tuple[str, str]:
    """Return the database's URL and the warehouse's directory, each from the other where it is left out."""
    given = None if url is None else os.fspath(url)
    directory = None if warehouse is None else os.fspath(warehouse)
    if (
        given is not None
        and directory is None
        and (not _URL.match(given) or scheme_of(given) in STORES)
    ):
        given, directory = None, given
    directory = directory or "lake"
    return given or default_catalog_url(directory), directory


class Catalog:
    """Databases and tables of one warehouse, and the lineage of what is in them."""

    def __init__(
        self,
        names: SqlCatalog,
        *,
        executor: Executor,
        clock: Clock,
        ids: IdSource,
        storage: StorageOptions = NO_OPTIONS,
    ) -> None:
        self._names = names
        self._storage = storage
        self._executor = executor
        self._clock = clock
        self._ids = ids

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.url!r} of {without_secrets(self.warehouse)!r}>"

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._exists(TableName.parse(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_tables())

    def close(self) -> None:
        """Close idle connections."""
        self._names.close()

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self._names.database.shown_url

    @property
    def warehouse(self) -> str:
        """The directory that tables are created in."""
        return self._names.warehouse

    @property
    def lineage(self) -> Lineage:
        """Questions about runs, snapshots, manifests, files and tags, answered in Arrow tables."""
        return self._names.lineage

    # --- databases -------------------------------------------------------------------------------

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Create a database; raises AlreadyExistsError unless `ignore_if_exists`."""
        self._names.create_database(name, ignore_existing=ignore_if_exists)

    def list_databases(self) -> list[str]:
        """Return the databases by name."""
        return self._names.list_databases()

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database; with `cascade` its tables and all their files as well."""
        if cascade:
            for table in self._names.list_tables(name):
                self.drop_table(f"{name}.{table}")
        self._names.drop_database(name)

    # --- tables ----------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: Any,
        *,
        primary_key: str | Sequence[str] = (),
        partitioned_by: str | Sequence[str] = (),
        options: Mapping[str, object] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        """Create the table "database.table" and return it; its database is created with it.

        `schema`: a pyarrow.Schema, a frame that has one (polars, pandas, Arrow, DuckDB; its rows are
        not written), or a mapping of names to types: Arrow's, SQL text, or Python's. `primary_key` and
        `partitioned_by`: one column's name, or several. Key columns become NOT NULL. `primary_key` has to include the partition columns. A table
        without the option `bucket` gets one bucket per partition. Raises AlreadyExistsError unless
        `ignore_if_exists`, InvalidOptionError and UnsupportedError for options, before anything is
        created.
        """
        table_name = TableName.parse(name)
        table_name.checked()
        if ignore_if_exists and self._exists(table_name):
            return self.table(name)
        created = create_table(
            self._directory(self._names.table_location(table_name)),
            columns_of(schema),
            primary_key=names_of(primary_key, "primary_key"),
            partitioned_by=names_of(partitioned_by, "partitioned_by"),
            options=options or {},
            comment=comment,
            clock=self._clock,
            is_unknown=lambda: not self._exists(table_name),
        )
        self._names.register_table(
            table_name,
            options=created.options.texts,
            primary_key=created.primary_keys,
            partitioned_by=created.partition_keys,
            create_database=True,
        )
        return self.table(name)

    def table(self, name: str) -> Table:
        """Open a table; raises NotFoundError, naming a near match, if there is none of this name."""
        info = self._names.load_table(TableName.parse(name))
        schema = load_schema(self._directory(info.location), info.location)
        components = Components(
            file_io=self._directory(
                info.location, durable=schema.options[core_options.COMMIT_FSYNC]
            ),
            executor=self._executor,
            clock=self._clock,
            ids=self._ids,
            listeners=(CatalogListener(names=self._names),),
        )
        return Table(TableSession(name, components, schema), info.location)

    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of a database's tables, or of all tables as "database.table"."""
        if database is not None:
            return self._names.list_tables(database)
        return [
            f"{database}.{table}"
            for database in self._names.list_databases()
            for table in self._names.list_tables(database)
        ]

    def drop_table(self, name: str, *, ignore_if_missing: bool = False) -> None:
        """Drop a table: its name, its lineage, and then its files one by one."""
        table_name = TableName.parse(name)
        location = self._names.table_location(table_name)
        if self._names.drop_table(table_name, ignore_missing=ignore_if_missing):
            clear_directory(self._directory(location))

    def rename_table(self, source: str, target: str) -> Table:
        """Rename a table: its directory first, then its name.

        Raises AlreadyExistsError, and UnsupportedError on an object store, where no table is renamed.
        """
        old, new = TableName.parse(source), TableName.parse(target)
        new.checked()
        info = self._names.load_table(old)
        location = self._names.table_location(new)
        move_directory(info.location, location)
        try:
            self._names.rename_table(old, new)
        except LsmError:
            move_directory(location, info.location)
            raise
        return self.table(target)

    def register_table(self, name: str) -> Table:
        """Name a table whose directory is already in the warehouse, at "<database>.db/<table>".

        Raises NotFoundError if there is none, AlreadyExistsError if the name is taken.
        """
        table_name = TableName.parse(name)
        table_name.checked()
        location = self._names.table_location(table_name)
        schema = load_schema(self._directory(location), location)
        self._names.register_table(
            table_name,
            options=schema.options.texts,
            primary_key=schema.primary_keys,
            partitioned_by=schema.partition_keys,
            create_database=True,
        )
        return self.table(name)

    def register_found_tables(self) -> list[str]:
        """Name every table in the warehouse that has no name yet, whoever made it; return these names."""
        found = [
            name
            for name in table_directories(self.warehouse, self._storage)
            if not self._exists(TableName.parse(name))
        ]
        for name in found:
            self.register_table(name)
        return found

    def explain_row(
        self,
        name: str,
        key: Mapping[str, Any],
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> RowOrigin:
        """Return which runs and input snapshots a row of a table is made of; see `explain_key`."""
        session = self.table(name).session
        snapshot = snapshot_to_read(session, snapshot_id=snapshot_id, tag=tag)
        if (snapshot_id, tag) != (None, None) and snapshot is not None:
            session = session.as_of(snapshot)
        return row_origin(session, snapshot, key, self.lineage, TableName.parse(name))

    def rebuild(self) -> dict[str, int]:
        """Make a lost catalog anew from the warehouse: names first, then lineage, for every table.

        Returns the number of snapshots recorded, per table. What the catalog knows already is kept.
        """
        self.register_found_tables()
        return self.rebuild_lineage()

    def rebuild_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Record anew what files of tables (default: all) hold; snapshots recorded, per table."""
        names = tables if tables is not None else self.list_tables()
        self._names.outbox.drain(patiently=True)  # it knows of snapshots that have expired since
        return {name: rebuild_lineage(self.table(name).session, self.lineage) for name in names}

    def system(
        self,
        name: str,
        *,
        where: Filter | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a system table of the whole catalog: tables, partitions or all_table_options.

        A table that cannot be opened has its error in `tables`. `where` keeps some rows.
        """
        return catalog_table(self._named_tables(), name, where=where, columns=columns)

    def write_lineage_page(self) -> str:
        """Draw the lineage of all tables into the warehouse, in place of the page there; its location."""
        page = lineage_page(self.lineage).encode()
        self._directory(self.warehouse).replace(LINEAGE_PAGE, page)
        return f"{self.warehouse}/{LINEAGE_PAGE}"

    def _directory(self, location: str, *, durable: bool = True) -> FileIO:
        return open_directory(location, durable=durable, storage=self._storage)

    def _named_tables(self) -> Iterator[Named]:
        for name in self.list_tables():
            database, _, table = name.partition(".")
            try:
                yield Named(database=database, name=table, table=self.table(name))
            except LsmError as error:
                yield Named(database=database, name=table, table=None, problem=str(error))

    def _exists(self, name: TableName) -> bool:
        try:
            self._names.load_table(name)
        except NotFoundError:
            return False
        return True
