"""`auto_cdc` of type 2, whose two commits are on a branch and on main, beside a rollback of one of them.

LSM_AUTO_CDC_STOPS=all stops it before each call that changes something.
"""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lsm_engine.api.table import Table
from tests.fault.all_pairs import UNCHANGING, doubles, judge
from tests.fault.doubles import ManualClock
from tests.fault.pair_operations import OURS, PREPARING
from tests.fault.paused_stores import MemoryDisk, StorageCall

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), pa.field("__START_AT", pa.int64(), nullable=False), ("__END_AT", pa.int64())]
)  # fmt: skip
SENT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
FIRST, SECOND, THIRD, LATE = (
    pa.Table.from_pylist([dict(zip("ktv", event, strict=True)) for event in events], schema=SENT)
    for events in (
        [(1, 10, "a"), (2, 20, None), (3, 5, "c")],
        [(5, 1, "e"), (6, 2, None)],
        [(1, 30, None), (4, 40, None), (3, 7, "d")],
        [(4, 35, "late"), (1, 25, "b"), (2, 15, "x")],
    )
)


def apply(table: Table, events: pa.Table) -> None:
    """Apply events, of which those without a value delete."""
    table.auto_cdc(
        events, keys="k", sequence_by="t", apply_as_deletes="v IS NULL", except_column_list=["t"],
        stored_as_scd_type=2,
    )  # fmt: skip


def rows_after(disk: MemoryDisk, *sent: pa.Table) -> list[str]:
    for events in sent:
        apply(disk.opened(judge()), events)
    return sorted(map(str, disk.opened(judge()).to_arrow().to_pylist()))


@pytest.fixture(scope="module")
def disk() -> Iterator[MemoryDisk]:
    with doubles():
        disk = MemoryDisk(ManualClock(PREPARING.millis))
        options = {"bucket": "1", "write-only": "true"}
        key = ("k", "__START_AT")
        disk.create(PREPARING, COLUMNS, primary_key=key, partitioned_by=(), options=options)
        rows_after(disk, FIRST, SECOND)
        yield disk


@pytest.mark.parametrize("branch", ["main", "auto_cdc"])
def test_events_that_are_sent_again_give_the_same_rows_after_a_rollback_between_two_commits(
    disk: MemoryDisk, branch: str
) -> None:
    calls: list[StorageCall] = []
    apply(disk.clone().process(OURS, calls.append).open_table(), THIRD)
    expected = rows_after(disk.clone(), THIRD, LATE)
    every_call = os.environ.get("LSM_AUTO_CDC_STOPS") == "all"
    stops = {
        number
        for number, call in enumerate(calls, 1)
        if call.verb not in UNCHANGING and (every_call or "/snapshot-" in call.paths[0])
    }
    assert len(stops) >= 2
    for stop in stops:
        stopped, number = disk.clone(), 0

        def on_call(_: StorageCall, stop: int = stop, stopped: MemoryDisk = stopped) -> None:
            nonlocal number
            number += 1
            if number == stop:
                stopped.opened(judge()).branch(branch).rollback_to(1)

        apply(stopped.process(OURS, on_call).open_table(), THIRD)
        assert rows_after(stopped, FIRST, SECOND, THIRD, LATE) == expected, calls[stop - 1]
        assert not stopped.opened(judge()).verify().problems
