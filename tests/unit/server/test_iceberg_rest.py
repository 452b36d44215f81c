"""The REST catalog protocol of Iceberg: pyiceberg reads tables by their names, and changes nothing."""

from base64 import b64encode
from urllib.parse import urlencode

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from tests.engines.iceberg_readers import duckdb_reads_iceberg, duckdb_with_iceberg
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
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for credentials in (f"x:{READER}", "x:wrong-0123456789", "x", "é"):
        basic = {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}", **form}
        reply = served.send("POST", "/iceberg/v1/oauth/tokens", b"grant_type=client_credentials", token=None, headers=basic)  # fmt: skip
        assert reply.status == (200 if READER in credentials else 400)


@pytest.mark.skipif(not duckdb_reads_iceberg(), reason="DuckDB's extension is not here")
def test_duckdb_attaches_the_catalog_and_reads_a_table_by_its_name(
    served, orders, database
) -> None:
    duck = duckdb_with_iceberg().cursor()
    address = f"ENDPOINT '{served.url}/iceberg'"
    tokens = f"OAUTH2_SERVER_URI '{served.url}/iceberg/v1/oauth/tokens'"
    duck.execute(
        f"CREATE SECRET lsm (TYPE iceberg, CLIENT_ID 'x', CLIENT_SECRET '{READER}', {tokens})"
    )
    for credentials in (f"TOKEN '{READER}'", "SECRET lsm"):
        duck.execute(f"ATTACH 'lake' AS lake (TYPE iceberg, {address}, {credentials})")
        query = f"SELECT id, v FROM lake.{database}.orders ORDER BY id"
        before = orders.to_arrow().sort_by("id").to_pylist()
        assert duck.execute(query).to_arrow_table().to_pylist() == before
        orders.upsert([{"id": 3, "v": credentials[0]}])
        assert duck.execute(query).fetchall()[-1] == (3, credentials[0])
        with pytest.raises(Exception, match="Forbidden"):
            duck.execute(f"DROP TABLE lake.{database}.orders")
        duck.execute("DETACH lake")
    duck.execute("DROP SECRET lsm")
    assert orders.count() == 3


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
