"""A key of a table with a long history: who wrote it is found in few reads, and the same as from all deltas."""

from collections import Counter
from itertools import product

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.inspect import explain
from lsm_engine.storage.local import LocalFileIO

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
KEEP = {"snapshot.num-retained.min": "9999", "snapshot.num-retained.max": "9999"}
NUMBERS = (0, 3, 11, 100, 130, 159)
ORIGINS = ["_snapshot_id", "_file_snapshot_id", "_sequence_number", "n"]


@pytest.fixture
def read_files(monkeypatch) -> Counter:
    """How often files were read, by their first folder."""
    counts: Counter[str] = Counter()
    read = LocalFileIO.read

    def counted(self, path, *span, **more):
        counts[path.partition("/")[0]] += 1
        return read(self, path, *span, **more)

    monkeypatch.setattr(LocalFileIO, "read", counted)
    return counts


@pytest.fixture(params=["deduplicate", "aggregation", "vectors", "partitions"])
def table(request, tmp_path) -> lsm.Table:
    """60 commits of 12 keys, compactions, a delete, a restored state and commits after it."""
    more = {
        "deduplicate": {},
        "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        "vectors": {"deletion-vectors.enabled": "true"},
        "partitions": {"bucket": "3"},
    }[request.param]
    catalog = lsm.open_catalog(tmp_path)
    columns = COLUMNS
    if request.param == "partitions":
        columns = columns.append(pa.field("day", pa.string()))
    by_day = request.param == "partitions"
    table = catalog.create_table(
        "db.t", columns, primary_key=["id", "day"] if by_day else "id",
        partitioned_by="day" if by_day else (), options={"bucket": "1", **KEEP, **more},
    )  # fmt: skip
    day = {"day": "mon"} if by_day else {}
    for at in range(60):
        table.upsert([{"id": at % 12, "n": at, **day}, {"id": 100 + at, "n": at, **day}])
        if at == 30:
            if request.param != "aggregation":
                table.delete([{"id": 3, **day}])
            table.compact(full=True)
        if at == 45:
            table.rollback_to_as_latest(40)
    yield table
    catalog.close()


def key_of(table: lsm.Table, number: int) -> dict[str, object]:
    return {"id": number, **({"day": "mon"} if table.schema.partition_keys else {})}


def test_bisection_finds_what_all_deltas_say(table, monkeypatch) -> None:
    newest = table.latest_snapshot().id
    for number, at in product(NUMBERS, (newest, newest - 1, newest // 2)):
        key = key_of(table, number)
        by_deltas = table.explain_key(key, snapshot_id=at).versions.select(ORIGINS).to_pylist()
        with monkeypatch.context() as patched:
            patched.setattr(explain, "BISECTED_FROM", 2)
            patched.setattr(explain, "_by_all_deltas", None)  # nothing is left to it
            found = table.explain_key(key, snapshot_id=at).versions.select(ORIGINS).to_pylist()
        for version, known in zip(found, by_deltas, strict=True):
            if known["_snapshot_id"] is None:  # after the rollback two commits took the number
                written = table.changelog(version["_snapshot_id"] - 1, version["_snapshot_id"])
                rows = written.select(["id", "n"]).to_pylist()
                assert {"id": number, "n": version["n"]} in rows
                known["_snapshot_id"] = version["_snapshot_id"]
            assert version == known


def test_a_long_history_is_not_read_through(tmp_path, read_files) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        made = catalog.create_table(
            "db.t", COLUMNS, primary_key="id", options={"bucket": "1", **KEEP}
        )
        table = lsm.open_table(made.location)
        for at in range(300):
            table.upsert([{"id": at % 50, "n": at}])
        table = lsm.open_table(made.location)
        newest = table.latest_snapshot().id
        assert newest > 300
        read_files.clear()
        (version,) = table.explain_key({"id": 7}).versions.to_pylist()
        assert version["n"] == 257
        assert table.explain_key({"id": 7}, snapshot_id=version["_snapshot_id"]).row["n"] == 257
        before = table.explain_key({"id": 7}, snapshot_id=version["_snapshot_id"] - 1).row
        assert before["n"] == 207
        # Three times ten steps over 300 snapshots, each with its base; all deltas would be three files of
        # each.
        assert read_files["snapshot"] < 200, read_files
        assert read_files["manifest"] < 600, read_files


def test_what_expiry_took_is_not_known(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(explain, "BISECTED_FROM", 2)
    with lsm.open_catalog(tmp_path) as catalog:
        table = catalog.create_table(
            "db.t", COLUMNS, primary_key="id", options={"bucket": "1", "write-only": "true", **KEEP}
        )
        table.upsert([{"id": 1, "n": 1}])
        for at in range(20):
            table.upsert([{"id": 2, "n": at}])
        table.compact(full=True)
        for at in range(5):
            table.upsert([{"id": 3, "n": at}])
        table.expire_snapshots(retain_min=4, retain_max=4, older_than="0 s")
        (version,) = table.explain_key({"id": 1}).versions.to_pylist()
        assert (version["_snapshot_id"], version["_file_snapshot_id"]) == (None, None)
        (third,) = table.explain_key({"id": 3}).versions.to_pylist()[-1:]
        assert third["_snapshot_id"] == table.latest_snapshot().id
