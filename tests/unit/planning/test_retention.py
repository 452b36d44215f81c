"""Retentions that cannot be."""

import pytest

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.retention import Retention, retention_of


@pytest.mark.parametrize(("smallest", "largest"), [(0, 1), (-1, 1), (2, 1)])
def test_at_least_one_snapshot_stays_and_no_more_at_least_than_at_most(smallest, largest):
    with pytest.raises(InvalidOptionError, match="at least 1 and not above"):
        Retention(
            retained_min=smallest, retained_max=largest, time_retained_millis=0, expire_limit=1
        )


def test_one_snapshot_may_be_all_that_stays():
    made = Retention(retained_min=1, retained_max=1, time_retained_millis=0, expire_limit=1)
    assert made.retained_max == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (3, 7, 5_000)),
        ({"retain_min": 2}, (2, 7, 5_000)),
        ({"retain_max": 5}, (3, 5, 5_000)),
        ({"retain_max": 2}, (2, 2, 5_000)),
        ({"retain_min": 1, "retain_max": 2}, (1, 2, 5_000)),
        ({"older_than": "2 s"}, (3, 7, 2_000)),
    ],
)
def test_single_rules_replace_the_options(given, expected):
    texts = {
        "snapshot.num-retained.min": "3",
        "snapshot.num-retained.max": "7",
        "snapshot.time-retained": "5 s",
        "snapshot.expire.limit": "9",
    }
    made = retention_of(TableOptions(texts=texts), **given)
    assert (made.retained_min, made.retained_max, made.time_retained_millis) == expected
    assert made.expire_limit == 9


def test_a_least_number_above_the_most_that_is_given_is_refused():
    options = TableOptions(texts={})
    with pytest.raises(InvalidOptionError, match="not above"):
        retention_of(options, retain_min=3, retain_max=2)


def test_options_that_keep_more_at_least_than_at_most_are_refused():
    texts = {"snapshot.num-retained.min": "9", "snapshot.num-retained.max": "7"}
    with pytest.raises(InvalidOptionError, match="not above"):
        retention_of(TableOptions(texts=texts))
