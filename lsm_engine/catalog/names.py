"""Names of databases and tables, which names are refused, and where a catalog's tables lie."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.options.core_options import METADATA_ICEBERG_DATABASE, METADATA_ICEBERG_TABLE
from lsm_engine.planning.names import BIDI_CONTROLS, MAIN_BRANCH
from lsm_engine.storage.location import DATABASE_SUFFIX, plain_path, scheme_of

NAME_BYTES_MAX = 255
RESERVED_DATABASES = ("sys",)

_FORBIDDEN = {
    "/": "a separator",
    "\\": "a separator",
    ".": "a dot",
    "$": "a dollar sign, which marks system tables",
}
_UNWRITABLE = {"Cc": "a control character", "Cs": "half a character", "Zl": "a line break"}
_UNWRITABLE["Zp"] = _UNWRITABLE["Zl"]


@record
class TableName:
    """A table of a catalog: "shop.orders". A branch has snapshots, hence lineage, of its own."""

    database: str
    table: str
    branch: str = MAIN_BRANCH

    @classmethod
    def parse(cls, text: object) -> Self:
        """Return the name that "database.table" means; InvalidInputError for any other shape."""
        database, dot, table = text.partition(".") if isinstance(text, str) else ("", "", "")
        if not dot:
            raise InvalidInputError(
                "a table's name has two parts; write 'database.table'",
                kind=ErrorKind.INVALID_NAME,
                name=text,
            )
        instead = "a path is opened by open_table(path)" if "/" in f"{text}" else None
        if instead is None and "$" in table:
            instead = f"a system table is table.system({table.partition('$')[2]!r})"
        if instead is not None:
            raise InvalidInputError(
                f"a table's name is 'database.table'; {instead}",
                kind=ErrorKind.INVALID_NAME,
                name=text,
            )
        check_database_name(database)
        check_table_name(table)
        return cls(database=database, table=table)

    def checked(self) -> Self:
        """Return this name; InvalidInputError if a part of it could not be a directory of ours."""
        check_database_name(self.database)
        check_table_name(self.table)
        return self

    def in_iceberg(self, options: Mapping[str, str]) -> Self:
        """Return the name by which readers of Iceberg's JDBC catalog find the table, by its options or their copy."""
        return replace(
            self,
            database=options.get(METADATA_ICEBERG_DATABASE.key) or self.database,
            table=options.get(METADATA_ICEBERG_TABLE.key) or self.table,
        )

    @property
    def text(self) -> str:
        """The name as people write it: "shop.orders", or "shop.orders@fix" on a branch."""
        at_branch = "" if self.branch == MAIN_BRANCH else f"@{self.branch}"
        return f"{self.database}.{self.table}{at_branch}"

    def __str__(self) -> str:
        return self.text


def check_database_name(name: str) -> None:
    """Raise InvalidInputError unless `name` can be a database: its directory is `<name>.db`."""
    _check(name, "database", NAME_BYTES_MAX - len(DATABASE_SUFFIX))
    if name.lower() in RESERVED_DATABASES:
        raise InvalidInputError(
            "this database name belongs to system tables; choose another",
            kind=ErrorKind.INVALID_NAME,
            database=name,
        )


def check_table_name(name: str) -> None:
    """Raise InvalidInputError unless `name` can be a table: its directory has that very name."""
    _check(name, "table", NAME_BYTES_MAX)


def _check(name: str, noun: str, bytes_max: int) -> None:
    objection = _objection(name, bytes_max)
    if objection:
        raise InvalidInputError(
            f"a {noun} name may not {objection}; choose another",
            kind=ErrorKind.INVALID_NAME,
            **{noun: name},
        )


def _objection(name: str, bytes_max: int) -> str | None:
    if not name:
        return "be empty"
    if name != name.strip():
        return "start or end with a blank"
    for character in name:
        if character in _FORBIDDEN:
            return f"contain {_FORBIDDEN[character]}"
        if unicodedata.category(character) in _UNWRITABLE:
            return f"contain {_UNWRITABLE[unicodedata.category(character)]}"
        if character in BIDI_CONTROLS:
            return "contain a character that changes the direction of text"
    size = len(name.encode())
    return f"be longer than {bytes_max} bytes ({size})" if size > bytes_max else None


# -- Where a catalog's tables lie, and the default place of its database ---------------------------

LINEAGE_PAGE = "lineage.html"
"""The lineage page's name in the warehouse."""
_SQLITE = "sqlite:///"
DEFAULT_DIRECTORY = "lake"
_PLAIN = re.compile(r"[A-Za-z0-9]+:/(/[A-Za-z0-9]+)*")


def absolute_warehouse(warehouse: str) -> str:
    """Return the warehouse without a trailing slash, made absolute unless it has a scheme."""
    if not warehouse:
        raise InvalidInputError("a catalog needs a warehouse; give the directory of its tables")
    if scheme_of(warehouse) is not None:
        return warehouse.rstrip("/")
    return os.path.abspath(os.path.expanduser(plain_path(warehouse)))


def default_catalog_url(warehouse: str) -> str:
    """Return the database of a warehouse: catalog.db in its directory, on this machine at any rate.

    Of one with a scheme it is a file below ./lake, named after the warehouse: letters and digits as they are, with a
    digest at the end if there is anything else in it than slashes.
    """
    location = absolute_warehouse(warehouse)
    if scheme_of(location) is None:
        return f"{_SQLITE}{location}/catalog.db"
    name = re.sub(r"[^A-Za-z0-9]+", "-", location).strip("-")
    if not _PLAIN.fullmatch(location):  # others may differ from it in such signs alone
        name += f"-{hashlib.sha256(location.encode()).hexdigest()[:8]}"
    return f"{_SQLITE}{os.path.abspath(DEFAULT_DIRECTORY)}/{name}.db"
