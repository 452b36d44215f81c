"""One end of every write: what returned can be read, or the result is not visible."""

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.compact import compact
from lsm_engine.compact.plan import plan_compaction
from lsm_engine.format.snapshot import RowCounts, row_counts_of
from lsm_engine.options.table_options import TableOptions
from tests.unit.table import memory_lake

FIRST_ROW = {"merge-engine": "first-row"}
VECTORS = {"deletion-vectors.enabled": "true"}
hidden = pytest.mark.parametrize("options", [FIRST_ROW, VECTORS], ids=["first-row", "vectors"])


class Lake(memory_lake.Lake):
    """What can be read, and options set meanwhile."""

    def present(self) -> list[int]:
        return sorted(self.open().scan().to_arrow()["k"].to_pylist())

    def set(self, key: str, value: str) -> None:
        self.open().alter(lsm.SetOption(key=key, value=value))


def rows(*keys: int, value: int = 0) -> list[dict[str, Any]]:
    return [{"k": key, "v": value} for key in keys]


def losing(
    monkeypatch: pytest.MonkeyPatch, lake: Lake, times: int, *, others_commit: bool = True
) -> list[int]:
    """Make the next compactions lose, and let somebody commit meanwhile: key 100, uncompacted."""
    carry_out, tries = compact.carry_out, []

    def beaten(session: Any, identity: Any, base: Any, work: Any, *more: Any) -> Any:
        if len(tries) < times and work:
            tries.append(base.id)
            if others_commit:
                alone = lake.open()
                only = TableOptions(texts={**alone.options.texts, "write-only": "true"})
                alone.session = alone.session.with_schema(replace(alone.schema, options=only))
                alone.upsert(rows(100))
            raise lsm.CommitConflictError("somebody else was faster")
        return carry_out(session, identity, base, work, *more)

    monkeypatch.setattr(compact, "carry_out", beaten)
    return tries


@hidden
def test_a_write_whose_compaction_loses_waits_until_its_rows_are_there(
    options, monkeypatch
) -> None:
    lake = Lake(**options)
    table = lake.open()
    table.upsert(rows(1))
    tries = losing(monkeypatch, lake, 25)
    made = table.upsert(rows(2))
    assert len(tries) == 25, "more often than commit.max-retries: losing costs waiting only"
    assert made.visible
    assert lake.present() == [1, 2, 100]


@hidden
def test_a_compaction_that_loses_to_nobody_is_given_up(options, monkeypatch) -> None:
    """Without a timeout a write must not hang where conflicts have another cause than others."""
    lake = Lake(**options, **{"commit.max-retries": "3"})
    tries = losing(monkeypatch, lake, 10_000, others_commit=False)
    assert not lake.open().upsert(rows(1)).visible
    assert len(tries) < 10


@hidden
def test_a_compaction_that_was_planned_before_leaves_the_rows_and_the_write_goes_on(
    options, monkeypatch
) -> None:
    """Others plan before our commit and land before our compaction: theirs lacks our rows."""
    lake = Lake(**options, **{"num-sorted-run.compaction-trigger": "2"})
    table, other = lake.open(), lake.open()
    table.upsert(rows(1))
    lake.set("write-only", "true")
    lake.open().upsert(rows(2))
    lake.set("write-only", "false")
    base = other.latest_snapshot()
    stale = plan_compaction(other.session, base)
    carry_out, identity = (
        compact.carry_out,
        table._identity({"commit_user": "other", "commit_identifier": 1}, "compact"),
    )
    bases = []

    def late(session: Any, mine: Any, on: Any, work: Any, *more: Any) -> Any:
        bases.append(on.id)
        if len(bases) == 1:
            carry_out(other.session, identity, base, stale)
        return carry_out(session, mine, on, work, *more)

    monkeypatch.setattr(compact, "carry_out", late)
    made = table.upsert(rows(3))
    assert len(bases) == 2, "the first one lost"
    assert made.visible
    assert lake.present() == [1, 2, 3]


@hidden
def test_rows_that_others_compact_are_visible_as_well(options, monkeypatch) -> None:
    lake = Lake(**options)
    table, other = lake.open(), lake.open()
    carry_out, bases = compact.carry_out, []

    def slow(session: Any, identity: Any, base: Any, work: Any, *more: Any) -> Any:
        bases.append(base.id)
        if len(bases) == 1:
            assert other.compact() is not None
        return carry_out(session, identity, base, work, *more)

    monkeypatch.setattr(compact, "carry_out", slow)
    made = table.upsert(rows(1))
    assert made.visible
    assert lake.present() == [1]
    assert [one.commit_kind.value for one in table.snapshots()] == ["APPEND", "COMPACT"]


@hidden
def test_past_the_timeout_the_result_is_not_visible(options, monkeypatch) -> None:
    lake = Lake(**options, **{"commit.timeout": "5 s"})
    table = lake.open()
    tries = losing(monkeypatch, lake, 10_000)
    before = table.session.clock.now_millis()
    made = table.upsert(rows(1))
    assert not made.visible, "the rows are committed, and wait"
    assert 5_000 < table.session.clock.now_millis() - before < 60_000
    assert lake.present() == []
    tries.extend([0] * 10_000)
    table.compact()
    assert lake.present() == [1, 100]


@hidden
def test_without_lookup_wait_one_lost_compaction_is_left(options, monkeypatch) -> None:
    lake = Lake(**options, **{"lookup-wait": "false"})
    tries = losing(monkeypatch, lake, 1)
    assert not lake.open().upsert(rows(1)).visible
    assert len(tries) == 1
    assert lake.present() == []
    assert lake.open().upsert(rows(2)).visible
    assert lake.present() == [1, 2, 100]


@hidden
def test_a_compaction_that_fails_leaves_rows_that_are_not_visible(options, monkeypatch) -> None:
    def full(*_: Any) -> Any:
        raise lsm.StorageError("no space left")

    monkeypatch.setattr(compact, "carry_out", full)
    lake = Lake(**options)
    assert not lake.open().upsert(rows(1)).visible


@hidden
def test_write_only_and_gentle_tables_wait_for_nobody(options) -> None:
    lake = Lake(**options, **{"write-only": "true"})
    made = lake.open().upsert(rows(1))
    assert not made.visible
    lake = Lake(**options, **{"lookup-compact": "gentle", "lookup-compact.max-interval": "6"})
    seen = []
    for key in range(6):
        seen.append(lake.open().upsert(rows(key)).visible)
        assert seen[-1] == (key in lake.present())
    assert seen == [False, False, False, False, True, False]


@hidden
def test_a_gentle_table_takes_level_0_up_with_every_so_many_th_pick(options) -> None:
    lake = Lake(**options, **{"lookup-compact": "gentle", "lookup-compact.max-interval": "6"})
    table = lake.open()
    seen = [table.upsert(rows(key)).visible for key in range(8)]
    # The fifth is universal compaction's, which counts for nothing; the sixth of the others is forced.
    assert seen == [False, False, False, False, True, False, True, False]
    assert table.upsert(rows(9)).visible is False
    for _ in range(3):
        assert table.compact() is None  # counts as well
    assert 9 not in lake.present()
    assert table.compact() is not None
    assert lake.present() == [*range(8), 9]
    assert table.compact() is None


def test_gentle_picks_are_counted_bucket_by_bucket() -> None:
    """Picks of one bucket were once counted for the last one that was planned."""
    lake = Lake(**FIRST_ROW, **{"bucket": "4", "lookup-compact": "gentle",
                                "lookup-compact.max-interval": "3"})  # fmt: skip
    table = lake.open()
    one_of_each = {table.locate([{"k": key}])["bucket"][0].as_py(): key for key in range(40)}
    assert len(one_of_each) == 4
    table.upsert([row for key in one_of_each.values() for row in rows(key)])
    assert lake.present() == []
    assert any(table.compact() for _ in range(6))
    assert lake.present() == sorted(one_of_each.values())


def test_rows_that_are_merged_by_readers_are_visible_at_once() -> None:
    lake = Lake(**{"write-only": "true"})
    made = lake.open().upsert(rows(1))
    assert made.visible
    assert lake.present() == [1]


def test_a_replayed_write_finishes_what_the_first_try_left() -> None:
    """The first try died between its commit and its compaction."""
    for verb in ("upsert", "insert"):
        lake = Lake(**FIRST_ROW)
        lake.set("write-only", "true")
        numbered = {"commit_user": "etl", "commit_identifier": 1}
        first = getattr(lake.open(), verb)(rows(1), **numbered)
        lake.set("write-only", "false")
        assert not first.visible
        again = getattr(lake.open(), verb)(rows(1), **numbered)
        assert again == first
        assert again.visible
        assert lake.present() == [1]


def test_the_result_of_a_write_is_its_snapshot() -> None:
    lake = Lake(**FIRST_ROW)
    made = lake.open().upsert(rows(1))
    first = lake.open().snapshots()[0]
    assert made == first
    assert first == made
    assert made.commit_kind is lsm.CommitKind.APPEND
    assert made.id == 1
    assert made != lake.open().latest_snapshot()


@hidden
def test_every_write_of_a_race_is_visible_when_it_returns(options, tmp_path) -> None:
    """Writers and a compactor on a real file system; each looks for its own rows at once."""
    columns = [("k", pa.int64()), ("v", pa.int64())]
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        made = catalog.create_table(
            "db.t",
            pa.schema(columns),
            primary_key=["k"],
            options={"bucket": "1", "num-sorted-run.compaction-trigger": "3", **options},
        )
        missing: list[int] = []
        failed: list[lsm.LsmError] = []

        def write(number: int) -> None:
            try:
                table = lsm.open_table(made.location)
                for at in range(6):
                    key = 100 * number + at
                    result = table.upsert(rows(key, 7, value=number))
                    seen = lsm.open_table(made.location).scan().to_arrow()["k"].to_pylist()
                    if not (result.visible and key in seen):
                        missing.append(key)
            except lsm.LsmError as error:
                failed.append(error)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert not failed
        assert not missing
        assert made.scan().count() == 4 * 6 + 1


# --- the same for every path ---------------------------------------------------------------------


def test_every_verb_counts_what_it_changes() -> None:
    lake = Lake(**{"write.count-changes": "true"})
    table = lake.open()
    assert counts(table.upsert(rows(1, 2, 3))) == RowCounts(inserted=3)
    assert counts(table.insert(rows(3, 4), existing="skip")) == RowCounts(inserted=1, skipped=1)
    assert counts(table.update(rows(1, 9), missing="skip")) == RowCounts(updated=1, skipped=1)
    assert counts(table.delete(rows(1, 9))) == RowCounts(deleted=1)
    assert counts(table.overwrite(rows(2, 7, 8))) == RowCounts(inserted=2, updated=1, deleted=2)
    assert counts(table.overwrite([])) == RowCounts(deleted=3)


def test_an_overwrite_counts_the_rows_that_readers_merge() -> None:
    """Files hold keys more than once, retracts, and rows that deletion vectors have taken."""
    for options in ({"write-only": "true"}, VECTORS, FIRST_ROW):
        lake = Lake(**{"write.count-changes": "true", **options})
        table = lake.open()
        table.upsert(rows(1, 2, 3))
        table.upsert(rows(2, 3, 4, value=1))
        assert counts(table.overwrite(rows(4, 5))) == RowCounts(inserted=1, updated=1, deleted=3)


def test_a_partition_that_is_overwritten_counts_its_own_rows(tmp_path) -> None:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        table = catalog.create_table(
            "db.t",
            pa.schema([("p", pa.string()), ("k", pa.int64())]),
            primary_key=["p", "k"],
            partitioned_by=["p"],
            options={"bucket": "1", "write.count-changes": "true"},
        )
        table.upsert([{"p": part, "k": key} for part in "ab" for key in range(3)])
        made = table.overwrite([{"p": "a", "k": 2}, {"p": "a", "k": 3}])
        assert counts(made) == RowCounts(inserted=1, updated=1, deleted=2)


def counts(made: Any) -> RowCounts | None:
    return row_counts_of(made.properties)


POSTPONED = {"bucket": "-2", "postpone.target-size-per-bucket": "1 mb"}


@pytest.mark.parametrize("verb", ["upsert", "insert", "overwrite"])
@pytest.mark.parametrize("options", [{}, FIRST_ROW, VECTORS], ids=["plain", "first-row", "vectors"])
def test_rows_of_a_new_partition_have_their_bucket_and_can_be_read(verb, options) -> None:
    lake = Lake(**options, **POSTPONED)
    made = getattr(lake.open(), verb)(rows(1, 2))
    assert made.visible
    assert lake.present() == [1, 2]


def test_rows_that_others_give_buckets_to_are_visible(monkeypatch) -> None:
    lake = Lake(**FIRST_ROW, **POSTPONED)
    other, give, calls = lake.open(), compact.assign_postponed_buckets, []

    def slow(session: Any, identity: Any, covers: Any = None) -> Any:
        calls.append(1)
        if len(calls) == 2:  # the first call settles what waited before the write
            monkeypatch.setattr(compact, "assign_postponed_buckets", give)
            assert other.compact() is not None
            raise lsm.CommitConflictError("somebody else gave buckets")
        return give(session, identity, covers)

    monkeypatch.setattr(compact, "assign_postponed_buckets", slow)
    made = lake.open().upsert(rows(1, 2))
    assert len(calls) == 2
    assert made.visible
    assert lake.present() == [1, 2]


def test_an_insert_gives_older_rows_their_bucket_first() -> None:
    """Rows that waited are older, and there: an insert must see them and come after them."""
    lake = Lake(**{"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"})
    lake.open().upsert(rows(1))
    lake.set("postpone.batch-write-fixed-bucket", "true")
    made = lake.open().insert(rows(1, 2), existing="skip")
    assert counts(made) == RowCounts(inserted=1, skipped=1)
    assert lake.present() == [1, 2]
