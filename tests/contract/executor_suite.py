"""What every Executor promises. Subclass ExecutorSuite, give it an `executor` fixture."""

from functools import partial

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError, ErrorKind, InvalidInputError
from lsm_engine.meta.commit_message import CommitMessage
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


def orders(first: int, count: int, note: str) -> pa.Table:
    """Rows with ids from `first` on, over three days."""
    ids = range(first, first + count)
    columns = [list(ids), [f"2024-05-0{1 + i % 3}" for i in ids], [f"{note} {i}" for i in ids]]
    return pa.table(columns, schema=ROWS)


class ExecutorSuite:
    """Tests over one `executor` fixture."""

    def test_each_item_is_worked_on_once(self, executor):
        messages = executor.messages(partial(message_of, 9), range(9), label="number buckets")
        assert sorted(message.bucket for message in messages) == [0, 2, 4, 6, 8]
        assert {message.total_buckets for message in messages} == {9}
        assert {message.partition for message in messages} == {b"\0\1p"}

    def test_no_items_are_no_work(self, executor):
        assert executor.messages(partial(message_of, 9), [], label="nothing") == []

    def test_an_error_arrives_as_what_it_was(self, executor):
        with pytest.raises(InvalidInputError) as caught:
            executor.messages(refuse_seven, range(9), label="refuse")
        assert caught.value.message == "3 rows have no key"
        assert caught.value.kind is ErrorKind.INVALID_KEY
        assert caught.value.facts == {"column": "id", "rows": 3}

    def test_an_error_of_every_item_is_one_error(self, executor):
        with pytest.raises(CorruptFileError, match="ends early"):
            executor.messages(lose_a_file, range(4), label="lose")

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
