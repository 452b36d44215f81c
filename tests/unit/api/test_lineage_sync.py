"""The lineage follows the files: no commit waits for the catalog, and nothing vanishes unrecorded."""

import contextlib
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api import lineage_sync
from lsm_engine.catalog.lineage.facts import LineageError
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.provenance import Input, Run, provenance_properties
from lsm_engine.catalog.sql_catalog import SqlCatalog
from tests.unit.catalog.stories import dump

SPAWN = multiprocessing.get_context("spawn")
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
NAME = TableName(database="db", table="t")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "names").mkdir()
    return tmp_path


@pytest.fixture
def catalog(folder: Path) -> Iterator[lsm.Catalog]:
    with opened(folder) as catalog:
        yield catalog


@pytest.fixture(autouse=True)
def _without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions try again at once after the catalog was busy."""
    monkeypatch.setattr(lineage_sync, "_REST_MILLIS", 0)


def opened(folder: Path) -> lsm.Catalog:
    return lsm.open_catalog(f"sqlite:///{folder}/names/catalog.db", warehouse=str(folder / "lake"))


def created(catalog: lsm.Catalog) -> lsm.Table:
    return catalog.create_table("db.t", COLUMNS, primary_key=["id"], options={"bucket": "1"})


def put(table: lsm.Table, *values: int) -> None:
    for value in values:
        table.upsert([{"id": value % 3, "v": value}])


def recorded(catalog: lsm.Catalog) -> list[int]:
    return sorted(catalog.lineage.snapshots(NAME).column("snapshot_id").to_pylist())


def states(catalog: lsm.Catalog) -> dict[int, str]:
    rows = catalog.lineage.snapshots(NAME).to_pylist()
    return {row["snapshot_id"]: row["state"] for row in rows}


def expire_all_but_one(table: lsm.Table) -> None:
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")


def require_complete(catalog: lsm.Catalog, table: lsm.Table) -> None:
    """Require that the lineage holds what a rebuild from the files records."""
    live = [number for number, state in sorted(states(catalog).items()) if state == "live"]
    assert live == [snapshot.id for snapshot in table.snapshots()]
    database = catalog._names.database
    before = dump(database)
    catalog.rebuild_lineage()
    assert dump(database) == before


def delete_the_catalog(folder: Path) -> None:
    for file in (folder / "names").glob("catalog.db*"):
        file.unlink()


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


# -- Commits -----------------------------------------------------------------------------------------


def test_commits_tags_and_branches_do_not_ask_the_catalog(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a commit asked the catalog")

    with monkeypatch.context() as patched:
        for name in ("read", "write"):
            patched.setattr(f"lsm_engine.catalog.database.Database.{name}", refuse)
        put(table, 1, 2)
        table.create_tag("kept")
        table.create_branch("work", tag="kept")
        put(table.branch("work"), 3)
        table.compact(full=True)
    assert recorded(catalog) == [snapshot.id for snapshot in table.snapshots()]
    require_complete(catalog, table)


def test_questions_on_a_locked_catalog_are_answered_from_what_is_recorded(
    catalog: lsm.Catalog, folder: Path
) -> None:
    table = created(catalog)
    put(table, 1)
    assert recorded(catalog) == [1]
    with locked_by_another_process(folder):
        put(table, 2, 3)
        assert recorded(catalog) == [1]
    assert recorded(catalog) == [1, 2, 3]
    require_complete(catalog, table)


def test_questions_do_not_each_wait_for_a_catalog_that_was_busy(
    catalog: lsm.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_sync, "_REST_MILLIS", 3_600_000)
    table = created(catalog)
    put(table, 1)
    attempts: list[str] = []
    catch_up = Lineage.catch_up

    def counted(lineage: Lineage, *args: Any, **kwargs: Any) -> int:
        attempts.append("")
        return catch_up(lineage, *args, **kwargs)

    monkeypatch.setattr(Lineage, "catch_up", counted)
    with locked_by_another_process(folder):
        for _ in range(5):
            assert recorded(catalog) == []
    assert len(attempts) == 1


def test_commits_of_clients_without_the_catalog_are_recorded_the_same_way(
    catalog: lsm.Catalog, folder: Path
) -> None:
    table = created(catalog)
    put(table, 1)
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    run = Run(run_id="r9", engine="spark", user="ada")
    properties = provenance_properties(run, [Input(dataset="raw.orders", snapshot_id=4)])
    other.upsert([{"id": 9, "v": 9}], properties=properties)
    other.create_tag("theirs")
    assert recorded(catalog) == [1, 2]
    rows = catalog.lineage.inputs_of_snapshot(NAME, 2).to_pylist()
    assert [(row["dataset"], row["input_snapshot_id"]) for row in rows] == [("raw.orders", 4)]
    assert catalog.lineage.snapshots_of_run("r9").column("snapshot_id").to_pylist() == [2]
    assert catalog.lineage.tags(NAME).column("tag_name").to_pylist() == ["theirs"]
    require_complete(catalog, table)


def test_every_question_sees_a_commit_that_came_before_it(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    lineage = catalog.lineage
    for number, ask in enumerate(
        (
            lambda: lineage.snapshots(NAME),
            lambda: lineage.recent_activity(),
            lambda: lineage.recent_activity(table=NAME),
            lambda: lineage.commits_of_table(NAME, after=0, before=99).select(["snapshot_id"]),
            lambda: lineage.snapshots_of_run(f"commit-user:{table.latest_snapshot().commit_user}"),
            lambda: lineage.files_of_table(NAME).select(["added_by"]),
        ),
        start=1,
    ):
        put(table, number)
        newest = table.latest_snapshot().id
        answer = ask()
        column = "added_by" if "added_by" in answer.column_names else "snapshot_id"
        assert newest in answer.column(column).to_pylist(), number
    assert [str(name) for name in lineage.tables()] == ["db.t"]


# -- Kills -------------------------------------------------------------------------------------------

WRITES = """
import os, sys
import lsm_engine as lsm
folder = sys.argv[1]
catalog = lsm.open_catalog(f"sqlite:///{folder}/names/catalog.db", warehouse=f"{folder}/lake")
table = catalog.table("db.t")
for value in range(3):
    table.upsert([{"id": 1, "v": value}])
table.create_tag("last")
os.kill(os.getpid(), 9)
"""


def test_a_kill_between_a_commit_and_the_sync_loses_nothing(folder: Path) -> None:
    with opened(folder) as catalog:
        put(created(catalog), 1)
    done = subprocess.run([sys.executable, "-c", WRITES, str(folder)], check=False)
    assert done.returncode == -9
    with opened(folder) as catalog:
        assert recorded(catalog) == [1, 2, 3, 4]
        assert catalog.lineage.tags(NAME).column("tag_name").to_pylist() == ["last"]
        require_complete(catalog, catalog.table("db.t"))


class Killed(BaseException):
    """The process is gone: nothing catches it."""


@pytest.mark.parametrize("dies_at", range(1, 9))
def test_a_sync_that_is_killed_at_any_write_is_finished_by_the_next(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    monkeypatch.setattr("lsm_engine.catalog.lineage.lineage.FACTS_PER_TRANSACTION", 1)
    table = created(catalog)
    put(table, *range(5))
    table.create_tag("kept", 2)
    assert recorded(catalog)[-1] == table.latest_snapshot().id
    expire_all_but_one(table)
    put(table, *range(5))
    table.compact(full=True)
    count = 0
    write = Lineage._write

    def killing(lineage: Lineage, *args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count == dies_at:
            raise Killed
        write(lineage, *args, **kwargs)

    with monkeypatch.context() as patched, contextlib.suppress(Killed):
        patched.setattr(Lineage, "_write", killing)
        recorded(catalog)
    require_complete(catalog, table)


@pytest.mark.parametrize("step", ["_announce", "_plan"])
def test_an_expiry_records_before_anything_of_it_can_be_cut_off(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed before or after EARLIEST has moved: all snapshots are recorded by then."""
    table = created(catalog)
    put(table, *range(5))
    ids = [snapshot.id for snapshot in table.snapshots()]

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(f"lsm_engine.maintenance.expire._Expiry.{step}", kill)
        with contextlib.suppress(Killed):
            expire_all_but_one(table)
    expire_all_but_one(table)
    assert sorted(states(catalog)) == ids
    require_complete(catalog, table)


# -- Maintenance -------------------------------------------------------------------------------------


def test_an_expiry_first_records_what_it_takes(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    put(table, *range(6))
    ids = [snapshot.id for snapshot in table.snapshots()]
    expire_all_but_one(table)
    assert states(catalog) == dict.fromkeys(ids[:-1], "expired") | {ids[-1]: "live"}
    removed = [row["removed"] for row in catalog.lineage.files_of_table(NAME).to_pylist()]
    assert any(removed)
    require_complete(catalog, table)


@pytest.mark.parametrize("asked", [0, 1, 3])
@pytest.mark.parametrize("act", ["nothing", "roll back", "expire"])
def test_an_expiry_records_what_another_client_made_of_the_recorded_history(
    catalog: lsm.Catalog, folder: Path, asked: int, act: str
) -> None:
    """Recorded snapshots have other content, or older ones of an unrecorded history are missing."""
    table = created(catalog)
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    put(table, *range(asked))
    recorded(catalog)
    put(other, 3, 4, 5)
    if act == "roll back":
        other.rollback_to(1)
    if act == "expire":
        other.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    put(other, 6, 7, 8)
    ids = [snapshot.id for snapshot in table.snapshots()]
    expire_all_but_one(table)
    now = states(catalog)
    assert now[ids[-1]] == "live"
    assert {now[number] for number in ids[:-1]} == {"expired"}
    require_complete(catalog, table)


@pytest.mark.parametrize("step", ["open", "sync"])
def test_nothing_is_removed_while_the_storage_does_not_answer_the_sync(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table = created(catalog)
    put(table, *range(3))
    table.create_tag("kept", 1)

    def refuse(*_: object, **__: object) -> object:
        raise lsm.StorageError("no answer", path="tag")

    with monkeypatch.context() as patched:
        if step == "open":
            patched.setattr(catalog._sync, "_open_table", refuse)
        else:
            patched.setattr(lineage_sync, "sync_table", refuse)
        with pytest.raises(LineageError, match="nothing was removed"):
            table.delete_tag("kept")
    assert [tag.name for tag in table.tags()] == ["kept"]
    table.delete_tag("kept")
    tags = catalog.lineage.tags(NAME, with_deleted=True)
    assert tags.column("deleted").to_pylist() == [True]


def test_what_expires_during_a_slow_sync_stays_expired(
    catalog: lsm.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    put(table, *range(4))
    assert recorded(catalog) == (ids := [snapshot.id for snapshot in table.snapshots()])
    put(table, 5)
    read = lineage_sync.committed_files

    def slow(session: Any, snapshot: lsm.Snapshot) -> Any:
        """Another process expires what this sync has listed and found as recorded."""
        monkeypatch.setattr(lineage_sync, "committed_files", read)
        with opened(folder) as other:
            expire_all_but_one(other.table("db.t"))
        return read(session, snapshot)

    monkeypatch.setattr(lineage_sync, "committed_files", slow)
    catalog.sync_lineage(["db.t"])
    assert lineage_sync.committed_files is read
    # As the doctor reads it, without another sync.
    state = catalog._names.lineage.recorded_states(NAME)["main"]
    assert set(state.live).isdisjoint(ids)


def test_an_expiry_takes_nothing_that_the_catalog_cannot_record(folder: Path) -> None:
    with opened(folder) as catalog:
        created(catalog)
    with opened(folder) as catalog:
        names = catalog._names
        names.lineage = Lineage(names.database.waiting(100), catalog_key=names.catalog_key)
        table = catalog.table("db.t")
        put(table, *range(4))
        table.create_tag("kept", 1)
        ids = [snapshot.id for snapshot in table.snapshots()]
        with locked_by_another_process(folder):
            with pytest.raises(LineageError, match="nothing was removed"):
                expire_all_but_one(table)
            with pytest.raises(LineageError, match="open the table by its path"):
                table.delete_tag("kept")
        assert [snapshot.id for snapshot in table.snapshots()] == ids
        assert [tag.name for tag in table.tags()] == ["kept"]
        expire_all_but_one(table)
        assert sorted(states(catalog)) == ids


def test_an_expiry_takes_nothing_while_the_catalog_is_gone(folder: Path) -> None:
    with opened(folder) as catalog:
        table = created(catalog)
        put(table, *range(4))
        ids = [snapshot.id for snapshot in table.snapshots()]
        delete_the_catalog(folder)
        with pytest.raises(LineageError, match="nothing was removed"):
            expire_all_but_one(table)
        assert [snapshot.id for snapshot in table.snapshots()] == ids
        put(table, 9)
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    expire_all_but_one(other)
    assert len(other.snapshots()) == 1


def test_an_expiry_takes_nothing_where_the_catalog_cannot_be_read(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    put(table, *range(4))
    ids = [snapshot.id for snapshot in table.snapshots()]

    def refuse(*_: object, **__: object) -> None:
        raise lsm.StorageError("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Lineage, "_read", refuse)
        with pytest.raises(LineageError, match="nothing was removed"):
            expire_all_but_one(table)
    assert [snapshot.id for snapshot in table.snapshots()] == ids


def test_a_deleted_tag_stays_as_deleted_with_the_commits_that_it_alone_kept(
    catalog: lsm.Catalog, folder: Path
) -> None:
    """Another client has expired the snapshot before the catalog heard of it."""
    table = created(catalog)
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    put(other, *range(4))
    other.create_tag("kept", 2)
    expire_all_but_one(other)
    catalog.table("db.t").delete_tag("kept")
    tags = catalog.lineage.tags(NAME, with_deleted=True).to_pylist()
    assert [(row["tag_name"], row["snapshot_id"], row["deleted"]) for row in tags] == [
        ("kept", 2, True)
    ]
    assert states(catalog)[2] == "expired"
    assert table.latest_snapshot().id in states(catalog)


def test_what_maintenance_removed_is_recorded_once_the_catalog_is_free(
    catalog: lsm.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    put(table, *range(4))
    assert recorded(catalog)
    with monkeypatch.context() as patched:

        def busy(*_: object, **__: object) -> None:
            raise LineageError("busy") from lsm.StorageError("locked")

        patched.setattr(Lineage, "record", busy)
        expire_all_but_one(table)
        assert not catalog.lineage.removals(NAME).num_rows
    rows = catalog.lineage.removals(NAME).to_pylist()
    assert [row["kind"] for row in rows] == ["expire-snapshots"]
    assert catalog.lineage.removals(NAME).num_rows == 1


def test_a_rollback_is_forgotten_and_what_others_commit_since_is_not(catalog: lsm.Catalog) -> None:
    table, writer = created(catalog), catalog.table("db.t")
    put(table, 1, 2, 3)
    assert recorded(catalog) == [1, 2, 3]
    table.rollback_to(1)
    assert recorded(catalog) == [1]
    put(writer, 4)
    assert recorded(catalog) == [1, 2]
    require_complete(catalog, catalog.table("db.t"))


def test_snapshots_that_are_missing_at_the_end_are_no_silent_rollback(
    catalog: lsm.Catalog, folder: Path
) -> None:
    """Who restores an older copy of a table is told by the doctor what the catalog knew, whatever was asked between."""
    table = created(catalog)
    put(table, 1, 2, 3)
    assert recorded(catalog) == [1, 2, 3]
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    other.rollback_to(2)
    assert recorded(catalog) == [1, 2, 3]
    (finding,) = lsm.doctor(catalog).findings
    assert "snapshot 3 as live" in finding.what
    catalog.rebuild_lineage()
    assert recorded(catalog) == [1, 2]


def test_a_snapshot_with_another_content_takes_the_place_of_the_recorded_one(
    catalog: lsm.Catalog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(catalog)
    put(table, 1, 2, 3)
    assert recorded(catalog) == [1, 2, 3]
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    other.rollback_to(1)
    put(other, 7, 8)
    newest = other.latest_snapshot()
    assert recorded(catalog) == [1, 2, 3]
    assert "snapshot 3 of db.t is another than was recorded" in caplog.text
    rows = catalog.lineage.snapshots(NAME).to_pylist()
    assert rows[0]["commit_user"] == newest.commit_user
    require_complete(catalog, catalog.table("db.t"))


def test_a_commit_beside_another_client_is_recorded_at_once(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename of theirs may replace it later: what the catalog recorded shows it to the doctor."""
    table = created(catalog)
    put(table, 1)
    monkeypatch.setattr("lsm_engine.commit.commit.is_beside_others", lambda _: True)
    put(table, 2)
    assert sorted(catalog.lineage.live_recorded({NAME: 0})[NAME]) == [1, 2]


def test_the_lineage_of_a_branch_follows_its_files(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    put(table, 1, 2)
    table.create_tag("start", 1)
    table.create_branch("work", tag="start")
    put(table.branch("work"), 3)
    work = TableName(database="db", table="t", branch="work")
    assert catalog.lineage.snapshots(work).column("snapshot_id").to_pylist() == [2, 1]
    table.delete_branch("work")
    assert not catalog.lineage.snapshots(work).num_rows
    assert catalog.lineage.tables() == [NAME]


# -- Catalogs that are gone, damaged or shared --------------------------------------------------------


@pytest.mark.parametrize("way", ["deleted", "zeroed"])
def test_a_lost_catalog_has_all_lineage_again_at_the_first_question(folder: Path, way: str) -> None:
    with opened(folder) as catalog:
        table = created(catalog)
        put(table, 1)
        assert recorded(catalog) == [1]
        if way == "deleted":
            delete_the_catalog(folder)
            put(table, 2, 3)
    if way == "zeroed":
        path = folder / "names" / "catalog.db"
        path.write_bytes(b"\0" * path.stat().st_size)
        delete_the_catalog(folder)
    with opened(folder) as again:
        again.register_found_tables()
        require_complete(again, again.table("db.t"))


@pytest.mark.parametrize("seed", range(4))
def test_pages_that_are_damaged_while_in_use_cost_no_rows(
    catalog: lsm.Catalog, folder: Path, seed: int
) -> None:
    """Commits go on, what is read is right or an LsmError, and a new catalog has all of the lineage."""
    table = created(catalog)
    put(table, *range(4))
    assert recorded(catalog)
    path = folder / "names" / "catalog.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
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
    delete_the_catalog(folder)
    with opened(folder) as again:
        again.rebuild()
        require_complete(again, again.table("db.t"))


def sync_often(folder: Path, gate: Any) -> None:
    with opened(folder) as catalog:
        gate.wait(60)
        for _ in range(8):
            catalog.sync_lineage()


def test_processes_that_sync_at_once_beside_writers_record_each_commit_once(folder: Path) -> None:
    with opened(folder) as catalog:
        table = created(catalog)
        gate = SPAWN.Event()
        processes = [SPAWN.Process(target=sync_often, args=(folder, gate)) for _ in range(3)]
        for process in processes:
            process.start()
        gate.set()
        put(table, *range(10))
        table.create_tag("kept")
        for process in processes:
            process.join(120)
            assert process.exitcode == 0
        require_complete(catalog, table)


def test_threads_that_ask_at_once_record_each_commit_once(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    put(table, *range(5))
    barrier = threading.Barrier(4)

    def ask(_: int) -> list[int]:
        barrier.wait(30)
        return recorded(catalog)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    ids = [snapshot.id for snapshot in table.snapshots()]
    assert answers == [ids] * 4
    require_complete(catalog, table)


def test_a_damaged_table_hides_no_other(
    catalog: lsm.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(catalog)
    put(table, 1)
    broken = catalog.create_table("db.broken", COLUMNS, primary_key=["id"])
    put(broken, 1)
    Path(broken.location, "schema", "schema-0").write_text("{")
    names = catalog.lineage.recent_activity().column("table_name").to_pylist()
    assert set(names) == {"db.t"}
    assert "db.broken is not up to date" in caplog.text


def test_a_damaged_snapshot_hides_no_other(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    put(table, 1, 2, 3)
    list_name = table.snapshots()[1].delta_manifest_list
    damaged = Path(table.location, "manifest", list_name)
    damaged.write_bytes(damaged.read_bytes()[:-40] + bytes(40))
    assert recorded(catalog) == [1, 3]


def test_a_question_about_an_unregistered_table_brings_nothing_back(catalog: lsm.Catalog) -> None:
    put(created(catalog), 1)
    assert recorded(catalog) == [1]
    catalog.unregister_table("db.t")
    assert recorded(catalog) == []


def test_files_in_which_earlier_versions_kept_lineage_go_with_a_rebuild(
    catalog: lsm.Catalog, folder: Path
) -> None:
    put(created(catalog), 1)
    outbox = folder / "names" / "catalog.db.jdbc.lineage-outbox"
    outbox.mkdir()
    (outbox / "000000000000001-000000000-x.jsonl").write_bytes(b"0 0 commit {}\n")
    assert recorded(catalog) == [1]
    catalog.rebuild()
    assert not list(outbox.iterdir())


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


AS_NOBODY = """
import os, sys
import lsm_engine as lsm
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


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_who_may_not_write_to_the_catalog_commits_all_the_same() -> None:
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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "committed" in done.stdout, done.stderr
        for path in [folder / "names", *(folder / "names").iterdir()]:
            path.chmod(0o777)
        with opened(folder) as catalog:
            assert recorded(catalog) == [1, 2]
            require_complete(catalog, catalog.table("db.t"))


def test_a_rollback_that_the_busy_catalog_did_not_record_is_forgotten_at_the_next_question(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    put(table, *range(4))
    ids = recorded(catalog)
    with monkeypatch.context() as patched:

        def busy(*_: object, **__: object) -> None:
            raise LineageError("busy") from lsm.StorageError("locked")

        patched.setattr(Lineage, "record", busy)
        table.rollback_to(ids[1])
    assert recorded(catalog) == ids[:2]
    require_complete(catalog, table)


def test_what_cannot_be_read_of_one_commit_keeps_no_other_from_being_recorded(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog)
    put(table, *range(4))
    ids = [snapshot.id for snapshot in table.snapshots()]
    facts_of = lineage_sync.commit_facts

    def damaged(name: object, snapshot: lsm.Snapshot, **more: Any) -> object:
        if snapshot.id == ids[1]:
            raise lsm.CorruptFileError("a stored key does not have 1 field", file="f")
        return facts_of(name, snapshot, **more)

    monkeypatch.setattr(lineage_sync, "commit_facts", damaged)
    assert recorded(catalog) == [ids[0], *ids[2:]]
    expire_all_but_one(table)
    assert [snapshot.id for snapshot in table.snapshots()] == ids[-1:]


def test_missing_files_of_before_the_recorded_history_keep_no_commit_from_being_recorded(
    catalog: lsm.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(catalog)
    other = lsm.open_table(str(folder / "lake" / "db.db" / "t"))
    put(other, *range(4))
    other.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")

    def missing(*_: object) -> object:
        raise lsm.NotFoundError("a base manifest list is missing")

    monkeypatch.setattr(lineage_sync, "files_before", missing)
    assert recorded(catalog) == [snapshot.id for snapshot in other.snapshots()]
