"""Consumers that are moved, forgotten or expired while others do the same: what was acknowledged last holds."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError, ExpiredError, LsmError
from lsm_engine.testing.memory_file_io import MemoryFileIO
from lsm_engine.types.schema_changes import SetOption
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import acting, clone, open_again, rows
from tests.fault.scenarios import write_and_compact as prepare
from tests.fault.test_schedules import disk_with, expire_most
from tests.model.world import START_MILLIS, components, reopen

Act = Callable[[Table], object]


def positions(disk: MemoryFileIO) -> dict[str, int]:
    return {one.name: one.next_snapshot_id for one in open_again(disk).consumers()}


def breaking_in(
    disk: MemoryFileIO, number: int, theirs: Act, came: list[Any]
) -> Callable[[Call], None]:
    """Return what runs theirs, and notes what comes of it, before a call of a number."""
    calls = count(1)

    def on_call(_: Call) -> None:
        if next(calls) == number:
            came.append(result(theirs, open_again(disk, first_id=600_000)))

    return on_call


def every_stop(
    start: MemoryFileIO, ours: Act, theirs: Act, step: int = 1
) -> Iterator[tuple[MemoryFileIO, Any, Any]]:
    """Stop ours before each call while theirs runs to its end; yield the disk and what came of both.

    `step`: of so many calls one.
    """
    for number in count(1, step):
        disk, came = clone(start), list[Any]()
        storage = RecordingFileIO(disk, on_call=breaking_in(disk, number, theirs, came))
        parts = components(storage, ManualClock(START_MILLIS + 15_000_000), NumberedIds(first=200))
        own = result(ours, reopen(parts))
        if not came:
            return
        yield disk, own, came[0]


def result(act: Act, table: Table) -> object:
    try:
        return act(table)
    except LsmError as error:
        return error


def advance(table: Table) -> object:
    return table.session.consumers.advance("reader", 5)


def stay(table: Table) -> object:
    return table.reset_consumer("reader", 3)


def put_back(table: Table) -> object:
    return table.reset_consumer("reader", 1)


def forget_consumer(table: Table) -> object:
    return table.reset_consumer("reader")


def test_a_reset_that_comes_too_late_does_not_undo_what_others_have_done_since() -> None:
    start = disk_with(prepare)
    open_again(start).reset_consumer("reader", 4)
    expire_most(open_again(start))
    ends = set()
    for disk, own, _ in every_stop(start, put_back, advance):
        assert isinstance(own, ExpiredError)
        ends.add(positions(disk)["reader"])
    assert ends <= {5, 4}
    for disk, own, came in every_stop(start, put_back, forget_consumer):
        assert isinstance(own, ExpiredError)
        assert isinstance(came, LsmError) or positions(disk) in ({}, {"reader": 4})


@pytest.mark.parametrize("mover", [advance, stay], ids=lambda act: act.__name__)
def test_a_consumer_that_moves_while_it_expires_stays(mover: Act) -> None:
    """So does one that is put where it was."""
    start = disk_with(prepare)
    table = open_again(start)
    table.alter(SetOption(key="consumer.expiration-time", value="1 h"))
    table.reset_consumer("reader", 3)
    path = table.session.paths.consumer_file("reader")
    start._files[path] = (start._files[path][0], START_MILLIS - 10_000_000)
    expected = {"reader": 5 if mover is advance else 3}
    deletions = 0
    for disk, own, came in every_stop(start, expire_most, mover):
        assert positions(disk) == expected or isinstance(came, ExpiredError)
        deletions += isinstance(own, CommitConflictError) or bool(own.consumers)
    assert deletions
    after = acting(clone(start))
    assert expire_most(after).consumers == ("reader",)


def test_a_consumer_that_is_put_back_while_snapshots_expire_can_read_or_is_told() -> None:
    start = disk_with(prepare)
    stopped = passed = 0
    for disk, own, came in every_stop(start, expire_most, put_back, 3):
        table = open_again(disk, first_id=900_000)
        if isinstance(came, LsmError):
            assert isinstance(came, ExpiredError)
            continue
        assert positions(disk) == {"reader": 1}
        assert table.session.snapshots.find(1) is not None, "its changes are deleted"
        if isinstance(own, CommitConflictError):
            stopped += 1
            if table.session.snapshots.earliest_hint() != 1:
                passed += 1
                expire_most(table)
                table.repair_earliest_snapshot(dry_run=False)
        assert open_again(disk).snapshots()[0].id == 1
        expire_most(open_again(disk, first_id=910_000))
        assert open_again(disk).snapshots()[0].id == 1
        assert not open_again(disk).verify().problems
    assert stopped > passed


def test_forget_does_not_make_a_consumer_anew_that_others_forget() -> None:
    start = disk_with(prepare)
    open_again(start).reset_consumer("reader", 1)

    def forget_rows(table: Table) -> object:
        return table.forget(
            rows(0, 1, "").select(["k", "p"]), dry_run=False, rewrite_tags=True, move_consumers=True
        )

    for disk, _, came in every_stop(start, forget_rows, forget_consumer, 19):
        assert isinstance(came, LsmError) or positions(disk) == {}


@pytest.mark.parametrize(("theirs", "expected"), [(forget_consumer, {}), (put_back, {"reader": 1})])
def test_a_rollback_puts_no_consumer_forward_nor_makes_it_anew(
    theirs: Act, expected: dict[str, int]
) -> None:
    start = disk_with(prepare)
    open_again(start).reset_consumer("reader", 6)
    for disk, own, came in every_stop(start, lambda table: table.rollback_to(3), theirs):
        assert not isinstance(came, LsmError)
        assert isinstance(own, LsmError) or positions(disk) == expected
