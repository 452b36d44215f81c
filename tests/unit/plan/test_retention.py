"""Retentions that cannot be."""

import pytest

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.plan.retention import Retention


@pytest.mark.parametrize(("smallest", "largest"), [(0, 1), (-1, 1), (2, 1)])
def test_at_least_one_snapshot_stays_and_no_more_at_least_than_at_most(smallest, largest):
    with pytest.raises(InvalidOptionError, match="at least 1 and not above"):
        Retention(
            retained_min=smallest, retained_max=largest, time_retained_millis=0, expire_limit=1
        )


def test_one_snapshot_may_be_all_that_stays():
    made = Retention(retained_min=1, retained_max=1, time_retained_millis=0, expire_limit=1)
    assert made.retained_max == 1
