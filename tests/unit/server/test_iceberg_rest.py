"""The REST catalog protocol of Iceberg: pyiceberg reads tables by their names, and changes nothing."""

from urllib.parse import urlencode

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from tests.served import READER, WRITER

OPTIONS = {"iceberg-compatibility.enabled": "true", "bucket": 1}
COLUMNS = {"id": "BIGINT", "v": "STRING"}


@pytest.fixture
def orders(served, database):
    table = served.catalog.create_table(f"{database}.orders", COLUMNS, "id", options=OPTIONS)
    table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    table.upsert([{"id": 2, "v": "c"}])
    return table


def iceberg(served, **more: str) -> RestCatalog:
    return RestCatalog("lsm", uri=f"{served.url}/iceberg", **{"token": READER, **more})


def test_pyiceberg_reads_the_rows_of_each_commit(served, orders, database) -> None:
    catalog = iceberg(served)
    assert (database,) in catalog.list_namespaces()
    assert catalog.list_tables(database) == [(database, "orders")]
    table = catalog.load_table(f"{database}.orders")
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "v": "a"}, {"id": 2, "v": "c"},
    ]  # fmt: skip
    orders.delete(where="id = 1")
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 2, "v": "c"}]
    assert catalog.table_exists(f"{database}.orders")
    assert catalog.load_namespace_properties(database)["location"].endswith(f"{database}.db")


def test_a_token_is_also_had_for_a_secret(served, orders, database) -> None:
    address = f"{served.url}/iceberg/v1/oauth/tokens"
    secret = {"credential": f"client:{READER}", "oauth2-server-uri": address}
    catalog = iceberg(served, token="", **secret)
    assert catalog.list_tables(database) == [(database, "orders")]
    body = urlencode({"grant_type": "client_credentials", "client_secret": "wrong-0123456789"})
    refused = served.send("POST", "/iceberg/v1/oauth/tokens", body.encode(), token=None)
    assert (refused.status, refused.json["error"]["code"]) == (400, 400)


def test_tables_without_iceberg_metadata_are_not_there(served, database) -> None:
    served.catalog.create_table(f"{database}.plain", COLUMNS, "id")
    catalog = iceberg(served)
    assert catalog.list_tables(database) == []
    assert not catalog.table_exists(f"{database}.plain")
    with pytest.raises(NoSuchTableError, match="iceberg-compatibility"):
        catalog.load_table(f"{database}.plain")
    with pytest.raises(NoSuchTableError):
        catalog.load_table(f"{database}.nothing")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("nothing")


def test_writes_are_refused_by_their_names(served, orders, database) -> None:
    path = f"/iceberg/v1/lsm/namespaces/{database}"
    for method, address in (
        ("POST", f"{path}/tables/orders"),
        ("DELETE", path),
        ("POST", f"{path}/tables"),
    ):
        refused = served.send(method, address, {}, token=WRITER)
        assert (refused.status, refused.json["error"]["type"]) == (
            406,
            "UnsupportedOperationException",
        )
        assert "is not supported" in refused.json["error"]["message"]
    assert served.send("DELETE", path, token=READER).status == 403
    assert orders.count() == 2


def test_a_wrong_token_is_refused_in_the_words_of_iceberg(served) -> None:
    refused = served.send("GET", "/iceberg/v1/config", token="wrong-0123456789")
    assert (refused.status, refused.json["error"]["type"]) == (401, "NotAuthorizedException")
