"""What every Executor promises. Subclass ExecutorSuite, give it an `executor` fixture."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError, ErrorKind, InvalidInputError, StorageError
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.local import LocalFileIO
from tests.model.changelog_replay import Replay
from tests.model.invariants import check_invariants
from tests.model.stored_table import StoredTable

ROWS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("note", pa.string())])


def message_of(total_buckets: int, bucket: int) -> CommitMessage | None:
    """Work for tests: odd buckets have nothing to commit."""
    if bucket % 2:
        return None
    return CommitMessage(partition=b"\0\1p", bucket=bucket, total_buckets=total_buckets)


def refuse_seven(bucket: int) -> CommitMessage | None:
    if bucket == 7:
        raise InvalidInputError(
            "3 rows have no key", kind=ErrorKind.INVALID_KEY, column="id", rows=3
        )
    return message_of(8, bucket)


def lose_a_file(bucket: int) -> CommitMessage | None:
    del bucket
    raise CorruptFileError("the file ends early", file="data-1.parquet")


def nothing(messages: Sequence[CommitMessage]) -> None:
    """Discards what has no files."""


def fail_the_full_disk(file_io: FileIO, bucket: int) -> CommitMessage | None:
    """Bucket 5 fails, every time it is tried, once another one has been written."""
    if bucket == 5:
        while not file_io.exists("bucket-4/data-4"):
            time.sleep(0.01)
        raise StorageError("the disk is full", path="bucket-5")
    path = f"bucket-{bucket}/data-{bucket}"
    if not file_io.exists(path):  # a task is tried again with all of its items
        file_io.write_new(path, b"rows")
    return message_of(8, bucket)


def orders(first: int, count: int, note: str) -> pa.Table:
    """Rows with ids from `first` on, over three days."""
    ids = range(first, first + count)
    columns = [list(ids), [f"2024-05-0{1 + i % 3}" for i in ids], [f"{note} {i}" for i in ids]]
    return pa.table(columns, schema=ROWS)


class ExecutorSuite:
    """Tests over one `executor` fixture."""

    def test_each_item_is_worked_on_once(self, executor):
        messages = executor.messages(
            partial(message_of, 9), range(9), label="number buckets", discard=nothing
        )
        assert sorted(message.bucket for message in messages) == [0, 2, 4, 6, 8]
        assert {message.total_buckets for message in messages} == {9}
        assert {message.partition for message in messages} == {b"\0\1p"}

    def test_no_items_are_no_work(self, executor):
        assert executor.messages(partial(message_of, 9), [], label="nothing", discard=nothing) == []

    def test_an_error_arrives_as_what_it_was(self, executor):
        with pytest.raises(InvalidInputError) as caught:
            executor.messages(refuse_seven, range(9), label="refuse", discard=nothing)
        assert caught.value.message == "3 rows have no key"
        assert caught.value.kind is ErrorKind.INVALID_KEY
        assert caught.value.facts == {"column": "id", "rows": 3}

    def test_an_error_of_every_item_is_one_error(self, executor):
        with pytest.raises(CorruptFileError, match="ends early"):
            executor.messages(lose_a_file, range(4), label="lose", discard=nothing)

    def test_what_the_others_finished_is_handed_back_before_an_error(self, executor, tmp_path):
        disk = LocalFileIO(str(tmp_path), durable=False)
        handed = []
        with pytest.raises(StorageError, match="disk is full"):
            executor.messages(
                partial(fail_the_full_disk, disk), range(8), label="fill", discard=handed.extend
            )
        written = {int(path.name.removeprefix("data-")) for path in tmp_path.glob("bucket-*/*")}
        assert {message.bucket for message in handed} == {item for item in written if not item % 2}
        assert {0, 2, 4} <= written

    def test_a_compaction_that_fails_leaves_nothing_behind(self, executor, tmp_path):
        made = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
        made.create_database("shop")
        options = {"bucket": "2", "write-only": "true", "deletion-vectors.enabled": "true"}
        table = made.create_table("shop.orders", ROWS, primary_key=["id"], options=options)
        table.upsert(orders(0, 100, "v0"))
        table.compact(full=True)
        table.upsert(orders(50, 60, "v1"))
        made.close()
        bucket = Path(table.location) / "bucket-1"
        known = {path for path in Path(table.location).rglob("*") if path.is_file()}
        hidden = max(bucket.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        hidden.rename(tmp_path / "hidden")
        table = lsm.open_table(table.location, executor=executor)
        with pytest.raises(lsm.LsmError):
            table.compact(full=True)
        (tmp_path / "hidden").rename(hidden)
        assert {path for path in Path(table.location).rglob("*") if path.is_file()} == known
        table.compact(full=True)

    def test_rows_that_are_arrow_data_are_left_to_the_table(self, executor):
        assert executor.stage(None, orders(0, 3, "x")) is None

    def test_compacting_many_buckets_changes_no_row(self, executor, tmp_path):
        made = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
        made.create_database("shop")
        table = made.create_table(
            "shop.orders",
            ROWS,
            primary_key=["id", "day"],
            partitioned_by=["day"],
            options={"bucket": "2", "write-only": "true"},
        )
        for version in range(3):
            table.upsert(orders(version * 100, 300, f"v{version}"))
        made.close()
        table = lsm.open_table(table.location, executor=executor)
        before = table.scan().to_arrow().sort_by("id")
        snapshot = table.compact(full=True)
        assert snapshot.commit_kind is lsm.CommitKind.COMPACT
        assert snapshot.total_record_count == before.num_rows == 500
        assert table.scan().to_arrow().sort_by("id").equals(before)
        check_invariants(StoredTable(table.session.file_io))

    def test_compacting_looks_older_rows_up_wherever_it_runs(self, executor, tmp_path):
        made = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
        made.create_database("shop")
        options = {
            "bucket": "2",
            "write-only": "true",
            "changelog-producer": "lookup",
            "deletion-vectors.enabled": "true",
            "compaction.size-ratio": "0",
        }
        table = made.create_table("shop.orders", ROWS, primary_key=["id"], options=options)
        table.upsert(orders(0, 400, "v0"))
        table.compact(full=True)
        table.upsert(orders(390, 20, "v1"))
        made.close()
        table = lsm.open_table(table.location, executor=executor)
        snapshot = table.compact()
        assert snapshot.changelog_record_count == 2 * 10 + 10
        marked = [
            vector.cardinality
            for files in table.session.vector_files(snapshot).values()
            for file in files
            for vector in file.deletion_vectors
        ]
        assert sum(marked) == 10, "the older rows are hidden where they lie"
        notes = {row["id"]: row["note"] for row in table.scan().to_arrow().to_pylist()}
        assert len(notes) == 410
        assert notes[389] == "v0 389"
        assert notes[390] == "v1 390"
        replay = Replay(table.session.file_io, ["id"])
        replay.follow()
        assert {key[0]: row["note"] for key, row in replay.rows.items()} == notes
