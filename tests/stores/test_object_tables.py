"""Tables on object stores: a session of every verb, writers in several processes, and what is refused."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import NotFoundError, UnsupportedError
from tests.stores import race_worker
from tests.stores.chaos_proxy import Faults, chaos_proxy
from tests.stores.servers import StoreServer
from tests.stores.stored_tables import location, options

SCHEMA = pa.schema([("k", pa.int64()), ("dt", pa.string()), ("v", pa.string())])
WRITERS, COMMITS = map(int, os.environ.get("LSM_STORE_RACE", "3x3").split("x"))
"""Processes, and commits of each; the race as long as it takes is 8x200."""
FAULTS = Faults(cut=0.1, conflict=0.1, unavailable=0.05)


@pytest.fixture(params=["s3", "azure", pytest.param("google", marks=pytest.mark.sweep)])
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def catalog(server: StoreServer, tmp_path: Path) -> Iterator[lsm.Catalog]:
    warehouse = location(server, f"lake {tmp_path.name}")
    url = f"sqlite:///{tmp_path}/catalog.db"
    with lsm.open_catalog(url, warehouse=warehouse, storage=options(server)) as opened:
        yield opened


def rows(start: int, end: int, value: str) -> pa.Table:
    keys = range(start, end)
    days = [f"2026-11-{22 + key % 2} %/ü" for key in keys]
    return pa.table({"k": keys, "dt": days, "v": [value] * len(keys)}, schema=SCHEMA)


def values(table: lsm.Table) -> dict[int, str]:
    found = table.scan().to_arrow().to_pydict()
    return dict(zip(found["k"], found["v"], strict=True))


def test_a_session_of_every_verb(catalog: lsm.Catalog, server: StoreServer) -> None:
    keys = ["k", "dt"]
    made = {"bucket": "2", "deletion-vectors.enabled": "true"}
    table = catalog.create_table(
        "shop.orders", SCHEMA, primary_key=keys, partitioned_by=["dt"], options=made
    )
    for number in range(4):
        table.upsert(rows(0, 100 + number, f"v{number}"))
    assert values(table) == dict.fromkeys(range(103), "v3")
    first = table.latest_snapshot()
    table.create_tag("before")
    table.delete(rows(0, 10, "v3").select(keys))
    table.compact(full=True)
    assert values(table) == dict.fromkeys(range(10, 103), "v3")
    found = table.lookup(rows(5, 15, "").select(keys))
    assert found["_found"].to_pylist() == [False] * 5 + [True] * 5
    assert table.lookup(rows(20, 21, "").select(keys))["v"].to_pylist() == ["v3"]
    assert table.create_branch("fix", tag="before").name == "fix"
    assert table.branches() == ["fix"]
    assert len(values(table.branch("fix"))) == 103
    assert values(catalog.table("shop.orders")) == values(table)
    assert table.verify(deep=True).is_clean
    assert (
        len(table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s").plan.expired) >= 4
    )
    assert table.verify(deep=True).is_clean
    table.upsert(rows(200, 210, "late"))
    kept = table.latest_snapshot()
    table.upsert(rows(200, 220, "later"))
    table.rollback_to(snapshot_id=kept.id)
    assert {key for key in values(table) if key >= 200} == set(range(200, 210))
    table.rollback_to(tag="before")
    assert table.latest_snapshot().id == first.id
    assert values(table) == dict.fromkeys(range(103), "v3")
    time.sleep(1.1)  # stamps of objects are whole seconds
    removed = table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert removed.plan.orphans
    assert table.verify(deep=True).is_clean
    assert values(table) == dict.fromkeys(range(103), "v3")
    assert catalog.rebuild() == {"shop.orders": 1}
    with pytest.raises(UnsupportedError, match="renamed"):
        catalog.rename_table("shop.orders", "shop.other")
    directory = table.location
    catalog.drop_table("shop.orders")
    assert catalog.list_tables("shop") == []
    with pytest.raises(NotFoundError):
        lsm.open_table(directory, storage=options(server))


ODD = [
    "a b", "ä ö 日本 😀", "50%", "%2F", "a%20b", "x=y", "a/b", "a\\b", "..", ".", "#hash", "q?x&y=z", "~", "+plus",
    "'quote\"", "tab\tx", "new\nline", " lead", "trail ", "*", "a:b", "[x]", "{y}", "^", "|", "<>",
]  # fmt: skip


def test_partitions_of_any_name(catalog: lsm.Catalog) -> None:
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}
    table = catalog.create_table(
        "shop.odd", SCHEMA, primary_key=["k", "dt"], partitioned_by=["dt"], options=options
    )
    keys = range(len(ODD))
    for value in ("a", "b"):
        table.upsert(pa.table({"k": keys, "dt": ODD, "v": [value] * len(ODD)}, schema=SCHEMA))
    table.compact(full=True)
    assert len(table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s").plan.data_files)
    found = catalog.table("shop.odd").to_arrow().sort_by("k")
    assert found["dt"].to_pylist() == ODD
    assert found["v"].to_pylist() == ["b"] * len(ODD)
    for key, day in zip(keys, ODD, strict=True):
        assert table.to_arrow(where=pc.field("dt") == day)["k"].to_pylist() == [key]
    assert not table.remove_orphan_files(older_than="0 s", force=True, dry_run=True).plan.orphans
    assert table.verify(deep=True).is_clean


def test_changes_and_consumers(catalog: lsm.Catalog) -> None:
    made = {"bucket": "1", "changelog-producer": "lookup"}
    table = catalog.create_table("shop.changes", SCHEMA, primary_key=["k"], options=made)
    mark = table.upsert(rows(0, 5, "a"))
    table.upsert(rows(3, 6, "b"))
    kinds = table.changelog(after=mark)["_row_kind"].to_pylist()
    assert sorted(kinds) == ["+I", "+U", "+U", "-U", "-U"]
    table.reset_consumer("reader", 1)
    assert [one.name for one in table.consumers()] == ["reader"]
    table.reset_consumer("reader")
    assert table.consumers() == []
    with pytest.raises(NotFoundError):
        table.reset_consumer("reader")


def test_the_lineage_page_lies_in_the_warehouse(catalog: lsm.Catalog, server: StoreServer) -> None:
    table = catalog.create_table("shop.page", SCHEMA, primary_key=["k"])
    table.upsert(rows(0, 1, "a"))
    page = catalog.write_lineage_page()
    assert page == f"{catalog.warehouse}/lineage.html"
    assert table.session.file_io.location.prefix.count("/") == 2
    for shown in (repr(catalog), page, str(table)):
        assert server.secret_key not in shown


def test_verify_names_snapshots_of_writers_that_publish_without_a_condition(
    catalog: lsm.Catalog,
) -> None:
    table = catalog.create_table("shop.foreign", SCHEMA, primary_key=["k"])
    table.upsert(rows(0, 1, "a"))
    table.upsert(rows(0, 1, "b"))
    assert table.verify().is_clean
    assert not table.verify().warnings
    session = table.session
    path = session.paths.snapshot_file(2)
    document = json.loads(session.file_io.read(path))
    del document["properties"], document["lsmChecksum"], document["writerVersion"]
    session.file_io.replace(path, json.dumps(document).encode())
    found = table.verify()
    assert found.is_clean
    assert "snapshot 2" in "\n".join(found.warnings)
    assert "condition" in str(found)


def test_writers_in_many_processes_through_a_bad_network(
    server: StoreServer, tmp_path: Path
) -> None:
    """Nothing acknowledged is lost, nothing is doubled: each commit adds to a sum."""
    # On Azure a 409 means that the name is taken.
    faults = FAULTS if server.kind != "azurite" else Faults(cut=0.1, unavailable=0.15)
    where = location(server, f"race-{tmp_path.name}")
    with chaos_proxy(server, faults, seed=7) as proxy:
        given = dict(options(server))
        with lsm.open_catalog(
            f"sqlite:///{tmp_path}/c.db", warehouse=where, storage=given
        ) as catalog:
            table = catalog.create_table(
                "a.sums", race_worker.SCHEMA, primary_key=["k"], options=race_worker.OPTIONS
            )
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        for name, value in options(proxy.server).items():
            variable = name.upper().replace(".", "_").replace("-", "_")
            environment[f"LSM_STORAGE_{variable}"] = value
        program = [sys.executable, race_worker.__file__, table.location]
        running = [
            subprocess.Popen([*program, str(number), str(COMMITS)], env=environment)
            for number in range(WRITERS)
        ]
        assert [one.wait(timeout=3000) for one in running] == [0] * WRITERS
        assert proxy.refused()[503] > 0
    table = lsm.open_table(table.location, storage=options(server))
    found = table.scan().to_arrow().to_pydict()
    sums = dict(zip(found["k"], found["n"], strict=True))
    assert sums == {race_worker.EVERYBODY: WRITERS * COMMITS} | dict.fromkeys(
        range(WRITERS), COMMITS
    )
    assert table.verify().is_clean


def test_the_command_line_on_a_store(
    server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from lsm_engine.cli.main import lsm as command

    monkeypatch.chdir(tmp_path)
    for name, value in options(server).items():
        variable = name.upper().replace(".", "_").replace("-", "_")
        monkeypatch.setenv(f"LSM_STORAGE_{variable}", value)
    warehouse = location(server, f"cli-{tmp_path.name}")
    (tmp_path / "rows.csv").write_text("k,v\n1,a\n2,b\n")

    def run(*words: str) -> str:
        done = CliRunner().invoke(command, [*words, "--warehouse", warehouse])
        assert done.exit_code == 0, done.output
        assert server.secret_key not in done.output
        return done.output

    run("create", "shop.orders", "--columns", "k BIGINT, v STRING", "--primary-key", "k")
    run("upsert", "shop.orders", "rows.csv")
    assert '"v": "b"' in run("scan", "shop.orders", "--json")
    run("verify", "shop.orders")
    assert '"v": "b"' in run("scan", f"{warehouse}/shop.db/orders", "--json")
    assert len(list((tmp_path / "lake").glob("*.db"))) == 1


def test_a_scheme_that_no_store_has_and_one_without_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    with pytest.raises(lsm.UnsafePathError, match="ftp"):
        lsm.open_catalog(url, warehouse="ftp://host/lake")
    with pytest.raises(lsm.InvalidOptionError, match=r"did you mean 's3.secretkey'"):
        lsm.open_catalog(url, warehouse="s3://b/lake", storage={"s3.secretkye": "x"})
    for name in [name for name in sys.modules if name.startswith("lsm_engine.storage.object_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    for scheme, extra in {"s3a": "s3", "abfss": "azure", "gs": "gcs"}.items():
        with pytest.raises(UnsupportedError, match=rf"pip install 'lsm-assets\[{extra}\]'"):
            lsm.open_catalog(url, warehouse=f"{scheme}://bucket/lake")
    assert not (tmp_path / "c.db").exists()
