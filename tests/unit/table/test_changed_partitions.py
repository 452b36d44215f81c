"""Which partitions a commit changed, asked of the table while it is there and of the lineage after."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import InvalidInputError

SCHEMA = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
    ]
)
TABLE = lsm.TableName.parse("shop.events")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lsm.open_catalog(url, warehouse=str(tmp_path / "lake")) as opened:
        opened.create_database("shop")
        yield opened


def rows(*days: int) -> pa.Table:
    return pa.table(
        {"day": [date(2024, 1, day) for day in days], "id": [1] * len(days), "n": [1] * len(days)},
        schema=SCHEMA,
    )


def paths(*days: int) -> frozenset[str]:
    return frozenset(f"day={(date(2024, 1, day) - date(1970, 1, 1)).days}" for day in days)


def recorded(catalog: lsm.Catalog) -> dict[int, set[str | None]]:
    found: dict[int, set[str | None]] = {}
    for row in catalog.lineage.commits_of_table(TABLE, after=0, before=100).to_pylist():
        found.setdefault(row["snapshot_id"], set()).add(row["partition_path"])
    return found


def test_each_kind_of_commit(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "shop.events",
        SCHEMA,
        primary_key=["day", "id"],
        partitioned_by=["day"],
        options={"bucket": "1", "write-only": "true"},
    )
    table.upsert(rows(1, 2, 3))
    table.upsert(rows(2))
    table.compact(full=True)
    table.delete(rows(3).select(["day", "id"]))
    table.overwrite(rows(1), {"day": date(2024, 1, 1)})
    expected = [paths(1, 2, 3), paths(2), frozenset(), paths(3), paths(1)]
    assert [table.changed_partitions(number) for number in range(1, 6)] == expected
    assert table.changed_partitions(table.snapshot(2)) == paths(2)

    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)
    assert table.snapshot_ids() == [5]
    assert recorded(catalog) == {
        number: set(changed) or {None} for number, changed in enumerate(expected, 1)
    }
    some = catalog.lineage.commits_of_table(TABLE, after=1, before=4)
    assert some.column("snapshot_id").to_pylist() == [2, 3]
    assert some.column("commit_kind").to_pylist() == ["APPEND", "COMPACT"]


def test_a_table_without_partitions_is_one(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "shop.events", SCHEMA, primary_key=["day", "id"], options={"bucket": "1"}
    )
    table.upsert(rows(1))
    assert table.changed_partitions(1) == {""}
    assert recorded(catalog) == {1: {""}}
    assert table.partition_path({}) == ""


def test_rows_deleted_by_vectors_alone_may_lie_anywhere(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "shop.events",
        SCHEMA,
        partitioned_by=["day"],
        options={"bucket": "-1", "deletion-vectors.enabled": "true"},
    )
    table.append(rows(1, 2))
    assert table.changed_partitions(1) == paths(1, 2)
    table.delete(where=lsm.col("day") == date(2024, 1, 2))
    deleted = table.latest_snapshot()
    assert deleted is not None
    changed = table.changed_partitions(deleted)
    assert changed is None or paths(2) <= changed


def test_a_partition_is_named_by_its_values(catalog: lsm.Catalog) -> None:
    table = catalog.create_table(
        "shop.events",
        SCHEMA,
        primary_key=["day", "id"],
        partitioned_by=["day"],
        options={"bucket": "1"},
    )
    (path,) = paths(2)
    for value in (date(2024, 1, 2), "2024-01-02"):
        assert table.partition_path({"day": value}) == path
    for wrong in ({}, {"id": 1}, {"day": "2024-01-02", "id": 1}, {"day": "no day"}):
        with pytest.raises(InvalidInputError):
            table.partition_path(wrong)
