"""How many buckets a partition gets whose rows have waited for them."""

from dataclasses import replace

import pytest

from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.buckets import buckets_for, chosen_by_size, waits_for_size
from tests.unit.planning.facts import data_file

GB = 1 << 30
POSTPONED = {"bucket": "-2"}


@pytest.mark.parametrize(
    ("sizes", "buckets"),
    [
        ([], 1),
        ([1], 1),
        ([GB // 2, GB // 2], 1),
        ([GB, 1], 2),
        ([GB] * 3, 4),
        ([GB] * 5, 8),
        ([GB * 9_000], 2048),
    ],
)
def test_one_gigabyte_a_bucket_unless_told_otherwise(sizes, buckets):
    files = [replace(data_file(f"f{at}"), file_size=size) for at, size in enumerate(sizes)]
    assert buckets_for(files, TableOptions(texts=POSTPONED)) == buckets
    given = TableOptions(texts={**POSTPONED, "postpone.default-bucket-num": "3"})
    assert buckets_for(files, given) == 3


@pytest.mark.parametrize("target", ["0 b", "1 b"])
def test_a_target_of_a_byte_or_none_gives_a_bucket_a_byte(target):
    options = TableOptions(texts={**POSTPONED, "postpone.target-size-per-bucket": target})
    assert buckets_for([replace(data_file("f"), file_size=3)], options) == 4


def test_who_waits_for_the_size():
    size = {"postpone.target-size-per-bucket": "2 gb"}
    number = {"postpone.default-bucket-num": "1"}
    assert chosen_by_size(TableOptions(texts=POSTPONED))
    assert not waits_for_size(TableOptions(texts=POSTPONED))  # a second commit has to be asked for
    assert waits_for_size(TableOptions(texts={**POSTPONED, **size}))
    assert not waits_for_size(TableOptions(texts={**POSTPONED, **size, **number}))
    assert not chosen_by_size(TableOptions(texts={**POSTPONED, **number}))
    assert not chosen_by_size(TableOptions(texts={"bucket": "4"}))
