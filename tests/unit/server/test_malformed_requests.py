"""Requests that no client sends: the error of the specification, and nothing is changed."""

import copy
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_engine.server.iceberg import PROTOCOL as ICEBERG
from lsm_engine.server.paimon import PROTOCOL
from tests.served import prepared

ORDERS = {"database": "shop", "object": "orders"}
PLACE = {"fieldName": "n", "referenceFieldName": "id", "type": "AFTER"}
FIELDS = [
    {"id": 0, "name": "id", "type": "BIGINT NOT NULL", "description": "the key"},
    {"id": 1, "name": "tags", "type": {"type": "ARRAY", "element": "STRING"}},
    {"id": 2, "name": "s", "type": {"type": "ROW", "fields": [{"id": 3, "name": "a", "type": "INT"}]}},
]  # fmt: skip
SCHEMA = {"fields": FIELDS, "partitionKeys": [], "primaryKeys": ["id"], "options": {"bucket": "1"}, "comment": "c"}  # fmt: skip
CHANGES = [
    {"action": "setOption", "key": "snapshot.num-retained.max", "value": "99"},
    {"action": "removeOption", "key": "x"},
    {"action": "updateComment", "comment": "c"},
    {"action": "addColumn", "fieldNames": ["n"], "dataType": "INT", "comment": "c", "move": PLACE},
    {"action": "renameColumn", "fieldNames": ["v"], "newName": "w"},
    {"action": "dropColumn", "fieldNames": ["v"]},
    {"action": "updateColumnComment", "fieldNames": ["v"], "newComment": "c"},
    {"action": "updateColumnDefaultValue", "fieldNames": ["v"], "newDefaultValue": "c"},
    {"action": "updateColumnType", "fieldNames": ["v"], "newDataType": "STRING"},
    {"action": "updateColumnPosition", "move": PLACE},
    {"action": "updateColumnNullability", "fieldNames": ["v"], "newNullability": True},
]
BODIES = [
    ("createDatabase", {"name": "new", "options": {"a": "b"}}),
    ("alterDatabase", {"removals": ["a"], "updates": {"b": "c"}}),
    ("RegisterTable", {"identifier": ORDERS, "path": "/x"}),
    ("createTable", {"identifier": {"database": "shop", "object": "new"}, "schema": SCHEMA}),
    ("renameTable", {"source": ORDERS, "destination": {"database": "shop", "object": "moved"}}),
    ("rollbackTable", {"instant": {"type": "snapshot", "snapshotId": 1}, "fromSnapshot": 2}),
    ("rollbackTable", {"instant": {"type": "tag", "tagName": "v1"}}),
    ("authTableQuery", {"select": ["id"]}),
    ("listPartitionsByNames", {"specs": []}),
    ("createBranch", {"branch": "new", "fromTag": "v1"}),
    ("renameBranch", {"toBranch": "new"}),
    ("createTag", {"tagName": "v2", "snapshotId": 1, "timeRetained": "1 d", "ignoreIfExists": True}),
    ("resetConsumer", {"consumerId": "c", "nextSnapshotId": 1}),
    ("askLineage", {"question": "recent_activity", "arguments": {"limit": 1}, "isSynced": True}),
    *(("alterTable", {"changes": [change]}) for change in CHANGES),
]  # fmt: skip
NOT_READ = {("changes", 0, "move", "fieldName")}
"""Members of a body that say again what another one says."""
OTHER_TYPES = (1.5, True, [[1]], {"a": [1]})
NAMES = {
    "prefix": "lsm", "database": "shop", "table": "orders", "branch": "fix", "tag": "v1", "version": "1",
    "tableId": "x", "view": "v", "function": "f", "plan-id": "p",
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(served):
    served.catalog.create_database("shop")
    columns = {"id": "BIGINT", "v": "STRING"}
    table = served.catalog.create_table("shop.orders", columns, "id", options={"bucket": 1})
    table.upsert([{"id": 1, "v": "a"}])
    table.upsert([{"id": 2, "v": "b"}])
    table.tags.create("v1")
    table.branches.create("fix", "v1")
    return table


def files(served) -> set[str]:
    return {str(path) for path in Path(served.catalog.warehouse).rglob("[!c]*")}


def paths_in(value: object, path: tuple = ()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    for key, member in items:
        yield from paths_in(member, (*path, key))


def with_other_types(body: object):
    """Yield a body once for each of its members and each type that this has not."""
    for path in paths_in(body):
        if path in NOT_READ:
            continue
        for value in OTHER_TYPES:
            changed = request = copy.deepcopy({"body": body})
            *way, last = ("body", *path)
            for key in way:
                changed = changed[key]
            if type(changed[last]) is not type(value):
                changed[last] = value
                yield path, request["body"]


def address(operation, trick: str = "", name: str = "") -> str:
    return re.sub(r"\{([\w-]+)\}", lambda part: trick if part[1] == name else NAMES[part[1]], operation.path)  # fmt: skip


def test_every_member_of_every_body_is_refused_with_another_type(served, shop) -> None:
    operations = {operation.name: operation for operation in PROTOCOL.operations}
    posts = {name for name, operation in operations.items() if operation.method == "POST"}
    refusing = {name for name in posts if "Refuse" in operations[name].summary}
    assert posts - refusing - {"commitTable", "forwardBranch", "syncLineage"} == {
        name for name, _ in BODIES
    }
    before = files(served)
    for name, body in BODIES:
        for path, changed in with_other_types(body):
            refused = served.send("POST", address(operations[name]), changed)
            # A type may be one of a newer version.
            assert refused.status in (400, 501), (name, path, changed, refused.body)
    assert files(served) == before


def test_every_member_of_a_snapshot_is_refused_with_another_type(served, shop) -> None:
    commit = prepared(shop, pa.table({"id": [5], "v": ["c"]}))
    body = {"tableId": "x", "baseSnapshotUuid": commit.base_uuid, "snapshot": commit.members}
    before = files(served)
    for path, changed in with_other_types(body):
        refused = served.post("databases/shop/tables/orders/commit", changed)
        assert refused.status in (400, 404), (path, refused.body)
    assert files(served) == before
    assert served.commit("shop.orders", commit).json == {"success": True}


@pytest.mark.parametrize("protocol", [PROTOCOL, ICEBERG], ids=lambda protocol: protocol.name)
def test_names_that_are_none_are_refused_by_every_operation(served, shop, protocol) -> None:
    tricks = ("..", "a%2Fb", "x%00", "%ff", "n" * 300, "orders%24branch_", "orders%24branch_..%2Fx", "", "a%40b%40c")  # fmt: skip
    before = files(served)
    for operation in protocol.operations:
        names = re.findall(r"\{([\w-]+)\}", operation.path)
        for name, trick in ((name, trick) for name in names for trick in tricks):
            path = protocol.root + address(operation, trick, name)
            refused = served.send(operation.method, path, b"{}")
            assert refused.status in (400, 404, protocol.unsupported_status), (path, refused.body)
    assert files(served) == before
    assert shop.count() >= 2


def test_queries_that_are_none_are_answered_or_refused(served, shop) -> None:
    queries = (
        "maxResults=-1", "maxResults=%C2%B2", f"maxResults={9**20}", "pageToken=%ff", "pageToken=%00", "&&=",
        f"pageToken={'x' * 5000}", "tableNamePattern=%5B(", "tagNamePrefix=%00", "parent=%1f",
        f"tableNamePattern={'%25' * 200}z&partitionNamePattern={'%25' * 200}z",
    )  # fmt: skip
    for protocol in (PROTOCOL, ICEBERG):
        for operation in (operation for operation in protocol.operations if operation.method == "GET"):  # fmt: skip
            for query in queries:
                path = f"{protocol.root}{address(operation)}?{query}"
                assert served.send("GET", path).status in (200, 400, 404, protocol.unsupported_status), path  # fmt: skip


def test_an_instant_of_a_rollback_is_a_snapshot_or_a_tag(served, shop) -> None:
    body = {"instant": {"type": "guess", "snapshotId": 1}}
    assert served.post("databases/shop/tables/orders/rollback", body).status == 400
    assert json.loads(served.get("databases/shop/tables/orders/snapshot").body)["snapshot"]["snapshot"]["id"] > 1  # fmt: skip
