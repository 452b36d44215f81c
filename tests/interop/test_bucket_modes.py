"""Buckets of every kind, written by us and by real clients in turn."""

from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference
from tests.interop.clients import Client, ClientError
from tests.interop.our_tables import NUMBERS, create, numbers, rows_of
from tests.interop.test_together import SPELLED, assert_all_read_alike
from tests.model.invariants import check_bucket_indexes
from tests.model.stored_table import StoredTable

pytestmark = pytest.mark.interop

DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "20"}


def assert_each_key_has_one_bucket(path: Path | str) -> None:
    """What the index files say covers every key once; clients' tables are checked like ours."""
    table = lsm.open_table(str(path))
    stored = StoredTable(table.session.file_io)
    newest = stored.snapshots()[table.latest_snapshot().id]
    check_bucket_indexes(stored, newest, list(stored.live(newest).values()))


def by_key(path: Path | str) -> dict[int, str | None]:
    rows = rows_of(lsm.open_table(str(path)))
    found = {row["k"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_java_and_we_assign_dynamic_buckets_in_turn(
    java: Client, rust: Client, tmp_path: Path
) -> None:
    path = java.create(tmp_path, "db.t", SPELLED, primary_key=["k"], options=DYNAMIC)
    java.write(path, numbers(range(50), "j1-"))
    lsm.open_table(str(path)).upsert(numbers(range(30, 90), "we-"))
    assert_each_key_has_one_bucket(path)
    java.write(path, numbers(range(80, 130), "j2-"))
    assert_each_key_has_one_bucket(path)
    table = lsm.open_table(str(path))
    table.compact(full=True)
    table.delete(numbers(range(10)))
    java.write(path, numbers(range(5), "j3-"))
    assert_each_key_has_one_bucket(path)
    assert_all_read_alike(path, java, rust)
    found = by_key(path)
    assert len(found) == 125
    assert [found[key] for key in (3, 29, 31, 81, 129)] == [
        "j3-3",
        "j1-29",
        "we-31",
        "j2-81",
        "j2-129",
    ]


def test_clients_read_and_write_on_in_our_dynamic_buckets(
    java: Client, pypaimon: Client, rust: Client, tmp_path: Path
) -> None:
    table = create(tmp_path, NUMBERS, primary_key=["k"], options=DYNAMIC)
    table.upsert(numbers(range(70), "a-"))
    table.upsert(numbers(range(60, 100), "b-"))
    table.overwrite(numbers(range(20, 90), "c-"))
    table.upsert(numbers(range(10), "d-"))
    assert_all_read_alike(table.location, java, pypaimon, rust)
    pypaimon.write(table.location, numbers(range(35, 45), "p-"))
    assert_each_key_has_one_bucket(table.location)
    assert_all_read_alike(table.location, java, pypaimon, rust)
    # pypaimon reads no manifest of Java's, so that Java comes last.
    java.write(table.location, numbers(range(5, 40), "j-"))
    assert_each_key_has_one_bucket(table.location)
    assert_all_read_alike(table.location, java, rust)
    found = by_key(table.location)
    assert [found[key] for key in (1, 20, 36, 43, 60)] == ["d-1", "j-20", "j-36", "p-43", "c-60"]
    again = lsm.open_table(table.location)
    again.upsert(numbers(range(120), "e-"))
    assert len(by_key(table.location)) == 120
    assert_each_key_has_one_bucket(table.location)


@pytest.mark.parametrize("options", [{}, {"bucket": "3", "bucket-key": "k"}])
def test_append_tables(
    java: Client, pypaimon: Client, rust: Client, tmp_path: Path, options: dict[str, str]
) -> None:
    table = create(tmp_path, NUMBERS, primary_key=[], options=options)
    table.append(numbers(range(40), "we-"))
    for client in (pypaimon, rust):
        client.write(table.location, numbers(range(40, 60), f"{client.name}-"))
    table.append(numbers(range(40), "we-"))
    assert_all_read_alike(table.location, java, pypaimon, rust)
    assert len(rows_of(table)) == 120
    table.compact(full=True)
    assert_all_read_alike(table.location, java, pypaimon, rust)
    if options:
        table.rescale(5)
        assert_all_read_alike(table.location, java, pypaimon, rust)
    # pypaimon reads no manifest of Java's, so that Java comes last.
    java.write(table.location, numbers(range(10), "on-"))
    table.append(numbers(range(10), "on-"))
    assert len(rows_of(table)) == 140
    assert_all_read_alike(table.location, java, rust)
    table.compact(full=True)
    assert_all_read_alike(table.location, java, rust)
    table.overwrite(numbers(range(7), "new-"))
    assert_all_read_alike(table.location, java, rust)
    assert len(rows_of(table)) == 7


def test_clients_write_on_after_a_rescale(
    java: Client, pypaimon: Client, rust: Client, tmp_path: Path
) -> None:
    table = create(tmp_path, NUMBERS, primary_key=["k"], options={"bucket": "2"})
    for turn in range(3):
        table.upsert(numbers(range(turn * 20, turn * 20 + 60), f"{turn}-"))
    table.delete(numbers(range(10)))
    before = rows_of(table)
    table.rescale(5)
    assert difference(rows_of(table), before) == ""
    assert_all_read_alike(table.location, java, pypaimon, rust)
    pypaimon.write(table.location, numbers(range(40, 110, 7), "p-"))
    assert_all_read_alike(table.location, java, pypaimon, rust)
    java.write(table.location, numbers(range(40, 110, 9), "j-"))
    java.compact(table.location, full=True)
    assert_all_read_alike(table.location, java, rust)
    table.upsert(numbers(range(30), "on-"))
    assert_all_read_alike(table.location, java, rust)


def test_rows_that_pypaimon_lets_wait_and_rows_that_we_do(
    pypaimon: Client, rust: Client, java: Client, tmp_path: Path
) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "2"}
    path = pypaimon.create(tmp_path, "db.t", SPELLED, primary_key=["k"], options=options)
    pypaimon.write(path, numbers(range(30), "p1-"))
    pypaimon.write(path, numbers(range(20, 50), "p2-"))
    assert rows_of(lsm.open_table(str(path))) == pypaimon.read_rows(path) == []
    table = lsm.open_table(str(path))
    table.upsert(numbers(range(45, 60), "we-"))
    found = by_key(path)
    assert len(found) == 60
    assert [found[key] for key in (19, 22, 46)] == ["p1-19", "p2-22", "we-46"]
    assert_all_read_alike(path, pypaimon, rust)
    pypaimon.write(path, numbers(range(3), "p3-"))
    table.compact(full=True)
    table.rescale(3)
    assert by_key(path)[1] == "p3-1"
    assert_all_read_alike(path, pypaimon, rust)
    with pytest.raises(ClientError):  # it knows no such buckets
        java.read_rows(path)


def test_keys_that_move_between_partitions(
    java: Client, pypaimon: Client, rust: Client, tmp_path: Path
) -> None:
    fields = [("k", pa.int64()), ("p", pa.string()), ("n", pa.int64())]
    table = create(
        tmp_path, fields, primary_key=["k"], partitioned_by=["p"], options={"bucket": "-1"}
    )
    for turn, partition in enumerate("abca"):
        keys = list(range(turn * 10, turn * 10 + 30))
        made = {"k": keys, "p": [partition] * 30, "n": [turn] * 30}
        table.upsert(pa.table(made, schema=pa.schema(fields)))
    table.delete([{"k": 5}, {"k": 35}])
    rows = canonical_rows(table.scan().to_arrow())
    assert len({row["k"] for row in rows}) == len(rows) == 58
    for client in (java, pypaimon, rust):
        assert (client.name, difference(client.read_rows(table.location), rows)) == (
            client.name,
            "",
        )


def test_rows_deleted_from_an_append_table(
    java: Client, pypaimon: Client, rust: Client, tmp_path: Path
) -> None:
    options = {"deletion-vectors.enabled": "true", "write-only": "true"}
    table = create(tmp_path, NUMBERS, primary_key=[], options=options)
    for start in (0, 40, 80):
        table.append(numbers(range(start, start + 60), f"{start}-"))
    table.delete(pa.table({"k": pa.array(range(30, 90, 2), pa.int64())}))
    table.delete([{"k": 95}, {"k": 31}])
    assert len(rows_of(table)) == 180 - 45 - 3
    assert_all_read_alike(table.location, java, pypaimon, rust)
    table.compact(full=True)
    assert_all_read_alike(table.location, java, pypaimon, rust)
