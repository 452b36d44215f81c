"""Java 1.4.2 and we write one table in turns: both read the same of every snapshot, tag and changelog.

All merge engines, changelog producers, formats and bucket modes, with and without deletion vectors and
partitions; either of the two writes, retracts, compacts, tags, expires, adds columns, rolls back.
`LSM_NEWEST_JAVA=40` makes 520 histories. What is known to differ stays outside: docs/decisions/0049, test_newest_java.
"""

import random
from pathlib import Path

import pytest

from tests.interop.newest_histories import ENGINES, History
from tests.interop.newest_java import TIMES, NewestJava

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("seed", range(13 * TIMES))
def test_both_take_turns_on_one_table(seed: int, newest: NewestJava, tmp_path: Path) -> None:
    draw = random.Random(f"turns {seed}")
    engine = list(ENGINES)[seed % len(ENGINES)]
    both = History.begin(tmp_path / "t", newest, draw, engine)
    for _ in range(draw.randint(6, 12)):
        both.act()
        assert both.ours() == both.theirs(), both.log
    for number in both.table.snapshot_ids():
        assert both.ours(snapshot_id=number) == both.theirs(snapshot=number), (number, both.log)
    for tag in both.table.tags():
        assert both.ours(tag=tag.name) == both.theirs(tag=tag.name), (tag.name, both.log)
    for one in both.table.snapshots():
        if one.changelog_manifest_list is not None:
            assert both.our_changes(one.id) == both.their_changes(one.id), (one.id, both.log)
    assert both.table.verify(deep=True).problems == (), both.log
