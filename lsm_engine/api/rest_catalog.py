"""A catalog behind `lsm serve`: names, tables and lineage by HTTP; files are read and written as always."""

import functools
import http.client
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NoReturn, Self
from urllib.parse import quote_plus, urlencode, urlsplit

import pyarrow as pa

from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.base import errors
from lsm_engine.base.errors import (
    CommitUnknownError,
    ErrorKind,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    without_secrets,
)
from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.lineage.questions import QUESTIONS, from_members, to_members
from lsm_engine.catalog.names import TableName
from lsm_engine.format.manifest import StoredKeys
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.table_options import given_options
from lsm_engine.storage.bulk import read_only
from lsm_engine.storage.clock import Clock, IdSource
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import DATABASE_SUFFIX
from lsm_engine.storage.options import StorageOptions
from lsm_engine.table.components import (
    CommittedFiles,
    Executor,
    PublishedSnapshot,
    Removal,
    TableListener,
)
from lsm_engine.types.arrow_types import FieldIds, field_from_arrow
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import field_json

TOKEN_VARIABLE = "LSM_TOKEN"
ERROR_HEADER = "x-lsm-error"
"""Header of a failure: the class of the error and its kind."""
_SECONDS = 120


class Connection:
    """Requests to a server, one at a time over a connection that stays open. Threads may share it."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InvalidOptionError("a server has an address such as http://host:8578", url=url)
        self.url = url.rstrip("/")
        self._token = token or os.environ.get(TOKEN_VARIABLE, "")
        self._path = parts.path.rstrip("/")
        is_secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        self._line = kind(parts.hostname, parts.port, timeout=_SECONDS)
        self._lock = Lock()

    def close(self) -> None:
        """Close the connection; later requests open another."""
        with self._lock:
            self._line.close()

    def get(self, path: str, **query: str) -> Any:
        """Ask for something; returns the members of the answer."""
        return self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Ask for something by the query or by a body; returns the members of the answer."""
        try:
            return self._sent(method, path, body)
        except (OSError, http.client.HTTPException):
            # The server may have closed an idle connection: to ask again changes nothing.
            try:
                return self._sent(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                raise StorageError(
                    f"the server does not answer: {error}; is it running there?", url=self.url
                ) from error

    def change(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Have something changed; CommitUnknownError without an answer."""
        try:
            # A connection that was idle may be closed, which shows only after the request is sent.
            self.close()
            return self._sent(method, path, body)
        except ConnectionRefusedError as error:
            raise StorageError(f"the server does not answer: {error}", url=self.url) from error
        except (OSError, http.client.HTTPException) as error:
            raise CommitUnknownError(
                f"the server gave no answer, and may have done it: {error}; look before you try again",
                url=self.url,
            ) from error

    def _sent(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        with self._lock:
            try:
                self._line.request(method, f"{self._path}{path}", content, headers)
                answer = self._line.getresponse()
                data = answer.read()
            except (OSError, http.client.HTTPException):
                self._line.close()
                raise
        if answer.status < 400:
            return json.loads(data) if data else None
        raise _failure(answer.status, answer.getheader(ERROR_HEADER, ""), data, self.url)


def _failure(status: int, header: str, data: bytes, url: str) -> LsmError:
    """Return the error of an answer, of the class that the server raised."""
    try:
        message = str(json.loads(data)["message"])
    except (
        ValueError,
        KeyError,
        TypeError,
    ):  # not an answer of the server, but of a proxy before it
        message = f"the server answers with status {status}"
    name, _, code = header.partition(" ")
    kind = getattr(errors, name, None)
    if status in (401, 403):
        return InvalidOptionError(f"{message}; set one by token= or ${TOKEN_VARIABLE}", url=url)
    if not (isinstance(kind, type) and issubclass(kind, LsmError)):
        return StorageError(message, url=url, status=status)
    known_codes = {member.value: member for member in ErrorKind}
    failure: LsmError = kind(message, kind=known_codes.get(code), url=url)
    return failure


@record
class RemoteListener:
    """A TableListener that has the server record the lineage of a table before maintenance removes some of it."""

    sync: Callable[[str], int]

    def altered(self, table: str, schema: TableSchema) -> None:
        """Have the server copy the options."""
        self.sync(table)

    def shown_by_iceberg(
        self, table: str, options: Mapping[str, str], current: Callable[[], str | None]
    ) -> None:
        """Have the server name the newest Iceberg metadata."""
        self.sync(table)

    def committed_beside_others(self, table: str, published: PublishedSnapshot) -> None:
        """Have the server record a snapshot that another client may replace."""
        self.sync(table)

    def removing(self, table: str) -> None:
        """Have the server record what is going to be removed; an error stops the removal."""
        self.sync(table)

    def expiring(
        self,
        table: str,
        snapshots: Sequence[Snapshot],
        read: Callable[[Snapshot], CommittedFiles],
    ) -> None:
        """Have the server record the snapshots that expire; an error stops the expiry."""
        self.sync(table)

    def removed(self, table: str, removal: Removal) -> None:
        """Leave the record to the server, whose next look finds what is deleted."""

    def rows_with_keys(self, table: str, keys: StoredKeys) -> int:
        """Refuse: keys are erased where the database is."""
        raise _unsupported("forget")

    def forget_keys(self, table: str, keys: StoredKeys) -> None:
        """Refuse: keys are erased where the database is."""
        raise _unsupported("forget")

    def files_with_texts(self, texts: tuple[bytes, ...]) -> tuple[tuple[str, bytes], ...]:
        """Refuse: keys are erased where the database is."""
        raise _unsupported("forget")


def _unsupported(operation: str) -> UnsupportedError:
    return UnsupportedError(
        f"{operation} is not done through a server; do it with a catalog that has the database",
        operation=operation,
    )


class RemoteLineage(Lineage):
    """The lineage of a catalog behind a server, which answers the questions; it records by itself."""

    def __init__(
        self, post: Callable[[Mapping[str, Any]], Any], *, is_synced: bool = False
    ) -> None:
        self._post, self._is_synced = post, is_synced

    def __repr__(self) -> str:
        return "<Lineage behind a server>"

    def synced(self, table: TableName | None = None) -> Self:
        """Have the server record what is new of a table (None: of all); return the lineage as it is then."""
        self.answer("synced", {"table": table})
        return self.as_recorded()

    def as_recorded(self) -> Self:
        """Return the lineage as it is recorded: questions to it look at no file."""
        return type(self)(self._post, is_synced=True)

    def answer(self, question: str, arguments: Mapping[str, Any]) -> Any:
        """Return what the server answers to a question."""
        body = {
            "question": question,
            "arguments": {name: to_members(value) for name, value in arguments.items()},
            "isSynced": self._is_synced,
        }
        return from_members(self._post(body)["answer"])


def _asking(question: str) -> Callable[..., Any]:
    """Return the method of `RemoteLineage` for a question; it takes the arguments that `Lineage` takes."""
    method = getattr(Lineage, question)
    signature = inspect.signature(method)

    @functools.wraps(method)
    def ask(lineage: RemoteLineage, *values: Any, **options: Any) -> Any:
        arguments = signature.bind(lineage, *values, **options).arguments
        return lineage.answer(question, {k: v for k, v in arguments.items() if k != "self"})

    return ask


def _refusing(name: str) -> Callable[..., NoReturn]:
    method = getattr(Lineage, name)

    @functools.wraps(method)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise _unsupported(f"lineage.{name}")

    return refuse


for _name in set(QUESTIONS) - set(vars(RemoteLineage)):
    setattr(RemoteLineage, _name, _asking(_name))
for _name in ("record", "recorded_states", "has_snapshot", "rebuild", "catch_up", "forget"):
    # A lineage is recorded where its database is.
    setattr(RemoteLineage, _name, _refusing(_name))


class RestCatalog(Catalog):
    """The catalog of a server. Made by `open_catalog("http://…")`; operations and errors are those of `Catalog`."""

    def __init__(
        self,
        connection: Connection,
        *,
        executor: Executor,
        clock: Clock,
        ids: IdSource,
        storage: StorageOptions,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._executor = executor
        self._clock = clock
        self._ids = ids
        prefix = connection.get("/v1/config")["defaults"]["prefix"]
        self._root = f"/v1/{prefix}"
        served = connection.get(f"{self._root}/engine/warehouse")
        self._warehouse = str(served["warehouse"])
        self._may_write = served.get("access") != "read"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "cannot pickle 'RestCatalog' object: send its url, and call lsm.open_catalog(url) there"
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return without_secrets(self._connection.url)

    @property
    def warehouse(self) -> str:
        """The directory that tables are created in, as the server names it."""
        return self._warehouse

    @property
    def is_in_memory(self) -> bool:
        """Whether the catalog lives in memory: it does not."""
        return False

    @property
    def lineage(self) -> Lineage:
        """The lineage of runs, snapshots, manifests, files and tags, as Arrow tables; the server answers.

        Each question has the server record first what the files of the tables hold that is new.
        """
        return RemoteLineage(
            lambda body: self._connection.ask("POST", f"{self._root}/engine/lineage", body)
        )

    # --- databases -------------------------------------------------------------------------------

    def create_database(
        self,
        name: str,
        *,
        ignore_if_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a database with properties; raises AlreadyExistsError unless `ignore_if_exists`."""
        body = {"name": name, "options": dict(properties or {})}
        try:
            self._connection.change("POST", f"{self._root}/databases", body)
        except errors.AlreadyExistsError:
            # The caller accepts a database that is there.
            if not ignore_if_exists:
                raise

    def database_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a database, its `location` among them; NotFoundError if there is none."""
        members = self._connection.get(self._database(name))
        return {"location": members["location"], **members["options"]}

    def alter_database(
        self, name: str, *, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()
    ) -> list[str]:
        """Set and remove properties of a database; return the removed ones that were there."""
        body = {"updates": dict(updates or {}), "removals": list(removals)}
        removed: list[str] = self._connection.change("POST", self._database(name), body)["removed"]
        return removed

    def list_databases(self) -> list[str]:
        """Return the databases by name."""
        return self._listed(f"{self._root}/databases", "databases")

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        """Drop a database; with `cascade` its tables and all their files as well."""
        if not cascade and (tables := self.list_tables(name)):
            raise errors.InvalidInputError(
                "this database still has tables; drop them first, or cascade",
                kind=ErrorKind.INVALID_NAME,
                database=name,
                tables=len(tables),
            )
        self._connection.change("DELETE", self._database(name))

    # --- tables ----------------------------------------------------------------------------------

    def _created(
        self,
        name: TableName,
        columns: pa.Schema,
        keys: tuple[tuple[str, ...], tuple[str, ...]],
        options: Mapping[str, object],
        comment: str | None,
    ) -> Table:
        ids = FieldIds()
        self.create_database(name.database, ignore_if_exists=True)
        body = {
            "identifier": {"database": name.database, "object": name.table},
            "schema": {
                "fields": [field_json(field_from_arrow(field, ids)) for field in columns],
                "primaryKeys": keys[0],
                "partitionKeys": keys[1],
                "options": dict(given_options(options).texts),
                "comment": comment,
            },
        }
        self._connection.change("POST", f"{self._database(name.database)}/tables", body)
        return self.table(name.text)

    def table(self, name: str) -> Table:
        """Open a table; raises NotFoundError if there is none of this name."""
        members = self._connection.get(self._table(TableName.parse(name)))
        return self._open_location(name, members["path"])

    def table_in_warehouse(self, name: str) -> Table:
        """Open a table where its directory has to be, whether the catalog knows it or not."""
        return self._open_location(name, self._location(TableName.parse(name)))

    def _allowed(self, file_io: FileIO) -> FileIO:
        """Return storage that a token which only reads cannot change: commits go there, and not by the server."""
        if self._may_write:
            return file_io
        return read_only(
            file_io,
            f"this token allows to read alone; the token comes from token= or ${TOKEN_VARIABLE}",
        )

    def list_tables(self, database: str | None = None) -> list[str]:
        """Return the names of a database's tables, or of all tables as "database.table"."""
        if database is not None:
            return self._listed(f"{self._database(database)}/tables", "tables")
        names = (
            f"{database}.{table}"
            for database in self.list_databases()
            for table in self.list_tables(database)
        )
        return list(names)

    def drop_table(self, name: str, *, ignore_if_missing: bool = False) -> None:
        """Drop a table with its files."""
        try:
            self._connection.change("DELETE", self._table(TableName.parse(name)))
        except NotFoundError:
            # The caller accepts that another process dropped the table.
            if not ignore_if_missing:
                raise

    def rename_table(self, source: str, target: str) -> Table:
        """Rename a table; raises AlreadyExistsError, and UnsupportedError on an object store."""
        old, new = TableName.parse(source), TableName.parse(target).checked()
        body = {
            role: {"database": name.database, "object": name.table}
            for role, name in (("source", old), ("destination", new))
        }
        self._connection.change("POST", f"{self._root}/tables/rename", body)
        return self.table(target)

    def register_table(self, name: str) -> Table:
        """Name a table whose directory is already in the warehouse, at "<database>.db/<table>"."""
        table_name = TableName.parse(name).checked()
        self.create_database(table_name.database, ignore_if_exists=True)
        body = {
            "identifier": {"database": table_name.database, "object": table_name.table},
            "path": self._location(table_name),
        }
        self._connection.change("POST", f"{self._database(table_name.database)}/register", body)
        return self.table(name)

    def unregister_table(self, name: str) -> None:
        """Refused: what takes a name without its files is done where the database is."""
        raise _unsupported("unregister_table")

    def adopt_table(self, path: str, name: str) -> Table:
        """Refused: a directory is moved into the warehouse where the database is."""
        raise _unsupported("adopt_table")

    def register_found_tables(self) -> list[str]:
        """Register every table in the warehouse that the catalog lacks; return their names."""
        return [self.register_table(name).name for name in self.unknown_tables()]

    def rebuild(self) -> dict[str, int]:
        """Refused: a catalog is rebuilt where its database is."""
        raise _unsupported("rebuild")

    def rebuild_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Refused: lineage is rebuilt where its database is."""
        raise _unsupported("rebuild_lineage")

    def sync_lineage(self, tables: Iterable[str] | None = None) -> dict[str, int]:
        """Have the server record what the files of tables hold that the lineage lacks."""
        return {
            name: self._synced(name) for name in (self.list_tables() if tables is None else tables)
        }

    # --- of requests -----------------------------------------------------------------------------

    def _synced(self, name: str) -> int:
        """Have the server record the lineage of a table; return the number of commits that it lacked."""
        table_name = TableName.parse(name)
        main, sign, _ = name.rpartition("@")
        if sign and not self._exists(table_name):
            # A branch is recorded with its table.
            table_name = TableName.parse(main)
        path = f"{self._table(table_name)}/engine/sync"
        return int(self._connection.change("POST", path)["recorded"])

    def _listeners(self) -> tuple[TableListener, ...]:
        return (RemoteListener(sync=self._synced),)

    def _exists(self, name: TableName) -> bool:
        try:
            self._connection.get(self._table(name))
        except NotFoundError:
            return False
        return True

    def _location(self, name: TableName) -> str:
        return f"{self._warehouse}/{name.database}{DATABASE_SUFFIX}/{name.table}"

    def _database(self, name: str) -> str:
        return f"{self._root}/databases/{quote_plus(name)}"

    def _table(self, name: TableName) -> str:
        return f"{self._database(name.database)}/tables/{quote_plus(name.table)}"

    def _listed(self, path: str, member: str) -> list[str]:
        """Return the names of all pages of a list."""
        names: list[str] = []
        token: str | None = ""
        while token is not None:
            members = self._connection.get(path, **({"pageToken": token} if token else {}))
            names += members[member]
            token = members["nextPageToken"]
        return names
