"""A catalog on a real PostgreSQL server: races, refusals, and the same rows as on SQLite."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from sqlalchemy import text

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidInputError, StorageError
from lsm_engine.catalog.lineage.facts import RemovalFacts
from lsm_engine.catalog.migrations import MIGRATIONS, VIEW_NAMES
from lsm_engine.catalog.models import REMOVALS
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from tests.unit.catalog.stories import MILLIS, ORDERS, Story, add, data_file, dump
from tests.unit.catalog.test_many_processes import COMMITS, record_at_once

COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.float64())])
PROCESSES = 4


def test_a_database_of_something_else_is_left_alone(postgres, tmp_path) -> None:
    url = postgres.fresh_url()
    with postgres.connect(url.rpartition("/")[2]) as connection:
        connection.execute("CREATE TABLE invoices (id int)")
    with pytest.raises(InvalidInputError, match="something else"):
        SqlCatalog.open(url, warehouse=str(tmp_path))
    with postgres.connect(url.rpartition("/")[2]) as connection:
        found = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
    assert found == [("invoices",)]


def test_threads_open_at_once_and_one_makes_the_tables(postgres, tmp_path) -> None:
    url = postgres.fresh_url()
    failures: list[BaseException] = []

    def opening() -> None:
        try:
            SqlCatalog.open(url, warehouse=str(tmp_path)).close()
        except Exception as error:  # noqa: BLE001  told in the assertion below
            failures.append(error)

    threads = [threading.Thread(target=opening) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with postgres.connect(url.rpartition("/")[2]) as connection:
        versions = connection.execute("SELECT version FROM lsm_catalog_versions").fetchall()
    assert sorted(versions) == [(step.version,) for step in MIGRATIONS]


@pytest.mark.slow
def test_processes_record_at_once(postgres, tmp_path) -> None:
    url = postgres.fresh_url()
    record_at_once(url, str(tmp_path), PROCESSES)
    catalog = SqlCatalog.open(url, warehouse=str(tmp_path))
    for number in range(PROCESSES // 2):
        table = TableName(database="shop", table=f"t{number}")
        assert catalog.lineage.snapshots(table).num_rows == COMMITS
        assert catalog.lineage.live_files_at(table, COMMITS).num_rows == 1
    catalog.close()


@pytest.mark.parametrize("version", [each.version for each in MIGRATIONS[:-1]])
def test_a_catalog_of_every_older_version_is_brought_up(postgres, tmp_path, version: int) -> None:
    """By several processes' worth of openings at once; its rows stay, and it works as a new one."""
    wanted_url, url = postgres.fresh_url(), postgres.fresh_url()
    SqlCatalog.open(wanted_url, warehouse=str(tmp_path)).close()
    catalog = SqlCatalog.open(url, warehouse=str(tmp_path))
    story = Story()
    catalog.lineage.record(story.commit(add(data_file("f1"))))
    catalog.close()
    made_older(postgres, url, version)
    assert shape_of(postgres, url) != shape_of(postgres, wanted_url)

    with ThreadPoolExecutor(4) as openers:
        opened = list(
            openers.map(lambda _: SqlCatalog.open(url, warehouse=str(tmp_path)), range(4))
        )
    for each in opened[1:]:
        each.close()
    assert shape_of(postgres, url) == shape_of(postgres, wanted_url)
    catalog = opened[0]
    assert catalog.lineage.snapshots(ORDERS).num_rows == 1
    catalog.lineage.record(story.commit(add(data_file("f2"))))
    assert catalog.lineage.live_files_at(ORDERS, 2).num_rows == 2
    catalog.lineage.record(
        RemovalFacts(
            table=ORDERS,
            removal_id="r1",
            kind="remove-orphans",
            reason="nothing names them",
            at_millis=MILLIS,
        )
    )
    assert catalog.lineage.removals(ORDERS).column("reason").to_pylist() == ["nothing names them"]
    catalog.close()


def made_older(postgres, url: str, version: int) -> None:
    """Take away what the migrations after a version brought, and the views, which came with each."""
    with postgres.connect(url.rpartition("/")[2]) as connection:
        for view in VIEW_NAMES:
            connection.execute(f'DROP VIEW IF EXISTS "{view}" CASCADE')
        if version < 3:
            connection.execute(f"DROP TABLE {REMOVALS.name}")
        if version < 2:
            connection.execute("DROP INDEX lsm_files_bucket")
        connection.execute("DELETE FROM lsm_catalog_versions WHERE version > %s", [version])


def shape_of(postgres, url: str) -> list[tuple[object, ...]]:
    """Every column of every table and view, every index, and the versions."""
    with postgres.connect(url.rpartition("/")[2]) as connection:
        return [
            *connection.execute(
                "SELECT table_name, column_name, data_type, is_nullable, column_default"
                " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
            ).fetchall(),
            *connection.execute(
                "SELECT tablename, indexname, indexdef FROM pg_indexes"
                " WHERE schemaname = 'public' ORDER BY 1, 2"
            ).fetchall(),
            *connection.execute(
                "SELECT version, description FROM lsm_catalog_versions ORDER BY 1"
            ).fetchall(),
        ]


def test_a_row_that_another_keeps_locked_is_waited_for(postgres, tmp_path) -> None:
    url = postgres.fresh_url()
    catalog = SqlCatalog.open(url, warehouse=str(tmp_path))
    story = Story()
    catalog.lineage.record(story.commit(add(data_file("f1"))))
    holder = postgres.connect(url.rpartition("/")[2])
    holder.execute("BEGIN")
    holder.execute("LOCK TABLE lsm_files IN ACCESS EXCLUSIVE MODE")
    releasing = threading.Timer(1.0, lambda: holder.execute("COMMIT"))
    releasing.start()
    catalog.lineage.record(story.commit(add(data_file("f2"))))
    releasing.join()
    holder.close()
    assert catalog.lineage.snapshots(ORDERS).num_rows == 2
    catalog.close()


def test_a_read_sees_one_state_throughout(postgres, tmp_path) -> None:
    url = postgres.fresh_url()
    catalog = SqlCatalog.open(url, warehouse=str(tmp_path))
    other = SqlCatalog.open(url, warehouse=str(tmp_path))
    count = text("SELECT COUNT(*) FROM paimon_database_properties")

    def work(connection) -> tuple[int, int]:
        first = connection.execute(count).scalar()
        other.create_database("meanwhile")
        return first, connection.execute(count).scalar()

    first, second = catalog.database.read(work)
    assert first == second
    assert catalog.list_databases() == ["meanwhile"]
    for each in (catalog, other):
        each.close()


class Silence:
    """A way to a server that passes bytes on, until it is told to say nothing: all sockets stay open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.withheld = 0
        self.speaks = threading.Event()
        self.speaks.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self.withheld += 0 if self.speaks.is_set() else len(data)
                self.speaks.wait()
                other.sendall(data)
        for each in (one, other):  # the server waits for its last connection when it stops
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


def test_a_server_that_says_nothing_holds_up_no_commit(postgres, tmp_path) -> None:
    """No commit asks it: neither on open connections nor on new ones."""
    url = postgres.fresh_url()
    way = Silence(postgres.port)
    through = url.replace(f":{postgres.port}/", f":{way.port}/")
    with lsm.open_catalog(through, warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("shop.t", COLUMNS, primary_key=["id"])
        table.upsert([{"id": 0, "day": "a", "v": 0.0}])
        way.speaks.clear()
        for _ in range(5):
            table.upsert([{"id": 1, "day": "b", "v": 1.0}])
        assert way.withheld == 0
        began = time.monotonic()
        with pytest.raises(StorageError, match="refused") as told:
            SqlCatalog.open(f"{through}?connect_timeout=2", warehouse=str(tmp_path))
        assert time.monotonic() - began < 60  # without the setting the wait has no end
        assert way.withheld > 0
        assert "not-a-secret" not in str(told.value)
        way.speaks.set()
        names = TableName.parse("shop.t")
        count = len(table.snapshots())
        assert catalog.lineage.snapshots(names).num_rows == count
    way.close()


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path) -> None:
    with pytest.raises(StorageError) as told:
        SqlCatalog.open("postgresql://me:secret@127.0.0.1:1/lake", warehouse=str(tmp_path))
    assert "127.0.0.1:1" in str(told.value)
    assert "secret" not in str(told.value)


def test_a_rebuild_on_a_server_says_what_the_file_said(postgres, tmp_path) -> None:
    warehouse = str(tmp_path / "lake")
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=warehouse) as catalog:
        orders = catalog.create_table(
            "shop.orders", COLUMNS, primary_key=["id", "day"], partitioned_by=["day"],
            options={"bucket": 2, "num-sorted-run.compaction-trigger": 3},
        )  # fmt: skip
        for at in range(6):
            rows = [{"id": key, "day": f"d{key % 2}", "v": at} for key in range(at, at + 9)]
            orders.upsert(pa.Table.from_pylist(rows, schema=COLUMNS))
        orders.create_tag("six", retained="7 d")
        orders.compact(full=True)
        catalog.sync_lineage()
        grown = dump(catalog._names.database)
    with lsm.open_catalog(postgres.fresh_url(), warehouse=warehouse) as catalog:
        assert catalog.rebuild() == {"shop.orders": len(catalog.table("shop.orders").snapshots())}
        assert dump(catalog._names.database) == grown
        assert catalog.rebuild()
        assert dump(catalog._names.database) == grown
        orders = catalog.table("shop.orders")
        orders.upsert([{"id": 1, "day": "d0", "v": 1.0}])
        assert catalog.lineage.snapshots(ORDERS).num_rows == len(orders.snapshots())


def test_waits_for_locks_are_bounded_and_lineage_is_complete_afterwards(postgres, tmp_path) -> None:
    """Whoever locks the tables of the catalog holds up neither commits nor, for ever, other verbs."""
    url = postgres.fresh_url()
    with lsm.open_catalog(url, warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table("shop.t", COLUMNS, primary_key=["id"])
        table.upsert([{"id": 0, "day": "a", "v": 0.0}])
        names = catalog._names
        hurried = names._hurried
        with postgres.connect(url.rpartition("/")[2]) as holder, holder.transaction():
            holder.execute("LOCK TABLE lsm_tables, lsm_snapshots, paimon_tables")
            began = time.monotonic()
            with pytest.raises(StorageError, match="busy"):
                hurried.write(lambda connection: connection.execute(text("DELETE FROM lsm_tables")))
            assert time.monotonic() - began < 8  # 1.5 s on an idle machine
            for number in range(3):
                table.upsert([{"id": number, "day": "b", "v": 1.0}])
        assert catalog.lineage.snapshots(TableName.parse("shop.t")).num_rows == 4
