"""Rows of Paimon's catalog tables, for one catalog key: queries, inserts, and errors with the nearest name."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, insert, select, union

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.models import (
    PAIMON_DATABASE_PROPERTIES,
    PAIMON_TABLE_PROPERTIES,
    PAIMON_TABLES,
    PROPERTY_KEY_MAX,
    PROPERTY_VALUE_MAX,
)
from lsm_engine.catalog.names import TableName, did_you_mean

EXISTS_PROPERTY = "exists"
LOCATION_PROPERTY = "location"
PRIMARY_KEY_PROPERTY = "primary-key"
PARTITION_PROPERTY = "partition"


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
        if self.has_table(connection, name):
            return
        self.require_database(connection, name.database)
        names = (
            f"{name.database}.{table}" for table in self.table_names(connection, name.database)
        )
        hint = did_you_mean(name.text, names, "; create it first, or list the tables")
        raise NotFoundError(f"no such table{hint}", kind=ErrorKind.NO_SUCH_TABLE, table=name.text)

    def database_properties(self, connection: Connection, name: str) -> dict[str, str]:
        """Return the properties of a database, without the mark that it exists."""
        properties = self._properties(connection, PAIMON_DATABASE_PROPERTIES, name)
        properties.pop(EXISTS_PROPERTY, None)
        return properties

    def table_properties(self, connection: Connection, name: TableName) -> dict[str, str]:
        """Return the copy of a table's options."""
        model = PAIMON_TABLE_PROPERTIES
        return self._properties(connection, model, name.database, model.c.table_name == name.table)

    def _properties(
        self, connection: Connection, model: Table, database: str, *conditions: ColumnElement[bool]
    ) -> dict[str, str]:
        columns = select(model.c.property_key, model.c.property_value)
        rows = connection.execute(columns.where(*self.of_database(model, database), *conditions))
        return {
            key: value for key, value in sorted(tuple(row) for row in rows) if value is not None
        }

    # ---- changing -------------------------------------------------------------------------------

    def insert_database(
        self, connection: Connection, name: str, location: str, properties: Mapping[str, str]
    ) -> None:
        """Add a database as other clients do: a mark that it exists, its location, the rest."""
        stored = {EXISTS_PROPERTY: "true", LOCATION_PROPERTY: location, **properties}
        location_row = {"catalog_key": self.catalog_key, "database_name": name}
        connection.execute(insert(PAIMON_DATABASE_PROPERTIES), _property_rows(location_row, stored))

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


def _property_rows(
    subject: Mapping[str, Any], properties: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {**subject, "property_key": key, "property_value": value}
        for key, value in properties.items()
    ]
