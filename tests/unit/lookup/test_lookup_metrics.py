"""Keys that each lookup file was asked for, and keys that it had."""

from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])


def made(folder: Any, **options: str) -> lsm.Table:
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=str(folder)) as catalog:
        table = catalog.create_table(
            "db.t", COLUMNS, primary_key=["k"], options={"bucket": "1", **options}
        )
    return lsm.open_table(table.location)


def rows(keys: Any, value: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value] * len(keys)}, schema=COLUMNS)


def counts(table: lsm.Table, used_by: str = "lookup") -> list[tuple[int, int, str | None]]:
    return sorted(
        (row["request_count"], row["hit_count"], row["removal_cause"])
        for row in table.lookup_metrics().to_pylist()
        if row["used_by"] == used_by
    )


@pytest.mark.parametrize("kind", ["columnar", "sort", "hash"])
def test_batches_count_per_file_newest_first(tmp_path, kind: str) -> None:
    table = made(tmp_path, **{"write-only": "true", "lookup.local-file-type": kind})
    assert table.lookup_metrics().num_rows == 0
    table.upsert(rows(range(100), 1))
    table.upsert(rows(range(50, 60), 2))
    found = table.lookup([{"k": key} for key in [55, 56, 1, 2, 999, 55]])
    assert found["v"].to_pylist() == [2, 2, 1, 1, None, 2]
    # The newer file is within reach of 55 and 56 (55 twice) alone; 999 is beyond both.
    assert counts(table) == [(2, 2, None), (3, 3, None)]
    table.lookup([{"k": 57}, {"k": 70}])
    assert counts(table) == [(3, 3, None), (4, 4, None)]
    assert sum(row["file_size_in_bytes"] for row in table.lookup_metrics().to_pylist()) > 0


def test_single_lookups_are_counted_as_well(tmp_path) -> None:
    table = made(tmp_path, **{"write-only": "true"})
    table.upsert(rows(range(0, 100, 2), 1))
    table.upsert(rows(range(40, 60, 2), 2))
    with table.query() as query:
        for key in (40, 50, 51, 2):
            query.get({"k": key})
        # 51 is in reach of both and in neither.
        assert counts(table) == [(2, 1, None), (3, 2, None)]
    assert [cause for *_, cause in counts(table)] == ["explicit", "explicit"]


def test_files_that_leave_keep_their_counts_and_why_they_left(tmp_path) -> None:
    table = made(tmp_path, **{"write-only": "true"})
    table.upsert(rows(range(10), 1))
    table.lookup([{"k": 3}, {"k": 4}])
    lsm.open_table(table.location).alter(lsm.SetOption(key="write-only", value="false"))
    lsm.open_table(table.location).upsert(rows(range(5), 2))
    lsm.open_table(table.location).compact(full=True)
    assert table.lookup([{"k": 3}])["v"].to_pylist() == [2]
    assert counts(table) == [(1, 1, None), (2, 2, "explicit")]


def test_lookups_of_compactions_are_told_apart(tmp_path) -> None:
    table = made(tmp_path, **{"changelog-producer": "lookup"})
    table.upsert(rows(range(1000), 1))
    table.upsert(rows([3, 4, 5000], 2))
    assert counts(table) == []
    requests, hits = map(sum, list(zip(*counts(table, "compaction"), strict=True))[:2])
    assert requests >= hits >= 2
