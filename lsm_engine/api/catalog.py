"""The Catalog: databases and tables of a warehouse, with their names in an SQL database."""

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

import pyarrow as pa

from lsm_engine.api.catalog_tables import NewestState, catalog_table
from lsm_engine.api.lineage_sync import (
    CatalogListener,
    LineageSync,
    rebuild_lineage,
    sync_table,
)
from lsm_engine.api.table import Table
from lsm_engine.base.arguments import checks_all_arguments, checks_arguments
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    without_secrets,
)
from lsm_engine.base.other_libraries import CATALOG, missing_attribute
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.lineage.page import lineage_page
from lsm_engine.catalog.names import DEFAULT_DIRECTORY, LINEAGE_PAGE, TableName, default_catalog_url
from lsm_engine.catalog.sql_catalog import SqlCatalog, TableInfo
from lsm_engine.ddl.create import create_table, refuse_beside_drop
from lsm_engine.ddl.open import load_schema, open_directory_of_table
from lsm_engine.filter.where import Filter
from lsm_engine.inspect.explain import RowOrigin, row_origin
from lsm_engine.options import core_options
from lsm_engine.storage.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.storage.executor import in_threads
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import DATABASE_SUFFIX, scheme_of
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.storage.paths import BEING_RENAMED
from lsm_engine.storage.warehouse import (
    STORES,
    database_directories,
    delete_drop_markers,
    drop_directory,
    move_directory,
    move_renamed,
    open_directory,
    renamed_as,
    table_directories,
)
from lsm_engine.table.components import (
    Components,
    Executor,
    LocalExecutor,
    TableListener,
)
from lsm_engine.table.names import names_of
from lsm_engine.table.session import TableSession
from lsm_engine.table.time_travel import snapshot_to_read
from lsm_engine.types.columns import columns_of
from lsm_engine.types.table_schema import TableSchema

if TYPE_CHECKING:
    from lsm_engine.api.auto_cdc import AutoCdcOptions
    from lsm_engine.table.iceberg import IcebergStore

# -- The registered tables of a catalog ------------------------------------------------------------------
#
# Registering, adopting and unregistering tables, and rebuilding a catalog from the warehouse.

log = logging.getLogger(__name__)


class CatalogRegistry(ABC):
    """The part of a Catalog that registers tables whose directories exist already."""

    _names: SqlCatalog
    _storage: StorageOptions

    @abstractmethod
    def table(self, name: str) -> Table:
        """Open a table."""

    @abstractmethod
    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of tables."""

    @property
    @abstractmethod
    def warehouse(self) -> str:
        """The directory that tables are created in."""

    def register_table(self, name: str) -> Table:
        """Name a table whose directory is already in the warehouse, at "<database>.db/<table>".

        Raises NotFoundError if there is none, AlreadyExistsError if the name is taken, or while the table
        that was there is being dropped.
        """
        table_name = TableName.parse(name)
        schema = self._schema_of(table_name.checked())
        if self._finished_rename(table_name):
            return self.table(name)
        return self._name_and_open(table_name, schema)

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

        def move() -> None:
            move_directory(path, location, self._storage)
            # Another process may have adopted it under another name since.
            load_schema(self._directory(location), path)

        with self._moving(move, path, table_name) as move_once:
            self.name_table(table_name, schema, move_once)
        return self.table(name)

    @contextmanager
    def _moving(
        self, move: Callable[[], None], source: str, name: TableName
    ) -> Iterator[Callable[[], None]]:
        """Yield what calls `move` once within the transaction of a name; if that fails, the directory goes back to `source`."""
        location = self._names.table_location(name)
        is_moved = False

        def move_once() -> None:
            nonlocal is_moved
            if not is_moved:  # the transaction may run again
                move()
                is_moved = True
            # Drops that have not forgotten the old name by now cannot any more, and no drop of the new one has begun.
            delete_drop_markers(self._directory(location))

        try:
            yield move_once
        except LsmError as error:
            # Without an answer the name may be the new one all the same.
            if is_moved and not self._is_named(name, location, error):
                move_directory(location, source, self._storage)
            raise

    def _is_named(self, name: TableName, location: str, error: LsmError) -> bool:
        """Whether the catalog has a name whose transaction failed; CommitUnknownError if it does not answer."""
        try:
            return self._exists(name)
        except LsmError:
            raise CommitUnknownError(
                "the catalog does not answer whether the table has its new name, and its files are at the new place; once "
                "it answers, do it again or move the directory back",
                table=name.text,
                path=location,
            ) from error

    def _exists(self, name: TableName) -> bool:
        try:
            self._names.load_table(name)
        except NotFoundError:
            return False
        return True

    def unknown_tables(self) -> list[str]:
        """Return the tables in the warehouse that the catalog has no name for, from listings alone."""
        registered = set(self.list_tables())
        return [name for name in self.found_tables() if name not in registered]

    def found_tables(self) -> list[str]:
        """Return the tables whose directories lie in the warehouse, from listings alone.

        Those that a catalog cannot name are left out: `unnameable_tables`.
        """
        return self.found_and_unnameable()[0]

    def unnameable_tables(self) -> dict[str, str]:
        """Return tables in the warehouse whose directories no name means, by path in it, and why."""
        return self.found_and_unnameable()[1]

    def found_and_unnameable(self) -> tuple[list[str], dict[str, str]]:
        """Return the results of `found_tables` and `unnameable_tables`, from the same listings."""
        names, unnameable = [], {}
        for database, table in table_directories(self.warehouse, self._storage):
            try:
                names.append(TableName(database=database, table=table).checked().text)
            except LsmError as error:  # the first clause of the message is the reason
                path = f"{database}{DATABASE_SUFFIX}/{table}"
                unnameable[path] = error.message.partition(";")[0]
        return names, unnameable

    @property
    def is_in_memory(self) -> bool:
        """Whether the catalog lives in memory, and ends with this process."""
        return self._names.database.is_in_memory

    def register_found_tables(self) -> list[str]:
        """Register every table in the warehouse that the catalog lacks, of any client; return their names.

        A catalog in memory takes databases without tables as well.

        A table whose schema cannot be read gets its name all the same: opening it raises why.
        """
        unknown = self.unknown_tables()
        databases = (
            database_directories(self._names.warehouse, self._storage) if self.is_in_memory else ()
        )
        for database in databases:
            with suppress(InvalidInputError):  # a directory that no database's name means
                self._names.create_database(database, ignore_existing=True)
        return [name for name in unknown if self._is_registered(TableName.parse(name))]

    def _is_registered(self, name: TableName) -> bool:
        """Register a table that was found; False where another process names or drops it meanwhile."""
        if self.is_in_memory:  # names go with the process, and cost no look
            self.name_table(name, None)
            return True
        if self._finished_rename(name):
            return True
        try:
            schema = self._schema_of(name)
        except LsmError as error:
            log.warning("table %s is named, and cannot be opened: %s", name, error)
            schema = None
        try:
            self._name_beside_drops(name, schema)
        except (AlreadyExistsError, NotFoundError) as error:
            log.warning("table %s is not named: %s", name, error)
            return False
        except StorageError as error:
            # Opening it raises the same.
            log.warning("the directory of table %s cannot be listed: %s", name, error)
        return True

    def _schema_of(self, name: TableName) -> TableSchema:
        location = self._names.table_location(name)
        return load_schema(self._directory(location), location)

    def name_table(
        self, name: TableName, schema: TableSchema | None, move: Callable[[], None] = lambda: None
    ) -> None:
        """Give a table its name, with a copy of its options if they can be read; `move` moves its directory."""
        self._names.register_table(
            name,
            options=None if schema is None else schema.options.texts,
            primary_key=() if schema is None else schema.primary_keys,
            partitioned_by=() if schema is None else schema.partition_keys,
            create_database=True,
            move=move,
        )

    def _rename(self, old: TableName, new: TableName) -> None:
        """Rename a table's directory within the transaction that renames its name, or finish a rename that died."""
        source, target = map(self._names.table_location, (old, new))

        def move() -> None:
            move_renamed(source, target, f"{old.text} {new.text}", self._storage)

        with self._moving(move, source, new) as move_once:
            self._names.rename_table(old, new, move_once)
        with suppress(LsmError):  # once the name is there the sign means nothing
            self._directory(target).delete(BEING_RENAMED)

    def _renamed_from(self, name: TableName) -> TableName | None:
        """Return the name from which a table was renamed when that died after it had moved the files; None: it was not."""
        old, _, new = renamed_as(self._directory(self._names.table_location(name))).partition(" ")
        if new != name.text or not self._exists(TableName.parse(old)):
            return None
        former = TableName.parse(old)
        has_files = self._directory(self._names.table_location(former)).list("")
        return None if has_files else former

    def _finished_rename(self, name: TableName) -> bool:
        """Finish the rename to a name that died after it had moved the files; False if there was none."""
        former = self._renamed_from(name)
        if former is None:
            return False
        with suppress(NotFoundError):  # another process has finished it
            self._rename(former, name)
        return True

    def rebuild(self) -> dict[str, int]:
        """Rebuild a lost catalog from the warehouse: names first, then lineage, for every table.

        Returns the number of snapshots recorded, per table; one that cannot be read is left out, with a
        warning. What the catalog knows already is kept. A damaged file has to be moved aside first:
        `set_damaged_file_aside`.
        """
        self.register_found_tables()
        return self.rebuild_lineage()

    def rebuild_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Rebuild the lineage of tables (default: all) and their branches from their files.

        Returns how many snapshots of main were recorded, per table.
        """
        names = tables if tables is not None else self.list_tables()
        recorded = {}
        for name in names:
            try:
                table = self.table(name)
                recorded[name] = rebuild_lineage(table.session, self._names.lineage)
                self._rebuild_branches(table)
            except LsmError as error:
                if tables is not None:
                    # The caller named the table; of all tables one may be damaged.
                    raise
                log.warning("the lineage of table %s is not recorded: %s", name, error)
        self._names.delete_former_outbox()
        return recorded

    def _rebuild_branches(self, table: Table) -> None:
        """Rebuild the lineage of the branches of a table, and delete that of deleted branches.

        A branch that cannot be read is left out, with a warning.
        """
        lineage, branches = self._names.lineage, table.branches()
        for branch in branches:
            try:
                rebuild_lineage(table.branch(branch).session, lineage)
            except LsmError as error:  # other branches are recorded all the same
                log.warning(
                    "the lineage of branch %s of table %s is not recorded: %s",
                    branch,
                    table.name,
                    error,
                )
        name = TableName.parse(table.name)
        for recorded in lineage.tables(branches_of=name):
            if recorded.branch not in (*branches, name.branch):
                lineage.forget(recorded)

    def sync_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Record what the files of tables (default: all) and their branches hold that the lineage lacks.

        Questions to `lineage` do so by themselves, and maintenance before it removes something: this is for who reads the
        views by SQL. Returns how many commits of main were recorded, per table.
        """
        recorded = {}
        for name in self.list_tables() if tables is None else tables:
            try:
                recorded[name] = sync_table(self.table(name).session, self._names.lineage)
            except LsmError as error:
                if tables is not None:
                    # The caller named the table; of all tables one may be damaged.
                    raise
                log.warning("the lineage of table %s is not up to date: %s", name, error)
        return recorded

    def _name_and_open(self, name: TableName, schema: TableSchema) -> Table:
        """Name a table and open it."""
        self._name_beside_drops(name, schema)
        return self.table(str(name))

    def _name_beside_drops(self, name: TableName, schema: TableSchema | None) -> None:
        """Name a table; take the name back, and raise, if a drop deletes its files meanwhile, or has done so."""
        self.name_table(name, schema)
        directory = self._directory(self._names.table_location(name))
        try:
            refuse_beside_drop(directory, is_made=True)
        except (AlreadyExistsError, NotFoundError):
            # The name would lead to a table without files.
            with suppress(_MadeAnew):
                self._names.drop_table(
                    name, ignore_missing=True, mark=lambda: _require_dropped(directory)
                )
            raise

    def _directory(self, location: str) -> FileIO:
        return open_directory(location, storage=self._storage)


class _MadeAnew(LsmError):
    """Another process has made a table where the files of a dropped one were, and may have named it."""


def _require_no_external_files(session: TableSession | None) -> None:
    """Raise UnsupportedError for a table with data files outside of its directory: nothing here deletes them."""
    option = core_options.DATA_FILE_EXTERNAL_PATHS
    if session is not None and session.options[option] is not None:
        raise UnsupportedError(
            "data files of the table lie outside of its directory, and would stay; drop it by the client that "
            "writes it, or remove the option first and delete them yourself",
            table=session.name,
            option=option.key,
            value=session.options[option],
        )


def _iceberg_elsewhere(session: TableSession | None) -> Callable[[], None]:
    """Return what deletes the Iceberg metadata of a table that lies outside of its directory, if there is any."""
    with suppress(LsmError):  # a damaged table can be dropped, too
        if session is not None and session.options.iceberg_location == "catalog-location":
            store: IcebergStore = import_module("lsm_engine.table.iceberg").open_store(session)
            return store.remove_all
    return lambda: None


def _require_dropped(directory: FileIO) -> None:
    with suppress(AlreadyExistsError, NotFoundError):
        refuse_beside_drop(directory, is_made=True)
        raise _MadeAnew("a table was made here meanwhile")


# -- Catalog: databases and tables -----------------------------------------------------------------

_IN_FLIGHT = 16
"""Tables of an object store that are read together: most of the time is spent on waiting."""
N = TypeVar("N")
R = TypeVar("R")


def map_tables(warehouse: str, work: Callable[[N], R], items: Iterable[N]) -> Iterator[R]:
    """Return the results of work on several tables, in order; in an object store it runs concurrently."""
    if scheme_of(warehouse) is None:  # on a disk, threads would only wait for each other
        return map(work, items)
    return in_threads(work, items, threads=_IN_FLIGHT, name="lsm-tables")


_SERVERS = ("http://", "https://")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@checks_arguments
def open_catalog(
    url: str | os.PathLike[str] | None = None,
    *,
    warehouse: str | os.PathLike[str] | None = None,
    storage: Mapping[str, Any] | StorageOptions | None = None,
    catalog_key: str | None = None,
    token: str | None = None,
    executor: Executor | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> "Catalog":
    """Open the catalog in a database, created if absent; tables live below `warehouse`.

    Args:
        url: A database URL, the address of a server (`lsm serve`), or the warehouse: a directory or a URL such as s3://bucket/lake. Without a
            database the catalog is `catalog.db` in the warehouse's directory, or a file below ./lake for a
            warehouse with a scheme, as for the command line and Dagster.
        warehouse: The directory or URL of the tables. By default the one that the catalog's databases record, as Java
            and pypaimon do; `./lake` if it has them, or if there are none.
        storage: Options of the warehouse's store (docs/object-stores.md). They come before those of the
            environment.
        catalog_key: Which catalog, if the database has several.
        token: The token for a server. None: LSM_TOKEN of the environment.
        executor: Runs writes, compactions and reads; None for this process.
        clock: For tests; None for the system clock.
        ids: For tests; None for random ids.

    Returns:
        The catalog. Use it with `with`, or close it.

    Raises:
        InvalidOptionError: The URL is invalid.
        InvalidInputError: The database holds something else.
    """
    options = StorageOptions.coerce(storage)
    if isinstance(url, str) and url.startswith(_SERVERS):
        # Imported on use: few processes ask a server.
        client = import_module("lsm_engine.api.rest_catalog")
        catalog: Catalog = client.RestCatalog(
            client.Connection(url, token),
            storage=options,
            executor=executor or LocalExecutor(),
            clock=clock or SystemClock(),
            ids=ids or SystemIds(),
        )
        return catalog
    database, directory = _places(url, warehouse)
    if directory is not None and scheme_of(directory) is not None:
        # What is wrong with it is known before a file is made.
        open_directory(directory, storage=options)
        file = database.partition(":///")[2]
        if database == default_catalog_url(directory) and not os.path.exists(file):
            log.warning(
                "the catalog of %s is made anew in %s, without names; catalog.register_found_tables() "
                "names tables that are there, and a shared database is open_catalog(url, warehouse=…)",
                without_secrets(directory),
                file,
            )
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
    """Return the URL of the database, and the directory of the warehouse unless the database has it."""
    if not isinstance(url, str | os.PathLike | None):
        raise InvalidInputError(
            "a catalog is opened by a directory or a database URL: write open_catalog('lake'), or "
            "open_catalog(url, warehouse='lake')",
            given=type(url).__name__,
        )
    catalog_url = None if url is None else os.fspath(url)
    if catalog_url == ":memory:":
        raise InvalidInputError("tables are files: give a directory, such as tempfile.mkdtemp()")
    directory = None if warehouse is None else os.fspath(warehouse)
    # One argument that is no URL of a database is the directory of the warehouse.
    if (
        catalog_url is not None
        and directory is None
        and (not _URL.match(catalog_url) or scheme_of(catalog_url) in STORES)
    ):
        catalog_url, directory = None, catalog_url
    if directory is not None and os.path.isfile(directory):
        raise InvalidInputError(
            "this is a file: give its directory, or the URL of a database, 'sqlite:///path/to/catalog.db'",
            directory=directory,
        )
    if catalog_url is None:
        directory = directory or DEFAULT_DIRECTORY
        catalog_url = default_catalog_url(directory)
    return catalog_url, directory


@checks_all_arguments
class Catalog(CatalogRegistry):
    """The databases and tables of a warehouse, and their lineage."""

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
        self._sync = LineageSync(
            names,
            open_table=lambda name: self.table_in_warehouse(name).session,
            is_named=self.__contains__,
            table_names=self.list_tables,
        )
        self._lineage = Lineage(
            names.database,
            catalog_key=names.catalog_key,
            before_reading=self._sync.before_question,
        )

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
        self._sync.close()
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
        """The lineage of runs, snapshots, manifests, files and tags, as Arrow tables.

        Each question records first what the files of the tables hold that is new.
        """
        return self._lineage

    # --- databases -------------------------------------------------------------------------------

    def create_database(
        self,
        name: str,
        *,
        ignore_if_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a database with properties; raises AlreadyExistsError unless `ignore_if_exists`."""
        self._names.create_database(name, ignore_existing=ignore_if_exists, properties=properties)

    def database_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a database, its `location` among them; NotFoundError if there is none."""
        return dict(self._names.load_database(name).properties)

    def alter_database(
        self, name: str, *, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> list[str]:
        """Set and remove properties of a database; return the removed ones that were there."""
        return self._names.alter_database(name, updates=updates or {}, removals=removals)

    def list_databases(self) -> list[str]:
        """Return the databases by name."""
        return self._names.list_databases()

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database; with `cascade` its tables and all their files as well."""
        if cascade:
            # Table by table: an interrupted drop leaves whole tables and a database to drop again.
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

        Args:
            name: The database and the table, with a dot between.
            schema: A pyarrow.Schema, a frame that has one (polars, pandas, Arrow, DuckDB; its rows are not
                written), or a mapping of names to types: Arrow's, SQL text, or Python's.
            primary_key: One column's name, or several; they become NOT NULL. Without one it is an append table.
            partitioned_by: One column's name, or several. The primary key has to include them, unless
                `bucket` = -1.
            options: Table options (docs/options.md). Without `bucket` the table gets one bucket per partition.
            comment: A comment on the table.
            ignore_if_exists: Return an existing table of this name as it is.

        Raises:
            AlreadyExistsError: The table exists.
            InvalidOptionError: An option is wrong; nothing was created.
            UnsupportedError: An option is not supported; nothing was created.
        """
        table_name = TableName.parse(name)
        table_name.checked()
        # The check comes first, as a table that exists needs no options to be valid.
        if ignore_if_exists and self._exists(table_name):
            return self.table(name)
        keys = (
            names_of(primary_key, "primary_key"),
            () if partitioned_by is None else names_of(partitioned_by, "partitioned_by"),
        )
        return self._created(table_name, columns_of(schema), keys, options or {}, comment)

    def create_auto_cdc_table(
        self,
        name: str,
        source: Any,
        *,
        options: Mapping[str, object] | None = None,
        **flow: "Unpack[AutoCdcOptions]",
    ) -> Table:
        """Create the table that change events are applied to by `Table.auto_cdc`, and return it.

        Args:
            name: The database and the table, with a dot between.
            source: The columns of the events, as the schema of `create_table`.
            options: Table options.
            flow: As in `Table.auto_cdc`. Of type 2 the table has columns `__START_AT` and `__END_AT`; of type 1 a column
                `__SEQUENCE`, unless one of its columns is the sequence.

        Raises:
            InvalidInputError: The source lacks a column of the flow.
        """
        cdc = import_module("lsm_engine.api.auto_cdc").AutoCdc.from_options(flow)
        columns = columns_of(source)
        columns = cdc.table_columns(columns, cdc.sequence_type(columns))
        table_options = cdc.table_options(columns, options or {})
        return self.create_table(name, columns, cdc.primary_key, options=table_options)

    def _created(
        self,
        name: TableName,
        columns: pa.Schema,
        keys: tuple[tuple[str, ...], tuple[str, ...]],
        options: Mapping[str, object],
        comment: str | None,
    ) -> Table:
        """Create a table; `keys`: the columns of its primary key, and those of its partitions."""
        created = create_table(
            self._directory(self._names.table_location(name)),
            columns,
            primary_key=keys[0],
            partitioned_by=keys[1],
            options=options,
            comment=comment,
            clock=self._clock,
            is_unknown=lambda: not self._exists(name),
        )
        table = self._name_and_open(name, created)
        table.session.follow_iceberg()
        return table

    def table(self, name: str) -> Table:
        """Open a table; raises NotFoundError, naming a near match, if there is none of this name."""
        table_name = TableName.parse(name)
        try:
            return self._open_location(name, self._load_info(table_name).location)
        except NotFoundError as error:
            raise self._with_rename(table_name, error) from None

    def _with_rename(self, name: TableName, error: NotFoundError) -> NotFoundError:
        """Return the error of a table that is not there, or one that names the rename that left it so."""
        with suppress(LsmError):
            for new_name in self.unknown_tables() if self._exists(name) else [name.text]:
                former = self._renamed_from(TableName.parse(new_name))
                if former is not None and name.text in (former.text, new_name):
                    return NotFoundError(
                        f"a rename of {former} to {new_name} was cut off after it had moved the files; rename the table "
                        "again, which finishes it",
                        kind=ErrorKind.NO_SUCH_TABLE,
                        table=name.text,
                    )
        return error

    def table_in_warehouse(self, name: str) -> Table:
        """Open a table where its directory has to be, whether the catalog knows it or not."""
        return self._open_location(name, self._names.table_location(TableName.parse(name)))

    def newest_states(self, names: Iterable[str] | None = None) -> Iterator[NewestState]:
        """Yield tables of the warehouse (None: all that the catalog knows) with their newest snapshots.

        One that cannot be opened or read has its error. In an object store several are read together.
        """
        table_names = self.list_tables() if names is None else names
        yield from map_tables(self.warehouse, self.newest_state, table_names)

    def newest_state(self, name: str) -> NewestState:
        """Return a table of the warehouse with its newest snapshot, or the error of either."""
        table = None
        try:
            table = self.table_in_warehouse(name)
            return NewestState(name=name, table=table, newest=table.latest_snapshot())
        except LsmError as error:  # one damaged table does not hide the others
            return NewestState(name=name, table=table, problem=error)

    def _open_location(self, name: str, location: str) -> Table:
        file_io, schema = open_directory_of_table(location, self._storage)
        components = Components(
            file_io=self._allowed(file_io),
            location=location,
            storage=self._storage,
            executor=self._executor,
            clock=self._clock,
            ids=self._ids,
            listeners=self._listeners(),
        )
        return Table(TableSession(name, components, schema), location)

    def _allowed(self, file_io: FileIO) -> FileIO:
        """Return the storage of a table with what the caller may do with it."""
        return file_io

    def _listeners(self) -> tuple[TableListener, ...]:
        return (CatalogListener(names=self._names, sync=self._sync),)

    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of a database's tables, or of all tables as "database.table"."""
        # The names within one database carry no prefix.
        if database is not None:
            return self._names.list_tables(database)
        names = (
            f"{database}.{table}"
            for database in self._names.list_databases()
            for table in self._names.list_tables(database)
        )
        return list(names)

    def drop_table(self, name: str, *, ignore_if_missing: bool = False) -> None:
        """Drop a table: its name, its lineage, and then its files one by one.

        Raises UnsupportedError for a table with data files outside of its directory, which would stay.
        """
        table_name = TableName.parse(name)
        try:
            location = self._names.load_table(table_name).location
        except NotFoundError:
            # The caller accepts that another process dropped the table.
            if ignore_if_missing:
                return
            raise
        session = self._session_if_whole(name, location)
        _require_no_external_files(session)
        remove_iceberg = _iceberg_elsewhere(session)
        # The name is dropped before the files, so no reader opens a table in pieces.
        drop_directory(
            self._directory(location),
            lambda mark: self._names.drop_table(
                table_name, ignore_missing=ignore_if_missing, mark=mark
            ),
            self._ids.new_id(),
        )
        remove_iceberg()

    def _session_if_whole(self, name: str, location: str) -> TableSession | None:
        with suppress(LsmError):  # a damaged table can be dropped, too
            return self._open_location(name, location).session
        return None

    def rename_table(self, source: str, target: str) -> Table:
        """Rename a table: its directory within the transaction that renames its name.

        Raises AlreadyExistsError, CommitUnknownError where others take the new name away before this returns, and
        UnsupportedError on an object store, where no table is renamed.
        """
        old, new = TableName.parse(source), TableName.parse(target)
        new.checked()
        info = self._names.load_table(old)
        remove_iceberg = _iceberg_elsewhere(self._session_if_whole(source, info.location))
        self._rename(old, new)
        remove_iceberg()
        try:
            table = self.table(target)
        except NotFoundError as error:
            # Not the answer of a rename without a source, after which nothing has changed.
            raise CommitUnknownError(
                f"{source} was renamed to {target}, which another process has renamed or dropped since; "
                "list the tables",
                table=target,
            ) from error
        # Iceberg metadata names files by where they lay.
        table.session.follow_iceberg()
        return table

    def explain_row(
        self,
        name: str,
        key: Mapping[str, Any],
        snapshot_id: int | None = None,
        tag: str | None = None,
    ) -> RowOrigin:
        """Return the runs and input snapshots from which a row of a table was made; see `explain_key`."""
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
        """Write the page of the lineage of all tables into the warehouse; return its location."""
        page = lineage_page(self.lineage).encode()
        self._directory(self.warehouse).replace(LINEAGE_PAGE, page)
        return f"{self.warehouse}/{LINEAGE_PAGE}"

    def _load_info(self, name: TableName) -> TableInfo:
        try:
            return self._names.load_table(name)
        except NotFoundError as error:
            # A directory without a name is that of a lost catalog, or of another client.
            if self._directory(self._names.table_location(name)).list("schema"):
                error = NotFoundError(
                    f"{name.text} lies in the warehouse, and the catalog does not know it; 'lsm catalog "
                    f"register {name.text}' names it, 'lsm catalog rebuild' all such tables",
                    kind=error.kind,
                    table=name.text,
                )
            raise error from None
