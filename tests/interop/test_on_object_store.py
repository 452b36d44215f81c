"""Tables on an object store: pypaimon 2.1.0 and Java Paimon 1.4.2 read ours, and we read theirs, on S3Proxy.

Each client finds the store by its own options (Java with the plug-in paimon-s3, fetched by Maven, which Maven Central
has up to 1.4.2).
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.environments import HERE, environment, made_once, run
from tests.interop.newest_java import VERSION, jars, why_not
from tests.stores import servers
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options
from tests.unit.cli.conftest import Shell
from tests.unit.cli.test_operator import mended

pytestmark = [pytest.mark.interop, pytest.mark.interop_full]
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
Rows = dict[int, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with servers.s3proxy(tmp_path_factory.mktemp("s3proxy")) as started:
        yield started


@pytest.fixture(scope="module")
def catalog(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lsm.Catalog]:
    url = f"sqlite:///{tmp_path_factory.mktemp('catalog')}/c.db"
    where = location(server, "lake")
    with lsm.open_catalog(url, warehouse=where, storage=options(server)) as opened:
        yield opened


def pypaimon(
    server: StoreServer, action: str, name: str, tag: str | None = None, **of: Mapping[str, str]
) -> Rows:
    given = {
        "warehouse": location(server, "lake"),
        "fs.s3.endpoint": server.endpoint,
        "fs.s3.accessKeyId": server.access_key,
        "fs.s3.accessKeySecret": server.secret_key,
        "fs.s3.region": server.region,
        **of.get("catalog", {}),
    }
    written = [{"k": key, "v": f"pypaimon-{key}"} for key in range(100)]
    words = [json.dumps(given), action, name, *([] if tag is None else [tag])]
    done = subprocess.run(
        [environment("pypaimon").python, HERE / "store_worker_pypaimon.py", *words],
        input=json.dumps(written), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    if action == "write":
        return {row["k"]: row["v"] for row in written}
    return {row["k"]: row["v"] for row in json.loads(done.stdout.splitlines()[-1])}


def java_classpath() -> str:
    if (why := why_not()) is not None:
        pytest.skip(why)
    artifact = f"org.apache.paimon:paimon-s3:{VERSION}"
    plugin = made_once(
        "paimon-s3", {"artifact": artifact},
        lambda folder: run(
            "mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"
        ) and None,
    )  # fmt: skip
    paths = [*map(str, jars()), *map(str, plugin.glob("*.jar"))]
    source = HERE / "PaimonStore.java"
    facts: dict[str, Any] = {"source": hashlib.sha256(source.read_bytes()).hexdigest()}
    classes = made_once(
        "java-store-classes", facts,
        lambda folder: run(
            "javac", "-nowarn", "-cp", os.pathsep.join(paths), "-d", str(folder), str(source)
        ) and None,
    )  # fmt: skip
    return os.pathsep.join([*paths, str(classes)])


def java(
    server: StoreServer, action: str, name: str, tag: str | None = None, **of: Mapping[str, str]
) -> Rows:
    given = {
        "warehouse": location(server, "lake"),
        "s3.endpoint": server.endpoint,
        "s3.access-key": server.access_key,
        "s3.secret-key": server.secret_key,
        "s3.path.style.access": "true",
        **of.get("catalog", {}),
    }
    words = [json.dumps(given), action, *name.split("."), *([] if tag is None else [tag])]
    done = subprocess.run(
        ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", java_classpath(),
         "PaimonStore", *words],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    if action == "write":
        return dict.fromkeys(range(102), "java-2")
    (found,) = [line[5:] for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    return {int(key): value for key, value in json.loads(found).items()}


CLIENTS: dict[str, Callable[..., Rows]] = {"pypaimon": pypaimon, "java": java}


def values(scan: Any) -> Rows:
    found = scan.to_arrow().to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_ours_is_read(client: str, vectors: str, catalog: lsm.Catalog, server: StoreServer) -> None:
    """Level 0 and compacted, at a tag, and with deletion vectors."""
    read = CLIENTS[client]
    name = f"a.ours_{client}_{vectors}"
    made = {"bucket": "2", "deletion-vectors.enabled": vectors}
    table = catalog.create_table(name, COLUMNS, primary_key=["k"], options=made)
    for turn in range(3):
        keys = range(turn * 20, 100 + turn * 20)
        table.upsert(pa.table({"k": keys, "v": [f"v{turn}"] * 100}, schema=COLUMNS))
    assert read(server, "read", name) == values(table.scan())
    table.create_tag("before")
    then = values(table.scan())
    table.delete(pa.table({"k": range(30, 60)}))
    assert read(server, "read", name) == values(table.scan())
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    now = values(table.scan())
    assert set(now) == set(range(140)) - set(range(30, 60))
    assert read(server, "read", name) == now
    assert read(server, "read", name, "before") == then == values(table.scan(tag="before"))


@pytest.mark.parametrize("client", CLIENTS)
def test_theirs_is_read_and_goes_on(client: str, server: StoreServer) -> None:
    name = f"b.theirs_{client}"
    written = CLIENTS[client](server, "write", name)
    database, table_name = name.split(".")
    table = lsm.open_table(
        location(server, f"lake/{database}.db/{table_name}"), storage=options(server)
    )
    assert values(table.scan()) == written
    table.upsert(pa.table({"k": [1], "v": ["ours"]}, schema=COLUMNS))
    assert CLIENTS[client](server, "read", name) == written | {1: "ours"} == values(table.scan())
    table.compact(full=True)
    assert CLIENTS[client](server, "read", name) == written | {1: "ours"}
    report = table.verify(deep=True)
    assert report.is_clean
    assert any("condition" in warning for warning in report.warnings)


@pytest.mark.parametrize("client", CLIENTS)
def test_their_jdbc_catalog_over_a_store_is_opened_mended_and_made_again(
    client: str, server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its URL alone, by the warehouse alone, and after it is lost."""
    house, url = location(server, f"jdbc {client}"), f"jdbc:sqlite:{tmp_path}/theirs.db"
    theirs = {"metastore": "jdbc", "uri": url, "warehouse": house}
    written = CLIENTS[client](server, "write", "shop.orders", catalog=theirs)
    for name, value in options(server).items():
        monkeypatch.setenv("LSM_STORAGE_" + name.replace(".", "_").replace("-", "_").upper(), value)
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    shell.environment["LSM_WAREHOUSE"] = None
    asked = ("--catalog", url)
    assert [row["table"] for row in shell.json(*asked, "tables")] == ["shop.orders"]
    assert shell.json(*asked, "count", "shop.orders")[0]["rows"] == len(written)
    shell(*asked, "upsert", "shop.orders", shell.file("more.csv", "k,v\n1,ours\n"))
    mended(shell, *asked)
    now = CLIENTS[client](server, "read", "shop.orders", catalog=theirs)
    assert now == written | {1: "ours"}

    held = ("--warehouse", house)
    assert [row["table"] for row in shell.json(*held, "tables")] == ["shop.orders"]
    assert all(one["severity"] == "note" for one in shell.json(*held, "doctor"))
    shell(*held, "catalog", "rebuild")
    assert shell.json(*held, "count", "shop.orders")[0]["rows"] == len(written)
    mended(shell, *held)

    (tmp_path / "theirs.db").unlink()
    assert "catalog rebuild" in shell(*asked, "tables", code=3).stderr
    shell(*asked, *held, "catalog", "rebuild")
    assert [row["table"] for row in shell.json(*asked, "tables")] == ["shop.orders"]
    assert CLIENTS[client](server, "read", "shop.orders", catalog=theirs) == now
