"""A writer that stays open: what it acknowledged is there, and a thread of its own compacts."""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.compact import compact
from lsm_engine.dml import stream_writer, write

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
SMALL = {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}
THREAD = "lsm-compaction"


def made(folder: Path, key: tuple[str, ...] = ("k",), **options: str) -> lsm.Table:
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder)) as catalog:
        table = catalog.create_table(
            "db.t", COLUMNS, primary_key=list(key), options={**SMALL, **options}
        )
    return lsm.open_table(table.location)


def rows(*keys: int, value: int = 0) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value] * len(keys)}, schema=COLUMNS)


def present(table: lsm.Table) -> dict[int, int]:
    found = lsm.open_table(table.location).scan().to_arrow().to_pylist()
    assert len(found) == len({row["k"] for row in found})
    return {row["k"]: row["v"] for row in found}


def files_of(table: lsm.Table) -> int:
    return sum(1 for _ in Path(table.location).glob("bucket-*/*"))


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD]


def keep_calling(writer: lsm.StreamWriter) -> None:
    for _ in range(1000):
        writer.write([])
        time.sleep(0.01)


class Gate:
    """Holds background compactions until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        carry_out = compact.carry_out

        def held(*given: Any) -> Any:
            if threading.current_thread().name == THREAD:
                self.reached.set()
                assert self.opened.wait(30)
            return carry_out(*given)

        monkeypatch.setattr(compact, "carry_out", held)


@pytest.mark.parametrize("background_compaction", [True, False])
def test_batches_are_visible_commit_by_commit(tmp_path, background_compaction: bool) -> None:
    table = made(tmp_path)
    with table.writer(background_compaction=background_compaction) as writer:
        assert writer.commit() is None
        for number in range(12):
            writer.write(rows(number, number + 1, value=number))
            writer.write([{"k": 100, "v": number}])
            assert present(table).get(100) == (number - 1 if number else None)
            result = writer.commit()
            assert result is not None
            assert result.visible
            assert present(table)[100] == number
        writer.write(rows(7, value=70))
    assert present(table) == {**{n: n for n in range(12)}, 12: 11, 7: 70, 100: 11}
    kinds = [one.commit_kind for one in table.snapshots()]
    assert kinds.count(lsm.CommitKind.APPEND) == 13
    assert lsm.CommitKind.COMPACT in kinds
    assert max(len(tree.runs) for tree in table.tree()) <= 4
    assert table.verify(deep=True).is_clean
    assert not threads()


def test_an_exception_drops_what_is_not_committed(tmp_path) -> None:
    table = made(tmp_path)
    writer = table.writer()
    writer.write(rows(1))
    writer.commit()
    before = files_of(table)
    writer.write(rows(2))
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError
    assert present(table) == {1: 0}
    assert files_of(table) == before
    assert not threads()
    with pytest.raises(lsm.InvalidInputError, match="closed"):
        writer.write(rows(3))


def test_rows_that_do_not_fit_cost_none_of_the_others(tmp_path) -> None:
    table = made(tmp_path)
    with table.writer() as writer:
        writer.write(rows(1))
        with pytest.raises(lsm.InvalidInputError):
            writer.write([{"k": 2, "v": 0}, {"k": None, "v": 0}])
        with pytest.raises(lsm.InvalidInputError):
            writer.write([{"wrong": 2}])
        writer.write([])
    assert present(table) == {1: 0}


def test_a_stream_that_fails_on_the_way_drops_all_that_is_not_committed(tmp_path) -> None:
    table = made(tmp_path)

    def failing():
        yield from rows(5).to_batches()
        raise OSError("the source is gone")

    with table.writer() as writer:
        writer.write(rows(1))
        with pytest.raises(OSError, match="source is gone"):
            writer.write(pa.RecordBatchReader.from_batches(COLUMNS, failing()))
        assert writer.commit() is None
        writer.write(rows(2))
    assert present(table) == {2: 0}


def test_a_numbered_commit_is_replayed_once(tmp_path) -> None:
    table = made(tmp_path)
    for _ in range(2):
        with table.writer(commit_user="etl") as writer:
            for number in range(1, 6):
                writer.write(rows(number, value=number))
                writer.commit(commit_identifier=number, properties={"batch": str(number)})
    appends = [one for one in table.snapshots() if one.commit_kind is lsm.CommitKind.APPEND]
    assert [(one.properties or {})["batch"] for one in appends] == list("12345")
    assert present(table) == {number: number for number in range(1, 6)}


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "first-row"},
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup"},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"},
        {"bucket": "-1"},
        {"bucket": "-2"},
        {"write-only": "true"},
    ],
    ids=str,
)
def test_each_kind_of_table_gives_what_upserts_give(tmp_path, options: dict[str, str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, plain = made(tmp_path / "a", **options), made(tmp_path / "b", **options)
    with ours.writer() as writer:
        for number in range(6):
            batch = rows(number, number % 2, 9, value=number + 1)
            writer.write(batch)
            result = writer.commit()
            expected = plain.upsert(batch)
            assert result is not None
            assert expected is not None
            assert result.visible == expected.visible
            if result.visible:
                assert present(ours) == present(plain)
    ours.compact(full=True)
    plain.compact(full=True)
    assert present(ours) == present(plain)
    assert ours.verify(deep=True).is_clean


def test_tables_without_a_key_are_appended_to(tmp_path) -> None:
    table = made(tmp_path, (), bucket="-1", **{"compaction.min.file-num": "3"})
    with table.writer() as writer:
        for _ in range(8):
            writer.write(rows(1))
            writer.commit()
    assert table.scan().count() == 8
    assert files_of(table) - 8 < len(table.system("files").to_pylist()) + 8
    assert lsm.CommitKind.COMPACT in [one.commit_kind for one in table.snapshots()]


def test_commits_do_not_wait_for_a_compaction_until_runs_are_too_many(
    tmp_path, monkeypatch
) -> None:
    gate = Gate(monkeypatch)
    table = made(tmp_path, bucket="1", **{"num-sorted-run.stop-trigger": "5"})
    committed: list[int] = []
    with table.writer() as writer:

        def work() -> None:
            for number in range(9):
                writer.write(rows(number))
                writer.commit()
                committed.append(number)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(2)
        assert gate.reached.is_set()
        assert thread.is_alive()
        # Six runs are above the stop trigger; the sixth commit stands, and its writer waits.
        assert len(committed) == 5
        assert len(present(table)) == 6
        assert writer.compaction_metrics().compaction_queued_count == 1
        gate.opened.set()
        thread.join(30)
        assert not thread.is_alive()
    assert present(table) == dict.fromkeys(range(9), 0)


def test_a_failure_is_raised_once_by_the_next_call_and_nothing_is_lost(
    tmp_path, monkeypatch
) -> None:
    table = made(tmp_path, bucket="1")
    carry_out, left = compact.carry_out, [1]

    def failing(*given: Any) -> Any:
        if left[0] and given[3]:
            left[0] -= 1
            raise lsm.StorageError("no space left")
        return carry_out(*given)

    monkeypatch.setattr(compact, "carry_out", failing)
    with table.writer() as writer:
        for number in range(3):
            writer.write(rows(number))
            writer.commit()
        with pytest.raises(lsm.StorageError, match="no space left") as caught:
            keep_calling(writer)
        assert "background compaction" in caught.value.__notes__[0]
        assert "no space left" in (writer.compaction_metrics().last_error or "")
        writer.write(rows(3))
        writer.commit()
    assert present(table) == dict.fromkeys(range(4), 0)
    assert max(len(tree.runs) for tree in table.tree()) < 3


@pytest.mark.parametrize("fails_before", [False, True])
def test_a_failure_during_close_is_raised_after_the_last_commit(
    tmp_path, monkeypatch, fails_before
) -> None:
    table = made(tmp_path, bucket="1")

    def failing(*_: Any) -> Any:
        raise MemoryError("out of it")

    writer = table.writer()
    for number in range(2):
        writer.write(rows(number))
        writer.commit()
    writer.write(rows(2))
    monkeypatch.setattr(compact, "carry_out", failing)  # not before: a write raises it, too
    if writer._background is not None and fails_before:  # also of the commit before
        writer._background._error = MemoryError("out of it")
    with pytest.raises(MemoryError):
        writer.close()
    assert present(table) == dict.fromkeys(range(3), 0)
    assert not threads()
    writer.close()  # harmless


def test_a_commit_that_cannot_look_afterwards_stands_and_raises_nothing(
    tmp_path, monkeypatch
) -> None:
    def unreadable(*_: Any) -> bool:
        raise lsm.StorageError("the disk does not answer")

    table = made(tmp_path, **{"merge-engine": "first-row"})
    monkeypatch.setattr(write._CommittedRows, "wait", unreadable)
    monkeypatch.setattr(stream_writer, "stops_writers", unreadable)
    with table.writer() as writer:
        for number in range(4):
            writer.write(rows(number))
            result = writer.commit()
            assert result is not None
            assert result.visible
    assert present(table) == dict.fromkeys(range(4), 0)


def test_metrics_are_those_of_paimon_and_are_kept_in_snapshots(tmp_path) -> None:
    table = made(tmp_path, bucket="1")
    with table.writer() as writer:
        assert writer.compaction_metrics() == lsm.CompactionMetrics()
        for number in range(20):
            writer.write(rows(number))
            writer.commit()
    metrics = writer.compaction_metrics()
    assert metrics.compaction_completed_count == metrics.compaction_total_count > 1
    assert metrics.compaction_queued_count == metrics.compaction_running_count == 0
    assert metrics.avg_compaction_time > 0
    assert 0 < metrics.compaction_thread_busy <= 100
    kept = [
        lsm.compaction_metrics_of(one.properties)
        for one in table.snapshots()
        if one.commit_kind is lsm.CommitKind.COMPACT
    ]
    counts = [one.compaction_completed_count for one in kept if one is not None]
    assert counts == list(range(1, metrics.compaction_completed_count + 1))
    listed = table.system("compactions").to_pylist()
    assert [row["compaction_completed_count"] for row in listed] == counts


def test_a_writer_that_nobody_closes_ends_with_its_last_reference(tmp_path) -> None:
    table = made(tmp_path)
    writer = table.writer()
    writer.write(rows(1))
    writer.commit()
    writer.write(rows(2))
    assert threads()
    del writer
    gc.collect()
    assert not threads()
    assert present(table) == {1: 0}


def test_a_forked_process_refuses_the_writer_and_touches_nothing(tmp_path) -> None:
    table = made(tmp_path, **{"write-buffer-spillable": "false", "write-buffer-size": "1 kb"})
    with table.writer() as writer:
        writer.write(rows(*range(1000)))
        child = os.fork()
        if not child:
            code = 1
            try:
                with writer:
                    writer.write(rows(2))
            except lsm.InvalidInputError as error:
                code = 0 if "another process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert present(table) == dict.fromkeys(range(1000), 0)


def test_many_queued_buckets_make_a_writer_wait(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stream_writer, "QUEUED_BUCKETS_MAX", 1)
    table = made(tmp_path, bucket="4")
    with table.writer() as writer:
        for number in range(8):
            writer.write(rows(*range(8), value=number))
            writer.commit()
    assert present(table) == dict.fromkeys(range(8), 7)
