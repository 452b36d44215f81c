"""Clients that rename over the snapshot of ours that has just landed: it is noticed, and committed again."""

from copy import copy
from dataclasses import replace

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CommitUnknownError
from lsm_engine.commit import commit
from lsm_engine.format.documents import encode_snapshot
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.snapshot_chain import OTHER_CLIENT, is_beside_others
from lsm_engine.storage.clock import SystemIds
from tests.unit.table.history_tables import Story

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}


def story() -> Story:
    told = Story(COLUMNS, options=SUMS)
    told.table.upsert([{"id": 0, "v": 1}])
    return told


def as_of_another_client(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, properties=None, writer_version=None, commit_user="java")


def their_commit(told: Story, row: int) -> tuple[str, bytes]:
    """Write what another client writes for its next commit; return its snapshot, to be renamed later."""
    other = copy(told)
    other.disk = copy(told.disk)
    other.disk._files = dict(told.disk._files)
    other.parts = replace(told.parts, file_io=other.disk, ids=SystemIds())
    other.reopened().upsert([{"id": row, "v": 1}, {"id": 0, "v": 1}])
    latest = other.reopened().latest_snapshot()
    path = told.table.session.paths.snapshot_file(latest.id)
    for name in other.files() - told.files():
        if name != path:
            told.disk.write_new(name, other.disk.read(name))
    return path, encode_snapshot(as_of_another_client(latest))


def beside_another_client(told: Story) -> None:
    path, data = their_commit(told, 100)
    told.disk.write_new(path, data)


class Sleeps:
    """What happens while the writer waits between its looks."""

    def __init__(self, told: Story, acts: dict[int, object]) -> None:
        self.told, self.acts, self.waits = told, acts, []
        told.clock.sleep_millis = self  # type: ignore[method-assign]

    def __call__(self, millis: int) -> None:
        self.waits.append(millis)
        act = self.acts.pop(len(self.waits), None)
        if act is not None:
            act()  # type: ignore[operator]


@pytest.mark.parametrize("look", [1, 2])
def test_a_commit_that_was_replaced_is_made_again_once(look: int) -> None:
    told = story()
    beside_another_client(told)
    path, data = their_commit(told, 200)
    Sleeps(told, {look: lambda: told.disk.replace(path, data)})
    made = told.table.upsert([{"id": 1, "v": 1}, {"id": 0, "v": 1}])
    assert made.id == 4
    assert told.rows() == {0: 4, 1: 1, 100: 1, 200: 1}
    report = told.reopened().verify(deep=True)
    assert report.problems == ()
    assert told.table.lookup([{"id": 1}])["v"].to_pylist() == [1]


def test_who_is_alone_looks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    told = story()
    sleeps = Sleeps(told, {})
    for number in range(3):
        made = told.table.upsert([{"id": number, "v": 1}])
        assert OTHER_CLIENT not in made.properties
    assert sleeps.waits == []


def test_the_other_client_is_remembered_for_a_while() -> None:
    told = story()
    beside_another_client(told)
    sleeps = Sleeps(told, {})
    for number in range(53):
        made = told.table.upsert([{"id": number, "v": 1}])
        assert is_beside_others(made) is (number < 50)
    assert len(sleeps.waits) == 50 * len(commit.LOOKS_AFTER_MILLIS)
    assert made.id == 55


def test_a_commit_on_which_somebody_has_built_stays() -> None:
    told = story()
    beside_another_client(told)
    path, data = their_commit(told, 200)

    def act() -> None:
        told.reopened().upsert([{"id": 7, "v": 1}])
        told.disk.replace(path, data)

    Sleeps(told, {2: act})
    made = told.table.upsert([{"id": 1, "v": 1}])
    assert made.id == 3
    assert told.rows() == {0: 2, 1: 1, 7: 1, 100: 1}
    assert told.reopened().verify(deep=True).problems == ()


def test_rows_are_not_counted_twice_where_another_client_has_built_on_them() -> None:
    told = story()
    beside_another_client(told)
    path, data = their_commit(told, 200)

    def act() -> None:
        above, theirs = their_commit(told, 300)
        assert above != path
        told.disk.write_new(above, theirs)
        told.disk.replace(path, data)

    Sleeps(told, {2: act})
    with pytest.raises(CommitUnknownError, match="its rows are there"):
        told.table.upsert([{"id": 1, "v": 1}])
    found = told.reopened().to_arrow().to_pylist()
    assert {"id": 1, "v": 1} in found
    assert {"id": 300, "v": 1} in found


def test_a_rollback_in_between_is_no_replacement() -> None:
    told = story()
    beside_another_client(told)

    def act() -> None:
        again = told.reopened()
        again.rollback_to(2)
        again.upsert([{"id": 5, "v": 1}])

    Sleeps(told, {2: act})
    made = told.table.upsert([{"id": 1, "v": 1}])
    assert made.id == 3
    assert told.rows() == {0: 2, 5: 1, 100: 1}
    assert isinstance(told.reopened(), lsm.Table)
