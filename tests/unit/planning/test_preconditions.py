"""What may be committed on which snapshot: what a proposal requires, and what two snapshots count."""

from dataclasses import replace

import pytest

from lsm_engine.base.errors import CommitConflictError, ErrorKind
from lsm_engine.commit.commit import require
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.proposal import Precondition, RowsUnchanged, SameState
from lsm_engine.planning.snapshot_chain import adds_up
from tests.unit.planning.facts import snapshot


@pytest.mark.parametrize(
    ("before", "total", "delta", "expected"),
    [
        (10, 13, 3, True),
        (10, 10, 0, True),
        (10, 8, -2, True),
        (0, 3, 3, True),
        (10, 14, 3, False),
        (10, 3, 3, False),
        (10, 13, None, None),
        (10, None, 3, None),
        (None, 3, 3, None),
    ],
)
def test_the_total_is_the_one_before_and_the_delta(
    before: int | None, total: int | None, delta: int | None, expected: bool | None
) -> None:
    newer = replace(snapshot(6, total=total), delta_record_count=delta)
    assert adds_up(newer, snapshot(5, total=before)) is expected


class _Snapshots:
    def __init__(self, *snapshots: Snapshot) -> None:
        self._by_id = {one.id: one for one in snapshots}

    def find(self, snapshot_id: int) -> Snapshot | None:
        return self._by_id.get(snapshot_id)


LOOKED_AT = snapshot(5)
COMPACTED = replace(snapshot(6), commit_kind=CommitKind.COMPACT)
COMPACTED_AGAIN = replace(snapshot(7), commit_kind=CommitKind.COMPACT)
WRITTEN = replace(snapshot(6), commit_kind=CommitKind.APPEND)
ANOTHER_5 = replace(LOOKED_AT, uuid="somebody else's")


@pytest.mark.parametrize(
    ("requires", "history", "holds"),
    [
        (SameState(on=None), (), True),
        (SameState(on=None), (LOOKED_AT,), False),
        (SameState(on=LOOKED_AT), (), False),
        (SameState(on=LOOKED_AT), (LOOKED_AT,), True),
        (SameState(on=LOOKED_AT), (ANOTHER_5,), False),
        (SameState(on=LOOKED_AT), (LOOKED_AT, COMPACTED), False),
        (RowsUnchanged(on=None), (), True),
        (RowsUnchanged(on=None), (LOOKED_AT,), False),
        (RowsUnchanged(on=LOOKED_AT), (), False),
        (RowsUnchanged(on=LOOKED_AT), (LOOKED_AT,), True),
        (RowsUnchanged(on=LOOKED_AT), (ANOTHER_5,), False),
        (RowsUnchanged(on=LOOKED_AT), (LOOKED_AT, COMPACTED, COMPACTED_AGAIN), True),
        (RowsUnchanged(on=LOOKED_AT), (LOOKED_AT, WRITTEN, COMPACTED_AGAIN), False),
        (RowsUnchanged(on=LOOKED_AT), (ANOTHER_5, COMPACTED), False),
        (RowsUnchanged(on=LOOKED_AT), (COMPACTED,), False),  # 5 has expired
        (RowsUnchanged(on=LOOKED_AT), (LOOKED_AT, COMPACTED_AGAIN), False),
        (RowsUnchanged(on=COMPACTED_AGAIN), (LOOKED_AT, COMPACTED), False),  # rolled back
    ],
)
def test_a_commit_is_given_up_where_what_it_requires_does_not_hold(
    requires: Precondition, history: tuple[Snapshot, ...], holds: bool
) -> None:
    base = history[-1] if history else None
    snapshots = _Snapshots(*history)
    if holds:
        require(requires, base, snapshots)
        return
    with pytest.raises(CommitConflictError, match="nothing of it is visible") as error:
        require(requires, base, snapshots)
    assert error.value.kind is ErrorKind.ROWS_CHANGED
