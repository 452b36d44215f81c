"""Catalog: names in SQL, tables in directories; what is created, opened, renamed and dropped."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from lsm_engine.base.arguments import checks_all_arguments, checks_arguments
from lsm_engine.base.errors import InvalidInputError, LsmError, NotFoundError
from lsm_engine.base.other_libraries import CATALOG, missing_attribute
from lsm_engine.base.redaction import without_secrets
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.catalog.lineage_page import lineage_page
from lsm_engine.catalog.locations import (
    DEFAULT_DIRECTORY,
    LINEAGE_PAGE,
    default_catalog_url,
)
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog, TableInfo
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions
from lsm_engine.io.stores import STORES
from lsm_engine.io.warehouse import (
    drop_directory,
    move_directory,
    open_directory,
)
from lsm_engine.prune.where import Filter
from lsm_engine.schema.given_columns import columns_of
from lsm_engine.table.ddl.create import create_table
from lsm_engine.table.ddl.open_session import open_directory_of_table
from lsm_engine.table.ground.components import Components
from lsm_engine.table.ground.executor import Executor, LocalExecutor
from lsm_engine.table.ground.given_names import names_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import snapshot_to_read
from lsm_engine.table.inspect.explain_row import RowOrigin, row_origin
from lsm_engine.table.lineage_listener import CatalogListener
from lsm_engine.table.table import Table
from lsm_engine.table.warehouse_registry import CatalogRegistry
from lsm_engine.table.warehouse_tables import NewestState, catalog_table

_IN_FLIGHT = 16
"""Tables of an object store that are read together: most of the time is spent on waiting."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@checks_arguments
def open_catalog(
    url: str | os.PathLike[str] | None = None,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    storage: Mapping[str, Any] | StorageOptions | None = None,
    catalog_key: str | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> "Catalog":
    """Open the catalog in a database, created if absent; tables live below `warehouse`.

    `url`: a database URL, or the warehouse: a directory or a URL such as s3://bucket/lake. Without a
    database the catalog is `catalog.db` in the warehouse's directory, or a file below ./lake for one with
    a scheme, as for the command line and Dagster; without a warehouse that is `./lake`, or the directory
    that a catalog of Java or pypaimon records. `catalog_key`: which catalog, if the database has several.
    `storage` has
    that store's options (docs/object-stores.md), before those of the environment. `executor` None:
    this process. Raises InvalidOptionError for a URL that is none and InvalidInputError for a
    database that holds something else.
    """
    database, directory = _places(url, warehouse)
    options = StorageOptions.coerce(storage)
    if (
        directory is not None and scheme_of(directory) is not None
    ):  # what is wrong with it is known before a file is made
        open_directory(directory, storage=options)
    return Catalog(
        SqlCatalog.open(database, warehouse=directory, catalog_key=catalog_key),
        storage=options,
        executor=executor or LocalExecutor(),
        clock=clock or SystemClock(),
        ids=ids or SystemIds(),
    )


def _places(
    url: str | os.PathLike[str] | None, warehouse: str | os.PathLike[str] | None
) -> tuple[str, str | None]:
    """Return the database's URL and the warehouse's directory, if it is known without a look inside."""
    if not isinstance(url, str | os.PathLike | None):
        raise InvalidInputError(
            "a catalog is opened by a directory or a database URL: write open_catalog('lake'), or "
            "open_catalog(url, warehouse='lake')",
            given=type(url).__name__,
        )
    given = None if url is None else os.fspath(url)
    if given == ":memory:":
        raise InvalidInputError("tables are files: give a directory, such as tempfile.mkdtemp()")
    directory = None if warehouse is None else os.fspath(warehouse)
    if (
        given is not None
        and directory is None
        and (not _URL.match(given) or scheme_of(given) in STORES)
    ):
        given, directory = None, given
    if directory is not None and os.path.isfile(directory):
        raise InvalidInputError(
            "this is a file: give its directory, or the URL of a database, 'sqlite:///path/to/catalog.db'",
            directory=directory,
        )
    if given is None:
        directory = directory or DEFAULT_DIRECTORY
        given = default_catalog_url(directory)
    return given, directory


@checks_all_arguments
class Catalog(CatalogRegistry):
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

    if not TYPE_CHECKING:  # a checker goes on refusing names that a catalog lacks

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("Catalog", name, CATALOG)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "cannot pickle 'Catalog' object: send its url and warehouse, and call "
            "lsm.open_catalog(url, warehouse=...) there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Catalog {self.url!r} of {without_secrets(self.warehouse)!r}>"

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return self._exists(TableName.parse(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_tables())

    def __len__(self) -> int:
        """Return the number of tables."""
        return len(self.list_tables())

    def __bool__(self) -> bool:
        return True  # a catalog is there, whether or not it names tables

    def __delitem__(self, name: object) -> NoReturn:
        raise TypeError(f"a table goes with its files: drop_table({name!r})")

    def __setitem__(self, name: object, rows: object) -> NoReturn:
        raise TypeError(
            f"a table is made by create_table({name!r}, columns, primary_key=...) and filled by upsert(rows)"
        )

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
        primary_key: str | Sequence[str] = (),
        *,
        partitioned_by: str | Sequence[str] | None = None,
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
        file_io = self._directory(self._names.table_location(table_name))
        created = create_table(
            file_io,
            columns_of(schema),
            primary_key=names_of(primary_key, "primary_key"),
            partitioned_by=()
            if partitioned_by is None
            else names_of(partitioned_by, "partitioned_by"),
            options=options or {},
            comment=comment,
            clock=self._clock,
            is_unknown=lambda: not self._exists(table_name),
        )
        return self._named(table_name, created)

    def table(self, name: str) -> Table:
        """Open a table; raises NotFoundError, naming a near match, if there is none of this name."""
        return self._opened(name, self._known(TableName.parse(name)).location)

    def table_in_warehouse(self, name: str) -> Table:
        """Open a table where its directory has to be, whether the catalog knows it or not."""
        return self._opened(name, self._names.table_location(TableName.parse(name)))

    def newest_states(self, names: Iterable[str] | None = None) -> Iterator[NewestState]:
        """Yield tables of the warehouse (None: all that the catalog knows) with their newest snapshots.

        One that cannot be opened or read has its error. In an object store several are read together.
        """
        wanted = self.list_tables() if names is None else names
        if scheme_of(self.warehouse) is None:  # on a disk, threads would only wait for each other
            yield from map(self.newest_state, wanted)
            return
        with ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="lsm-tables") as pool:
            yield from pool.map(self.newest_state, wanted)

    def newest_state(self, name: str) -> NewestState:
        """Return a table of the warehouse with its newest snapshot, or the error of either."""
        table = None
        try:
            table = self.table_in_warehouse(name)
            return NewestState(name=name, table=table, newest=table.latest_snapshot())
        except LsmError as error:
            return NewestState(name=name, table=table, problem=error)

    def _opened(self, name: str, location: str) -> Table:
        file_io, schema = open_directory_of_table(location, self._storage)
        components = Components(
            file_io=file_io,
            executor=self._executor,
            clock=self._clock,
            ids=self._ids,
            listeners=(CatalogListener(names=self._names),),
        )
        return Table(TableSession(name, components, schema), location)

    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of a database's tables, or of all tables as "database.table"."""
        if database is not None:
            return self._names.list_tables(database)
        names = (
            f"{database}.{table}"
            for database in self._names.list_databases()
            for table in self._names.list_tables(database)
        )
        return list(names)

    def drop_table(self, name: str, *, ignore_if_missing: bool = False) -> None:
        """Drop a table: its name, its lineage, and then its files one by one."""
        table_name = TableName.parse(name)
        try:
            location = self._names.load_table(table_name).location
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        drop_directory(
            self._directory(location),
            lambda: self._names.drop_table(table_name, ignore_missing=ignore_if_missing),
            self._ids.new_id(),
        )

    def rename_table(self, source: str, target: str) -> Table:
        """Rename a table: its directory first, then its name.

        Raises AlreadyExistsError, and UnsupportedError on an object store, where no table is renamed.
        """
        old, new = TableName.parse(source), TableName.parse(target)
        new.checked()
        info = self._names.load_table(old)
        location = self._names.table_location(new)
        move_directory(info.location, location, self._storage)
        try:
            self._names.rename_table(old, new)
        except LsmError:
            move_directory(location, info.location, self._storage)
            raise
        return self.table(target)

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

    def system(
        self,
        name: str,
        *,
        where: Filter | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a system table of the whole catalog: tables, partitions or all_table_options.

        A table that cannot be opened has its error in `tables`. `where` keeps some rows.
        """
        return catalog_table(self.newest_states(), name, where=where, columns=columns)

    def write_lineage_page(self) -> str:
        """Draw the lineage of all tables into the warehouse, in place of the page there; its location."""
        page = lineage_page(self.lineage).encode()
        self._directory(self.warehouse).replace(LINEAGE_PAGE, page)
        return f"{self.warehouse}/{LINEAGE_PAGE}"

    def _known(self, name: TableName) -> TableInfo:
        try:
            return self._names.load_table(name)
        except NotFoundError as error:
            if self._directory(self._names.table_location(name)).list("schema"):
                error = NotFoundError(
                    f"{name.text} lies in the warehouse, and the catalog does not know it; 'lsm catalog "
                    f"register {name.text}' names it, 'lsm catalog rebuild' all such tables",
                    kind=error.kind,
                    table=name.text,
                )
            raise error from None

    def _exists(self, name: TableName) -> bool:
        try:
            self._names.load_table(name)
        except NotFoundError:
            return False
        return True
