"""The REST catalog protocol of Apache Iceberg, to read: tables that keep Iceberg metadata, by their names.

Names of operations are those of the specification (rest-catalog-open-api.yaml). What would change something is refused."""

import base64
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.iceberg.metadata import metadata_path
from lsm_engine.server.operation import (
    Access,
    JsonMembers,
    Operation,
    Protocol,
    Request,
    page,
    require_database,
)

_PREFIX = "/v1/{prefix}"
_NAMESPACE = f"{_PREFIX}/namespaces/{{database}}"
_TABLE = f"{_NAMESPACE}/tables/{{table}}"
_UNSUPPORTED = 406


def get_config(request: Request) -> JsonMembers:
    """Return the prefix of the addresses of this catalog, and the operations that are answered."""
    return {
        "defaults": {},
        "overrides": {"prefix": request.service.prefix},
        "endpoints": [
            f"{operation.method} {operation.path.replace('{database}', '{namespace}')}"
            for operation in OPERATIONS
            if operation.access is Access.READ and operation.name not in ("getConfig", "getToken")
        ],
    }


def get_token(request: Request) -> JsonMembers:
    """Return the token that a client sends as the secret of its credentials."""
    form = dict(parse_qsl(request.content.decode("utf-8", "replace")))
    secret = form.get("client_secret") or _basic_secret(request.authorization)
    if form.get("grant_type") != "client_credentials" or request.service.access_of(secret) is None:
        raise InvalidInputError("a token of this server is needed as client_secret")
    kind = "urn:ietf:params:oauth:token-type:access_token"
    return {"access_token": secret, "token_type": "bearer", "issued_token_type": kind}


def _basic_secret(authorization: str) -> str:
    """Return the secret of a client that sends its credentials in the header, as DuckDB does; "" without any."""
    kind, _, credentials = authorization.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        text = base64.b64decode(credentials, validate=True).decode()
    except ValueError:
        # No secret is none of this server: the caller says so.
        return ""
    return unquote(text.partition(":")[2])


def list_namespaces(request: Request) -> JsonMembers:
    """List the databases; none has another one in it."""
    names = [] if request.query.get("parent") else request.catalog.list_databases()
    databases, token = page(request, names)
    return {"namespaces": [[name] for name in databases], "next-page-token": token}


def load_namespace_metadata(request: Request) -> JsonMembers:
    """Return the properties of a database."""
    properties = request.catalog.database_properties(request.database)
    return {"namespace": [request.database], "properties": properties}


def namespace_exists(request: Request) -> None:
    """Answer whether a database exists."""
    require_database(request)


def list_tables(request: Request) -> JsonMembers:
    """List the tables of a database that have Iceberg metadata."""
    database = request.database
    names, token = page(request, request.catalog.list_tables(database))
    shown = [name for name in names if _has_metadata(request, f"{database}.{name}")]
    identifiers = [{"namespace": [database], "name": name} for name in shown]
    return {"identifiers": identifiers, "next-page-token": token}


def _has_metadata(request: Request, name: str) -> bool:
    try:
        return request.catalog.table(name).options.writes_iceberg
    except LsmError:
        # A damaged table must not hide the others; asked for by its name it has its error.
        return False


def load_table(request: Request) -> JsonMembers:
    """Return the newest version of the Iceberg metadata of a table."""
    store, current = _current(request.table)
    location = store.location_of(metadata_path(current.version))
    return {"metadata-location": location, "metadata": current.members, "config": {}}


def table_exists(request: Request) -> None:
    """Answer whether a table has Iceberg metadata."""
    _current(request.table)


def _current(table: Table) -> Any:
    """Return the store of a table's Iceberg metadata, and its newest version."""
    if table.options.writes_iceberg:
        # Imported on use: few tables have such metadata.
        store = import_module("lsm_engine.table.iceberg").open_store(table.session)
        current = store.current()
        if current is not None:
            return store, current
    raise NotFoundError(
        "the table has no Iceberg metadata; it has some with the option iceberg-compatibility.enabled",
        kind=ErrorKind.NO_SUCH_TABLE,
        table=table.name,
    )


def report_metrics(request: Request) -> None:
    """Take the metrics of a reader, and keep none."""
    _ = request.table, request.body


def list_views(request: Request) -> JsonMembers:
    """List the views: there are none."""
    require_database(request)
    return {"identifiers": [], "next-page-token": None}


def _absent(request: Request) -> None:
    """Refuse a view: there is none."""
    raise NotFoundError(f"there is no view {request.path['view']!r}: this catalog has tables alone")


def _refusing(name: str) -> Callable[[Request], None]:
    def refuse(_: Request) -> None:
        raise UnsupportedError(
            f"{name} is not supported: tables are read by Iceberg's protocol, and written by Paimon's or by this engine",
            operation=name,
        )

    refuse.__doc__ = f"Refuse {name}: tables are only read by this protocol."
    return refuse


def _read(name: str, verb: str, run: Callable[[Request], JsonMembers | None]) -> Operation:
    method, _, path = verb.partition(" ")
    resource = "VIEW" if "view" in name.lower() else "TABLE" if "{table}" in path else "NAMESPACE"
    is_open = name == "getToken"
    return Operation(
        name=name, method=method, path=path, run=run, resource=resource, is_open=is_open
    )


def _refused(name: str, verb: str) -> Operation:
    method, _, path = verb.partition(" ")
    return Operation(name=name, method=method, path=path, run=_refusing(name), access=Access.WRITE)


OPERATIONS = (
    _read("getConfig", "GET /v1/config", get_config),
    _read("getToken", "POST /v1/oauth/tokens", get_token),
    _read("listNamespaces", f"GET {_PREFIX}/namespaces", list_namespaces),
    _read("loadNamespaceMetadata", f"GET {_NAMESPACE}", load_namespace_metadata),
    _read("namespaceExists", f"HEAD {_NAMESPACE}", namespace_exists),
    _read("listTables", f"GET {_NAMESPACE}/tables", list_tables),
    _read("loadTable", f"GET {_TABLE}", load_table),
    _read("tableExists", f"HEAD {_TABLE}", table_exists),
    _read("reportMetrics", f"POST {_TABLE}/metrics", report_metrics),
    _read("listViews", f"GET {_NAMESPACE}/views", list_views),
    _read("loadView", f"GET {_NAMESPACE}/views/{{view}}", _absent),
    _read("viewExists", f"HEAD {_NAMESPACE}/views/{{view}}", _absent),
    _refused("createNamespace", f"POST {_PREFIX}/namespaces"),
    _refused("dropNamespace", f"DELETE {_NAMESPACE}"),
    _refused("updateProperties", f"POST {_NAMESPACE}/properties"),
    _refused("createTable", f"POST {_NAMESPACE}/tables"),
    _refused("registerTable", f"POST {_NAMESPACE}/register"),
    _refused("updateTable", f"POST {_TABLE}"),
    _refused("dropTable", f"DELETE {_TABLE}"),
    _refused("unregisterTable", f"POST {_TABLE}/unregister"),
    _refused("renameTable", f"POST {_PREFIX}/tables/rename"),
    _refused("commitTransaction", f"POST {_PREFIX}/transactions/commit"),
    _refused("planTableScan", f"POST {_TABLE}/plan"),
    _refused("fetchPlanningResult", f"GET {_TABLE}/plan/{{plan-id}}"),
    _refused("cancelPlanning", f"DELETE {_TABLE}/plan/{{plan-id}}"),
    _refused("fetchScanTasks", f"POST {_TABLE}/tasks"),
    _refused("loadCredentials", f"GET {_TABLE}/credentials"),
    _refused("signRequest", f"POST {_TABLE}/sign"),
    _refused("listFunctions", f"GET {_NAMESPACE}/functions"),
    _refused("loadFunction", f"GET {_NAMESPACE}/functions/{{function}}"),
    _refused("createView", f"POST {_NAMESPACE}/views"),
    _refused("replaceView", f"POST {_NAMESPACE}/views/{{view}}"),
    _refused("dropView", f"DELETE {_NAMESPACE}/views/{{view}}"),
    _refused("renameView", f"POST {_PREFIX}/views/rename"),
    _refused("registerView", f"POST {_NAMESPACE}/register-view"),
)

_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchTableException",
    _UNSUPPORTED: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}


def error_members(
    status: int,
    message: str,
    error: LsmError | None,
    operation: Operation | None,
    _: Request | None,
) -> JsonMembers:
    """Return the answer to a failure, as the specification has it."""
    kind = _TYPES.get(status, "InternalServerError")
    if status == 404:
        is_namespace = error is not None and error.kind is ErrorKind.NO_SUCH_DATABASE
        is_view = operation is not None and operation.resource == "VIEW"
        kind = (
            "NoSuchNamespaceException"
            if is_namespace
            else "NoSuchViewException"
            if is_view
            else kind
        )
    return {"error": {"message": message, "type": kind, "code": status}}


PROTOCOL = Protocol(
    name="iceberg",
    root="/iceberg",
    operations=OPERATIONS,
    decode=unquote,
    error=error_members,
    unsupported_status=_UNSUPPORTED,
)
