"""`lsm feed` stopped before its calls while its source or its target is rolled back, or expires.

LSM_FEED_STOPS=all stops it before each call.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError, CommitUnknownError, NotFoundError
from lsm_engine.cli.commands.changes import feed
from tests.fault.all_pairs import UNCHANGING, doubles, judge
from tests.fault.doubles import ManualClock
from tests.fault.pair_operations import OURS, PREPARING, expire
from tests.fault.paused_stores import Announce, MemoryDisk, StorageCall

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
CHANGELOG = {"changelog-producer": "input"}
SOURCE, TARGET = "db.source", "db.target"


@dataclass
class Tables:
    """A table, and one that sums up its changes."""

    source: MemoryDisk
    target: MemoryDisk

    def clone(self) -> "Tables":
        return Tables(self.source.clone(), self.target.clone())

    def feed(self, on_call: Announce | None = None) -> None:
        """Feed the changes that are new, as `lsm feed` does in a process of its own."""
        actor = judge() if on_call is None else OURS
        disks = {SOURCE: self.source, TARGET: self.target}
        tables = {name: disk.process(actor, on_call).open_table for name, disk in disks.items()}
        call: Any = SimpleNamespace(
            table=lambda name: tables[name](), out=SimpleNamespace(report=lambda *_: None)
        )
        unwrapped: Any = inspect.unwrap(feed.callback)  # type: ignore[arg-type]
        unwrapped(call, table=TARGET, source=SOURCE, consumer="sums", columns=None)

    def settle(self) -> None:
        """Feed until nothing is left, and do what an error asks for: roll the target back below what the source lost."""
        for _ in range(5):
            try:
                self.feed()
            except CommitConflictError as error:
                target = self.target.opened(judge())
                lost = int(error.facts["snapshot_id"])
                below = max(
                    snapshot.id
                    for snapshot in target.snapshots()
                    if snapshot.commit_user != "sums" or (snapshot.commit_identifier or 0) < lost
                )
                target.rollback_to(below)
            else:
                return
        raise AssertionError("the feed does not go on")


def rows_of(disk: MemoryDisk) -> list[dict[str, Any]]:
    return sorted(disk.opened(judge()).to_arrow().to_pylist(), key=lambda row: row["k"])


def write(table: Table, *rows: tuple[int, int]) -> None:
    """Upsert rows, with what they replace."""
    old = {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}
    kinds = [("-U", key, old[key]) for key, _ in rows if key in old]
    kinds += [("+U" if key in old else "+I", key, value) for key, value in rows]
    table.upsert([dict(zip(("_row_kind", "k", "v"), kind, strict=True)) for kind in kinds])


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with doubles():
        clock = ManualClock(PREPARING.millis)
        made = Tables(MemoryDisk(clock), MemoryDisk(clock))
        for disk, options in ((made.source, CHANGELOG), (made.target, SUMS)):
            settings = {"bucket": "1", "write-only": "true", **options}
            disk.create(PREPARING, COLUMNS, primary_key=("k",), partitioned_by=(), options=settings)
        source = made.source.opened(PREPARING)
        write(source, (1, 10), (2, 20))
        made.feed()
        write(source, (2, 21), (3, 30))
        made.feed()
        write(source, (1, 11), (4, 40))
        write(source, (3, 31))
        yield made


def roll_back(disk: MemoryDisk, snapshot_id: int) -> None:
    disk.opened(judge()).rollback_to(snapshot_id)


OTHERS: dict[str, Callable[[Tables], object]] = {
    "rollback of the source": lambda tables: roll_back(tables.source, 3),
    "rollback of the source below the target": lambda tables: roll_back(tables.source, 1),
    "rollback of the target": lambda tables: roll_back(tables.target, 1),
    "expiry of the source": lambda tables: expire(tables.source.opened(judge())),
    "expiry of the target": lambda tables: expire(tables.target.opened(judge())),
}


@pytest.mark.parametrize("others", OTHERS)
def test_each_change_is_fed_once(tables: Tables, others: str) -> None:
    calls: list[StorageCall] = []
    tables.clone().feed(calls.append)
    every_call = os.environ.get("LSM_FEED_STOPS") == "all"
    stops = [
        number
        for number, call in enumerate(calls, 1)
        if every_call or (call.verb not in UNCHANGING and "/snapshot-" in call.paths[0])
    ]
    assert len(stops) >= 2
    for stop in stops:
        stopped, number = tables.clone(), 0

        def on_call(_: StorageCall, stop: int = stop, stopped: Tables = stopped) -> None:
            nonlocal number
            number += 1
            if number == stop:
                OTHERS[others](stopped)

        with suppress(CommitConflictError, CommitUnknownError, NotFoundError):
            stopped.feed(on_call)
        stopped.settle()
        assert rows_of(stopped.target) == rows_of(stopped.source), (stop, calls[stop - 1])
