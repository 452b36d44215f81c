"""The catalog of databases and tables, in the tables that other Paimon clients share.

A table's directory follows from its name: `<warehouse>/<database>.db/<table>`; its schema lives in
that directory. The catalog holds the names, the properties of databases, and a copy of each table's options
for queries in SQL. The caller creates, moves and deletes directories.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import quote

from sqlalchemy import Connection, delete, update

from lsm_engine.base.errors import AlreadyExistsError, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.catalog.database import BUSY_TIMEOUT_MILLIS, Database, open_url
from lsm_engine.catalog.forgotten_rows import (
    HOLDING,
    Beside,
    HeldKeys,
    count_rows,
    forget_rows,
    texts_in,
)
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.catalog.lineage_outbox import Outbox
from lsm_engine.catalog.locations import DEFAULT_DIRECTORY, absolute_warehouse
from lsm_engine.catalog.migrations import open_database
from lsm_engine.catalog.models import (
    PAIMON_DATABASE_PROPERTIES,
    PAIMON_TABLE_PROPERTIES,
    PAIMON_TABLES,
    TABLES,
)
from lsm_engine.catalog.names import DATABASE_SUFFIX, TableName, check_database_name
from lsm_engine.catalog.paimon_rows import (
    LOCATION_PROPERTY,
    PaimonRows,
    catalog_keys,
    check_properties,
    copied_options,
)
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.storage_location import scheme_of
from lsm_engine.io.warehouse import open_directory

DEFAULT_CATALOG_KEY = "jdbc"
_FILE_SCHEME = re.compile(r"^file:(//)?(?=/)")
LINEAGE_WAIT_MILLIS = 30
"""How long an attempt to record lineage waits for a lock; then the fact goes into the outbox."""
COPY_WAIT_MILLIS = 2_000
"""How long an altered table waits for a lock to copy its options; the next alteration copies all of them again."""


@record
class DatabaseInfo:
    """A database: its directory and its properties."""

    name: str
    location: str
    properties: Mapping[str, str]


@record
class TableInfo:
    """A table: its directory and the copy of its options (the table's schema file decides)."""

    name: TableName
    location: str
    properties: Mapping[str, str]


class SqlCatalog:
    """The names in one warehouse. Threads, forked processes and other clients may share it."""

    def __init__(
        self, database: Database, *, warehouse: str, catalog_key: str = DEFAULT_CATALOG_KEY
    ) -> None:
        self.database = database
        self.warehouse = warehouse
        self.catalog_key = catalog_key
        self._rows = PaimonRows(catalog_key=catalog_key)
        self._hurried = database.waiting(LINEAGE_WAIT_MILLIS)
        self._copying = database.waiting(COPY_WAIT_MILLIS)
        self.outbox = Outbox(
            hurried=Lineage(self._hurried, catalog_key=catalog_key),
            background=Lineage(self._copying, catalog_key=catalog_key),
            patient=Lineage(database, catalog_key=catalog_key),
            places=_outbox_places(database, warehouse, catalog_key),
            is_near=database.dialect == "sqlite",
        )
        self.lineage = Lineage(database, catalog_key=catalog_key, before_reading=self.outbox.drain)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        warehouse: str | None,
        catalog_key: str | None = None,
        busy_timeout_millis: int = BUSY_TIMEOUT_MILLIS,
    ) -> Self:
        """Open the catalog at a database URL ("sqlite:///lake/catalog.db"), made if there is none.

        `catalog_key` separates several catalogs in one database; None: "jdbc", as for other clients, or
        the only one that is there. A warehouse without a scheme is made absolute; None: ./lake, or,
        where there is no such directory, the one that the catalog's databases are in. Raises InvalidOptionError or UnsupportedError for a wrong URL,
        InvalidInputError for a database of something else, CorruptFileError for a damaged one.
        """
        database = Database(open_url(url), busy_timeout_millis=busy_timeout_millis)
        open_database(database)
        key = catalog_key or database.read(_only_key)
        if warehouse is None:
            recorded = None if os.path.isdir(DEFAULT_DIRECTORY) else _recorded(database, key)
            warehouse = recorded or DEFAULT_DIRECTORY
        return cls(database, warehouse=absolute_warehouse(warehouse), catalog_key=key)

    def close(self) -> None:
        """Record the lineage that waits and close idle connections; later calls open new ones."""
        self.outbox.close()
        self.database.close()
        self._hurried.close()
        self._copying.close()

    def database_location(self, name: str) -> str:
        """Return the directory of a database, whether it exists or not."""
        check_database_name(name)
        return f"{self.warehouse}/{name}{DATABASE_SUFFIX}"

    def table_location(self, name: TableName) -> str:
        """Return the directory of a table, whether it exists or not."""
        return f"{self.database_location(name.database)}/{name.checked().table}"

    # ---- forgotten keys -------------------------------------------------------------------------

    def rows_with_keys(self, name: TableName, forgotten: HeldKeys) -> int:
        """Return the number of rows of a table, on all its branches, that hold a key or an emptied partition."""
        of_table = self._rows.of_table(TABLES, name)
        self.outbox.drain()
        return self.database.read(lambda connection: count_rows(connection, of_table, forgotten))

    def forget_keys(self, name: TableName, forgotten: HeldKeys) -> None:
        """Remove keys from the rows of a table, and from the bytes of the database's files.

        Raises StorageError, with the rows changed but not the files, if the database is busy.
        """
        of_table = self._rows.of_table(TABLES, name)
        self.outbox.drain(patiently=True)
        self.database.write(lambda connection: forget_rows(connection, of_table, forgotten))
        self.database.write_anew(HOLDING)

    def files_with_texts(self, texts: Iterable[bytes]) -> tuple[tuple[str, bytes], ...]:
        """Return the files of the database and of the outbox that hold one of some texts, and the text."""
        places = [Beside(file_io=place) for place in self.outbox.places]
        if self.database.path is not None:
            folder, _, own = self.database.path.rpartition("/")
            places.append(Beside(file_io=open_directory(folder or "/"), prefix=own))
        return tuple(texts_in(places, tuple(texts)))

    # ---- databases ------------------------------------------------------------------------------

    def create_database(
        self,
        name: str,
        *,
        properties: Mapping[str, str] | None = None,
        ignore_existing: bool = False,
    ) -> DatabaseInfo:
        """Create a database; AlreadyExistsError unless `ignore_existing`."""
        check_database_name(name)
        options = dict(properties or {})
        check_properties(options)

        def work(connection: Connection) -> DatabaseInfo:
            if self._rows.has_database(connection, name):
                if not ignore_existing:
                    raise AlreadyExistsError("this database exists; choose another name", name=name)
            else:
                self._insert_database(connection, name, options)
            return self._database_info(connection, name)

        return self.database.write(work)

    def load_database(self, name: str) -> DatabaseInfo:
        """Return a database; NotFoundError if there is none of this name."""

        def work(connection: Connection) -> DatabaseInfo:
            self._rows.require_database(connection, name)
            return self._database_info(connection, name)

        return self.database.read(work)

    def list_databases(self) -> list[str]:
        """Return all names, sorted."""
        return self.database.read(self._rows.database_names)

    def drop_database(
        self, name: str, *, cascade: bool = False, ignore_missing: bool = False
    ) -> list[TableName]:
        """Forget a database and return the tables that went with it, their lineage included.

        With tables left in it, InvalidInputError unless `cascade`. No file is touched.
        """

        def work(connection: Connection) -> list[TableName]:
            if not self._rows.has_database(connection, name) and ignore_missing:
                return []
            self._rows.require_database(connection, name)
            tables = self._rows.table_names(connection, name)
            if tables and not cascade:
                raise InvalidInputError(
                    "this database still has tables; drop them first, or cascade",
                    database=name,
                    tables=len(tables),
                )
            for model in (PAIMON_TABLES, PAIMON_TABLE_PROPERTIES, PAIMON_DATABASE_PROPERTIES):
                connection.execute(delete(model).where(*self._rows.of_database(model, name)))
            connection.execute(delete(TABLES).where(*self._rows.of_database(TABLES, name)))
            return [TableName(database=name, table=table) for table in tables]

        self.outbox.drain(patiently=True)
        return self.database.write(work)

    # ---- tables ---------------------------------------------------------------------------------

    def register_table(
        self,
        name: TableName,
        *,
        options: Mapping[str, str] | None = None,
        primary_key: tuple[str, ...] = (),
        partitioned_by: tuple[str, ...] = (),
        create_database: bool = False,
    ) -> TableInfo:
        """Give a table its name; AlreadyExistsError if it is taken.

        Its database must exist unless `create_database`. `options` and keys are copied for people
        who look; a value of more than 1000 characters is left out, as the schema file has it whole.
        """
        name.checked()
        copied = copied_options(options or {}, primary_key, partitioned_by)

        def work(connection: Connection) -> TableInfo:
            if create_database and not self._rows.has_database(connection, name.database):
                self._insert_database(connection, name.database, {})
            self._rows.require_database(connection, name.database)
            if self._rows.has_table(connection, name):
                raise AlreadyExistsError("this table exists; choose another name", table=name.text)
            self._rows.insert_table(connection, name)
            self._rows.insert_table_properties(connection, name, copied)
            return self._table_info(connection, name)

        return self.database.write(work)

    def load_table(self, name: TableName) -> TableInfo:
        """Return a table; NotFoundError, naming a near match, if there is none of this name."""

        def work(connection: Connection) -> TableInfo:
            self._rows.require_table(connection, name)
            return self._table_info(connection, name)

        return self.database.read(work)

    def list_tables(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted; NotFoundError if there is no such one."""

        def work(connection: Connection) -> list[str]:
            self._rows.require_database(connection, database)
            return self._rows.table_names(connection, database)

        return self.database.read(work)

    def replace_table_properties(
        self,
        name: TableName,
        *,
        options: Mapping[str, str],
        primary_key: tuple[str, ...] = (),
        partitioned_by: tuple[str, ...] = (),
    ) -> None:
        """Copy a table's options anew after its schema changed; StorageError if others keep the lock.

        The wait is short: the schema file decides.
        """
        copied = copied_options(options, primary_key, partitioned_by)

        def work(connection: Connection) -> None:
            self._rows.require_table(connection, name)
            rows = delete(PAIMON_TABLE_PROPERTIES)
            connection.execute(rows.where(*self._rows.of_table(PAIMON_TABLE_PROPERTIES, name)))
            self._rows.insert_table_properties(connection, name, copied)

        self._copying.write(work)

    def rename_table(self, source: TableName, target: TableName) -> TableInfo:
        """Rename a table, its lineage included; the caller moves its directory."""
        target.checked()

        def work(connection: Connection) -> TableInfo:
            self._rows.require_table(connection, source)
            self._rows.require_database(connection, target.database)
            if self._rows.has_table(connection, target):
                raise AlreadyExistsError(
                    "this table exists; choose another name", table=target.text
                )
            # Rows of a table that another client has dropped must not block the name.
            connection.execute(delete(TABLES).where(*self._rows.of_table(TABLES, target)))
            for model in (PAIMON_TABLES, PAIMON_TABLE_PROPERTIES, TABLES):
                renamed = update(model).where(*self._rows.of_table(model, source))
                connection.execute(
                    renamed.values(database_name=target.database, table_name=target.table)
                )
            return self._table_info(connection, target)

        self.outbox.drain(patiently=True)
        return self.database.write(work)

    def drop_table(self, name: TableName, *, ignore_missing: bool = False) -> bool:
        """Forget a table and its lineage; False if it was not there. No file is touched.

        One of several concurrent drops gets True.
        """

        def work(connection: Connection) -> bool:
            deleted = connection.execute(
                delete(PAIMON_TABLES).where(*self._rows.of_table(PAIMON_TABLES, name))
            )
            if not deleted.rowcount:
                if not ignore_missing:
                    self._rows.require_table(connection, name)
                return False
            for model in (PAIMON_TABLE_PROPERTIES, TABLES):
                connection.execute(delete(model).where(*self._rows.of_table(model, name)))
            return True

        self.outbox.drain(patiently=True)
        return self.database.write(work)

    # ---- inside a transaction -------------------------------------------------------------------

    def _insert_database(
        self, connection: Connection, name: str, properties: Mapping[str, str]
    ) -> None:
        location = self.database_location(name)
        self._rows.insert_database(connection, name, location, properties)

    def _database_info(self, connection: Connection, name: str) -> DatabaseInfo:
        return DatabaseInfo(
            name=name,
            location=self.database_location(name),
            properties=self._rows.database_properties(connection, name),
        )

    def _table_info(self, connection: Connection, name: TableName) -> TableInfo:
        return TableInfo(
            name=name,
            location=self.table_location(name),
            properties=self._rows.table_properties(connection, name),
        )


def _only_key(connection: Connection) -> str:
    keys = catalog_keys(connection)
    return keys[0] if len(keys) == 1 else DEFAULT_CATALOG_KEY


def _recorded(database: Database, catalog_key: str) -> str | None:
    """Return the warehouse by the `location` properties of databases; None if they differ."""
    rows = PaimonRows(catalog_key=catalog_key)

    def work(connection: Connection) -> set[str]:
        names = rows.database_names(connection)
        locations = {name: rows.database_properties(connection, name) for name in names}
        places = (
            (name, location.get(LOCATION_PROPERTY, "")) for name, location in locations.items()
        )
        ends = ((f"/{name}{DATABASE_SUFFIX}", place) for name, place in places)
        return {place.removesuffix(end) for end, place in ends if place.endswith(end)}

    warehouses = database.read(work)
    return _FILE_SCHEME.sub("", warehouses.pop()) if len(warehouses) == 1 else None


def _outbox_places(database: Database, warehouse: str, catalog_key: str) -> list[FileIO]:
    """Return the directories of the outbox: next to the catalog's file, and in a warehouse on disk."""
    if database.is_in_memory:
        return []
    beside_file = [] if database.path is None else [database.path]
    if scheme_of(warehouse) is None:
        beside_file.append(f"{warehouse}/{os.path.basename(database.url.database or 'catalog')}")
    suffix = f".{quote(catalog_key, safe='')}.lineage-outbox"
    return [open_directory(f"{path}{suffix}") for path in dict.fromkeys(beside_file)]
