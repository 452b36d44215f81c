"""Which snapshot can have been committed on which, by its id and by what it counts."""

from dataclasses import replace

import pytest

from lsm_engine.plan.snapshot_order import follows
from tests.unit.plan.facts import snapshot


@pytest.mark.parametrize(
    ("before", "id", "total", "delta", "expected"),
    [
        (10, 6, 13, 3, True),
        (10, 6, 10, 0, True),
        (10, 6, 8, -2, True),
        (0, 6, 3, 3, True),
        (10, 7, 13, 3, False),
        (10, 5, 13, 3, False),
        (10, 6, 14, 3, False),
        (10, 6, 3, 3, False),
        (10, 6, 13, None, False),
        (10, 6, 10, None, False),
        (10, 6, None, 3, False),
        (None, 6, 3, 3, False),
    ],
)
def test_what_follows(
    before: int | None, id: int, total: int | None, delta: int | None, expected: bool
) -> None:
    newer = replace(snapshot(id, total=total), delta_record_count=delta)
    assert follows(newer, snapshot(5, total=before)) is expected
