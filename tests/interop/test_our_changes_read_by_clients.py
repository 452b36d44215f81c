"""Deletion vectors and changelogs that this engine writes, read by every client that can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.interop.canonical import canonical_rows, difference
from tests.interop.clients import Client
from tests.interop.fixture_tables import READERS
from tests.interop.our_tables import create, rows_of

pytestmark = pytest.mark.interop
COLUMNS = [("k", pa.int32()), ("v", pa.string()), ("n", pa.int64())]
VECTORS = {
    "deletion-vectors.enabled": "true",
    "bucket": "2",
    "num-sorted-run.compaction-trigger": "3",
}


def rows(keys: Any, shift: int) -> pa.Table:
    numbers = np.asarray(keys, np.int32)
    return pa.table(
        {
            "k": numbers,
            "v": [f"v{key}-{shift}" for key in keys],
            "n": numbers.astype(np.int64) + shift,
        }
    )


def marked(warehouse: Path, **options: str) -> lsm.Table:
    """Rows replaced, deleted and put back, so that files of several levels have vectors."""
    table = create(warehouse, COLUMNS, primary_key=["k"], options={**VECTORS, **options})
    table.upsert(rows(range(3000), 0))
    table.compact(full=True)
    table.upsert(rows(range(0, 3000, 7), 1))
    table.delete(rows(range(0, 3000, 11), 2))
    table.create_tag("marked")
    table.upsert(rows([0, 7, 11, 22, 2999, 5000], 3))
    assert any(split.vectors for split in table.scan().splits())
    table.create_tag("more marked")
    # Nothing is marked any more: the index manifest is there, and holds nothing.
    table.compact(full=True)
    assert not any(split.vectors for split in table.scan().splits())
    return table


def spread(warehouse: Path) -> lsm.Table:
    """Vectors with runs of rows, single rows, and nearly all rows of a file."""
    table = create(warehouse, COLUMNS, primary_key=["k"], options={**VECTORS, "bucket": "1"})
    table.upsert(rows(range(70_000), 0))
    table.compact(full=True)
    table.delete(rows(range(100, 69_000), 1))
    table.upsert(rows([50, 65_536, 69_999], 2))
    return table


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("story", [marked, pytest.param(spread, marks=pytest.mark.interop_full)])
def test_rows_without_deleted_ones(
    name: str, story: Callable[[Path], lsm.Table], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    table = story(tmp_path)
    for snapshot in table.snapshots():
        got = client.read_rows(table.location, snapshot_id=snapshot.id)
        wanted = rows_of(table, snapshot_id=snapshot.id)
        assert (snapshot.id, difference(got, wanted)) == (snapshot.id, "")
    for tag in table.tags():
        got = client.read_rows(table.location, tag=tag.name)
        assert difference(got, rows_of(table, tag=tag.name)) == ""
    assert table.verify().problems == ()


def test_wide_vectors_are_read_by_who_can(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    client: Client = request.getfixturevalue("rust")
    table = marked(tmp_path, **{"deletion-vectors.bitmap64": "true"})
    for tag in table.tags():
        got = client.read_rows(table.location, tag=tag.name)
        assert difference(got, rows_of(table, tag=tag.name)) == ""


def told(table: lsm.Table, snapshot_id: int, mode: str) -> list[list[Any]]:
    found = table.changelog(snapshot_id - 1, snapshot_id, mode=mode)
    changed = canonical_rows(found.drop_columns(["_snapshot_id", "_row_kind"]))
    return [list(one) for one in zip(found["_row_kind"].to_pylist(), changed, strict=True)]


@pytest.mark.parametrize("name", ["java", "rust"])
def test_changes_of_every_snapshot(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    client: Client = request.getfixturevalue(name)
    options = {"changelog-producer": "input", "bucket": "2"}
    table = create(tmp_path, COLUMNS, primary_key=["k"], options=options)
    kinds = ["+I", "-U", "+U", "-D"]
    table.upsert(rows(range(40), 0))
    pairs = rows([key for key in range(20) for _ in range(2)], 1)
    table.upsert(pairs.append_column("_row_kind", [kinds[1:3] * 20]))
    table.delete(rows(range(30, 50), 2))
    table.compact(full=True)
    table.upsert(rows([1, 1, 1], 3))
    for snapshot in table.snapshots():
        for mode in ("changelog", "delta"):
            if snapshot.commit_kind.value == "COMPACT" and mode == "delta":
                continue  # what a compaction rewrote is no change
            got = client.changes(table.location, snapshot.id, mode)
            assert (snapshot.id, mode, difference(got, told(table, snapshot.id, mode))) == (
                snapshot.id, mode, "",
            )  # fmt: skip
