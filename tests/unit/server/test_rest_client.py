"""`open_catalog("http://…")`: the operations of a catalog through a server are those with its database."""

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.served import READER, WRITER, serving

COLUMNS = {"id": "BIGINT", "v": "VARCHAR(9)", "dt": "STRING"}
KEY = ["id", "dt"]


@pytest.fixture
def remote(served):
    with lsm.open_catalog(served.url, token=WRITER) as catalog:
        yield catalog


@pytest.fixture(params=["with the database", "through a server"])
def catalog(request, served):
    """Every test of it shows that both kinds of catalog do the same."""
    if request.param == "with the database":
        yield served.catalog
        return
    with lsm.open_catalog(served.url, token=WRITER) as opened:
        yield opened


def test_databases_are_created_altered_listed_and_dropped(catalog) -> None:
    catalog.create_database("life", properties={"owner": "me"})
    catalog.create_database("life", ignore_if_exists=True)
    with pytest.raises(lsm.AlreadyExistsError):
        catalog.create_database("life")
    assert "life" in catalog.list_databases()
    assert catalog.alter_database("life", updates={"team": "a"}, removals=["owner", "x"]) == [
        "owner"
    ]
    properties = catalog.database_properties("life")
    assert (properties["team"], properties["location"]) == ("a", f"{catalog.warehouse}/life.db")
    catalog.create_table("life.t", COLUMNS, KEY)
    with pytest.raises(lsm.InvalidInputError, match="still has tables"):
        catalog.drop_database("life")
    catalog.drop_database("life", cascade=True)
    with pytest.raises(lsm.NotFoundError) as missing:
        catalog.database_properties("life")
    assert missing.value.kind is lsm.ErrorKind.NO_SUCH_DATABASE


def test_a_table_is_created_written_tagged_altered_renamed_and_dropped(catalog, database) -> None:
    name = f"{database}.orders"
    options = {"bucket": 2}
    table = catalog.create_table(
        name, COLUMNS, KEY, partitioned_by="dt", options=options, comment="c"
    )
    assert (table.schema.primary_keys, table.schema.partition_keys) == (("id", "dt"), ("dt",))
    assert table.schema.comment == "c"
    with pytest.raises(lsm.AlreadyExistsError):
        catalog.create_table(name, COLUMNS, KEY)
    assert catalog.create_table(name, COLUMNS, KEY, ignore_if_exists=True).schema.bucket_count == 2
    table.upsert(
        pa.table({"id": [1, 2], "v": ["a", "b"], "dt": ["x", "y"]}, schema=table.schema.arrow)
    )
    table.tags.create("v1")
    table.alter(lsm.AddColumn("w", "INT"))
    assert name in catalog
    assert list(catalog.table(name).schema.names) == ["id", "v", "dt", "w"]
    with pytest.raises(lsm.InvalidInputError):
        catalog.create_table(f"{database}.wrong", COLUMNS, "nothing")
    with pytest.raises(lsm.InvalidOptionError):
        catalog.create_table(f"{database}.wrong", COLUMNS, KEY, options={"bucket": "many"})
    moved = catalog.rename_table(name, f"{database}.sales")
    assert moved.count() == 2
    assert catalog.list_tables(database) == ["sales"]
    with pytest.raises(lsm.NotFoundError) as missing:
        catalog.table(name)
    assert missing.value.kind is lsm.ErrorKind.NO_SUCH_TABLE
    catalog.drop_table(f"{database}.sales")
    catalog.drop_table(f"{database}.sales", ignore_if_missing=True)
    assert list(catalog.unknown_tables()) == []


def test_an_expiry_is_preceded_by_the_record_of_what_goes(served, remote, database) -> None:
    table = remote.create_table(f"{database}.orders", COLUMNS, KEY)
    for number in range(4):
        table.upsert([{"id": number, "v": "a", "dt": "x"}], commit_user=f"run-{number}")
    table.maintenance.expire(retain_max=1, retain_min=1, older_than="0 s")
    recorded = served.catalog.lineage.snapshots(lsm.TableName.parse(table.name)).to_pylist()
    assert {row["commit_user"] for row in recorded} == {f"run-{number}" for number in range(4)}


def test_what_needs_the_database_is_refused_by_its_name(remote, database) -> None:
    table = remote.create_table(f"{database}.orders", COLUMNS, KEY)
    table.upsert([{"id": 1, "v": "a", "dt": "x"}])
    for act in (
        lambda: remote.lineage,
        lambda: remote.unregister_table(table.name),
        remote.rebuild,
        remote.write_lineage_page,
        lambda: table.maintenance.forget([{"id": 1, "dt": "x"}]),
    ):
        with pytest.raises(lsm.UnsupportedError, match="through a server"):
            act()
    assert table.count() == 1


def test_wrong_tokens_and_addresses_are_named(served, monkeypatch, tmp_path) -> None:
    with pytest.raises(lsm.InvalidOptionError, match="LSM_TOKEN"):
        lsm.open_catalog(served.url, token="wrong-0123456789")
    monkeypatch.setenv("LSM_TOKEN", READER)
    with lsm.open_catalog(served.url) as reader:
        assert isinstance(reader.list_databases(), list)
        with pytest.raises(lsm.InvalidOptionError, match="allows to read alone"):
            reader.create_database("x")
    with pytest.raises(lsm.StorageError, match="does not answer"):
        lsm.open_catalog("http://127.0.0.1:9", token=READER)
    with pytest.raises(lsm.InvalidOptionError, match="address"):
        lsm.open_catalog("http://", token=READER)


def test_a_catalog_outlives_a_restart_of_its_server(tmp_path) -> None:
    with lsm.open_catalog(tmp_path / "lake") as own:
        own.create_database("shop")
        with serving(own) as server:
            remote = lsm.open_catalog(server.url, token=WRITER)
            port = server.port
        with pytest.raises(lsm.StorageError):
            remote.list_databases()
        with serving(own, port=port):
            assert remote.list_databases() == ["shop"]
        remote.close()


def test_the_command_line_asks_a_server(served, database, monkeypatch, capsys) -> None:
    from click.testing import CliRunner

    from lsm_engine.cli.main import lsm as command

    monkeypatch.setenv("LSM_TOKEN", WRITER)
    served.catalog.create_table(f"{database}.orders", COLUMNS, KEY)
    done = CliRunner().invoke(command, ["--catalog", served.url, "tables", database, "--json"])
    assert (done.exit_code, f'"{database}.orders"' in done.output) == (0, True), done.output
