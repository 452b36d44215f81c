"""Operations of a REST protocol: their requests, the pages of their lists, and the table that they name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    UnsafePathError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.catalog.names import TableName, check_database_name
from lsm_engine.format.json_object import JsonObject, parse_object
from lsm_engine.planning.names import MAIN_BRANCH

JSON_BODY = "the body of the request"
"""The name of the file in errors about a body."""
PAGE_MAX = 1_000
_BRANCH = "$branch_"

JsonMembers = dict[str, Any]


class Access(Enum):
    """A right that a token grants, or an operation requires."""

    READ = "read"
    WRITE = "write"


@record
class Service:
    """The catalog and the settings that operations work on.

    `prefix`: the part of addresses that stands for the catalog. `has_external_tables`: clients are told to commit in the
    storage themselves, as far as they can. `access_of` returns what a token allows.
    """

    catalog: Catalog
    prefix: str
    has_external_tables: bool = False
    access_of: Callable[[str], Access | None] = lambda _: None


@record
class Request:
    """The request of a client: parts of the path by their names, the query, the body, and the header `Authorization`.

    `access`: what its token allows.
    """

    service: Service
    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    authorization: str = field(default="", repr=False)
    access: Access = Access.WRITE

    @property
    def catalog(self) -> Catalog:
        """The catalog that is served."""
        return self.service.catalog

    @property
    def body(self) -> JsonObject:
        """The JSON object in the body; CorruptFileError for anything else."""
        return parse_object(self.content or b"{}", file_name=JSON_BODY)

    @property
    def database(self) -> str:
        """The database that the path names; InvalidInputError for a name that none can have."""
        name = self.path["database"]
        check_database_name(name)
        return name

    @property
    def table_name(self) -> TableName:
        """The table, and its branch, that the path names."""
        return table_name_of(self.path["database"], self.path["table"])

    @property
    def table(self) -> Table:
        """The table, or the branch of it, that the path names."""
        return self.open(self.table_name)

    def open(self, name: TableName) -> Table:
        """Open a table, or a branch of it."""
        main_table = self.catalog.table(f"{name.database}.{name.table}")
        return main_table if name.branch == MAIN_BRANCH else main_table.branch(name.branch)


def table_name_of(database: str, text: str) -> TableName:
    """Return the name of a table, or of a branch of it: "orders", "orders$branch_fix"."""
    table, sign, branch = text.partition(_BRANCH)
    if sign and not branch:
        # It is not the table itself, which an operation might drop.
        raise InvalidInputError(f"{text!r} names no branch after {_BRANCH!r}", table=text)
    return TableName(database=database, table=table, branch=branch or MAIN_BRANCH).checked()


@record
class Operation:
    """An operation of a protocol by its name in the specification.

    `run` carries it out, and returns the members of the answer, or None for an answer without a body. `resource`: the kind of
    thing that it is about, in errors. `is_open`: it needs no token.
    """

    name: str
    method: str
    path: str
    run: Callable[[Request], JsonMembers | None]
    access: Access = Access.READ
    resource: str = "TABLE"
    is_open: bool = False

    @property
    def summary(self) -> str:
        """The summary of the operation, one sentence."""
        return (self.run.__doc__ or self.name).partition("\n")[0]


@record
class Protocol:
    """The operations below a path, how names are decoded there, and how errors are answered."""

    name: str
    root: str
    operations: Sequence[Operation]
    decode: Callable[[str], str]
    error: Callable[[int, str, LsmError | None, Operation | None, Request | None], JsonMembers]
    unsupported_status: int = 501

    def find(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """Return the operation of a method and a path as it was sent, and the names in that; None if there is none."""
        if not path.startswith(f"{self.root}/v1/"):
            return None
        segments = path.removeprefix(self.root).split("/")
        for operation in self.operations:
            template = operation.path.split("/")
            if operation.method != method or len(template) != len(segments):
                continue
            names = self._names(template, segments)
            if names is not None:
                return operation, names
        return None

    def _names(self, template: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
        names = {}
        for part, segment in zip(template, segments, strict=True):
            if part.startswith("{"):
                names[part.strip("{}")] = self.decode(segment)
            elif part != segment:
                return None
        return names


def page(request: Request, names: Iterable[str]) -> tuple[list[str], str | None]:
    """Return the page of sorted names that a request asks for, and the token of the next one, if there is one.

    The token is the last name of the page before, so that names that come and go in between move nothing.
    """
    after = request.query.get("pageToken", "")
    later = sorted(name for name in names if name > after)
    size = page_size(request.query.get("maxResults") or request.query.get("pageSize"))
    return later[:size], later[size - 1] if len(later) > size else None


def page_size(text: str | None) -> int:
    """Return the number of names on a page: at most 1000, and all of those where none is asked for."""
    if text is None:
        return PAGE_MAX
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInputError("the size of a page has to be a whole number", given=text)
    return min(int(text), PAGE_MAX) or PAGE_MAX


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Return the names that match a pattern, in which "%" stands for any text."""
    if not pattern:
        return list(names)
    first, *texts = pattern.split("%")
    if not texts:
        return [name for name in names if name == pattern]
    *inner, last = texts
    return [
        name
        for name in names
        if name.startswith(first) and _has_in_order(name[len(first) :], inner, last)
    ]


def _has_in_order(name: str, inner: Iterable[str], last: str) -> bool:
    """Whether texts stand in a name one after another, and the last of them at its end.

    A regular expression would try every way to share a name among the signs of a pattern.
    """
    position = 0
    for text in inner:
        position = name.find(text, position)
        if position < 0:
            return False
        position += len(text)
    return len(name) - position >= len(last) and name.endswith(last)


def require_database(request: Request) -> str:
    """Return the database that the path names; NotFoundError if there is none."""
    name = request.database
    request.catalog.database_properties(name)
    return name


_STATUS: tuple[tuple[type[LsmError], int], ...] = (
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (CommitConflictError, 409),
    (UnsupportedError, 501),
    (InvalidInputError, 400),
    (InvalidOptionError, 400),
    (UnsafePathError, 400),
)


def status_of(error: LsmError) -> int:
    """Return the HTTP status of a failure: 500 where the client has done nothing wrong."""
    if isinstance(error, CorruptFileError) and error.facts.get("file") == JSON_BODY:
        return 400
    if error.facts.get("errno") == "ENAMETOOLONG":
        return 400
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def text_of(error: LsmError) -> str:
    """Return the message of a failure; of a malformed body without the advice to restore a file."""
    is_body = error.facts.get("file") == JSON_BODY
    return f"{JSON_BODY}: {error.message.partition(';')[0]}" if is_body else error.message
