"""The catalog of databases and tables, in the tables that other Paimon clients share.

A table's directory follows from its name: `<warehouse>/<database>.db/<table>`; its schema lives in
that directory. The catalog holds the names, the properties of databases, and a copy of each table's options
for queries in SQL. The caller creates, moves and deletes directories."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    union,
    update,
)

from lsm_engine.base.errors import AlreadyExistsError, ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.catalog.database import (
    BUSY_TIMEOUT_MILLIS,
    Database,
    count_marked,
    mark_tables,
    open_url,
)
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.migrations import open_database
from lsm_engine.catalog.models import (
    COMPACTIONS,
    EXPIRED,
    FILE_EDGES,
    FILES,
    ICEBERG_GUARDS,
    ICEBERG_METADATA,
    ICEBERG_TABLES,
    PAIMON_DATABASE_PROPERTIES,
    PAIMON_TABLE_PROPERTIES,
    PAIMON_TABLES,
    PROPERTY_KEY_MAX,
    PROPERTY_VALUE_MAX,
    SNAPSHOTS,
    TABLES,
)
from lsm_engine.catalog.names import (
    DEFAULT_DIRECTORY,
    TableName,
    absolute_warehouse,
    check_database_name,
)
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.format.manifest import StoredKeys
from lsm_engine.storage.bulk import read_pieces, texts_in
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import DATABASE_SUFFIX, scheme_of
from lsm_engine.storage.warehouse import open_directory

# -- Rows of Paimon's catalog tables, for one catalog key ------------------------------------------
#
# Queries, inserts, and errors with the nearest name.

EXISTS_PROPERTY = "exists"
LOCATION_PROPERTY = "location"
PRIMARY_KEY_PROPERTY = "primary-key"
PARTITION_PROPERTY = "partition"

_IDENTITY = ("catalog_key", "database_name", "table_name")

# A table with the copy of its options: one row an option, or one row of nulls. Built once, as every request of a
# client of `lsm serve` opens a table, and building the statement costs more than SQLite takes to run it.
_TABLE_WITH_PROPERTIES = (
    select(PAIMON_TABLE_PROPERTIES.c.property_key, PAIMON_TABLE_PROPERTIES.c.property_value)
    .select_from(
        PAIMON_TABLES.outerjoin(
            PAIMON_TABLE_PROPERTIES,
            and_(
                *(
                    PAIMON_TABLES.c[column] == PAIMON_TABLE_PROPERTIES.c[column]
                    for column in _IDENTITY
                )
            ),
        )
    )
    .where(*(PAIMON_TABLES.c[column] == bindparam(column) for column in _IDENTITY))
)


def catalog_keys(connection: Connection) -> list[str]:
    """Return the keys of the catalogs in the database, sorted."""
    either = union(
        *(select(model.c.catalog_key) for model in (PAIMON_TABLES, PAIMON_DATABASE_PROPERTIES))
    )
    return sorted(connection.scalars(either))


@record
class PaimonRows:
    """The rows of one catalog key in the shared tables. Every method works inside a transaction."""

    catalog_key: str

    # ---- asking ---------------------------------------------------------------------------------

    def database_names(self, connection: Connection) -> list[str]:
        """Return all names, sorted. A database exists if it has a table or a property."""
        either = union(
            *(
                select(model.c.database_name).where(model.c.catalog_key == self.catalog_key)
                for model in (PAIMON_TABLES, PAIMON_DATABASE_PROPERTIES)
            )
        )
        return sorted(connection.scalars(either))

    def has_database(self, connection: Connection, name: str) -> bool:
        """Whether a database of this name exists."""
        return any(
            connection.execute(
                select(model.c.database_name).where(*self.of_database(model, name)).limit(1)
            ).first()
            for model in (PAIMON_DATABASE_PROPERTIES, PAIMON_TABLES)
        )

    def table_names(self, connection: Connection, database: str) -> list[str]:
        """Return the names of a database's tables, sorted."""
        names = select(PAIMON_TABLES.c.table_name)
        return sorted(connection.scalars(names.where(*self.of_database(PAIMON_TABLES, database))))

    def has_table(self, connection: Connection, name: TableName) -> bool:
        """Whether a table of this name exists."""
        statement = select(PAIMON_TABLES.c.table_name).where(*self.of_table(PAIMON_TABLES, name))
        return connection.execute(statement).first() is not None

    def require_database(self, connection: Connection, name: str) -> None:
        """Raise NotFoundError, with the nearest name, unless the database exists."""
        if not self.has_database(connection, name):
            names = self.database_names(connection)
            hint = did_you_mean(name, names, "; create it first, or list the databases")
            raise NotFoundError(
                f"no such database{hint}", kind=ErrorKind.NO_SUCH_DATABASE, database=name
            )

    def require_table(self, connection: Connection, name: TableName) -> None:
        """Raise NotFoundError, with the nearest name, unless the table exists."""
        if not self.has_table(connection, name):
            raise self.no_such_table(connection, name)

    def no_such_table(self, connection: Connection, name: TableName) -> NotFoundError:
        """Return the error of a table that is not there; raise that of its database if that is not there."""
        self.require_database(connection, name.database)
        names = (
            f"{name.database}.{table}" for table in self.table_names(connection, name.database)
        )
        hint = did_you_mean(name.text, names, "; create it first, or list the tables")
        return NotFoundError(f"no such table{hint}", kind=ErrorKind.NO_SUCH_TABLE, table=name.text)

    def database_properties(self, connection: Connection, name: str) -> dict[str, str]:
        """Return the properties of a database, without the mark that it exists."""
        model = PAIMON_DATABASE_PROPERTIES
        columns = select(model.c.property_key, model.c.property_value)
        properties = _properties(
            connection.execute(columns.where(*self.of_database(model, name))).all()
        )
        properties.pop(EXISTS_PROPERTY, None)
        return properties

    def table_properties(self, connection: Connection, name: TableName) -> dict[str, str] | None:
        """Return the copy of a table's options; None if there is no table of this name."""
        rows = connection.execute(_TABLE_WITH_PROPERTIES, self._identity(name)).all()
        return _properties(rows) if rows else None

    # ---- changing -------------------------------------------------------------------------------

    def insert_database(
        self, connection: Connection, name: str, location: str, properties: Mapping[str, str]
    ) -> None:
        """Add a database as other clients do: a mark that it exists, its location, the rest."""
        stored = {EXISTS_PROPERTY: "true", LOCATION_PROPERTY: location, **properties}
        self.insert_database_properties(connection, name, stored)

    def insert_database_properties(
        self, connection: Connection, name: str, properties: Mapping[str, str]
    ) -> None:
        """Add properties of a database."""
        if properties:
            subject = {"catalog_key": self.catalog_key, "database_name": name}
            rows = _property_rows(subject, properties)
            connection.execute(insert(PAIMON_DATABASE_PROPERTIES), rows)

    def insert_table(self, connection: Connection, name: TableName) -> None:
        """Add a table's name."""
        connection.execute(insert(PAIMON_TABLES).values(self._identity(name)))

    def insert_table_properties(
        self, connection: Connection, name: TableName, properties: Mapping[str, str]
    ) -> None:
        """Add the copy of a table's options."""
        if properties:
            rows = _property_rows(self._identity(name), properties)
            connection.execute(insert(PAIMON_TABLE_PROPERTIES), rows)

    # ---- conditions -----------------------------------------------------------------------------

    def of_database(self, model: Table, name: str) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for rows of `model` of a database."""
        return (model.c.catalog_key == self.catalog_key, model.c.database_name == name)

    def of_table(self, model: Table, name: TableName) -> tuple[ColumnElement[bool], ...]:
        """Return the condition for rows of `model` of a table, with all branches."""
        return (*self.of_database(model, name.database), model.c.table_name == name.table)

    def _identity(self, name: TableName) -> dict[str, Any]:
        return {
            "catalog_key": self.catalog_key,
            "database_name": name.database,
            "table_name": name.table,
        }


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidInputError for properties that the format's columns cannot hold."""
    for key, value in properties.items():
        if not 0 < len(key) <= PROPERTY_KEY_MAX or len(value) > PROPERTY_VALUE_MAX:
            raise InvalidInputError(
                f"a property has up to {PROPERTY_KEY_MAX} characters in its name and"
                f" {PROPERTY_VALUE_MAX} in its value; shorten it",
                property=key[:PROPERTY_KEY_MAX],
                value_characters=len(value),
            )


def copied_options(
    options: Mapping[str, str], primary_key: tuple[str, ...], partitioned_by: tuple[str, ...]
) -> dict[str, str]:
    """Return the options of a schema to copy, for queries in SQL.

    Values that do not fit are left out: half a value would be wrong, and the schema file has them.
    """
    copied = dict(options)
    if primary_key:
        copied[PRIMARY_KEY_PROPERTY] = ",".join(primary_key)
    if partitioned_by:
        copied[PARTITION_PROPERTY] = ",".join(partitioned_by)
    return {
        key: value
        for key, value in copied.items()
        if 0 < len(key) <= PROPERTY_KEY_MAX and len(value) <= PROPERTY_VALUE_MAX
    }


def _properties(rows: Sequence[Row[Any, Any]]) -> dict[str, str]:
    return {key: value for key, value in sorted(tuple(row) for row in rows) if value is not None}


def _property_rows(
    subject: Mapping[str, Any], properties: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {**subject, "property_key": key, "property_value": value}
        for key, value in properties.items()
    ]


# -- Removal of keys from the catalog --------------------------------------------------------------
#
# The least and greatest keys of data files, and emptied partitions.
#
# The history is retained without the keys: the files, their snapshots and runs, and their row
# counts. Rows about an emptied partition, whose value was a key, are deleted.

_WITH_PARTITIONS = (FILES, COMPACTIONS, FILE_EDGES)
HOLDING = tuple(table.name for table in (*_WITH_PARTITIONS, SNAPSHOTS))
"""Tables whose rows may hold keys."""
_VALUES_PER_STATEMENT = 500
_TableFilter = Sequence[ColumnElement[bool]]


def count_rows(connection: Connection, of_table: _TableFilter, forgotten: StoredKeys) -> int:
    """Return the number of rows that hold one of the keys, or an emptied partition.

    A table of PostgreSQL that still has to be rewritten after a deletion counts as one.
    """
    ids = select(TABLES.c.table_id).where(*of_table)
    conditions = (
        *_of_files(ids, forgotten),
        *_of_partitions(ids, forgotten),
        *_of_properties(ids, forgotten),
    )
    rows = sum(
        connection.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in conditions
    )
    return rows + count_marked(connection, HOLDING)


def forget_rows(connection: Connection, of_table: _TableFilter, forgotten: StoredKeys) -> None:
    """Blank keys of files and properties of expired snapshots; delete rows of emptied partitions."""
    ids = select(TABLES.c.table_id).where(*of_table)
    for table, condition in _of_partitions(ids, forgotten):
        connection.execute(delete(table).where(condition))
    for table, condition in _of_files(ids, forgotten):
        blank = update(table).where(condition)
        connection.execute(blank.values(min_key=EMPTY_ROW, max_key=EMPTY_ROW))
    for table, condition in _of_properties(ids, forgotten):
        connection.execute(update(table).where(condition).values(properties=None))
    mark_tables(connection, HOLDING)


_Conditions = Iterator[tuple[Table, ColumnElement[bool]]]


def _of_files(ids: Select[tuple[int]], forgotten: StoredKeys) -> _Conditions:
    for partition, stored in forgotten.by_partition:
        for batch in _pieces(sorted(stored)):
            condition = or_(FILES.c.min_key.in_(batch), FILES.c.max_key.in_(batch))
            if partition is not None:
                condition = and_(FILES.c.partition == partition, condition)
            yield FILES, and_(FILES.c.table_id.in_(ids), condition)


def _of_properties(ids: Select[tuple[int]], forgotten: StoredKeys) -> _Conditions:
    own = and_(SNAPSHOTS.c.table_id.in_(ids), SNAPSHOTS.c.state == EXPIRED)
    for text in forgotten.texts:
        shown = text.decode("utf-8", "replace")
        yield SNAPSHOTS, and_(own, SNAPSHOTS.c.properties.contains(shown, autoescape=True))


def _of_partitions(ids: Select[tuple[int]], forgotten: StoredKeys) -> _Conditions:
    for batch in _pieces(list(forgotten.emptied_partitions)):
        for table in _WITH_PARTITIONS:
            yield table, and_(table.c.table_id.in_(ids), table.c.partition.in_(batch))


def _pieces(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(values), _VALUES_PER_STATEMENT):
        yield values[start : start + _VALUES_PER_STATEMENT]


# -- The catalog of databases and tables, in the tables that other Paimon clients share ------------

DEFAULT_CATALOG_KEY = "jdbc"
_FILE_SCHEME = re.compile(r"^file:(//)?(?=/)")
QUESTION_WAIT_MILLIS = 1_000
"""How long a question waits for a lock to record what is new; then it is answered from what is recorded."""
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


_TABLE_ROW = (
    select(PAIMON_TABLES.c.table_name)
    .where(
        PAIMON_TABLES.c.catalog_key == bindparam("key"),
        PAIMON_TABLES.c.database_name == bindparam("database"),
        PAIMON_TABLES.c.table_name == bindparam("table"),
    )
    .with_for_update()
)
_OF_ICEBERG = (
    ICEBERG_TABLES.c.catalog_name == bindparam("key"),
    ICEBERG_TABLES.c.table_namespace == bindparam("database"),
    ICEBERG_TABLES.c.table_name == bindparam("table"),
)
_ICEBERG_LOCATION = select(ICEBERG_TABLES.c.metadata_location).where(*_OF_ICEBERG)
_WITHOUT_ICEBERG = delete(ICEBERG_TABLES).where(*_OF_ICEBERG)
_WITH_ICEBERG = (
    insert(ICEBERG_TABLES)
    .prefix_with("OR REPLACE", dialect="sqlite")
    .values(
        catalog_name=bindparam("key"),
        table_namespace=bindparam("database"),
        table_name=bindparam("table"),
        metadata_location=bindparam("location"),
        previous_metadata_location=bindparam("former_location"),
    )
)
"""The same statements at each commit: building them anew would cost more than they do."""


class SqlCatalog:
    """The names in one warehouse. Threads, forked processes and other clients may share it."""

    def __init__(
        self, database: Database, *, warehouse: str, catalog_key: str = DEFAULT_CATALOG_KEY
    ) -> None:
        self.database = database
        self.warehouse = warehouse
        self.catalog_key = catalog_key
        self._rows = PaimonRows(catalog_key=catalog_key)
        self._has_iceberg_tables = False
        self._hurried = database.waiting(QUESTION_WAIT_MILLIS)
        self._copying = database.waiting(COPY_WAIT_MILLIS)
        self.lineage = Lineage(database, catalog_key=catalog_key)
        """The lineage as it is recorded."""
        self.hurried_lineage = Lineage(self._hurried, catalog_key=catalog_key)
        """The same, which does not wait long for a lock."""

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
        the only one that is there. A warehouse without a scheme is made absolute; None: the one that the catalog's
        databases are in, ./lake if it has them, or if there are none. Raises InvalidOptionError or UnsupportedError for a wrong URL,
        InvalidInputError for a database of something else, CorruptFileError for a damaged one.
        """
        database = Database(open_url(url), busy_timeout_millis=busy_timeout_millis)
        open_database(database)
        key = catalog_key or database.read(_only_key)
        if warehouse is None:
            warehouse = _warehouse_of(database, key)
        return cls(database, warehouse=absolute_warehouse(warehouse), catalog_key=key)

    def close(self) -> None:
        """Close idle connections; later calls open new ones."""
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

    def rows_with_keys(self, name: TableName, forgotten: StoredKeys) -> int:
        """Return the number of rows of a table, on all its branches, that hold a key or an emptied partition."""
        of_table = self._rows.of_table(TABLES, name)
        return self.database.read(lambda connection: count_rows(connection, of_table, forgotten))

    def forget_keys(self, name: TableName, forgotten: StoredKeys) -> None:
        """Remove keys from the rows of a table, and from the bytes of the database's files.

        Raises StorageError, with the rows changed but not the files, if the database is busy.
        """
        of_table = self._rows.of_table(TABLES, name)
        self.delete_former_outbox()
        self.database.write(lambda connection: forget_rows(connection, of_table, forgotten))
        self.database.write_anew(HOLDING)

    def files_with_texts(self, texts: tuple[bytes, ...]) -> tuple[tuple[str, bytes], ...]:
        """Return the files of the database, and of a former outbox, that hold one of some texts, and the text."""
        places = [(place, "") for place in self._former_outbox()]
        if self.database.path is not None:
            folder, _, own = self.database.path.rpartition("/")
            places.append((open_directory(folder or "/"), own))
        matches: list[tuple[str, bytes]] = []
        for file_io, prefix in places:
            for status in file_io.list(""):
                if status.is_directory or not status.name.startswith(prefix):
                    continue
                # A file that is deleted meanwhile holds nothing any more.
                with suppress(NotFoundError):
                    pieces = read_pieces(file_io, status.path, status.size)
                    matches += [(status.path, text) for text in texts_in(pieces, texts)]
        return tuple(matches)

    def delete_former_outbox(self) -> None:
        """Delete the files in which earlier versions kept lineage for a while: the tables' files say the same."""
        for place in self._former_outbox():
            place.delete_many([status.path for status in place.list("") if not status.is_directory])

    def _former_outbox(self) -> list[FileIO]:
        """Return the directories of earlier versions: next to the catalog's file, and in a warehouse on disk."""
        if self.database.is_in_memory:
            return []
        paths = [] if self.database.path is None else [self.database.path]
        if scheme_of(self.warehouse) is None:
            own_name = os.path.basename(self.database.url.database or "catalog")
            paths.append(f"{self.warehouse}/{own_name}")
        suffix = f".{quote(self.catalog_key, safe='')}.lineage-outbox"
        return [open_directory(f"{path}{suffix}") for path in dict.fromkeys(paths)]

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

    def alter_database(
        self, name: str, *, updates: Mapping[str, str], removals: Iterable[str]
    ) -> list[str]:
        """Set and remove properties of a database; return those that were there and are removed."""
        check_properties(updates)
        removed_keys = list(removals)
        # What the catalog itself keeps there is no property of users.
        if not {EXISTS_PROPERTY, LOCATION_PROPERTY}.isdisjoint((*updates, *removed_keys)):
            raise InvalidInputError(
                f"{EXISTS_PROPERTY!r} and {LOCATION_PROPERTY!r} of a database cannot be changed",
                database=name,
            )

        def work(connection: Connection) -> list[str]:
            self._rows.require_database(connection, name)
            before = self._rows.database_properties(connection, name)
            model = PAIMON_DATABASE_PROPERTIES
            keys = [*updates, *removed_keys]
            rows = delete(model).where(*self._rows.of_database(model, name))
            connection.execute(rows.where(model.c.property_key.in_(keys)))
            self._rows.insert_database_properties(connection, name, updates)
            return [key for key in removed_keys if key in before]

        return self.database.write(work)

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
                    kind=ErrorKind.INVALID_NAME,
                    database=name,
                    tables=len(tables),
                )
            for model in (PAIMON_TABLES, PAIMON_TABLE_PROPERTIES, PAIMON_DATABASE_PROPERTIES):
                connection.execute(delete(model).where(*self._rows.of_database(model, name)))
            connection.execute(delete(TABLES).where(*self._rows.of_database(TABLES, name)))
            return [TableName(database=name, table=table) for table in tables]

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
        move: Callable[[], None] = lambda: None,
    ) -> TableInfo:
        """Give a table its name; AlreadyExistsError if it is taken.

        Its database must exist unless `create_database`. `options` and keys are copied for people
        who look; a value of more than 1000 characters is left out, as the schema file has it whole. `move` moves its
        directory within the transaction, as in `rename_table`.
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
            move()
            return self._table_info(connection, name)

        return self.database.write(work)

    def load_table(self, name: TableName) -> TableInfo:
        """Return a table; NotFoundError, naming a near match, if there is none of this name."""

        return self.database.read(partial(self._table_info, name=name))

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

    def rename_table(
        self, source: TableName, target: TableName, move: Callable[[], None] = lambda: None
    ) -> TableInfo:
        """Rename a table, its lineage included; `move` moves its directory, once nothing else can refuse the new name.

        Until `move` has returned a drop or another rename of the table waits. `move` may run again.
        """
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
            self._delete_iceberg_rows(connection, source, target)
            for model in (PAIMON_TABLES, PAIMON_TABLE_PROPERTIES, TABLES):
                renamed = update(model).where(*self._rows.of_table(model, source))
                connection.execute(
                    renamed.values(database_name=target.database, table_name=target.table)
                )
            move()
            return self._table_info(connection, target)

        return self.database.write(work)

    def drop_table(
        self,
        name: TableName,
        *,
        ignore_missing: bool = False,
        mark: Callable[[], None] = lambda: None,
    ) -> bool:
        """Forget a table and its lineage; False if it was not there. No file is touched, but by `mark`.

        One of several concurrent drops gets True. `mark` is called before it ends, while a rename of a table to the
        name waits, and may run again.
        """

        def work(connection: Connection) -> bool:
            self._delete_iceberg_rows(connection, name)
            deleted = connection.execute(
                delete(PAIMON_TABLES).where(*self._rows.of_table(PAIMON_TABLES, name))
            )
            if not deleted.rowcount:
                if not ignore_missing:
                    self._rows.require_table(connection, name)
                return False
            for model in (PAIMON_TABLE_PROPERTIES, TABLES):
                connection.execute(delete(model).where(*self._rows.of_table(model, name)))
            mark()
            return True

        return self.database.write(work)

    # ---- rows of Iceberg's JDBC catalog ---------------------------------------------------------

    def replace_iceberg_location(
        self, name: TableName, shown_name: TableName, current: Callable[[], str | None]
    ) -> None:
        """Name the Iceberg metadata of a table for readers of Iceberg's JDBC catalog, such as pyiceberg's `SqlCatalog`.

        `shown_name`: the name that they find it by. `current` returns the location of the newest version; None: there
        is no metadata. It is asked once the table's row is locked, so that the last of several processes names the
        newest. Raises StorageError if others keep the lock, AlreadyExistsError if the name is that of another table.
        """

        row = self._iceberg_row(shown_name)

        def work(had_tables: bool, connection: Connection) -> bool:  # noqa: FBT001
            if connection.execute(_TABLE_ROW, self._iceberg_row(name)).first() is None:
                return had_tables  # dropped, or renamed, in between
            location = current()
            if not had_tables:
                if location is None and not inspect(connection).has_table(ICEBERG_TABLES.name):
                    return False
                ICEBERG_METADATA.create_all(connection)
                for statement in ICEBERG_GUARDS.get(self.database.dialect, ()):
                    connection.exec_driver_sql(statement)
            former_location = connection.execute(_ICEBERG_LOCATION, row).scalar()
            if former_location == location:
                return True
            is_taken = former_location is not None and not _is_of(name, former_location)
            if location is None and is_taken:
                return True
            if is_taken or (shown_name != name and self._rows.has_table(connection, shown_name)):
                raise AlreadyExistsError(
                    "readers of Iceberg know another table by this name; set 'metadata.iceberg.table' to a name of "
                    "its own",
                    table=name.text,
                    name=shown_name.text,
                )
            # Updates of the row are refused: they are commits of other engines. SQLite's REPLACE deletes it, too.
            if location is None or self.database.dialect != "sqlite":
                connection.execute(_WITHOUT_ICEBERG, row)
            if location is not None:
                locations = {"location": location, "former_location": former_location}
                connection.execute(_WITH_ICEBERG, row | locations)
            return True

        # The file of the database may have been replaced: the tables are looked for again after an error.
        had_tables, self._has_iceberg_tables = self._has_iceberg_tables, False
        self._has_iceberg_tables = self._hurried.write(partial(work, had_tables))

    def _delete_iceberg_rows(self, connection: Connection, *names: TableName) -> None:
        if not inspect(connection).has_table(ICEBERG_TABLES.name):
            return
        for name in names:
            options = self._rows.table_properties(connection, name) or {}
            for shown_name in {name, name.in_iceberg(options)}:
                row = self._iceberg_row(shown_name)
                location = connection.execute(_ICEBERG_LOCATION, row).scalar()
                if location is not None and _is_of(name, location):
                    connection.execute(_WITHOUT_ICEBERG, row)

    def _iceberg_row(self, name: TableName) -> dict[str, str]:
        return {"key": self.catalog_key, "database": name.database, "table": name.table}

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
        properties = self._rows.table_properties(connection, name)
        if properties is None:
            raise self._rows.no_such_table(connection, name)
        return TableInfo(name=name, location=self.table_location(name), properties=properties)


def _is_of(name: TableName, location: str) -> bool:
    """Whether a location of Iceberg metadata is that of a table: in its directory, or in the warehouse's."""
    directory = location.rpartition("/")[0]
    database = f"{name.database}{DATABASE_SUFFIX}"
    return directory.endswith(
        (
            f"/{database}/{name.table}/metadata",
            f"/iceberg/{name.database}/{name.table}/metadata",
        )
    )


def _only_key(connection: Connection) -> str:
    keys = catalog_keys(connection)
    return keys[0] if len(keys) == 1 else DEFAULT_CATALOG_KEY


def _warehouse_of(database: Database, catalog_key: str) -> str:
    """Return ./lake if it has one of the catalog's databases, else the warehouse by their `location` properties.

    A lake that was moved or copied with its catalog is used where it is; a directory ./lake of others is not.
    """
    rows = PaimonRows(catalog_key=catalog_key)

    def work(connection: Connection) -> dict[str, str]:
        return {
            name: rows.database_properties(connection, name).get(LOCATION_PROPERTY, "")
            for name in rows.database_names(connection)
        }

    locations = database.read(work)
    directories = {f"{name}{DATABASE_SUFFIX}": location for name, location in locations.items()}
    if any(os.path.isdir(os.path.join(DEFAULT_DIRECTORY, directory)) for directory in directories):
        return DEFAULT_DIRECTORY
    warehouses = {
        _FILE_SCHEME.sub("", location).removesuffix(f"/{directory}")
        for directory, location in directories.items()
        if location.endswith(f"/{directory}")
    }
    if len(warehouses) != 1:
        return DEFAULT_DIRECTORY
    (warehouse,) = warehouses
    is_moved = scheme_of(warehouse) is None and not os.path.isdir(warehouse)
    return DEFAULT_DIRECTORY if is_moved and os.path.isdir(DEFAULT_DIRECTORY) else warehouse
