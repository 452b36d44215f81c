"""`open_catalog("http://…")`: the operations of a catalog through a server are those with its database."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.served import READER, WRITER, serving

COLUMNS = {"id": "BIGINT", "v": "VARCHAR(9)", "dt": "STRING"}
KEY = ["id", "dt"]
ROW = {"id": 1, "v": "a", "dt": "x"}


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
    inner = pa.field("a", pa.int64(), metadata={"lsm.default": "7"})
    for columns in (COLUMNS, pa.schema([("id", pa.int64()), ("r", pa.struct([inner]))])):
        with pytest.raises(lsm.InvalidInputError, match=r"primary key|r\.a"):
            catalog.create_table(
                f"{database}.wrong", columns, "nothing" if columns is COLUMNS else "id"
            )
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


def test_a_name_with_the_sign_of_branches_is_one_of_a_table(remote, database) -> None:
    table = remote.create_table(f"{database}.a@b", COLUMNS, KEY)
    table.upsert([{"id": 1, "v": "a", "dt": "x"}])
    assert remote.sync_lineage([table.name]) == {table.name: 1}
    remote.drop_table(table.name)
    assert remote.list_tables(database) == []


def test_what_needs_the_database_is_refused_by_its_name(remote, database) -> None:
    table = remote.create_table(f"{database}.orders", COLUMNS, KEY)
    table.upsert([{"id": 1, "v": "a", "dt": "x"}])
    for act in (
        lambda: remote.lineage.forget(lsm.TableName.parse(table.name)),
        lambda: remote.unregister_table(table.name),
        remote.rebuild,
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
    served.catalog.table(f"{database}.orders").upsert(
        [{"id": 1, "v": "a", "dt": "x"}], commit_user="somebody"
    )
    for words in (["show", "commits", f"{database}.orders"], ["doctor", f"{database}.orders"]):
        done = CliRunner().invoke(command, ["--catalog", served.url, *words, "--json"])
        assert done.exit_code == 0, done.output
        assert ("commit-user:somebody" in done.output) == (words[0] == "show"), done.output


def test_a_token_that_reads_changes_no_table(served, database, tmp_path) -> None:
    served.catalog.create_table(f"{database}.orders", COLUMNS, KEY).upsert([ROW])
    written = served.catalog.table(f"{database}.orders")
    written.tags.create("start")
    written.branches.create("fix", tag="start")
    written.branch("fix").upsert([{**ROW, "v": "b"}])
    written.upsert([ROW])
    files = sorted(path for path in Path(written.location).rglob("*") if path.is_file())
    with lsm.open_catalog(served.url, token=READER) as catalog:
        table = catalog.table(f"{database}.orders")
        assert table.to_arrow().to_pylist() == [ROW]
        assert table.changes.to_arrow().num_rows == 2
        assert table.to_duckdb().count("*").fetchone() == (1,)
        changes = [
            lambda: table.upsert([ROW]),
            lambda: table.delete(where="id = 1"),
            lambda: table.update(set={"v": "'z'"}),
            lambda: table.overwrite([ROW]),
            lambda: table.tags.create("other"),
            lambda: table.tags.delete("start"),
            lambda: table.branches.create("work"),
            lambda: table.branches.rename("fix", "new"),
            lambda: table.branches.delete("fix"),
            lambda: table.branches.fast_forward("fix", force=True),
            lambda: table.branch("fix").upsert([ROW]),
            lambda: table.alter(lsm.AddColumn("w", "INT")),
            lambda: table.compact(full=True),
            lambda: table.maintenance.expire(retain_max=1, older_than="0 s"),
            lambda: table.rollback_to(tag="start"),
            lambda: list(table.changes.follow(consumer_id="c", poll_millis=None)),
            lambda: catalog.drop_table(table.name),
        ]
        for change in changes:
            with pytest.raises(lsm.InvalidOptionError, match="read alone"):
                change()
    assert sorted(path for path in Path(written.location).rglob("*") if path.is_file()) == files
    assert served.catalog.table(f"{database}.orders").to_arrow().to_pylist() == [ROW]


@pytest.mark.parametrize(
    ("question", "arguments"),
    [
        ("forget", {"table": {"table": ["shop", "orders", "main"]}}),
        ("snapshots", {}),
        ("snapshots", {"table": 1}),
        ("snapshots", {"table": {"table": ["shop"]}}),
        ("snapshots", {"table": {"table": ["shop", "..", "main"]}}),
        ("snapshots", {"table": {"rows": "AAAA"}}),
        ("recent_activity", {"limit": "all"}),
        ("recent_activity", {"self": 1}),
        ("live_recorded", {"since": {"pairs": [1]}}),
        ("snapshots_of_run", {"run_id": {"record": "FileLife", "members": {}}}),
        ("snapshots_of_run", {"run_id": 1.5}),
    ],
)
def test_a_malformed_question_to_the_lineage_is_refused(served, question, arguments) -> None:
    reply = served.post("engine/lineage", {"question": question, "arguments": arguments})
    assert reply.status == 400, reply.body


def test_a_question_to_the_lineage_takes_what_the_method_takes(remote, database) -> None:
    table = remote.create_table(f"{database}.orders", COLUMNS, KEY)
    table.upsert([{"id": 1, "v": "a", "dt": "x"}], commit_user="one")
    name = lsm.TableName.parse(table.name)
    assert remote.lineage.as_recorded().snapshots(name).num_rows == 0
    lineage = remote.lineage.synced(name)
    assert lineage.snapshots(name, limit=np.int16(1), upto=np.int64(9)).num_rows == 1
    (recorded,) = lineage.live_recorded({name: 0}).values()
    assert list(recorded) == [1]
    assert lineage.origin_of_commits(name, iter([1])).commits.num_rows == 1
    assert remote.explain_row(table.name, {"id": 1, "dt": "x"}).origin.commits.num_rows == 1
    assert remote.write_lineage_page().startswith(remote.warehouse)
    table.branches.create("fix")
    table.branch("fix").upsert([{"id": 2, "v": "b", "dt": "x"}], commit_user="two")
    branch = lsm.TableName(database=name.database, table=name.table, branch="fix")
    assert remote.lineage.snapshots(branch)["commit_user"].to_pylist() == ["two"]
    assert branch in remote.lineage.tables()
    with pytest.raises(TypeError):
        lineage.snapshots()
    assert lineage.snapshots(table.name).num_rows == 1
