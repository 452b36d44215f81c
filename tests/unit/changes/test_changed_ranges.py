"""In which ranges of a column's values a commit changed rows, by directories, keys and statistics."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm

KINDS = {"day": pa.date32(), "id": pa.int64(), "at": pa.timestamp("ms"), "name": pa.string()}


def made(at: Path, *, key: str = "day at id", **how: Any) -> lsm.Table:
    named = key.split()
    schema = pa.schema([pa.field(name, kind, name not in named) for name, kind in KINDS.items()])
    options = {"bucket": "1" if named else "-1", "write-only": "true", **how.pop("options", {})}
    return lsm.open_catalog(str(at)).create_table(
        "shop.events", schema, primary_key=named, options=options, **how
    )


def rows(*hours: int | None, day: int = 1, name: str = "x") -> list[dict[str, object]]:
    return [
        {
            "day": date(2024, 1, day),
            "id": number,
            "at": None if hour is None else datetime(2024, 1, day, hour),  # noqa: DTZ001 -- as the column
            "name": name,
        }
        for number, hour in enumerate(hours)
    ]


def ranges(table: lsm.Table, column: str) -> set[tuple[Any, ...]]:
    newest = table.latest_snapshot()
    assert newest is not None
    found = table.changed_ranges(newest.id, column)
    assert found is not None
    return {
        tuple(each.hour if isinstance(each, datetime) else each for each in row.values())
        for row in found.to_pylist()
    }


def test_a_partition_column_has_one_value_per_directory(tmp_path: Path) -> None:
    table = made(tmp_path, partitioned_by=["day"])
    table.upsert(rows(1) + rows(2, day=3))
    days = {date(2024, 1, 1), date(2024, 1, 3)}
    assert {(low, high) for _, low, high in ranges(table, "day")} == {(day, day) for day in days}
    assert {path for path, *_ in ranges(table, "day")} == table.changed_partitions(1)


@pytest.mark.parametrize(
    ("key", "stats"), [("id at", "counts"), ("id at", "full"), ("at id", "none")]
)
def test_a_column_of_the_key_lies_between_the_ends_of_each_file(
    tmp_path: Path, key: str, stats: str
) -> None:
    table = made(tmp_path, key=key, options={"metadata.stats-mode": stats})
    if stats == "counts":
        table.upsert(rows(5, 9))
        assert ranges(table, "at") == {("", None, None)}
        return
    table.upsert(rows(5, 9))
    assert ranges(table, "at") == {("", 5, 9)}
    table.delete([{name: row[name] for name in ("at", "id")} for row in rows(5)])
    assert ranges(table, "at") == {("", 5, 5)}
    table.overwrite(rows(7))
    assert ranges(table, "at") == {("", 5, 9), ("", 5, 5), ("", 7, 7)}
    table.compact(full=True)
    assert ranges(table, "at") == set()


def test_rows_that_are_replaced_may_have_had_any_value_of_another_column(tmp_path: Path) -> None:
    """The row leaves a span, and the file that replaces it has statistics of another."""
    table = made(tmp_path, key="id")
    table.upsert(rows(5))
    table.upsert(rows(9))
    assert ranges(table, "at") == {("", None, None)}


def test_statistics_bound_the_rows_of_append_tables(tmp_path: Path) -> None:
    table = made(tmp_path, key="")
    table.append(rows(5, None, 9))
    assert ranges(table, "at") == {("", 5, 9)}
    assert ranges(table, "name") == {("", "x", "x")}
    table.append(rows(None))
    assert ranges(table, "at") == set()
    table.overwrite(rows(7))
    assert ranges(table, "at") == {("", 5, 9), ("", 7, 7)}
    table.alter(lsm.SetOption("metadata.stats-mode", "none"))
    table.append(rows(5))
    assert ranges(table, "at") == {("", None, None)}


def test_a_column_of_another_name_or_type_since_counts_as_pruning_does(tmp_path: Path) -> None:
    table = made(tmp_path, key="")
    table.append(rows(5))
    table.alter(lsm.RenameColumn("at", "seen"))
    table.alter(lsm.ChangeType("id", pa.string()))
    newest = lsm.open_catalog(str(tmp_path)).table("shop.events")
    assert ranges(newest, "seen") == {("", 5, 5)}
    assert ranges(newest, "id") == {("", None, None)}


@pytest.mark.parametrize("where", ["at", "day"])
def test_rows_deleted_by_vectors_may_have_any_value(tmp_path: Path, where: str) -> None:
    table = made(tmp_path, key="", options={"deletion-vectors.enabled": "true"})
    table.append(rows(5, 9))
    table.delete(where="id = 0")
    newest = table.latest_snapshot()
    assert newest is not None
    found = table.changed_ranges(newest, where)
    assert found is None or any(low is None or low == 5 for _, low, _ in ranges(table, where))
