"""The REST catalog protocol of Paimon, operation by operation."""

from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.served import READER, serving

FIELDS = [
    {"id": 0, "name": "id", "type": "BIGINT NOT NULL", "description": "the key"},
    {"id": 1, "name": "name", "type": "VARCHAR(20)"},
    {"id": 2, "name": "tags", "type": {"type": "ARRAY", "element": "STRING"}},
    {"id": 3, "name": "dt", "type": "STRING NOT NULL"},
]
SCHEMA = {
    "fields": FIELDS,
    "partitionKeys": ["dt"],
    "primaryKeys": ["id", "dt"],
    "options": {"bucket": "2"},
    "comment": "what was ordered",
}


def create(served, database: str, table: str = "orders", **members: object) -> None:
    body = {"identifier": {"database": database, "object": table}, "schema": {**SCHEMA, **members}}
    answer = served.post(f"databases/{database}/tables", body)
    assert answer.status == 200, answer.json


def filled(served, database: str) -> lsm.Table:
    create(served, database)
    table = served.catalog.table(f"{database}.orders")
    rows = {
        "id": [1, 2, 3],
        "name": ["a", "b", "c"],
        "tags": [["x"], [], None],
        "dt": ["a", "a", "b c"],
    }
    table.upsert(pa.table(rows, schema=table.schema.arrow))
    return table


def test_a_client_is_told_the_prefix(served) -> None:
    answer = served.send("GET", "/v1/config?warehouse=lake").json
    assert answer == {"defaults": {"prefix": "lsm"}, "overrides": {}}


def test_databases_live_from_create_to_drop(served) -> None:
    assert served.post("databases", {"name": "life", "options": {"owner": "me"}}).status == 200
    taken = served.post("databases", {"name": "life"})
    assert (taken.status, taken.json["resourceType"]) == (409, "DATABASE")
    assert "life" in served.get("databases").json["databases"]
    shown = served.get("databases/life").json
    assert (shown["name"], shown["options"]) == ("life", {"owner": "me"})
    assert shown["location"].endswith("/life.db")
    changed = served.post(
        "databases/life", {"removals": ["owner", "x"], "updates": {"team": "a"}}
    ).json
    assert changed == {"removed": ["owner"], "updated": ["team"], "missing": ["x"]}
    assert served.get("databases/life").json["options"] == {"team": "a"}
    create(served, "life")
    assert served.delete("databases/life").status == 200
    missing = served.get("databases/life")
    assert (missing.status, missing.json["resourceType"]) == (404, "DATABASE")
    assert served.delete("databases/life").status == 404


def test_a_table_has_the_schema_that_a_client_sent(served, database) -> None:
    create(served, database)
    shown = served.get(f"databases/{database}/tables/orders").json
    assert shown["schema"] == SCHEMA
    assert (shown["name"], shown["database"], shown["isExternal"]) == ("orders", database, False)
    assert shown["path"] == served.catalog.table(f"{database}.orders").location
    assert served.get(f"tables/id/{shown['id']}").json["name"] == "orders"
    assert served.get("tables/id/nothing").status == 404
    details = served.get(f"databases/{database}/table-details").json["tableDetails"]
    assert [detail["id"] for detail in details] == [shown["id"]]
    again = served.post(
        f"databases/{database}/tables",
        {"identifier": {"database": database, "object": "orders"}, "schema": SCHEMA},
    )
    assert (again.status, again.json["resourceType"]) == (409, "TABLE")


def test_a_new_column_has_its_default_and_a_default_of_another_type_is_refused(
    served, database
) -> None:
    fields = [FIELDS[0], {"id": 1, "name": "n", "type": "INT", "defaultValue": "7"}]
    create(served, database, fields=fields, partitionKeys=[], primaryKeys=["id"])
    table = served.catalog.table(f"{database}.orders")
    table.upsert([{"id": 1}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 7}]
    assert served.get(f"databases/{database}/tables/orders").json["schema"]["fields"] == fields
    wrong = {
        **SCHEMA,
        "fields": [FIELDS[0], {**fields[1], "defaultValue": "many"}],
        "partitionKeys": [],
        "primaryKeys": ["id"],
    }
    within = {"type": "ROW", "fields": [{"id": 2, "name": "a", "type": "INT", "defaultValue": "7"}]}
    for fields_, options in (
        (wrong["fields"], {}),
        ([FIELDS[0], {"id": 1, "name": "r", "type": within}], {}),
        ([{**FIELDS[0], "defaultValue": "7"}], {}),
        (fields, {"merge-engine": "partial-update"}),
    ):
        schema = {**wrong, "fields": fields_, "options": options}
        body = {"identifier": {"database": database, "object": "wrong"}, "schema": schema}
        reply = served.post(f"databases/{database}/tables", body)
        assert (reply.status, "default" in reply.json["message"]) == (400, True), reply.body
        assert "wrong" not in served.catalog.list_tables(database)
    change = {"action": "addColumn", "fieldNames": ["r"], "dataType": within}
    reply = served.post(f"databases/{database}/tables/orders", {"changes": [change]})
    assert (reply.status, "r.a" in reply.json["message"]) == (400, True), reply.body


def test_comments_of_fields_within_columns_are_kept(served, database) -> None:
    inner = {"id": 2, "name": "a", "type": "INT", "description": "in euros"}
    column = {"id": 1, "name": "r", "type": {"type": "ROW", "fields": [inner]}}
    create(served, database, fields=[FIELDS[0], column], partitionKeys=[], primaryKeys=["id"])
    path = f"databases/{database}/tables/orders"
    change = {"action": "addColumn", "fieldNames": ["q"], "dataType": column["type"]}
    assert served.post(path, {"changes": [change]}).status == 200
    _, first, second = served.get(path).json["schema"]["fields"]
    assert [field["type"]["fields"][0]["description"] for field in (first, second)] == [
        "in euros"
    ] * 2


def test_a_schema_is_altered_by_all_changes_or_none(served, database) -> None:
    create(served, database)
    path = f"databases/{database}/tables/orders"
    changes = [
        {"action": "setOption", "key": "snapshot.num-retained.max", "value": "99"},
        {"action": "addColumn", "fieldNames": ["price"], "dataType": "DOUBLE", "comment": "net",
         "move": {"fieldName": "price", "referenceFieldName": "id", "type": "AFTER"}},
        {"action": "renameColumn", "fieldNames": ["name"], "newName": "title"},
        {"action": "updateColumnType", "fieldNames": ["title"], "newDataType": "VARCHAR(30)",
         "keepNullability": True},
        {"action": "updateColumnComment", "fieldNames": ["title"], "newComment": "shown"},
        {"action": "updateComment", "comment": "orders"},
        {"action": "dropColumn", "fieldNames": ["tags"]},
        {"action": "updateColumnPosition",
         "move": {"fieldName": "title", "referenceFieldName": None, "type": "FIRST"}},
    ]  # fmt: skip
    assert served.post(path, {"changes": changes}).status == 200
    shown = served.get(path).json
    assert [(field["name"], field["type"]) for field in shown["schema"]["fields"]] == [
        ("title", "VARCHAR(30)"), ("id", "BIGINT NOT NULL"), ("price", "DOUBLE"), ("dt", "STRING NOT NULL"),
    ]  # fmt: skip
    assert (shown["schemaId"], shown["schema"]["comment"]) == (1, "orders")
    wrong = [{"action": "setOption", "key": "snapshot.num-retained.max", "value": "98"},
             {"action": "dropColumn", "fieldNames": ["nothing"]}]  # fmt: skip
    refused = served.post(path, {"changes": wrong})
    assert (refused.status, refused.json["resourceType"]) == (404, "COLUMN")
    assert served.get(path).json["schemaId"] == 1
    assert served.post(path, {"changes": [{"action": "dropPrimaryKey"}]}).status == 501


def test_tables_are_renamed_and_dropped(served, database) -> None:
    table = filled(served, database)
    names = {name: {"database": database, "object": name} for name in ("orders", "sales")}
    body = {"source": names["orders"], "destination": names["sales"]}
    assert served.post("tables/rename", body).status == 200
    assert served.post("tables/rename", body).status == 404
    assert served.catalog.table(f"{database}.sales").count() == 3
    assert not Path(table.location).exists()
    assert served.delete(f"databases/{database}/tables/sales").status == 200
    assert served.delete(f"databases/{database}/tables/sales").status == 404


def test_a_table_is_registered_where_it_lies_and_nowhere_else(served, database, tmp_path) -> None:
    table = filled(served, database)
    served.catalog.unregister_table(table.name)
    body = {"identifier": {"database": database, "object": "orders"}, "path": str(tmp_path)}
    assert served.post(f"databases/{database}/register", body).status == 400
    assert (
        served.post(f"databases/{database}/register", {**body, "path": table.location}).status
        == 200
    )
    assert served.get(f"databases/{database}/tables").json["tables"] == ["orders"]


def test_lists_have_pages_and_patterns(served, database) -> None:
    for name in ("a1", "a2", "b_1", "bx1"):
        create(served, database, name)
    path = f"databases/{database}/tables"
    first = served.get(f"{path}?maxResults=3").json
    assert first == {"tables": ["a1", "a2", "b_1"], "nextPageToken": "b_1"}
    assert served.get(f"{path}?maxResults=3&pageToken=b_1").json == {
        "tables": ["bx1"],
        "nextPageToken": None,
    }
    assert served.get(f"{path}?tableNamePattern=a%25").json["tables"] == ["a1", "a2"]
    assert served.get(f"{path}?tableNamePattern=b_1").json["tables"] == ["b_1"]
    assert served.get(f"{path}?maxResults=many").status == 400
    listed = served.get(f"tables?databaseNamePattern={database}&tableNamePattern=a1").json
    assert listed["tables"] == [{"database": database, "object": "a1"}]
    assert served.get("databases/nothing/tables").status == 404


def test_snapshots_are_listed_and_returned_by_id_tag_and_word(served, database) -> None:
    table = filled(served, database)
    path = f"databases/{database}/tables/orders"
    table.tags.create("v1")
    table.upsert(table.to_arrow())
    shown = served.get(f"{path}/snapshot").json["snapshot"]
    assert (shown["snapshot"]["id"], shown["recordCount"], shown["fileCount"]) == (2, 6, 4)
    assert shown["fileSizeInBytes"] == sum(table.inspect.files()["file_size_in_bytes"].to_pylist())
    assert [one["id"] for one in served.get(f"{path}/snapshots").json["snapshots"]] == [1, 2]
    page = served.get(f"{path}/snapshots?maxResults=1").json
    assert (len(page["snapshots"]), page["nextPageToken"]) == (1, "1")
    versions = {"1": 1, "LATEST": 2, "EARLIEST": 1, "v1": 1}
    for version, number in versions.items():
        assert served.get(f"{path}/snapshots/{version}").json["snapshot"]["id"] == number
    missing = served.get(f"{path}/snapshots/77")
    assert (missing.status, missing.json["resourceType"], missing.json["resourceName"]) == (
        404, "SNAPSHOT", "77",
    )  # fmt: skip
    create(served, database, "empty")
    empty = served.get(f"databases/{database}/tables/empty/snapshot")
    assert (empty.status, empty.json["resourceType"]) == (404, "SNAPSHOT")


def test_a_table_is_rolled_back_to_a_snapshot_or_a_tag(served, database) -> None:
    table = filled(served, database)
    path = f"databases/{database}/tables/orders/rollback"
    table.tags.create("v1")
    table.delete(where="id > 1")
    table.delete(where="id = 1")
    stale = {"instant": {"type": "snapshot", "snapshotId": 2}, "fromSnapshot": 2}
    assert served.post(path, stale).status == 409
    assert served.post(path, {**stale, "fromSnapshot": 3}).status == 200
    assert table.count() == 1
    assert served.post(path, {"instant": {"type": "tag", "tagName": "v1"}}).status == 200
    assert table.count() == 3
    missing = served.post(path, {"instant": {"type": "tag", "tagName": "v9"}})
    assert (missing.status, missing.json["resourceType"], missing.json["resourceName"]) == (
        404,
        "TAG",
        "v9",
    )


def test_partitions_have_their_values_and_sums(served, database) -> None:
    filled(served, database)
    path = f"databases/{database}/tables/orders/partitions"
    partitions = served.get(path).json["partitions"]
    assert [(part["spec"], part["recordCount"]) for part in partitions] == [
        ({"dt": "a"}, 2), ({"dt": "b c"}, 1),
    ]  # fmt: skip
    named = served.post(
        f"{path}/list-by-names", {"specs": [{"dt": "b c"}, {"dt": "x"}]}, token=READER
    )
    assert [part["spec"] for part in named.json["partitions"]] == [{"dt": "b c"}]
    assert served.post(path, {"partitionSpecs": []}).status == 501


def test_tags_live_from_create_to_delete(served, database) -> None:
    table = filled(served, database)
    path = f"databases/{database}/tables/orders/tags"
    assert (
        served.post(path, {"tagName": "v1", "snapshotId": 1, "timeRetained": "1 d"}).status == 200
    )
    taken = served.post(path, {"tagName": "v1", "snapshotId": 1})
    table.upsert(table.to_arrow())
    taken = served.post(path, {"tagName": "v1"})
    assert (taken.status, taken.json["resourceType"]) == (409, "TAG")
    assert served.post(path, {"tagName": "v1", "ignoreIfExists": True}).status == 200
    shown = served.get(f"{path}/v1").json
    assert (shown["tagName"], shown["snapshot"]["id"], shown["tagTimeRetained"]) == (
        "v1",
        1,
        "PT86400S",
    )
    assert served.get(f"{path}?tagNamePrefix=v").json["tags"] == ["v1"]
    assert served.get(f"{path}?tagNamePrefix=w").json["tags"] == []
    wrong = served.post(path, {"tagName": "v2", "snapshotId": 99})
    assert (wrong.status, wrong.json["resourceType"]) == (404, "SNAPSHOT")
    assert served.delete(f"{path}/v1").status == 200
    missing = served.get(f"{path}/v1")
    assert (missing.status, missing.json["resourceType"], missing.json["resourceName"]) == (
        404,
        "TAG",
        "v1",
    )


def test_branches_live_from_create_to_fast_forward(served, database) -> None:
    table = filled(served, database)
    path = f"databases/{database}/tables/orders/branches"
    table.tags.create("v1")
    assert served.post(path, {"branch": "fix", "fromTag": "v1"}).status == 200
    assert served.post(path, {"branch": "fix"}).status == 409
    assert served.post(f"{path}/fix/rename", {"toBranch": "mend"}).status == 200
    assert served.get(path).json == {"branches": ["mend"]}
    table.branch("mend").delete(where="id = 1")
    assert served.post(f"{path}/mend/forward").status == 200
    assert table.count() == 2
    assert served.delete(f"{path}/mend").status == 200
    missing = served.delete(f"{path}/mend")
    assert (missing.status, missing.json["resourceType"]) == (404, "BRANCH")


def test_consumers_are_listed_and_reset(served, database) -> None:
    filled(served, database)
    path = f"databases/{database}/tables/orders/consumers"
    assert served.post(f"{path}/reset", {"consumerId": "etl", "nextSnapshotId": 1}).status == 200
    assert served.get(path).json["consumers"] == [{"consumerId": "etl", "nextSnapshot": 1}]


def test_views_and_functions_are_none(served, database) -> None:
    for noun in ("view", "function"):
        assert served.get(f"databases/{database}/{noun}s").json[f"{noun}s"] == []
        assert served.get(f"{noun}s").json[f"{noun}s"] == []
        missing = served.get(f"databases/{database}/{noun}s/x")
        assert (missing.status, missing.json["resourceType"]) == (404, noun.upper())
        assert served.post(f"databases/{database}/{noun}s", {}).status == 501


def test_tables_are_external_if_the_server_says_so(served, database) -> None:
    create(served, database)
    with serving(served.catalog, external=True) as other:
        assert other.get(f"databases/{database}/tables/orders").json["isExternal"] is True


@pytest.mark.parametrize(
    "path",
    [
        "databases/..",
        "databases/a%2Fb",
        "databases/%2e%2e/tables/x",
        "databases/x%00y",
        "databases/a%5Cb",
    ],
)
def test_names_that_lead_elsewhere_are_refused(served, path) -> None:
    refused = served.get(path)
    assert refused.status in (400, 404), refused.json
    create_refused = served.post("databases", {"name": "../up"})
    assert create_refused.status == 400


def test_names_with_blanks_and_signs_are_decoded_as_clients_encode_them(served, database) -> None:
    create(served, database, "my orders+1")
    assert served.get(f"databases/{database}/tables/my+orders%2B1").json["name"] == "my orders+1"
