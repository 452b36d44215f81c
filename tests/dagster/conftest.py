"""A small lake with one table on an instance of its own; the sample's lake, replayed once."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from dagster._core.storage.event_log import in_memory as events_in_memory
from dagster._core.storage.runs import in_memory as runs_in_memory

from lsm_assets.factory import lsm_table_assets
from lsm_assets.sample.run import main
from tests.dagster.lake import ORDERS, Lake

SAMPLE_DAYS = int(os.environ.get("LSM_SAMPLE_DAYS", "0"))
"""Days of the sample, replayed by the command of the README on Spark; 0: two days in two runs, without Spark."""


Connect = Callable[[Any], AbstractContextManager[sa.Connection]]


def keeping(connect: Connect) -> Connect:
    """Return a way to connect that keeps a connection for each thread, and takes another one within its transaction."""

    @contextmanager
    def connected(storage: Any) -> Iterator[sa.Connection]:
        connections = vars(storage).setdefault("_connections_of_threads", {})
        thread = threading.get_ident()
        if thread not in connections:
            connections[thread] = connection = storage._engine.connect()
            connection.execute(sa.text("PRAGMA foreign_keys=ON"))
            connection.commit()
        connection = connections[thread]
        if connection.in_transaction():
            with connect(storage) as another:
                yield another
        else:
            with getattr(storage, "_db_lock", nullcontext()), connection.begin():
                yield connection

    return connected


@pytest.fixture(scope="session", autouse=True)
def _quick_instances() -> Iterator[None]:
    """Instances in memory keep their connections, and do not read Dagster's migrations.

    Of itself each request makes a connection and sets it up, and each instance loads 178 modules to note the newest.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (events_in_memory, runs_in_memory):
            patch.setattr(module, "stamp_alembic_rev", lambda *_: None)
        for storage, name in (
            (events_in_memory.InMemoryEventLogStorage, "_connect"),
            (runs_in_memory.InMemoryRunStorage, "connect"),
        ):
            patch.setattr(storage, name, keeping(getattr(storage, name)))
        yield


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    to_write: list[Any] = []
    orders = lsm_table_assets(ORDERS, lambda context, table: list(to_write), tag_daily=True)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(tmp_path / "lake", instance, [orders], to_write)


@pytest.fixture(scope="session")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the warehouse of the sample; whoever changes it brings it back."""
    at = tmp_path_factory.mktemp("sample") / "lake"
    runs = [(SAMPLE_DAYS, "spark")] if SAMPLE_DAYS else [(1, "local")] * 2
    for days, executor in runs:
        given = ["--days", str(days), "--warehouse", str(at), "--executor", executor]
        told = CliRunner().invoke(main, given)
        assert told.exit_code == 0, told.output
        (at.parent / "told.txt").write_text(told.output)
    return at
