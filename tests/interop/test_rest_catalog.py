"""Clients of Paimon's REST catalog and our engine in turns on one table of `lsm serve`."""

import ast
import re
import subprocess

import pytest

import lsm_engine as lsm
from tests.interop.environments import HERE, environment
from tests.interop.newest_java import BUNDLES, VERSION, jars, why_not
from tests.served import READER, WRITER, Served, serving

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PYPAIMON = """
import sys, pyarrow as pa
from pypaimon import CatalogFactory, Schema
uri, token, name, *verbs = sys.argv[1:]
options = {"metastore": "rest", "uri": uri, "warehouse": "lake", "token.provider": "bear", "token": token}
catalog = CatalogFactory.create(options)
columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
for verb in verbs:
    verb, _, value = verb.partition("=")
    if verb == "create":
        catalog.create_database(name.split(".")[0], True)
        schema = Schema.from_pyarrow_schema(columns, primary_keys=["k"], options={"bucket": "1"})
        catalog.create_table(name, schema, False)
        print(verb, catalog.list_tables(name.split(".")[0]))
        continue
    if verb == "drop":
        catalog.drop_table(name, False)
        print(verb, catalog.list_tables(name.split(".")[0]))
        continue
    table = catalog.get_table(name)
    if verb == "write":
        builder = table.new_batch_write_builder()
        write = builder.new_write()
        write.write_arrow(pa.table({"k": [1, 2, 3], "v": [value] * 3}, schema=columns))
        builder.new_commit().commit(write.prepare_commit())
        write.close()
    elif verb == "tag":
        catalog.create_tag(name, value)
        print(verb, catalog.get_tag(name, value).snapshot.id)
    elif verb == "branch":
        catalog.create_branch(name, value, "v1")
        print(verb, catalog.list_branches(name))
    elif verb == "read":
        builder = table.new_read_builder()
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        print(verb, dict(sorted(zip(rows["k"].to_pylist(), rows["v"].to_pylist()))))
"""


RUST = """
import sys
from pypaimon_rust.datafusion import SQLContext
uri, token, *statements = sys.argv[1:]
context = SQLContext()
options = {"metastore": "rest", "uri": uri, "warehouse": "lake", "token.provider": "bear", "token": token}
context.register_catalog("paimon", options)
for statement in statements:
    for batch in context.sql(statement):
        print(batch.to_pydict())
"""


def rust(served: Served, *statements: str) -> list[str]:
    done = subprocess.run(
        [str(environment("rust").python), "-c", RUST, served.url, WRITER, *statements],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def pypaimon(served: Served, name: str, *verbs: str, token: str = WRITER) -> list[str]:
    python = environment("pypaimon").python
    done = subprocess.run(
        [str(python), "-c", PYPAIMON, served.url, token, name, *verbs],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def java(
    served: Served, name: str, verbs: str, value: str = "", *, release: str = VERSION
) -> list[str]:
    done = subprocess.run(
        ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars(release))), str(HERE / "PaimonRest.java"),
         served.url, WRITER, verbs, name, value],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def commits_through(served: Served) -> int:
    """Return how many commits the server has published for clients."""
    text = served.application.metrics.text().decode()
    landed = re.search(r'lsm_commits_total\{outcome="landed"\} (\d+)', text)
    return 0 if landed is None else int(landed[1])


@pytest.fixture
def served(tmp_path):
    with lsm.open_catalog(tmp_path / "lake") as catalog, serving(catalog) as server:
        yield server


def test_pypaimon_creates_writes_tags_branches_reads_and_drops(served) -> None:
    lines = pypaimon(
        served, "shop.orders", "create", "write=a", "tag=v1", "write=b", "branch=fix", "read"
    )
    assert lines == [
        "create ['orders']",
        "tag 1",
        "branch ['fix']",
        "read {1: 'b', 2: 'b', 3: 'b'}",
    ]
    table = served.catalog.table("shop.orders")
    table.upsert([{"k": 9, "v": "ours"}])
    assert pypaimon(served, "shop.orders", "read", token=READER)[-1].endswith("9: 'ours'}")
    users = [snapshot.commit_user for snapshot in table.snapshots()]
    recorded = served.catalog.lineage.snapshots(lsm.TableName.parse("shop.orders")).to_pylist()
    assert sorted(row["commit_user"] for row in recorded) == sorted(users)
    assert table.maintenance.verify(deep=True).is_clean
    assert pypaimon(served, "shop.orders", "drop") == ["drop []"]


def rust_reads(served: Served, name: str) -> dict[int, str]:
    columns = ast.literal_eval(rust(served, f"SELECT k, v FROM paimon.{name} ORDER BY k")[0])
    return dict(zip(columns["k"], columns["v"], strict=True))


@pytest.mark.interop_full
@pytest.mark.parametrize("release", BUNDLES)
def test_all_clients_take_turns_on_one_table(served, release: str) -> None:
    if reason := why_not(release):
        pytest.skip(reason)
    name = "shop.orders"
    rust(
        served,
        "CREATE SCHEMA IF NOT EXISTS paimon.shop",
        f"CREATE TABLE paimon.{name} (k BIGINT NOT NULL, v STRING, PRIMARY KEY (k)) WITH ('bucket'='1')",
        f"INSERT INTO paimon.{name} VALUES (7, 'r')",
        "CALL paimon.sys.create_tag(table => 'shop.orders', tag => 'r1')",
    )
    assert pypaimon(served, name, "write=p", "tag=p1") == ["tag 2"]
    assert commits_through(served) == 2
    assert java(served, name, "write,tag", "j", release=release)[-1] == "tag 3"
    table = served.catalog.table(name)
    table.upsert([{"k": 9, "v": "ours"}])
    java(served, name, "compact", release=release)
    rows = {0: "j", 1: "j", 2: "j", 3: "p", 7: "r", 9: "ours"}
    assert commits_through(served) == 4
    spelled = ", ".join(f"{key}={value}" for key, value in rows.items())
    lines = java(served, name, "read,alter", release=release)
    assert lines == [f"read {{{spelled}}}", "alter [k, v, w]"]
    assert rust_reads(served, name) == rows
    assert pypaimon(served, name, "read") == [f"read {rows}"]
    again = served.catalog.table(name)
    assert {row["k"]: row["v"] for row in again.to_arrow().to_pylist()} == rows
    assert sorted(again.tags.names()) == sorted(["r1", "p1", "j"])
    assert again.latest_snapshot().commit_kind.value == "COMPACT"
    users = [snapshot.commit_user for snapshot in again.snapshots()]
    recorded = served.catalog.lineage.snapshots(lsm.TableName.parse(name)).to_pylist()
    assert [row["commit_user"] for row in recorded][::-1] == users
    assert len(set(users)) == len(users) == 5
    assert again.maintenance.verify(deep=True).is_clean
    rust(served, f"DROP TABLE paimon.{name}")
    assert served.catalog.list_tables("shop") == []


@pytest.mark.interop_full
@pytest.mark.parametrize("release", BUNDLES)
def test_java_commits_to_external_tables_itself_and_pypaimon_hands_in_its_commits(
    tmp_path, release: str
) -> None:
    if reason := why_not(release):
        pytest.skip(reason)
    with lsm.open_catalog(tmp_path) as catalog, serving(catalog, external=True) as served:
        java(served, "shop.orders", "create,write", "j", release=release)
        assert commits_through(served) == 0
        pypaimon(served, "shop.orders", "write=p")
        assert commits_through(served) == 1
        table = catalog.table("shop.orders")
        assert table.count() == 4
        recorded = catalog.lineage.snapshots(lsm.TableName.parse("shop.orders")).to_pylist()
        users = [snapshot.commit_user for snapshot in table.snapshots()]
        assert [row["commit_user"] for row in recorded][::-1] == users
        assert table.maintenance.verify(deep=True).is_clean
