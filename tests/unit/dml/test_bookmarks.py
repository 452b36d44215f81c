"""What a write returns is a bookmark: the changes after it are those that came after the write."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.compact import compact
from lsm_engine.dml import write
from lsm_engine.options.table_options import TableOptions
from tests.unit.table import memory_lake

LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"}
PRODUCERS = {
    "none": {},
    "input": {"changelog-producer": "input"},
    "lookup": LOOKUP,
    "full-compaction": FULL,
}
each_producer = pytest.mark.parametrize("options", PRODUCERS.values(), ids=PRODUCERS)
by_compactions = pytest.mark.parametrize("options", [LOOKUP, FULL], ids=["lookup", "full"])


class Lake(memory_lake.Lake):
    """Writers that return bookmarks."""

    def __init__(self, **options: str) -> None:
        super().__init__(**options)
        self.table = self.open()

    def put(self, value: int, *keys: int) -> Any:
        return self.open().upsert([{"k": key, "v": value} for key in keys])

    def after(self, point: Any, **asked: Any) -> list[tuple[str, int, int]]:
        return plain(self.open().changelog(after=point, **asked))

    def state(self) -> dict[int, int]:
        found = self.open().scan().to_arrow().to_pylist()
        return {row["k"]: row["v"] for row in found}


def plain(changes: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["_row_kind"], row["k"], row["v"]) for row in changes.to_pylist()]


def before_compaction(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have others act between the commit of the next write and its compaction."""
    compact_due = write.compact_due

    def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(write, "compact_due", compact_due)
        act()
        return compact_due(*given, **named)

    monkeypatch.setattr(write, "compact_due", late)


def during_compaction(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Have others act between the plan of the next compaction and its commit."""
    carry_out = compact.carry_out

    def late(session: Any, identity: Any, base: Any, work: Any, *more: Any) -> Any:
        monkeypatch.setattr(compact, "carry_out", carry_out)
        act()
        return carry_out(session, identity, base, work, *more)

    monkeypatch.setattr(compact, "carry_out", late)


@each_producer
def test_after_a_write_comes_what_others_did_and_not_the_write(options) -> None:
    lake = Lake(**options)
    lake.put(1, 1, 2)
    made = lake.put(2, 2, 3)
    assert lake.after(made) == []
    lake.put(3, 3, 4)
    knows_before = options in (LOOKUP, FULL)
    third = [("-U", 3, 2), ("+U", 3, 3)] if knows_before else [("+I", 3, 3)]
    assert lake.after(made) == [*third, ("+I", 4, 3)]
    assert lake.after(made, mode="delta") == [("+I", 3, 3), ("+I", 4, 3)]
    assert lake.after(made, mode="diff") == [("-U", 3, 2), ("+U", 3, 3), ("+I", 4, 3)]


@each_producer
def test_a_follower_begins_after_a_write(options) -> None:
    lake = Lake(**options)
    made = lake.put(1, 1)
    follower = lake.open().follow(after=made, poll_millis=None)
    assert list(follower) == []
    lake.put(1, 2)
    assert [row for item in follower for row in plain(item.to_arrow())] == [("+I", 2, 1)]


@each_producer
@pytest.mark.parametrize("verb", ["insert", "update", "delete", "overwrite"])
def test_each_verb_returns_a_bookmark(options, verb) -> None:
    lake = Lake(**options)
    lake.put(1, 1)
    rows = [{"k": 9 if verb == "insert" else 1, "v": 5}]
    made = getattr(lake.open(), verb)(rows)
    assert lake.after(made) == []
    lake.put(1, 2)
    assert lake.after(made) == [("+I", 2, 1)]


@by_compactions
def test_rows_of_others_that_one_compaction_emits_with_ours_are_not_lost(
    options, monkeypatch
) -> None:
    """Theirs is committed after ours, in the same bucket, and our compaction emits both."""
    lake = Lake(**options)
    lake.put(0, 1, 2, 5)

    def others() -> None:
        alone = lake.open()
        only = TableOptions(texts={**alone.options.texts, "write-only": "true"})
        alone.session = alone.session.with_schema(replace(alone.schema, options=only))
        alone.upsert(
            [
                {"k": 2, "v": 7, "_row_kind": "+I"},
                {"k": 3, "v": 7, "_row_kind": "+I"},
                {"k": 5, "v": 7, "_row_kind": "-D"},
            ]
        )

    before_compaction(monkeypatch, others)
    made = lake.put(1, 1, 2, 4)
    assert [one.commit_kind.value for one in lake.table.snapshots()][-3:] == [
        "APPEND", "APPEND", "COMPACT",
    ]  # fmt: skip
    changes = lake.after(made)
    assert changes == [("-U", 2, 1), ("+U", 2, 7), ("+I", 3, 7), ("-D", 5, 0)]
    items = lake.open().follow(after=made, poll_millis=None)
    assert [row for item in items for row in plain(item.to_arrow())] == changes
    lake.put(8, 1)
    assert lake.after(made) == [*changes, ("-U", 1, 1), ("+U", 1, 8)]


@by_compactions
def test_rows_that_others_emit_with_theirs_are_not_repeated(options, monkeypatch) -> None:
    """They commit and compact first: their compaction emits our rows, and we find nothing to do."""
    lake = Lake(**options)
    before_compaction(monkeypatch, lambda: lake.put(7, 2, 3) and None)
    made = lake.put(1, 1, 2)
    assert made.changelog_id == lake.table.latest_snapshot().id
    assert lake.after(made) == [("-U", 2, 1), ("+U", 2, 7), ("+I", 3, 7)]


@by_compactions
def test_a_lost_compaction_neither_repeats_nor_loses_rows(options, monkeypatch) -> None:
    lake = Lake(**options)
    lake.put(0, 1)
    during_compaction(monkeypatch, lambda: lake.put(7, 2, 3) and None)
    made = lake.put(1, 1, 2)
    assert lake.after(made) == [("-U", 2, 1), ("+U", 2, 7), ("+I", 3, 7)]


def test_changes_of_other_buckets_come_as_they_were_emitted(monkeypatch) -> None:
    lake = Lake(**LOOKUP, bucket="4")
    act: list[Any] = []

    def others() -> None:
        act.append(lake.put(7, *range(10, 20)))
        act.append(lake.put(8, *range(10, 20)))

    before_compaction(monkeypatch, others)
    made = lake.put(1, 1)
    (ours,) = made.buckets
    placed = lake.open().locate([{"k": key} for key in range(10, 20)]).to_pylist()
    changes = lake.after(made)
    for key, place in zip(range(10, 20), placed, strict=True):
        steps = [one for one in changes if one[1] == key]
        once = place["bucket"] == ours[1]
        whole = [("+I", key, 7), ("-U", key, 7), ("+U", key, 8)]
        # The bucket of the write was compacted by others before: one more step, or both as one.
        assert steps in ([whole, [("+I", key, 8)]] if once else [whole])
    assert not [one for one in changes if one[1] == 1]


def test_a_changelog_that_is_still_to_come_is_not_skipped() -> None:
    """With `full-compaction.delta-commits` the rows are emitted later: the bookmark is before that."""
    lake = Lake(**{"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"})
    lake.put(1, 1)
    made = lake.put(1, 2)
    assert made.changelog_id == made.id
    assert lake.after(made) == []
    lake.put(1, 3)
    assert {key for _, key, _ in lake.after(made)} == {1, 2, 3}


@pytest.mark.parametrize("wait", ["true", "false"])
def test_a_write_only_table_emits_later_and_nothing_is_skipped(wait) -> None:
    lake = Lake(**LOOKUP, **{"write-only": "true", "lookup-wait": wait})
    made = lake.put(1, 1)
    assert made.visible
    assert made.changelog_id == made.id
    lake.open().compact()
    assert lake.after(made) == [("+I", 1, 1)]


def test_a_replay_returns_a_bookmark_behind_its_rows() -> None:
    lake = Lake(**LOOKUP)
    numbered = {"commit_user": "etl", "commit_identifier": 1}
    row = [{"k": 1, "v": 1}]
    first = lake.open().upsert(row, **numbered)
    lake.put(2, 2)
    again = lake.open().upsert(row, **numbered)
    assert again == first
    assert lake.after(again) == lake.after(first) == [("+I", 2, 2)]


def test_snapshots_ids_and_tags_are_points_as_well() -> None:
    lake = Lake(**LOOKUP)
    made = lake.put(1, 1)
    lake.open().create_tag("one", snapshot_id=made.changelog_id)
    lake.put(2, 2)
    latest = lake.table.latest_snapshot()
    for point in ("one", made.changelog_id, lake.table.snapshots()[1], made):
        assert lake.after(point) == [("+I", 2, 2)]
    assert lake.after(made.id) == [("+I", 1, 1), ("+I", 2, 2)], "an id is an id"
    assert lake.after(latest) == []
    assert plain(lake.open().changelog(upto=made)) == [("+I", 1, 1)]


def test_a_bookmark_of_a_write_that_was_rolled_back_is_refused() -> None:
    lake = Lake(**LOOKUP)
    lake.put(1, 1)
    made = lake.put(2, 2)
    lake.open().rollback_to(2)
    lake.put(3, 3)
    with pytest.raises(lsm.NotFoundError, match="rolled back"):
        lake.after(made)


def test_an_end_before_the_rows_were_emitted_is_refused(monkeypatch) -> None:
    lake = Lake(**LOOKUP)
    before_compaction(monkeypatch, lambda: lake.put(7, 2) and None)
    made = lake.put(1, 1)
    with pytest.raises(lsm.InvalidInputError, match="or further"):
        lake.after(made, upto=made.changelog_id - 1)


ENGINES = {
    "deduplicate": LOOKUP,
    "full": FULL,
    "vectors": {**LOOKUP, "deletion-vectors.enabled": "true"},
    "first-row": {**LOOKUP, "merge-engine": "first-row"},
    "sum": {**LOOKUP, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "none": {},
    "input": PRODUCERS["input"],
}


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("seed", range(2))
def test_the_state_of_a_write_and_the_changes_after_it_are_the_newest_state(
    options, seed, monkeypatch
) -> None:
    """Others write, with and without compacting, before, within and after; from each write on."""
    dice = random.Random(seed)
    lake = Lake(**options, bucket="2", **{"num-sorted-run.compaction-trigger": "3"})
    sums = options.get("merge-engine") == "aggregation"
    keeps = options.get("merge-engine") == "first-row"
    known: dict[int, int] = {}
    marks: list[tuple[Any, dict[int, int]]] = []

    def write(depth: int = 0) -> None:
        keys = dice.sample(range(8), dice.randint(1, 4))
        value = dice.randint(1, 99)
        states: list[dict[int, int]] = []

        def committed() -> None:
            for key in keys:
                if not (keeps and key in known):
                    known[key] = value + (known.get(key, 0) if sums else 0)
            states.append(dict(known))
            if depth < 2 and dice.random() < 0.6:
                write(depth + 1)
            if depth < 2 and dice.random() < 0.3:
                during_compaction(monkeypatch, lambda: write(depth + 1))

        before_compaction(monkeypatch, committed)
        made = lake.put(value, *keys)
        marks.append((made, states[0]))

    for _ in range(3):
        write()
    assert lake.state() == known
    for made, then in marks:
        state = dict(then)
        for kind, key, value in lake.after(made):
            if kind in ("-U", "-D"):
                state.pop(key, None)
            else:
                state[key] = value
        assert state == known
