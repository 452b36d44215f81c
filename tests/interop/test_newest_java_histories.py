"""Java and we write one table in turns: both read the same of every snapshot, tag and changelog.

All merge engines, changelog producers, formats and bucket modes, with and without deletion vectors,
partitions and file indexes; either of the two writes, retracts, compacts, tags, expires, changes columns, rolls back.
`python -m tests.interop.many_histories` asks any number. What is known to differ stays outside:
docs/decisions/0049, test_newest_java.
"""

import random
from pathlib import Path

import pytest

from tests.interop.newest_histories import ENGINES, History
from tests.interop.newest_java import TIMES, NewestJava

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("seed", range(7 * TIMES))
def test_both_take_turns_on_one_table(seed: int, newest: NewestJava, tmp_path: Path) -> None:
    draw = random.Random(f"turns {seed} {newest.release}")
    # The releases share the engines: one begins where the other one ends.
    first = 0 if newest.release == "1.4.2" else 7
    both = History.begin(tmp_path / "t", newest, draw, [*ENGINES][(first + seed) % len(ENGINES)])
    for _ in range(draw.randint(6, 12)):
        both.act()
        both.check()
    both.check_past()
