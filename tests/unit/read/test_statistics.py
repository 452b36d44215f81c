"""Statistics that ANALYZE of other clients leaves beside a snapshot: shown, and verified."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.table.history_tables import Story

PATH = "statistics/stat-0"


def analysed(**changed: Any) -> Story:
    """A table as Spark's ANALYZE leaves it: the newest snapshot names a file of statistics."""
    told = Story()
    told.put(k1="a", k2="b")
    told.put(k3="c")
    column = {"colId": 1, "distinctCount": 3, "min": "a", "max": "c", "nullCount": 0, "maxLen": 1}
    members = {
        "snapshotId": 2,
        "schemaId": 0,
        "mergedRecordCount": 3,
        "mergedRecordSize": 100,
        "colStats": {"v": column},
    }
    told.disk.write_new(PATH, json.dumps({**members, **changed}).encode())
    snapshots = told.table.session.snapshots
    newest = snapshots.latest()
    snapshots.delete(newest.id)
    assert snapshots.publish(replace(newest, statistics="stat-0"))
    return told


def test_sound_statistics_are_clean_and_are_carried_on() -> None:
    told = analysed()
    told.put(k4="d")
    told.table.create_tag("kept")
    assert told.table.latest_snapshot().statistics == "stat-0"
    assert told.reopened().verify(deep=True).problems == ()


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"snapshotId": 9}, "of snapshot 9, which is newer"),
        ({"snapshotId": None}, "snapshotId"),
        ({"schemaId": 7}, "of schema 7"),
        ({"mergedRecordCount": -3}, "mergedRecordCount"),
        ({"colStats": {"gone": {"nullCount": 0}}}, "'gone', which schema 0 does not have"),
        ({"colStats": {"v": {"nullCount": 4}}}, "4 nulls of column 'v' in 3 rows"),
        ({"colStats": {"v": {"nullCount": -1}}}, "nullCount"),
        ({"colStats": {"v": 3}}, "colStats"),
        ({"colStats": []}, "colStats"),
    ],
)
def test_statistics_that_do_not_fit_are_listed_and_rows_are_read(
    changed: dict[str, Any], found: str
) -> None:
    told = analysed(**changed)
    (problem,) = told.reopened().verify().problems
    assert found in problem
    assert PATH in problem
    assert told.rows() == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("damage", ["missing", "cut", "no json", "of another kind"])
def test_damaged_statistics_are_listed_once_for_each_root(damage: str) -> None:
    told = analysed()
    told.table.create_tag("kept")
    data = told.disk.read(PATH)
    if damage == "missing":
        told.disk.delete(PATH)
    else:
        schema = told.disk.read("schema/schema-0")
        others = {"cut": data[:-9], "no json": b"\0" * 30, "of another kind": schema}
        told.disk.replace(PATH, others[damage])
    report = told.reopened().verify()
    assert [problem.partition(":")[0] for problem in report.problems] == [
        "snapshot 2",
        "tag 'kept'",
    ]
    (file,) = report.damaged_files
    assert (file.path, file.snapshots, file.tags) == (PATH, (2,), ("kept",))
    assert told.rows() == {1: "a", 2: "b", 3: "c"}
