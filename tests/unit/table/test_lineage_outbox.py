"""A catalog that is locked, gone, damaged or full neither holds up nor fails a commit, and loses no lineage."""

import contextlib
import errno
import logging
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.catalog.facts import LineageError, RollbackFacts, TagDeletion
from lsm_engine.catalog.lineage_outbox import Outbox
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.table.warehouse import Catalog
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.unit.catalog.stories import Story, add, data_file, dump, upsert_and_compact

SPAWN = multiprocessing.get_context("spawn")
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
NAME = TableName(database="db", table="t")
STEP_MILLIS = 100
LOCKED_SECONDS = float(os.environ.get("LSM_LOCKED_SECONDS", "0"))
"""Commits go on for so long while the catalog is locked; 60 shows that no wait adds up."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "names").mkdir()
    return tmp_path


@pytest.fixture
def catalog(folder: Path) -> Iterator[Catalog]:
    with opened(folder) as made:
        yield made


def opened(folder: Path) -> Catalog:
    return lsm.open_catalog(f"sqlite:///{folder}/names/catalog.db", warehouse=str(folder / "lake"))


def created(catalog: Catalog) -> lsm.Table:
    return catalog.create_table("db.t", COLUMNS, primary_key=["id"], options={"bucket": "1"})


def put(table: lsm.Table, *values: int) -> None:
    for value in values:
        table.upsert([{"id": value % 3, "v": value}])


def recorded(catalog: Catalog) -> list[int]:
    return sorted(catalog.lineage.snapshots(NAME).column("snapshot_id").to_pylist())


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.lineage-outbox/*.json"))


def complete(catalog: Catalog, table: lsm.Table) -> None:
    """The lineage holds what a rebuild from the files would record, and nothing waits."""
    assert recorded(catalog) == [snapshot.id for snapshot in table.snapshots()]
    database = catalog._names.database
    before = dump(database)
    catalog.rebuild_lineage()
    assert dump(database) == before


def hold_lock(path: str, locked: Any, release: Any) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    locked.set()
    release.wait(60)
    connection.execute("COMMIT")
    connection.close()


@contextmanager
def locked_by_another_process(folder: Path) -> Iterator[None]:
    locked, release = SPAWN.Event(), SPAWN.Event()
    path = str(folder / "names" / "catalog.db")
    holder = SPAWN.Process(target=hold_lock, args=(path, locked, release))
    holder.start()
    assert locked.wait(60)
    try:
        yield
    finally:
        release.set()
        holder.join(60)
        assert holder.exitcode == 0


def test_a_locked_catalog_does_not_hold_up_commits(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[float] = []
    deliver = Outbox.deliver

    def timed(outbox: Outbox, fact: Any) -> None:
        started = time.monotonic()
        deliver(outbox, fact)
        took.append((time.monotonic() - started) * 1000)

    table = created(catalog)
    put(table, 1)
    with locked_by_another_process(folder):
        monkeypatch.setattr(Outbox, "deliver", timed)
        began = time.monotonic()
        put(table, *range(2, 22))
        while time.monotonic() - began < LOCKED_SECONDS:
            put(table, 1)
        table.create_tag("kept")
        table.create_tag("gone")
        table.delete_tag("gone")
        monkeypatch.undo()
        assert len(kept(folder)) == len(took) >= 23
        assert recorded(catalog) == [1]  # readers do not wait either
    assert median(took) < STEP_MILLIS
    complete(catalog, table)
    assert kept(folder) == []
    tags = {row["tag_name"]: row["deleted"] for row in catalog.lineage.tags(NAME).to_pylist()}
    assert tags == {"kept": False}


def test_the_next_writes_record_what_waits_a_few_at_a_time(catalog: Catalog, folder: Path) -> None:
    table = created(catalog)
    with locked_by_another_process(folder):
        put(table, *range(6))
    waiting = len(kept(folder))
    put(table, 7)
    assert 0 < len(kept(folder)) < waiting
    put(table, 8, 9)
    assert kept(folder) == []
    complete(catalog, table)


def test_snapshots_that_expire_while_the_catalog_is_locked_are_told(
    catalog: Catalog, folder: Path
) -> None:
    table = created(catalog)
    with locked_by_another_process(folder):
        put(table, *range(6))
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    left = [snapshot.id for snapshot in table.snapshots()]
    assert len(left) < len(recorded(catalog))
    states = {
        row["snapshot_id"]: row["state"] for row in catalog.lineage.snapshots(NAME).to_pylist()
    }
    assert {number for number, state in states.items() if state == "live"} == set(left)
    assert set(states) == set(range(1, max(left) + 1))


def test_a_deleted_catalog_has_all_lineage_after_a_rebuild(catalog: Catalog, folder: Path) -> None:
    table = created(catalog)
    put(table, 1)
    for file in (folder / "names").glob("catalog.db*"):
        file.unlink()
    put(table, 2, 3)
    assert not (folder / "names" / "catalog.db").exists()
    assert kept(folder)
    with opened(folder) as again:
        again.rebuild()
        complete(again, again.table("db.t"))
    assert kept(folder) == []


def test_a_replaced_catalog_is_written_not_the_one_that_is_gone(
    catalog: Catalog, folder: Path
) -> None:
    table = created(catalog)
    put(table, 1)
    for file in (folder / "names").glob("catalog.db*"):
        file.unlink()
    with opened(folder) as again:
        put(table, 2, 3)
        assert recorded(again)[-1] == table.latest_snapshot().id
        again.rebuild()
        complete(again, again.table("db.t"))


def test_a_damaged_catalog_is_passed_by(catalog: Catalog, folder: Path) -> None:
    table = created(catalog)
    put(table, 1)
    catalog.close()
    path = folder / "names" / "catalog.db"
    path.write_bytes(b"\0" * path.stat().st_size)
    put(table, 2, 3)
    assert kept(folder)
    for file in (folder / "names").glob("catalog.db*"):
        if file.is_file():
            file.unlink()
    with opened(folder) as again:
        again.rebuild()
        complete(again, again.table("db.t"))
    assert kept(folder) == []


@pytest.mark.parametrize("seed", range(8))
def test_pages_that_are_damaged_while_in_use_cost_no_rows(
    catalog: Catalog, folder: Path, seed: int
) -> None:
    """Commits go on, what is read is right or an LsmError, and a rebuild has all of the lineage."""
    table = created(catalog)
    put(table, *range(4))
    path = folder / "names" / "catalog.db"
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    dice = random.Random(seed)
    with path.open("r+b") as file:
        for _ in range(20):
            page = dice.randrange(path.stat().st_size // 4096)
            file.seek(page * 4096 + dice.choice([0, 3, 5, dice.randrange(4096)]))
            file.write(bytes([dice.randrange(256)]))
    put(table, 4, 5)
    for ask in (
        lambda: catalog.table("db.t").scan().count(),
        lambda: catalog.lineage.snapshots(NAME),
        lambda: catalog.list_databases(),
    ):
        with contextlib.suppress(lsm.LsmError):
            ask()
    rows = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert rows == {0: 3, 1: 4, 2: 5}
    catalog.close()
    for one in (folder / "names").glob("catalog.db*"):
        if one.is_file():
            one.unlink()
    with opened(folder) as again:
        again.rebuild()
        complete(again, again.table("db.t"))
    assert kept(folder) == []


def test_on_a_full_disk_lineage_waits_in_the_warehouse(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    opening = os.open

    def full(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if str(path).startswith(str(folder / "names")) and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opening(path, flags, *args, **kwargs)

    with locked_by_another_process(folder):
        monkeypatch.setattr(os, "open", full)
        put(table, 1, 2)
        monkeypatch.undo()
    assert kept(folder)
    assert all(folder / "lake" in file.parents for file in kept(folder))
    assert catalog.list_databases() == ["db"]
    complete(catalog, table)
    assert kept(folder) == []


def test_a_failed_record_is_one_line_of_log(
    catalog: Catalog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(catalog)
    with locked_by_another_process(folder), caplog.at_level(logging.WARNING):
        put(table, 1)
    lines = [line for line in caplog.text.splitlines() if line.strip()]
    assert len(lines) == len(kept(folder)) == 1
    assert "db.t" in lines[0]
    assert "lineage-outbox" in lines[0]


def test_a_fact_that_no_catalog_takes_is_set_aside(catalog: Catalog, folder: Path) -> None:
    table = created(catalog)
    with locked_by_another_process(folder):
        put(table, 1, 2)
    (first, second) = kept(folder)
    first.write_bytes(b"{")
    second.rename(second.with_name(second.name.replace(".commit.", ".later.")))
    put(table, 3)
    assert kept(folder) == []
    assert len(list(folder.rglob("*.lineage-outbox/*.refused"))) == 2
    catalog.rebuild_lineage()
    complete(catalog, table)


def test_every_fact_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    story = upsert_and_compact()
    facts: list[Any] = [*story.facts, TagDeletion(table=story.table, tag_name="x")]
    ways = []
    for name in ("kept", "direct"):
        names = SqlCatalog.open(f"sqlite:///{tmp_path}/{name}.db", warehouse=str(tmp_path))
        path = tmp_path / f"{name}.db"
        if name == "kept":
            path.rename(tmp_path / "away")
        for fact in facts:
            names.outbox.deliver(fact)
        if name == "kept":
            (tmp_path / "away").rename(path)
            names.outbox.drain()
        ways.append(dump(names.database))
        names.close()
    assert ways[0] == ways[1]
    assert len(ways[0]["lsm_snapshots"]) == 4


def test_a_rollback_that_waited_leaves_what_was_committed_since(tmp_path: Path) -> None:
    names = SqlCatalog.open(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    story = Story()
    facts = [story.commit(add(data_file(f"f{number}"))) for number in range(3)]
    for fact in facts:
        names.lineage.record_commit(fact)
    between = facts[1].snapshot.time_millis
    names.outbox._hurried.record_rollback(story.table, 0, until_millis=between)
    assert names.lineage.snapshots(story.table).column("snapshot_id").to_pylist() == [3]
    names.close()


def test_a_catalog_in_memory_keeps_nothing() -> None:
    names = SqlCatalog.open("sqlite://", warehouse="memory://lake")
    fact = RollbackFacts(table=NAME, to_snapshot_id=2**70)
    with pytest.raises(LineageError):
        names.outbox.deliver(fact)
    elsewhere = Outbox(names.lineage, names.lineage, [MemoryFileIO()])
    with pytest.raises(LineageError):
        elsewhere.deliver(fact)
    names.close()


def test_altering_does_not_wait_long_and_creating_names_the_catalog(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folder) as catalog:
        table = created(catalog)
        catalog._names._copying = catalog._names.database.waiting(200)
        with locked_by_another_process(folder):
            began = time.monotonic()
            table.alter(lsm.SetOption(key="snapshot.num-retained.min", value="5"))
            table.rescale(2)
            assert time.monotonic() - began < 20
        assert "busy" in caplog.text
        assert catalog.table("db.t").schema.bucket_count == 2
    names = SqlCatalog.open(
        f"sqlite:///{folder}/names/catalog.db",
        warehouse=str(folder / "lake"),
        busy_timeout_millis=200,
    )
    with (
        locked_by_another_process(folder),
        pytest.raises(lsm.StorageError, match="busy") as refused,
    ):
        names.register_table(TableName(database="db", table="other"))
    assert "names/catalog.db" in str(refused.value)
    names.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_a_catalog_in_a_read_only_directory_leaves_lineage_in_the_warehouse(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        (folder / "names").mkdir()
        with opened(folder) as catalog:
            created(catalog)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        for path in (folder / "names").iterdir():
            path.chmod(0o444)
        (folder / "names").chmod(0o555)
        command = [sys.executable, "-c", AS_NOBODY, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "committed" in done.stdout, done.stderr
        assert [folder / "lake" in path.parents for path in kept(folder)] == [True, True]
        for path in [folder / "names", *(folder / "names").iterdir()]:
            path.chmod(0o777)
        with opened(folder) as catalog:
            complete(catalog, catalog.table("db.t"))
        assert kept(folder) == []


AS_NOBODY = """
import os, sys
import lsm_engine as lsm
from lsm_engine.table.open_table import open_table
folder = sys.argv[1]
catalog = lsm.open_catalog(f"sqlite:///{folder}/names/catalog.db", warehouse=f"{folder}/lake")
table = catalog.table("db.t")
table.scan().count()
os.setgid(65534)
os.setuid(65534)
for value in (1, 2):
    table.upsert([{"id": 1, "v": value}])
print("committed", table.scan().count())
"""
