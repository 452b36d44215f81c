"""Clients of Paimon's REST catalog and our engine in turns on one table of `lsm serve`."""

import subprocess

import pytest

import lsm_engine as lsm
from tests.interop.environments import HERE, environment
from tests.interop.newest_java import jars, why_not
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


def pypaimon(served: Served, name: str, *verbs: str, token: str = WRITER) -> list[str]:
    python = environment("pypaimon").python
    done = subprocess.run(
        [str(python), "-c", PYPAIMON, served.url, token, name, *verbs],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def java(served: Served, name: str, verbs: str, value: str = "") -> list[str]:
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", ":".join(map(str, jars())), str(HERE / "PaimonRest.java"),
         served.url, WRITER, verbs, name, value],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


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


@pytest.mark.interop_full
def test_java_and_pypaimon_and_ours_take_turns_on_one_table(served) -> None:
    if reason := why_not():
        pytest.skip(reason)
    assert java(served, "shop.orders", "create,write,tag", "j")[::2] == ["create [orders]", "tag 1"]
    pypaimon(served, "shop.orders", "write=p")
    table = served.catalog.table("shop.orders")
    table.upsert([{"k": 9, "v": "ours"}])
    lines = java(served, "shop.orders", "compact,read,alter", "")
    assert lines[1:] == ["read {0=j, 1=p, 2=p, 3=p, 9=ours}", "alter [k, v, w]"]
    again = served.catalog.table("shop.orders")
    assert again.latest_snapshot().commit_kind.value == "COMPACT"
    assert again.count() == 5
    assert again.maintenance.verify(deep=True).is_clean
    assert java(served, "shop.orders", "drop") == ["drop []"]
