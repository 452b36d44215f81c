"""What is given back from the trash while others undo, empty or expire: it stays, whole, or the undo says that it does not."""

from typing import Any

import pytest

from lsm_engine.api.table import Table
from lsm_engine.base.errors import CommitConflictError, LsmError, NotFoundError
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.scenarios import clone, open_again, rows, view
from tests.fault.scenarios import write_and_compact as prepare
from tests.fault.test_consumers import Act, every_stop
from tests.fault.test_schedules import disk_with, expire_most
from tests.model.strategies import Layout

OPTIONS = {"write-only": "true", "maintenance.trash-retained": "1 d"}


def undo(table: Table) -> object:
    return table.undo_maintenance()


def undo_changelogs(table: Table) -> Any:
    name = next((record.name for record in table.trash() if record.changelogs), None)
    return None if name is None else table.undo_maintenance(name)


def empty(table: Table) -> object:
    return table.empty_trash(everything=True)


def in_trash(**options: str) -> MemoryFileIO:
    """A table whose older snapshots have expired into the trash."""
    layout = Layout(bucket=1, options=tuple({**OPTIONS, **options}.items()))
    start = disk_with(prepare, layout)
    expire_most(open_again(start))
    return start


@pytest.mark.parametrize(
    ("ours", "theirs"), [(undo, empty), (empty, undo), (undo, undo), (undo, expire_most)]
)
def test_what_an_undo_acknowledges_can_be_read(ours: Act, theirs: Act) -> None:
    start = in_trash()
    given_back = open_again(clone(start))
    undo(given_back)
    whole = view(given_back.session.file_io).snapshots  # type: ignore[arg-type]
    undone = 0
    for disk, own, came in every_stop(start, ours, theirs, 4):
        answers = {ours: own, theirs: came}
        acknowledged = [
            act
            for act, answer in ((ours, own), (theirs, came))
            if act is undo and not isinstance(answer, LsmError)
        ]
        assert len(acknowledged) <= 1, "both have given the same back"
        for answer in (own, came):
            assert not isinstance(answer, LsmError) or isinstance(
                answer, CommitConflictError | NotFoundError
            ), answer
        now = view(disk).snapshots
        assert None not in now.values()
        if acknowledged and expire_most not in answers:
            undone += 1
            assert now == whole
        elif empty in answers:
            assert max(now) == max(whole)
        table = open_again(disk, first_id=900_000)
        assert not table.verify().problems
        expire_most(table)
    assert undone or {theirs, ours} & {expire_most, empty}


def test_changelogs_that_are_given_back_while_they_expire_are_there_or_in_the_trash_again() -> None:
    keeping = {
        "changelog-producer": "input",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "changelog.num-retained.min": "4",
        "changelog.num-retained.max": "4",
        "changelog.time-retained": "1 ms",
    }
    layout = Layout(bucket=1, options=tuple({**OPTIONS, **keeping}.items()))
    start = disk_with(prepare, layout)
    expire_most(open_again(start))
    later = open_again(start, first_id=300_000)
    for number in range(3):
        later.upsert(rows(number, 2, "later"))
    given_back = 0
    assert open_again(start).session.changelogs.ids()
    for disk, own, came in every_stop(start, expire_most, undo_changelogs, 3):
        if came is None or isinstance(came, LsmError):
            continue
        given_back += 1
        table = open_again(disk)
        there = set(table.session.changelogs.ids())
        there |= {one.id for record in table.trash() for one in record.changelogs}
        assert {one.id for one in came.changelogs} <= there, own
    assert given_back
