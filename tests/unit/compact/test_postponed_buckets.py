"""bucket = -2: rows that wait are unseen until they get a bucket; batches may go to one at once."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.compact import compact
from lsm_engine.planning.proposal import CommitIdentity
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.session import TableSession
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

COLUMNS = pa.schema([("p", pa.string()), ("k", pa.int64()), ("v", pa.int64())])
WAITS = {"postpone.batch-write-fixed-bucket": "false"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")) as made:
        yield made


def created(catalog: lsm.Catalog, **options: str) -> lsm.Table:
    return catalog.create_table(
        "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by=["p"],
        options={"bucket": "-2", "postpone.default-bucket-num": "3", **options},
    )  # fmt: skip


def rows(keys: range, value: int, partition: str = "x") -> pa.Table:
    return pa.table([[partition] * len(keys), list(keys), [value] * len(keys)], schema=COLUMNS)


def found(table: lsm.Table) -> dict[int, int]:
    made = {row["k"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert len(made) == table.scan().count()
    return made


def check(table: lsm.Table) -> None:
    check_invariants(StoredTable(table.session.file_io))
    assert table.verify().is_clean


def test_rows_wait_until_a_compaction(catalog: lsm.Catalog) -> None:
    table = created(catalog, **WAITS)
    table.upsert(rows(range(50), 0))
    table.upsert(rows(range(30, 80), 1))
    table.delete(rows(range(5), 0).select(["p", "k"]))
    assert found(table) == {}
    assert table.scan(where=pc.field("k") == 7).count() == 0
    assert table.lookup([{"p": "x", "k": 7}]).column("_found").to_pylist() == [False]
    assert set(table.system("files").column("bucket").to_pylist()) == {-2}
    check(table)
    made = table.compact()
    assert made is not None
    assert found(table) == {k: int(k >= 30) for k in range(5, 80)}
    assert set(table.system("files").column("bucket").to_pylist()) == {0, 1, 2}
    check(table)
    table.upsert(rows(range(10), 2))
    assert found(table)[7] == 0
    table.compact(full=True)
    assert found(table)[7] == 2
    assert table.compact(full=True) is None
    check(table)


def test_a_batch_goes_to_its_bucket_at_once_behind_those_that_wait(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(20), 0))
    assert found(table) == dict.fromkeys(range(20), 0)
    waiting = lsm.open_table(table.location)
    waiting.alter(lsm.SetOption(key="postpone.batch-write-fixed-bucket", value="false"))
    waiting.upsert(rows(range(10, 30), 1))
    waiting.alter(lsm.RemoveOption(key="postpone.batch-write-fixed-bucket"))
    table = lsm.open_table(table.location)
    table.upsert(rows(range(15, 25), 2))
    wanted = dict.fromkeys(range(10), 0) | dict.fromkeys(range(10, 30), 1)
    assert found(table) == wanted | dict.fromkeys(range(15, 25), 2)
    check(table)


def test_each_partition_has_a_number_of_its_own(catalog: lsm.Catalog) -> None:
    table = created(catalog)
    table.upsert(rows(range(40), 0, "x"))
    table.alter(lsm.SetOption(key="postpone.default-bucket-num", value="5"))
    table.upsert(rows(range(40), 0, "y"))
    table.upsert(rows(range(20, 60), 1, "x"))
    table.rescale(2, [{"p": "y"}])
    table.upsert(rows(range(20, 60), 1, "y"))
    buckets: dict[str, set[int]] = {}
    for file in table.system("files").to_pylist():
        buckets.setdefault(file["file_path"][:3], set()).add(file["bucket"])
    assert buckets == {"p=x": {0, 1, 2}, "p=y": {0, 1}}
    assert table.scan().count() == 120
    assert table.options.texts["bucket"] == "-2"
    table.overwrite(rows(range(7), 9, "x"))
    assert table.scan(where=pc.field("p") == "x").count() == 7
    check(table)


def test_only_chosen_partitions_come_to_buckets(catalog: lsm.Catalog) -> None:
    table = created(catalog, **WAITS)
    table.upsert(rows(range(5), 0, "x"))
    table.upsert(rows(range(5), 0, "y"))
    table.compact(partitions=[{"p": "y"}])
    assert table.scan().to_arrow().column("p").to_pylist() == ["y"] * 5
    check(table)


def test_two_who_give_buckets(catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(catalog, **WAITS)
    table.upsert(rows(range(20), 0))
    other = lsm.open_table(table.location)
    real, acts = compact.propose, [other.compact]

    def commit(*args: object, **more: object) -> object:
        if acts:
            acts.pop()()
        return real(*args, **more)

    monkeypatch.setattr(compact, "propose", commit)
    with pytest.raises(lsm.CommitConflictError):
        table.compact()
    assert found(table) == dict.fromkeys(range(20), 0)
    check(table)


def test_followers_are_told_of_rows_once_they_can_be_seen(catalog: lsm.Catalog) -> None:
    table = created(catalog, **WAITS)
    table.upsert(rows(range(3), 0))
    assert table.changelog().num_rows == 0
    table.compact()
    told = table.changelog()
    assert told.column("k").to_pylist() == [0, 1, 2]
    assert set(told.column("_snapshot_id").to_pylist()) == {2}


BY_SIZE = {"postpone.target-size-per-bucket": "6 kb"}


def created_by_size(catalog: lsm.Catalog, **options: str) -> lsm.Table:
    return catalog.create_table(
        "db.t", COLUMNS, primary_key=["p", "k"], partitioned_by=["p"],
        options={"bucket": "-2", "file.compression": "none", **BY_SIZE, **options},
    )  # fmt: skip


def buckets_of(table: lsm.Table) -> dict[str, int]:
    """How many buckets each partition's files were written for."""
    base = table.session.snapshots.latest()
    assert base is not None
    found: dict[str, set[int]] = {}
    for entry in table.session.live_entries(base):
        path = table.session.context().partition_path(entry.partition)
        found.setdefault(path, set()).add(entry.total_buckets)
    return {path: total for path, (total,) in found.items()}


def test_a_new_partition_has_as_many_buckets_as_its_size_asks_for(catalog: lsm.Catalog) -> None:
    table = created_by_size(catalog)
    small, large = rows(range(50), 0, "small"), rows(range(1000, 3000), 0, "large")
    made = table.upsert(pa.concat_tables([small, large]))
    assert made is not None
    assert table.snapshots()[-1].id == made.id == 2, "they waited for one commit"
    totals = buckets_of(table)
    assert totals["p=small"] == 1
    assert totals["p=large"] >= 4
    assert totals["p=large"].bit_count() == 1
    assert found(table) == dict.fromkeys([*range(50), *range(1000, 3000)], 0)
    table.upsert(rows(range(2000, 5000), 1, "large"))
    assert len(table.snapshots()) == 3, "a partition with buckets takes rows at once"
    assert buckets_of(table) == totals
    wanted = dict.fromkeys([*range(50), *range(1000, 2000)], 0) | dict.fromkeys(
        range(2000, 5000), 1
    )
    assert found(table) == wanted
    check(table)


def test_rows_that_wait_are_counted_by_a_compaction(catalog: lsm.Catalog) -> None:
    table = created_by_size(catalog, **WAITS)
    for start in range(0, 2000, 500):
        table.upsert(rows(range(start, start + 500), 0))
    assert found(table) == {}
    table.compact()
    assert buckets_of(table)["p=x"] >= 4
    assert found(table) == dict.fromkeys(range(2000), 0)
    check(table)


def test_a_number_that_is_given_comes_before_the_size(catalog: lsm.Catalog) -> None:
    table = created_by_size(catalog, **{"postpone.default-bucket-num": "3"})
    table.upsert(rows(range(2000), 0))
    assert len(table.snapshots()) == 1
    assert buckets_of(table) == {"p=x": 3}


def test_an_overwrite_may_bring_new_partitions(catalog: lsm.Catalog) -> None:
    table = created_by_size(catalog)
    table.overwrite(rows(range(1000), 0))
    assert found(table) == dict.fromkeys(range(1000), 0)
    table.overwrite(rows(range(10), 1))
    assert found(table) == dict.fromkeys(range(10), 1)
    check(table)


def test_writers_that_find_different_sizes_do_not_mix_their_numbers(catalog: lsm.Catalog) -> None:
    table = created_by_size(catalog)
    table.upsert(rows(range(5), 0, "other"))
    waiting = lsm.open_table(table.location)
    waiting.alter(lsm.SetOption(key="postpone.batch-write-fixed-bucket", value="false"))
    waiting.upsert(rows(range(100, 110), 0))
    session = lsm.open_table(table.location).session
    base = session.snapshots.latest()
    staged = compact.waiting_files(session, base)
    assert len(staged) == 1
    identity = CommitIdentity(commit_user="slow")
    publish, done = session.snapshots.publish, []

    def beaten(snapshot: object) -> bool:
        if not done:
            done.append(True)
            waiting.upsert(rows(range(200, 2200), 1))
            waiting.compact()
        return publish(snapshot)

    session.snapshots.publish = beaten
    with pytest.raises(lsm.CommitConflictError):
        compact.assign_postponed_buckets(session, identity)
    assert buckets_of(table)["p=x"] > 1
    wanted = dict.fromkeys([*range(100, 110), *range(5)], 0) | dict.fromkeys(range(200, 2200), 1)
    assert found(table) == wanted
    check(table)


def test_what_waits_stands_when_giving_buckets_fails(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created_by_size(catalog)

    def fails(*_: object) -> None:
        raise lsm.StorageError("no space")

    with monkeypatch.context() as broken:
        broken.setattr(compact, "write_waiting", fails)
        table.upsert(rows(range(10), 0))
    assert found(table) == {}
    table.upsert(rows(range(5, 15), 1))
    assert found(table) == dict.fromkeys(range(5), 0) | dict.fromkeys(range(5, 15), 1)
    check(table)


def test_a_write_whose_buckets_cannot_be_looked_up_does_not_fail(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are committed: whoever wrote them once more would count them twice in sums."""
    table = created_by_size(catalog)
    given = compact.PostponedRows.after_write

    def fails(*_: object) -> None:
        raise lsm.StorageError("the storage does not answer")

    with monkeypatch.context() as broken:

        def last_look(*of: Any) -> Any:
            made = given(*of)
            broken.setattr(TableSession, "live_entries", fails)
            return made

        broken.setattr(compact.PostponedRows, "after_write", last_look)
        made = table.upsert(rows(range(10), 0))
    assert made is not None
    assert not made.visible
    assert found(table) == dict.fromkeys(range(10), 0)


# --- postpone.merge-on-read -------------------------------------------------------------------------

READS = {"postpone.merge-on-read": "true", **WAITS}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by a clock": {"sequence.field": "v"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "partial-update": {
        "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true",
    },
    "sums": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scan_merges_rows_that_wait_as_the_compaction_will(
    catalog: lsm.Catalog, engine: str
) -> None:
    draw = random.Random(engine)
    table = created(catalog, **READS, **ENGINES[engine], **{"write-buffer-size": "1 mb"})
    for turn in range(5):
        part = draw.choice("xyz")
        keys = sorted(draw.sample(range(40), 15))
        batch = pa.table([[part] * 15, keys, [draw.randrange(50) for _ in keys]], schema=COLUMNS)
        if draw.random() < 0.25:
            table.delete(batch if engine in ("sums", "by a clock") else batch.select(["p", "k"]))
        else:
            table.upsert(batch)
        before = table.scan().to_arrow().sort_by([("p", "ascending"), ("k", "ascending")])
        assert table.scan().count() == before.num_rows
        for condition in (
            pc.field("k") == keys[3], pc.field("v") > 25,
            (pc.field("p") == part) & (pc.field("k") < 20) & (pc.field("v") < 30),
        ):  # fmt: skip
            kept = table.scan(where=condition).to_arrow()
            order = [("p", "ascending"), ("k", "ascending")]
            assert kept.sort_by(order) == before.filter(condition).combine_chunks(), condition
        assert table.scan("v").to_arrow().num_rows == before.num_rows
        if turn == 2:
            assert sorted(table.to_duckdb().fetchall()) == sorted(
                zip(*before.to_pydict().values(), strict=True)
            )
        if turn % 2:
            table.compact()
            after = table.scan().to_arrow().sort_by([("p", "ascending"), ("k", "ascending")])
            assert after.to_pylist() == before.to_pylist()
    assert len(before)


def test_rows_that_wait_are_read_in_bounded_memory_and_with_later_columns(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = created(catalog, **READS)
    table.upsert(rows(range(2000), 0))
    table.compact()
    table.alter(lsm.SetOption(key="write-buffer-size", value="1 kb"))
    table.alter(lsm.AddColumn("w", "INT"))
    spilled: list[object] = []
    spill = SpillArea.spill
    monkeypatch.setattr(SpillArea, "spill", lambda *given: spilled.append(given) or spill(*given))
    table.upsert(rows(range(1000, 3000), 1))
    spilled.clear()
    assert found(table) == dict.fromkeys(range(1000), 0) | dict.fromkeys(range(1000, 3000), 1)
    assert spilled
    assert set(table.scan("w").to_arrow().column("w").to_pylist()) == {None}
    assert "1 whose rows wait for a bucket" in table.scan().explain().text()


def test_what_looks_by_key_or_follows_does_not_take_rows_that_wait(catalog: lsm.Catalog) -> None:
    table = created(catalog, **READS)
    table.upsert(rows(range(9), 0))
    table.compact(full=True)
    table.upsert(rows(range(5, 12), 1))
    for look in (
        lambda: table.lookup([{"p": "x", "k": 1}]),
        lambda: table.locate([{"p": "x", "k": 1}]),
        table.query,
    ):
        with pytest.raises(
            lsm.UnsupportedError, match=r"postpone\.merge-on-read.*compact the table"
        ):
            look()
    assert table.scan(where=pc.field("k") == 7).to_arrow().column("v").to_pylist() == [1]
    assert table.changes(after=0).to_arrow().num_rows == 9
    assert table.system("ro").num_rows == 9
    # A write to buckets gives rows that wait theirs first, so that it sees them, too.
    table.alter(lsm.SetOption(key="postpone.batch-write-fixed-bucket", value="true"))
    table.delete(rows(range(10, 11), 0).select(["p", "k"]))
    assert 10 not in found(table)
    assert table.lookup([{"p": "x", "k": 11}]).column("v").to_pylist() == [1]
