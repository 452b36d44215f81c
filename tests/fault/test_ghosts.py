"""A ghost that its writer left, dead between landing and withdrawing: who passes it over, reports it, removes
it; and a removal that is stopped while others use the names that it is about to delete.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

import lsm_engine as lsm
from lsm_engine.planning.snapshot_chain import with_base
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.fault.scenarios import acting, open_again, rows, view
from tests.fault.test_schedules import disk_with
from tests.fault.test_two_preemptions import DAYS, remove_orphans

GHOST = "snapshot/snapshot-3"


def two_days_after(prepare: Callable[[lsm.Table], None]) -> MemoryFileIO:
    disk = disk_with(prepare)
    disk._files = {path: (data, at - 2 * DAYS) for path, (data, at) in disk._files.items()}
    return disk


def with_ghost(table: lsm.Table) -> None:
    """A ghost right above the line, made on a snapshot that a rollback took."""
    table.upsert(rows(0, 3, "first"))
    table.upsert(rows(1, 3, "second"))
    newest = table.snapshots()[-1]
    gone = replace(newest, delta_manifest_list="manifest-list-rolled-back")
    ghost = replace(
        newest,
        id=newest.id + 1,
        uuid="ghost",
        properties=with_base(None, gone),
        total_record_count=99,
    )
    assert table.session.snapshots.publish(ghost)


def looked_up(table: lsm.Table) -> object:
    keys = table.to_arrow().select(table.schema.primary_keys)
    return table.lookup(keys).to_pylist()


READERS: dict[str, Callable[[lsm.Table], object]] = {
    "rows": lambda table: table.to_arrow().to_pylist(),
    "count": lambda table: table.count(),
    "newest": lambda table: table.latest_snapshot(),
    "snapshots": lambda table: table.snapshots(),
    "newest first": lambda table: list(table.newest_snapshots()),
    "system table": lambda table: table.system("snapshots").to_pylist(),
    "files": lambda table: table.system("files").to_pylist(),
    "tree": lambda table: table.tree(),
    "lookup": looked_up,
    "changes": lambda table: table.changes(after=1).to_arrow().to_pylist(),
    "follow": lambda table: [
        one.to_arrow().to_pylist()
        for one in table.follow(start="from-snapshot", snapshot_id=1, poll_millis=None)
    ],
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_passes_a_dead_ghost_over(reader: str) -> None:
    read = READERS[reader]
    disk = two_days_after(with_ghost)
    found = read(open_again(disk))
    disk.delete(GHOST)
    assert found == read(open_again(disk))
    assert found


def test_a_dead_ghost_cannot_be_named_is_reported_and_is_removed() -> None:
    disk = two_days_after(with_ghost)
    table = open_again(disk, first_id=10_000)
    for names_it in (
        lambda: table.scan(snapshot_id=3).to_arrow(),
        lambda: table.create_tag("of-a-ghost", 3),
        lambda: table.rollback_to(snapshot_id=3),
    ):
        with pytest.raises(lsm.NotFoundError):
            names_it()
    assert not table.tags()
    (problem,) = open_again(disk).verify().problems
    assert GHOST in problem
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="1 ms")
    before = view(disk).head
    remove_orphans(open_again(disk, first_id=20_000))
    assert not disk.exists(GHOST)
    assert open_again(disk).verify().is_clean
    assert open_again(disk, first_id=30_000).upsert(rows(9, 1, "after")).id == 3
    assert before.items() <= view(disk).head.items()


def calls_of_a_removal() -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    storage = RecordingFileIO(
        two_days_after(littered), on_call=lambda call: calls.append((call.verb, call.path))
    )
    remove_orphans(acting(storage))
    return calls


def littered(table: lsm.Table) -> None:
    with_ghost(table)
    for path in ("manifest/manifest-stray-0", "p=0/bucket-0/data-stray-0.parquet"):
        table.session.file_io.write_new(path, b"stray")


def test_a_removal_of_orphans_that_is_stopped_anywhere_takes_nothing_published_meanwhile() -> None:
    """Another removes the same files, and commits take the ghost's id and the next ones."""
    calls = calls_of_a_removal()
    assert ("change_if_unchanged", GHOST) in calls
    for at in range(1, len(calls) + 1):
        disk = two_days_after(littered)
        made = removed_beside_others(disk, at)
        after = open_again(disk, first_id=400_000)
        assert len(made) == 3, f"there was no call {at}"
        assert set(made) <= {one.uuid for one in after.snapshots()}, f"stopped at call {at}"
        assert after.verify(deep=True).is_clean, f"stopped at call {at}"


def removed_beside_others(disk: MemoryFileIO, at: int) -> list[str]:
    """Remove orphans, stopped before call `at` until others have acted; return their snapshots."""
    made: list[str] = []
    numbers = count(1)

    def on_call(_: Call) -> None:
        if next(numbers) != at:
            return
        remove_orphans(open_again(disk, first_id=200_000))
        for number in range(3):
            table = open_again(disk, first_id=300_000 + 10_000 * number)
            made.append(table.upsert(rows(20 + number, 1, "meanwhile")).uuid)

    with suppress(lsm.NotFoundError):  # what it was about to read has gone: it gives up
        remove_orphans(acting(RecordingFileIO(disk, on_call=on_call)))
    return made
