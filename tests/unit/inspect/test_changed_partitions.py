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


def recorded(catalog: lsm.Catalog, **how: bool) -> dict[int, set[str | None]]:
    found: dict[int, set[str | None]] = {}
    for row in catalog.lineage.commits_of_table(TABLE, after=0, before=100, **how).to_pylist():
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


def test_rows_deleted_by_vectors_are_found_by_the_index_manifest_before(
    catalog: lsm.Catalog,
) -> None:
    """Every commit after the first vector, an append to another partition as well, had changed any."""
    table = catalog.create_table(
        "shop.events",
        SCHEMA,
        partitioned_by=["day"],
        options={"bucket": "-1", "deletion-vectors.enabled": "true"},
    )
    table.append(rows(1, 2))
    assert table.changed_partitions(1) == paths(1, 2)
    table.append(rows(2, 2).set_column(1, "id", pa.array([2, 3])))
    table.delete(where="day = '2024-01-02' AND id = 2")
    table.append(rows(3))
    table.overwrite(rows(1), {"day": date(2024, 1, 1)})
    changed = [table.changed_partitions(number) for number in table.snapshot_ids()]
    assert changed == [paths(1, 2), paths(2), paths(2), paths(3), paths(1)]

    table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 ms", everything=True)
    changed = [table.changed_partitions(number) for number in table.snapshot_ids()]
    assert changed == [None, paths(1)]  # what was before the first of them is gone


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


@pytest.mark.parametrize("compacts_by_itself", [True, False])
@pytest.mark.parametrize(
    "options", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}], ids=str
)
def test_where_level_0_is_not_read_rows_change_once_they_are_taken_up(
    catalog: lsm.Catalog, options: dict[str, str], compacts_by_itself: bool
) -> None:
    table = catalog.create_table(
        "shop.events",
        SCHEMA,
        primary_key=["day", "id"],
        partitioned_by=["day"],
        options={**options, "bucket": "1", "write-only": str(not compacts_by_itself).lower()},
    )
    table.upsert(rows(1, 2))
    table.upsert(rows(2, 3).set_column(2, "n", pa.array([7, 7])))
    if not compacts_by_itself:
        table.compact(partitions=[{"day": date(2024, 1, 3)}])
        table.compact(full=True)
    table.compact(full=True)
    table.overwrite(rows(1).set_column(2, "n", pa.array([9])), {"day": date(2024, 1, 1)})
    table.compact(full=True)

    def seen(snapshot_id: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist():
            found.setdefault(table.partition_path({"day": row["day"]}), []).append(row["n"])
        return found

    states = [{}, *map(seen, table.snapshot_ids())]
    changed = [table.changed_partitions(number) for number in table.snapshot_ids()]
    for before, after, found in zip(states[:-1], states[1:], changed, strict=True):
        differ = {path for path in before | after if before.get(path) != after.get(path)}
        assert found is not None
        assert differ <= found
        # A first row that stays is taken up as well: nobody looks into rows to say what changed.
        assert found == differ or "merge-engine" in options
    assert table.hides_level_0
    assert sum(bool(each) for each in changed) >= 3

    expected = {number: set(each or {None}) for number, each in enumerate(changed, 1)}
    table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 ms", everything=True)
    assert recorded(catalog, hides_level_0=True) == expected
