"""The REST catalog protocol of Apache Paimon: databases, tables, commits, tags and branches.

Names of operations are those of the specification (rest-catalog-open-api.yaml). Views and functions do not exist here: their
lists are empty, and what makes one is refused."""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from lsm_engine.api.table import Table
from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    LsmError,
    NotFoundError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.questions import answer
from lsm_engine.catalog.names import TableName
from lsm_engine.commit.commit import commit_snapshot
from lsm_engine.format.documents import decode_snapshot, encode_snapshot
from lsm_engine.format.json_object import JsonObject, parse_object
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.names import MAIN_BRANCH
from lsm_engine.planning.tags import created_at, is_lock
from lsm_engine.server.operation import (
    JSON_BODY,
    Access,
    JsonMembers,
    Operation,
    Protocol,
    Request,
    matching,
    page,
    page_size,
    require_database,
    table_name_of,
)
from lsm_engine.types.arrow_types import declared_column, declared_field
from lsm_engine.types.schema_changes import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetColumnDefault,
    SetComment,
    SetNullable,
    SetOption,
)
from lsm_engine.types.types import (
    DataType,
    ScalarType,
    field_json,
    parse_field,
    parse_type,
    type_text,
)

# -- Configuration and databases -------------------------------------------------------------------


def get_config(request: Request) -> JsonMembers:
    """Return the options of a client: the prefix of the addresses of this catalog."""
    return {"defaults": {"prefix": request.service.prefix}, "overrides": {}}


def list_databases(request: Request) -> JsonMembers:
    """List the databases."""
    names = matching(request.catalog.list_databases(), request.query.get("databaseNamePattern"))
    databases, token = page(request, names)
    return {"databases": databases, "nextPageToken": token}


def create_database(request: Request) -> None:
    """Create a database with its properties."""
    body = request.body
    request.catalog.create_database(body.text("name"), properties=body.text_map("options") or {})


def get_database(request: Request) -> JsonMembers:
    """Return a database, its directory and its properties."""
    name = request.database
    properties = request.catalog.database_properties(name)
    location = properties.pop("location", None) or f"{request.catalog.warehouse}/{name}.db"
    return {
        "id": hashlib.sha256(f"{request.catalog.warehouse}/{name}".encode()).hexdigest()[:32],
        "name": name,
        "location": location,
        "options": properties,
        **_NO_AUDIT,
    }


def alter_database(request: Request) -> JsonMembers:
    """Set and remove properties of a database."""
    removals, updates = request.body.texts("removals"), request.body.text_map("updates") or {}
    removed = request.catalog.alter_database(request.database, updates=updates, removals=removals)
    missing = [key for key in removals if key not in removed]
    return {"removed": removed, "updated": list(updates), "missing": missing}


def drop_database(request: Request) -> None:
    """Drop a database with its tables: a client that must not has looked whether there are some."""
    request.catalog.drop_database(require_database(request), cascade=True)


# -- Tables ----------------------------------------------------------------------------------------

_NO_AUDIT = {
    "owner": "",
    "createdAt": 0,
    "createdBy": "",
    "updatedAt": 0,
    "updatedBy": "",
}
"""Who made what is unknown here: the lineage has it of commits."""


def list_tables(request: Request) -> JsonMembers:
    """List the names of the tables of a database."""
    names, token = _table_page(request, request.database)
    return {"tables": names, "nextPageToken": token}


def list_table_details(request: Request) -> JsonMembers:
    """List the tables of a database with their schemas; those that cannot be opened are left out."""
    database = request.database
    names, token = _table_page(request, database)
    details = []
    for name in names:
        try:
            table_name = table_name_of(database, name)
            details.append(_table_members(request, table_name, request.open(table_name)))
        except LsmError:
            # One damaged or dropped table must not hide the others; asked for by its name it has its error.
            continue
    return {"tableDetails": details, "nextPageToken": token}


def list_tables_globally(request: Request) -> JsonMembers:
    """List the tables of all databases."""
    databases = matching(request.catalog.list_databases(), request.query.get("databaseNamePattern"))
    names = [
        f"{database}.{table}"
        for database in databases
        for table in matching(
            request.catalog.list_tables(database), request.query.get("tableNamePattern")
        )
    ]
    listed, token = page(request, names)
    parts = (name.partition(".") for name in listed)
    tables = [{"database": database, "object": table} for database, _, table in parts]
    return {"tables": tables, "nextPageToken": token}


def _table_page(request: Request, database: str) -> tuple[list[str], str | None]:
    names = request.catalog.list_tables(database)
    return page(request, matching(names, request.query.get("tableNamePattern")))


def get_table(request: Request) -> JsonMembers:
    """Return a table: its id, its directory and its schema."""
    return _table_members(request, request.table_name, request.table)


def get_table_by_id(request: Request) -> JsonMembers:
    """Return the table that has an id."""
    for state in request.catalog.newest_states():
        if state.table is not None and table_id(state.table) == request.path["tableId"]:
            return _table_members(request, TableName.parse(state.name), state.table)
    raise NotFoundError(
        "no table has this id", kind=ErrorKind.NO_SUCH_TABLE, table_id=request.path["tableId"]
    )


def _table_members(request: Request, name: TableName, table: Table) -> JsonMembers:
    schema = table.schema
    return {
        "id": table_id(table),
        "database": name.database,
        "name": name.table,
        "path": table.location,
        "isExternal": request.service.has_external_tables,
        "schemaId": schema.id,
        "schema": {
            "fields": [field_json(field) for field in schema.fields],
            "partitionKeys": list(schema.partition_keys),
            "primaryKeys": list(schema.primary_keys),
            "options": dict(schema.options.texts),
            "comment": schema.comment,
        },
        **_NO_AUDIT,
        "createdAt": _first_schema(table).time_millis,
        "updatedAt": schema.time_millis,
    }


def _first_schema(table: Table) -> Any:
    return table.schema if table.schema.id == 0 else table.session.schemas.load(0)


def table_id(table: Table) -> str:
    """Return the id of a table: another one once it is dropped and made again, or has another name."""
    first = _first_schema(table)
    name = table.name.partition("@")[0]
    text = f"{name} {first.time_millis} {first.checksum}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def create_table(request: Request) -> None:
    """Create a table by a schema."""
    body = request.body
    name, schema = _identifier(body, "identifier"), _object(body, "schema")
    if name.database != request.database:
        raise InvalidInputError("the path and the body name two databases", database=name.database)
    columns = pa.schema([_column(member) for member in schema.objects("fields")])
    request.catalog.database_properties(name.database)
    request.catalog.create_table(
        name.text,
        columns,
        primary_key=schema.texts("primaryKeys"),
        partitioned_by=schema.texts("partitionKeys"),
        options=schema.text_map("options") or {},
        comment=schema.optional_text("comment"),
    )


def _column(member: JsonObject) -> pa.Field:
    try:
        declared = parse_field({"id": 0, **member.members})
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"a field of the schema has a name and a type: {error}", kind=ErrorKind.INVALID_SCHEMA
        ) from error
    return declared_column(declared)


def _identifier(body: JsonObject, member: str) -> TableName:
    identifier = _object(body, member)
    name = TableName(database=identifier.text("database"), table=identifier.text("object"))
    return name.checked()


def _object(body: JsonObject, member: str) -> JsonObject:
    members = body.members.get(member)
    if not isinstance(members, dict):
        raise InvalidInputError(f"member {member!r} of the body is no object", member=member)
    return JsonObject(members=members, file_name=body.file_name)


def register_table(request: Request) -> None:
    """Name a table whose directory is in the warehouse already, where its name means."""
    body = request.body
    name = _identifier(body, "identifier")
    expected = f"{request.catalog.warehouse}/{name.database}.db/{name.table}"
    path = body.text("path").removeprefix("file:").rstrip("/")
    if path.replace("///", "/", 1) != expected:
        raise InvalidInputError(
            "a table is registered where it lies in the warehouse; move its directory there, or use `lsm catalog adopt`",
            path=path,
            expected=expected,
        )
    request.catalog.database_properties(name.database)
    request.catalog.register_table(name.text)


def drop_table(request: Request) -> None:
    """Drop a table with its files."""
    request.catalog.drop_table(_of_main(request.table_name))


def rename_table(request: Request) -> None:
    """Rename a table, its directory and its lineage."""
    body = request.body
    source, destination = _identifier(body, "source"), _identifier(body, "destination")
    request.catalog.rename_table(source.text, destination.text)


def _of_main(name: TableName) -> str:
    if name.branch != MAIN_BRANCH:
        raise InvalidInputError("a branch is dropped as a branch, not as a table", table=name.text)
    return name.text


# -- Changes of a schema ---------------------------------------------------------------------------


def alter_table(request: Request) -> None:
    """Change the schema of a table: all changes, or none."""
    request.table.alter(*(_change(change) for change in request.body.objects("changes")))


def _change(change: JsonObject) -> SchemaChange:
    action = change.text("action")
    make = _CHANGES.get(action)
    if make is None:
        raise UnsupportedError(
            f"change {action!r} is not supported; supported are {', '.join(_CHANGES)}"
        )
    return make(change)


def _path(change: JsonObject) -> tuple[str, ...]:
    return change.texts("fieldNames")


def _add_column(change: JsonObject) -> SchemaChange:
    first, after = _place(change)
    return AddColumn(
        _path(change),
        _new_type(change),
        change.optional_text("comment"),
        first=first,
        after=after,
    )


def _new_type(change: JsonObject) -> pa.DataType | str:
    """Return the type of a new column; that of a column with fields keeps their comments."""
    kind = _type(change, "dataType")
    is_nested = kind.nullable and not isinstance(kind, ScalarType)
    return declared_field("", kind).type if is_nested else type_text(kind)


def _place(change: JsonObject) -> tuple[bool, str | None]:
    """Return whether a column goes first, and after which other one."""
    if change.members.get("move") is None:
        return False, None
    move = _object(change, "move")
    match move.text("type"):
        case "FIRST":
            return True, None
        case "AFTER":
            return False, "`" + move.text("referenceFieldName").replace("`", "``") + "`"
        case "LAST":
            return False, None
        case kind:
            raise UnsupportedError(f"a column cannot be moved {kind!r}; FIRST, AFTER and LAST are")


def _move_column(change: JsonObject) -> SchemaChange:
    first, after = _place(change)
    return MoveColumn((_object(change, "move").text("fieldName"),), first=first, after=after)


def _type(change: JsonObject, member: str) -> DataType:
    try:
        return parse_type(change.members[member])
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"member {member!r} is no type: {error}", kind=ErrorKind.UNSUPPORTED_TYPE
        ) from error


_CHANGES: dict[str, Callable[[JsonObject], SchemaChange]] = {
    "setOption": lambda change: SetOption(change.text("key"), change.text("value")),
    "removeOption": lambda change: RemoveOption(change.text("key")),
    "updateComment": lambda change: SetComment(change.optional_text("comment")),
    "addColumn": _add_column,
    "renameColumn": lambda change: RenameColumn(
        _path(change), "`" + change.text("newName").replace("`", "``") + "`"
    ),
    "dropColumn": lambda change: DropColumn(_path(change)),
    "updateColumnComment": lambda change: SetColumnComment(
        _path(change), change.optional_text("newComment")
    ),
    "updateColumnDefaultValue": lambda change: SetColumnDefault(
        _path(change), change.optional_text("newDefaultValue")
    ),
    # A change of type keeps whether a column may be null, whatever `keepNullability` says.
    "updateColumnType": lambda change: ChangeType(
        _path(change), type_text(_type(change, "newDataType"))
    ),
    "updateColumnPosition": _move_column,
    "updateColumnNullability": lambda change: SetNullable(
        _path(change), change.flag("newNullability")
    ),
}


# -- Snapshots and commits -------------------------------------------------------------------------


def commit_table(request: Request) -> JsonMembers:
    """Publish the snapshot of a client; false: it was made on another than the newest."""
    body, table = request.body, request.table
    _require_id(request, table, body.optional_text("tableId"))
    members = _object(body, "snapshot").members
    text = json.dumps(members, ensure_ascii=False, default=str).encode()
    snapshot = decode_snapshot(text, file_name=JSON_BODY)
    base_uuid = body.optional_text("baseSnapshotUuid")
    return {"success": commit_snapshot(table.session, snapshot, base_uuid)}


def _require_id(request: Request, table: Table, given_id: str | None) -> None:
    """Raise NotFoundError if a commit is meant for a table that was dropped and made again since."""
    own = (
        table
        if request.table_name.branch == MAIN_BRANCH
        else request.open(table_name_of(request.table_name.database, request.table_name.table))
    )
    if given_id is not None and given_id not in (table_id(table), table_id(own)):
        raise NotFoundError(
            "the table of this id was dropped or renamed; this request committed nothing, load the table again",
            kind=ErrorKind.NO_SUCH_TABLE,
            table=request.table_name.text,
            table_id=given_id,
        )


def get_table_snapshot(request: Request) -> JsonMembers:
    """Return the newest snapshot of a table with the sums of its files."""
    table = request.table
    snapshot = table.latest_snapshot()
    if snapshot is None:
        raise _no_snapshot(request, None)
    totals = _totals(table, snapshot)
    return {
        "snapshot": {
            "snapshot": snapshot_members(snapshot),
            "recordCount": totals.rows,
            "fileSizeInBytes": totals.size_bytes,
            "fileCount": totals.files,
            "lastFileCreationTime": totals.last_millis,
        }
    }


@record
class FileTotals:
    """The sums of the live files of a snapshot, and when the newest of them was written."""

    rows: int
    size_bytes: int
    files: int
    last_millis: int


def _totals(table: Table, snapshot: Snapshot) -> FileTotals:
    """Return the sums of a snapshot, which never change."""
    key = (table.location, snapshot.id, snapshot.delta_manifest_list)
    with _totals_lock:
        totals = _known_totals.get(key)
    if totals is None:
        totals = _summed(table.inspect.partitions(snapshot.id))
        with _totals_lock:
            _known_totals[key] = totals
    return totals


def _summed(partitions: pa.Table) -> FileTotals:
    columns = ("record_count", "file_size_in_bytes", "file_count")
    rows, size_bytes, files = (pc.sum(partitions.column(name)).as_py() or 0 for name in columns)
    newest = pc.max(partitions.column("last_update_time").cast(pa.int64())).as_py()
    return FileTotals(rows=rows, size_bytes=size_bytes, files=files, last_millis=newest or 0)


_known_totals: LRUCache[tuple[str, int, str], FileTotals] = LRUCache(1_024)
_totals_lock = threading.Lock()


def list_snapshots(request: Request) -> JsonMembers:
    """List the snapshots of a table, oldest first."""
    table = request.table
    token = request.query.get("pageToken") or "0"
    if not token.isascii() or not token.isdigit():
        raise InvalidInputError("a page token of snapshots is the id of one", given=token)
    size = page_size(request.query.get("maxResults"))
    later = [number for number in table.snapshot_ids() if number > int(token)]
    listed = (table.session.snapshots.find(number) for number in later[:size])
    members = [snapshot_members(snapshot) for snapshot in listed if snapshot is not None]
    next_token = str(later[size - 1]) if len(later) > size else None
    return {"snapshots": members, "nextPageToken": next_token}


def get_version_snapshot(request: Request) -> JsonMembers:
    """Return a snapshot by its id, by the name of a tag, or as EARLIEST or LATEST."""
    table, version = request.table, request.path["version"]
    if version == "LATEST":
        snapshot = table.latest_snapshot()
    elif version == "EARLIEST":
        ids = table.snapshot_ids()
        snapshot = table.snapshot(ids[0]) if ids else None
    elif version.isascii() and version.isdigit() and len(version) < 19:
        snapshot = table.snapshot(int(version))
    else:
        snapshot = table.tags.get(version).snapshot
    if snapshot is None:
        raise _no_snapshot(request, version)
    return {"snapshot": snapshot_members(snapshot)}


def _no_snapshot(request: Request, version: str | None) -> NotFoundError:
    return NotFoundError(
        "the table has no snapshot yet",
        kind=ErrorKind.NO_SUCH_SNAPSHOT,
        table=request.table_name.text,
        snapshot_id=version,
    )


def snapshot_members(snapshot: Snapshot) -> JsonMembers:
    """Return a snapshot as JSON, without the checksum that its file has."""
    text = encode_snapshot(snapshot)
    return dict(parse_object(text, file_name=f"snapshot {snapshot.id}").members)


def rollback_table(request: Request) -> None:
    """Roll a table back to a snapshot or a tag."""
    body, table = request.body, request.table
    instant = _object(body, "instant")
    expected = body.optional_long("fromSnapshot")
    newest = table.latest_snapshot()
    if expected is not None and (newest is None or newest.id != expected):
        raise CommitConflictError(
            "the table has another newest snapshot by now; nothing was rolled back",
            expected=expected,
            newest=newest and newest.id,
        )
    match instant.text("type").lower():
        case "tag":
            table.rollback_to(tag=instant.text("tagName"))
        case "snapshot":
            table.rollback_to(instant.long("snapshotId"))
        case kind:
            raise InvalidInputError(f"an instant is a 'snapshot' or a 'tag', not {kind!r}")


# -- Partitions, consumers and rights --------------------------------------------------------------


def list_partitions(request: Request) -> JsonMembers:
    """List the partitions of a table with the sums of their files."""
    partitions = _partitions(request)
    names = matching(partitions, request.query.get("partitionNamePattern"))
    listed, token = page(request, names)
    return {"partitions": [partitions[name] for name in listed], "nextPageToken": token}


def list_partitions_by_names(request: Request) -> JsonMembers:
    """List those of some partitions that exist."""
    specs = [spec.members for spec in request.body.objects("specs")]
    partitions = [part for part in _partitions(request).values() if part["spec"] in specs]
    return {"partitions": partitions, "nextPageToken": None}


def _partitions(request: Request) -> dict[str, JsonMembers]:
    """Return the partitions by their paths; none of a table that is not partitioned."""
    table = request.table
    rows = table.inspect.partitions().to_pylist() if table.schema.partition_keys else []
    return {row["partition"]: _partition_members(row) for row in rows}


def _partition_members(row: Mapping[str, Any]) -> JsonMembers:
    parts = (part.partition("=") for part in row["partition"].split("/") if part)
    return {
        "spec": {unquote(name): unquote(text) for name, _, text in parts},
        "recordCount": row["record_count"],
        "fileSizeInBytes": row["file_size_in_bytes"],
        "fileCount": row["file_count"],
        "lastFileCreationTime": _millis(row["last_update_time"]),
        "totalBuckets": row["total_buckets"] or 0,
        "done": False,
        "createdAt": 0,
        "createdBy": "",
        "updatedAt": _millis(row["last_update_time"]),
        "updatedBy": "",
        "options": {},
    }


def _millis(moment: Any) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)


def list_consumers(request: Request) -> JsonMembers:
    """List the consumers of a table."""
    consumers = {consumer.name: consumer.next_snapshot_id for consumer in request.table.consumers()}
    names, token = page(request, consumers)
    listed = [{"consumerId": name, "nextSnapshot": consumers[name]} for name in names]
    return {"consumers": listed, "nextPageToken": token}


def reset_consumer(request: Request) -> None:
    """Set a consumer to a snapshot, or delete it."""
    body = request.body
    next_id = body.optional_long("nextSnapshotId")
    request.table.consumers.reset(body.text("consumerId"), next_id)


def auth_table_query(request: Request) -> JsonMembers:
    """Return the filter and the masks of a reader: none, as a token reads all rows."""
    _ = request.table, request.body.texts("select")
    return {"filter": [], "columnMasking": {}}


# -- Tags and branches -----------------------------------------------------------------------------


def list_tags(request: Request) -> JsonMembers:
    """List the names of the tags of a table."""
    prefix = request.query.get("tagNamePrefix", "")
    names = [tag for tag in request.table.tags.names() if tag.startswith(prefix)]
    tags, token = page(request, [name for name in names if not is_lock(name)])
    return {"tags": tags, "nextPageToken": token}


def create_tag(request: Request) -> None:
    """Tag a snapshot, by default the newest."""
    body, table = request.body, request.table
    name, lifetime = body.text("tagName"), body.optional_text("timeRetained")
    is_ignored = body.flag("ignoreIfExists")
    if is_ignored and name in table.tags:
        return
    try:
        table.tags.create(name, body.optional_long("snapshotId"), lifetime)
    except AlreadyExistsError:
        # Another client made it after the look above.
        if not is_ignored:
            raise


def get_tag(request: Request) -> JsonMembers:
    """Return a tag and its snapshot."""
    tag = request.table.tags.get(request.path["tag"])
    born = created_at(tag)
    lifetime = tag.retained_millis
    return {
        "tagName": tag.name,
        "snapshot": snapshot_members(tag.snapshot),
        "tagCreateTime": None if born is None else _millis(born),
        "tagTimeRetained": None if lifetime is None else f"PT{lifetime / 1000:.15g}S",
    }


def delete_tag(request: Request) -> None:
    """Delete a tag."""
    request.table.tags.delete(request.path["tag"])


def list_branches(request: Request) -> JsonMembers:
    """List the branches of a table."""
    return {"branches": request.table.branches.names()}


def create_branch(request: Request) -> None:
    """Make a branch, empty or of a tag."""
    body = request.body
    request.table.branches.create(body.text("branch"), body.optional_text("fromTag"))


def drop_branch(request: Request) -> None:
    """Delete a branch."""
    request.table.branches.delete(request.path["branch"])


def rename_branch(request: Request) -> None:
    """Give a branch another name."""
    request.table.branches.rename(request.path["branch"], request.body.text("toBranch"))


def forward_branch(request: Request) -> None:
    """Fast-forward the table to a branch."""
    request.table.branches.fast_forward(request.path["branch"])


# -- Views, functions, and what is refused by its name ---------------------------------------------


def _nothing_listed(member: str) -> Callable[[Request], JsonMembers]:
    def listed(request: Request) -> JsonMembers:
        if "database" in request.path:
            require_database(request)
        return {member: [], "nextPageToken": None}

    listed.__doc__ = f"List the {member}: there are none."
    return listed


def _absent(noun: str) -> Callable[[Request], None]:
    def absent(request: Request) -> None:
        name = request.path[noun]
        raise NotFoundError(f"there is no {noun} {name!r}: this catalog has tables alone")

    absent.__doc__ = f"Refuse a {noun}: there is none."
    return absent


def _unsupported(operation: str, reason: str) -> Callable[[Request], None]:
    def refuse(_: Request) -> None:
        raise UnsupportedError(f"{operation} is not supported: {reason}", operation=operation)

    refuse.__doc__ = f"Refuse {operation}: {reason}."
    return refuse


_FROM_ROWS = "a partition is there as long as it has rows"
_NO_VIEWS = "this catalog has tables alone"
_NO_TOKENS = "clients bring their own rights on the storage"

_ROOT = "/v1/{prefix}"
_DATABASE = f"{_ROOT}/databases/{{database}}"
_TABLE = f"{_DATABASE}/tables/{{table}}"
_WRITE = Access.WRITE


def _refusal(name: str, method: str, path: str, reason: str, resource: str = "TABLE") -> Operation:
    run = _unsupported(name, reason)
    return Operation(name=name, method=method, path=path, run=run, access=_WRITE, resource=resource)


def _operation(
    name: str,
    verb: str,
    run: Callable[[Request], JsonMembers | None],
    access: Access = Access.READ,
    resource: str = "TABLE",
) -> Operation:
    method, _, path = verb.partition(" ")
    return Operation(name=name, method=method, path=path, run=run, access=access, resource=resource)


OPERATIONS = (
    _operation("getConfig", "GET /v1/config", get_config),
    _operation("listDatabases", f"GET {_ROOT}/databases", list_databases, resource="DATABASE"),
    _operation("createDatabase", f"POST {_ROOT}/databases", create_database, _WRITE, "DATABASE"),
    _operation("getDatabase", f"GET {_DATABASE}", get_database, resource="DATABASE"),
    _operation("dropDatabase", f"DELETE {_DATABASE}", drop_database, _WRITE, "DATABASE"),
    _operation("alterDatabase", f"POST {_DATABASE}", alter_database, _WRITE, "DATABASE"),
    _operation("RegisterTable", f"POST {_DATABASE}/register", register_table, _WRITE),
    _operation("listTables", f"GET {_DATABASE}/tables", list_tables),
    _operation("createTable", f"POST {_DATABASE}/tables", create_table, _WRITE),
    _operation("listTableDetails", f"GET {_DATABASE}/table-details", list_table_details),
    _operation("ListTablesGlobally", f"GET {_ROOT}/tables", list_tables_globally),
    _operation("getTableById", f"GET {_ROOT}/tables/id/{{tableId}}", get_table_by_id),
    _operation("getTable", f"GET {_TABLE}", get_table),
    _operation("alterTable", f"POST {_TABLE}", alter_table, _WRITE),
    _operation("dropTable", f"DELETE {_TABLE}", drop_table, _WRITE),
    _operation("renameTable", f"POST {_ROOT}/tables/rename", rename_table, _WRITE),
    _operation("commitTable", f"POST {_TABLE}/commit", commit_table, _WRITE),
    _operation("rollbackTable", f"POST {_TABLE}/rollback", rollback_table, _WRITE, "SNAPSHOT"),
    _refusal(
        "rollbackSchema", "POST", f"{_TABLE}/rollback-schema", "change the schema by alterTable"
    ),
    _refusal("getTableToken", "GET", f"{_TABLE}/token", _NO_TOKENS),
    _operation("authTableQuery", f"POST {_TABLE}/auth", auth_table_query),
    _operation("getTableSnapshot", f"GET {_TABLE}/snapshot", get_table_snapshot),
    _operation("getVersionSnapshot", f"GET {_TABLE}/snapshots/{{version}}", get_version_snapshot),
    _operation("listSnapshots", f"GET {_TABLE}/snapshots", list_snapshots),
    _operation("listPartitions", f"GET {_TABLE}/partitions", list_partitions),
    _refusal("createPartitions", "POST", f"{_TABLE}/partitions", _FROM_ROWS, "PARTITION"),
    _refusal(
        "dropPartitions",
        "POST",
        f"{_TABLE}/partitions/drop",
        "commit an overwrite of the partitions",
        "PARTITION",
    ),
    _refusal("markDonePartitions", "POST", f"{_TABLE}/partitions/mark", _FROM_ROWS, "PARTITION"),
    _operation(
        "listPartitionsByNames", f"POST {_TABLE}/partitions/list-by-names", list_partitions_by_names
    ),
    _refusal(
        "listPartitionsByFilter",
        "POST",
        f"{_TABLE}/partitions/list-by-filter",
        "list the partitions and filter them",
        "PARTITION",
    ),
    _operation("listBranches", f"GET {_TABLE}/branches", list_branches, resource="BRANCH"),
    _operation("createBranch", f"POST {_TABLE}/branches", create_branch, _WRITE, "BRANCH"),
    _operation("dropBranch", f"DELETE {_TABLE}/branches/{{branch}}", drop_branch, _WRITE, "BRANCH"),
    _operation(
        "renameBranch", f"POST {_TABLE}/branches/{{branch}}/rename", rename_branch, _WRITE, "BRANCH"
    ),
    _operation(
        "forwardBranch",
        f"POST {_TABLE}/branches/{{branch}}/forward",
        forward_branch,
        _WRITE,
        "BRANCH",
    ),
    _operation("listTags", f"GET {_TABLE}/tags", list_tags, resource="TAG"),
    _operation("createTag", f"POST {_TABLE}/tags", create_tag, _WRITE, "TAG"),
    _operation("getTag", f"GET {_TABLE}/tags/{{tag}}", get_tag, resource="TAG"),
    _operation("deleteTag", f"DELETE {_TABLE}/tags/{{tag}}", delete_tag, _WRITE, "TAG"),
    _operation("listConsumers", f"GET {_TABLE}/consumers", list_consumers),
    _operation("resetConsumer", f"POST {_TABLE}/consumers/reset", reset_consumer, _WRITE),
    _operation("listViews", f"GET {_DATABASE}/views", _nothing_listed("views")),
    _refusal("createView", "POST", f"{_DATABASE}/views", _NO_VIEWS, "VIEW"),
    _operation("listViewDetails", f"GET {_DATABASE}/view-details", _nothing_listed("viewDetails")),
    _operation("listViewsGlobally", f"GET {_ROOT}/views", _nothing_listed("views")),
    _operation("getView", f"GET {_DATABASE}/views/{{view}}", _absent("view"), resource="VIEW"),
    _operation("alterView", f"POST {_DATABASE}/views/{{view}}", _absent("view"), _WRITE, "VIEW"),
    _operation("dropView", f"DELETE {_DATABASE}/views/{{view}}", _absent("view"), _WRITE, "VIEW"),
    _refusal("renameView", "POST", f"{_ROOT}/views/rename", _NO_VIEWS, "VIEW"),
    _operation("listFunctions", f"GET {_DATABASE}/functions", _nothing_listed("functions")),
    _refusal("createFunction", "POST", f"{_DATABASE}/functions", _NO_VIEWS, "FUNCTION"),
    _operation(
        "listFunctionDetails",
        f"GET {_DATABASE}/function-details",
        _nothing_listed("functionDetails"),
    ),
    _operation("listFunctionsGlobally", f"GET {_ROOT}/functions", _nothing_listed("functions")),
    _operation(
        "getFunction",
        f"GET {_DATABASE}/functions/{{function}}",
        _absent("function"),
        resource="FUNCTION",
    ),
    _operation(
        "alterFunction",
        f"POST {_DATABASE}/functions/{{function}}",
        _absent("function"),
        _WRITE,
        "FUNCTION",
    ),
    _operation(
        "dropFunction",
        f"DELETE {_DATABASE}/functions/{{function}}",
        _absent("function"),
        _WRITE,
        "FUNCTION",
    ),
)


# -- Operations beyond the specification, for clients of this engine --------------------------------


def get_warehouse(request: Request) -> JsonMembers:
    """Return the directory that tables are created in, and what the client's token allows."""
    return {"warehouse": request.catalog.warehouse, "access": request.access.value}


def sync_lineage(request: Request) -> JsonMembers:
    """Record what the files of a table hold that the lineage lacks, and copy its options and Iceberg's location."""
    table = request.table
    recorded = request.catalog.sync_lineage([table.name])
    table.session.notify_altered(table.schema)
    table.session.follow_iceberg()
    return {"recorded": recorded[table.name]}


def ask_lineage(request: Request) -> JsonMembers:
    """Answer a question to the lineage: a method of `catalog.lineage`, by its name and arguments."""
    body, lineage = request.body, request.catalog.lineage
    if body.flag("isSynced"):
        lineage = lineage.as_recorded()
    return {"answer": answer(lineage, body.text("question"), _object(body, "arguments").members)}


ENGINE_OPERATIONS = (
    _operation("getWarehouse", f"GET {_ROOT}/engine/warehouse", get_warehouse),
    _operation("askLineage", f"POST {_ROOT}/engine/lineage", ask_lineage),
    _operation("syncLineage", f"POST {_TABLE}/engine/sync", sync_lineage, _WRITE),
)


# -- Errors ----------------------------------------------------------------------------------------

_RESOURCES = {
    ErrorKind.NO_SUCH_DATABASE: "DATABASE",
    ErrorKind.NO_SUCH_TABLE: "TABLE",
    ErrorKind.NO_SUCH_SNAPSHOT: "SNAPSHOT",
    ErrorKind.EXPIRED: "SNAPSHOT",
    ErrorKind.NO_SUCH_TAG: "TAG",
    ErrorKind.NO_SUCH_COLUMN: "COLUMN",
}
_NAMES = {
    "DATABASE": ("database", "name"),
    "TABLE": ("table", "object"),
    "SNAPSHOT": ("snapshot_id", "version"),
    "TAG": ("tag", "tagName", "name"),
    "BRANCH": ("branch", "toBranch", "name"),
    "COLUMN": ("column",),
    "VIEW": ("view",),
    "FUNCTION": ("function",),
}
"""Where the name of a resource stands: among the facts of an error, in the path or in the body."""


def error_members(
    status: int,
    message: str,
    error: LsmError | None,
    operation: Operation | None,
    request: Request | None,
) -> JsonMembers:
    """Return the answer to a failure, as the specification has it."""
    resource = None
    if operation is not None and status in (404, 409):
        resource = _RESOURCES.get(error.kind, operation.resource) if error else operation.resource
    return {
        "message": message,
        "resourceType": resource,
        "resourceName": _resource_name(resource, error, request),
        "code": status,
    }


def _resource_name(
    resource: str | None, error: LsmError | None, request: Request | None
) -> str | None:
    if resource is None:
        return None
    texts = {**(request.path if request else {}), **(error.facts if error else {})}
    names = (texts[name] for name in _NAMES.get(resource, ()) if texts.get(name) is not None)
    return next(map(str, names), None)


PROTOCOL = Protocol(
    name="paimon",
    root="",
    operations=(*OPERATIONS, *ENGINE_OPERATIONS),
    decode=unquote_plus,
    error=error_members,
)
