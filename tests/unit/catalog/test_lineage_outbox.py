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
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api.catalog import Catalog, CatalogListener
from lsm_engine.catalog.lineage.facts import LineageError, RollbackFacts, TagDeletion
from lsm_engine.catalog.lineage.outbox import Outbox
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from tests.unit.catalog.stories import Story, add, data_file, dump, upsert_and_compact

SPAWN = multiprocessing.get_context("spawn")
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
NAME = TableName(database="db", table="t")
LOCKED_SECONDS = float(os.environ.get("LSM_LOCKED_SECONDS", "0"))
"""Commits go on for so long while the catalog is locked; 60 shows that no wait adds up."""
STEP_MILLIS = 100 if LOCKED_SECONDS else 1000
"""A wait for the lock takes three seconds; beside other tests a step that waits for nothing can take some hundred."""


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
    """Files of the outbox, what was set aside left out."""
    return sorted(
        path for path in folder.rglob("*.lineage-outbox/*") if not path.name.endswith(".refused")
    )


def lines(folder: Path) -> list[bytes]:
    """Facts that wait; listed again where a journal was closed, and so renamed, before it was read."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return [line for file in kept(folder) for line in file.read_bytes().splitlines()]


def delete_the_catalog(folder: Path) -> None:
    for file in (folder / "names").glob("catalog.db*"):
        if file.is_file():
            file.unlink()


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
    release.wait(60 + LOCKED_SECONDS)
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
    assert recorded(catalog) == [1]
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
        assert len(lines(folder)) >= len(took) >= 23
        assert recorded(catalog) == [1]  # readers do not wait either
    assert median(took) < STEP_MILLIS
    complete(catalog, table)
    assert kept(folder) == []
    tags = {row["tag_name"]: row["deleted"] for row in catalog.lineage.tags(NAME).to_pylist()}
    assert tags == {"kept": False}


def test_what_waits_is_recorded_soon_without_being_asked_for(
    catalog: Catalog, folder: Path
) -> None:
    table = created(catalog)
    with locked_by_another_process(folder):
        put(table, *range(6))
        assert len(lines(folder)) >= 6
    put(table, 7)
    until(lambda: not kept(folder))
    assert in_the_database(folder) == len(table.snapshots()) >= 7
    complete(catalog, table)


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def in_the_database(folder: Path) -> int:
    """Snapshots that a program without this engine sees."""
    with contextlib.closing(sqlite3.connect(folder / "names" / "catalog.db")) as other:
        return int(other.execute("SELECT COUNT(*) FROM lsm_v_snapshots").fetchone()[0])


def recorders() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "lsm-lineage"}


def test_attempts_to_record_do_not_pile_up_while_the_catalog_is_locked(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits go on while one thread tries, and who asks the lineage does not wait for that thread."""
    monkeypatch.setattr("lsm_engine.catalog.lineage.outbox.LINGER_SECONDS", 0.01)
    others = recorders()  # of catalogs that other tests have left
    table = created(catalog)
    with locked_by_another_process(folder):
        put(table, 0)
        until(lambda: catalog._names.outbox._failures > 0)
        at_once = 0
        for value in range(20):
            put(table, value)
            at_once = max(at_once, len(recorders() - others))
            time.sleep(0.02)
        asked = time.monotonic()
        recorded(catalog)
        waited = time.monotonic() - asked
    assert at_once == 1
    # An attempt in the background takes three seconds, and one followed the other.
    assert waited < 2
    until(lambda: not kept(folder))  # nobody who asks waits for the thread that has failed before
    complete(catalog, table)


def test_closing_the_catalog_and_ending_the_process_record_what_waits(folder: Path) -> None:
    with opened(folder) as catalog:
        put(created(catalog), 1, 2)
    assert (in_the_database(folder), kept(folder)) == (2, [])
    subprocess.run([sys.executable, "-c", COMMITS, str(folder), "exits"], check=True)
    assert (in_the_database(folder), kept(folder)) == (4, [])


@pytest.mark.parametrize("way", ["killed", "forked"])
def test_another_process_records_what_a_killed_one_has_kept(folder: Path, way: str) -> None:
    """Also what a forked child kept, and nothing of its parent twice; a torn last line is no fact."""
    with opened(folder) as catalog:
        put(created(catalog), 1)
    done = subprocess.run([sys.executable, "-c", COMMITS, str(folder), way], check=False)
    assert done.returncode == {"killed": -9, "forked": 0}[way]
    assert bool(kept(folder)) == (way == "killed")
    for file in kept(folder):
        file.write_bytes(file.read_bytes() + b"01234567 000000000000001 commit {")
    with opened(folder) as catalog:
        complete(catalog, catalog.table("db.t"))
    assert kept(folder) == []
    assert not list(folder.rglob("*.refused"))


COMMITS = """
import os, sys, time
import lsm_engine as lsm
folder, way = sys.argv[1:]
catalog = lsm.open_catalog(f"sqlite:///{folder}/names/catalog.db", warehouse=f"{folder}/lake")
from lsm_engine.catalog.lineage import outbox as lineage_outbox
if way != "exits":
    lineage_outbox.LINGER_SECONDS = 3600.0
table = catalog.table("db.t")
table.upsert([{"id": 1, "v": 5}])
if way == "forked":
    child = os.fork()
    if child == 0:
        table.upsert([{"id": 1, "v": 6}])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
table.upsert([{"id": 1, "v": 7}])
if way == "killed":
    os.kill(os.getpid(), 9)
"""


def test_a_reader_in_another_process_sees_what_a_living_writer_has_kept(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader closes the writer's journal, which goes on in another; nothing is lost or late."""
    monkeypatch.setattr("lsm_engine.catalog.lineage.outbox.LINGER_SECONDS", 3600.0)
    table = created(catalog)
    names = SqlCatalog.open(f"sqlite:///{folder}/names/catalog.db", warehouse=str(folder / "lake"))
    for number in range(1, 5):
        put(table, number)
        assert names.lineage.snapshots(NAME).num_rows == number
    assert kept(folder) == []
    names.close()
    complete(catalog, table)


def test_writers_and_readers_of_the_outbox_lose_nothing(tmp_path: Path) -> None:
    """Four threads keep facts of four catalogs' worth of journals while four others record them."""
    url, warehouse = f"sqlite:///{tmp_path}/c.db", str(tmp_path)
    catalogs = [SqlCatalog.open(url, warehouse=warehouse) for _ in range(4)]
    tables = [TableName(database="db", table=f"t{number}") for number in range(4)]

    def keep(number: int) -> None:
        story = Story(table=tables[number])
        for at in range(40):
            catalogs[number].outbox.deliver(story.commit(add(data_file(f"f{at}"))))

    def record(number: int) -> None:
        for _ in range(40):
            catalogs[number].outbox.drain()

    with ThreadPoolExecutor(8) as pool:
        works = [pool.submit(work, number) for number in range(4) for work in (keep, record)]
        for work in works:
            work.result()
    for table in tables:
        found = catalogs[0].lineage.snapshots(table).column("snapshot_id").to_pylist()
        assert sorted(found) == list(range(1, 41))
    for names in catalogs:
        names.close()
    assert kept(tmp_path) == []


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
    delete_the_catalog(folder)
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
    delete_the_catalog(folder)
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
    delete_the_catalog(folder)
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
    delete_the_catalog(folder)
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
        until(lambda: bool(caplog.text.strip()))
        (line,) = [line for line in caplog.text.splitlines() if line.strip()]
        assert "lineage goes on waiting" in line
        assert len(lines(folder)) == 1


def test_a_fact_that_no_catalog_takes_is_set_aside(
    catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged line, one of a later version, and a file as earlier versions left it; others go on."""
    monkeypatch.setattr("lsm_engine.catalog.lineage.outbox.LINGER_SECONDS", 3600.0)
    table = created(catalog)
    put(table, 1, 2, 3, 4)
    (file,) = kept(folder)
    first, second, third, fourth = file.read_bytes().splitlines()
    later = second[9:].replace(b" commit ", b" later ")
    text = b"\n".join([first[:40] + b"?" + first[41:], b"%08x %b" % (zlib.crc32(later), later)])
    file.write_bytes(text + b"\n" + third + b"\n")
    alone = fourth.split(b" ", 3)[3]
    file.with_name("000000000000001-000000000-x.commit.json").write_bytes(alone)
    file.with_name("000000000000002-000000000-x.commit.json").write_bytes(b"{")
    catalog._names.outbox._begin()
    assert recorded(catalog) == [3, 4]
    assert kept(folder) == []
    assert len(list(folder.rglob("*.lineage-outbox/*.refused"))) == 3
    catalog.rebuild_lineage()
    complete(catalog, table)


def test_every_fact_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    story = upsert_and_compact()
    facts: list[Any] = [*story.facts, TagDeletion(table=story.table, tag_name="x")]
    ways = []
    for name in ("kept", "direct"):
        names = SqlCatalog.open(f"sqlite:///{tmp_path}/{name}.db", warehouse=str(tmp_path))
        for fact in facts:
            if name == "kept":
                names.outbox.deliver(fact)
            else:
                names.lineage.record(fact)
        if name == "kept":
            names.outbox._begin()  # as another process, which has to read the files
            names.outbox.drain()
            assert kept(tmp_path) == []
        ways.append(dump(names.database))
        names.close()
    assert ways[0] == ways[1]
    assert len(ways[0]["lsm_snapshots"]) == 4


def test_a_rollback_that_waited_leaves_what_was_committed_since(tmp_path: Path) -> None:
    names = SqlCatalog.open(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    story = Story()
    facts = [story.commit(add(data_file(f"f{number}"))) for number in range(3)]
    for fact in facts:
        names.lineage.record(fact)
    between = facts[1].snapshot.time_millis
    names.lineage.record(RollbackFacts(table=story.table, to_snapshot_id=0, at_millis=between))
    assert names.lineage.snapshots(story.table).column("snapshot_id").to_pylist() == [3]
    names.close()


def test_lineage_keeps_what_is_committed_while_a_rollback_cleans_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer commits on the target after the seal, and is recorded before the rollback is."""
    table, writer = created(catalog), catalog.table("db.t")
    put(table, 1, 2, 3)
    rolled_back = CatalogListener.rolled_back

    def late(listener: CatalogListener, *args: Any) -> None:
        put(writer, 4)
        rolled_back(listener, *args)

    monkeypatch.setattr(CatalogListener, "rolled_back", late)
    table.rollback_to(1)
    monkeypatch.undo()
    assert recorded(catalog) == [1, 2]
    complete(catalog, catalog.table("db.t"))


def test_a_catalog_in_memory_keeps_nothing() -> None:
    names = SqlCatalog.open("sqlite://", warehouse="memory://lake")
    fact = RollbackFacts(table=NAME, to_snapshot_id=2**70)
    with pytest.raises(LineageError):
        names.outbox.deliver(fact)
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
        assert all(folder / "lake" in path.parents for path in kept(folder))
        assert len(lines(folder)) == 2
        for path in [folder / "names", *(folder / "names").iterdir()]:
            path.chmod(0o777)
        with opened(folder) as catalog:
            complete(catalog, catalog.table("db.t"))
        assert kept(folder) == []


AS_NOBODY = """
import os, sys
import lsm_engine as lsm
from lsm_engine.api.open_table import open_table
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
