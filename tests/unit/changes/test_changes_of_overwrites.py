"""What overwrites and restores did, told as changes: nothing twice, nothing left out."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from lsm_engine import RESTORED
from tests.unit.changes.test_changes import kinded, said
from tests.unit.table.history_tables import Story


@pytest.mark.parametrize(
    ("producer", "vectors"),
    [
        ("input", "false"),
        ("input", "true"),
        ("lookup", "false"),
        ("lookup", "true"),
        ("full-compaction", "false"),
    ],
)
@pytest.mark.parametrize("compacts", [False, True])
def test_changes_with_overwrites_and_restores_add_up_to_the_state(
    producer: str, vectors: str, compacts: bool
) -> None:
    story = Story(options={"changelog-producer": producer, "deletion-vectors.enabled": vectors})
    table = story.table
    acts: list[Callable[[], object]] = [
        lambda: table.upsert(kinded([("+I", 1, "a"), ("+I", 2, "b")])),
        lambda: table.overwrite(pa.table({"id": [1, 3], "v": ["x", "c"]})),
        lambda: table.upsert(kinded([("-D", 3, "c"), ("+I", 4, "d")])),
        lambda: table.rollback_to_as_latest(2 if compacts else 1),
        lambda: table.upsert(kinded([("-U", 2, "b"), ("+U", 2, "bb")])),
        lambda: table.overwrite(pa.table({"id": [9], "v": ["z"]})),
    ]
    for act in acts:
        act()
        if compacts:
            table.compact(full=True)
    table.compact(full=True)
    count: Counter[tuple[int, str]] = Counter()
    for kind, number, text in said(table.changelog(overwrites=True)):
        count[number, text] += 1 if kind in ("+I", "+U") else -1
    assert {row: number for row, number in count.items() if number} == {(9, "z"): 1}


def test_a_restore_tells_what_it_restored() -> None:
    story = Story()
    for value in "ab":
        story.put(k1=value)
    made = story.table.rollback_to_as_latest(1, properties={"why": "a slip"})
    assert made is not None
    assert made.properties is not None
    assert (made.properties[RESTORED], made.properties["why"]) == ("1", "a slip")
