"""Random turns on tables whose rows have ids: every row keeps its own; and ids that cannot be."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.format.manifest_file import encode_manifest
from tests.foreign_documents import forget_checksums
from tests.unit.dml.test_row_ids import (
    DELETING,
    EVOLVING,
    TRACKED,
    by_id,
    catalog,
    made,
    rows,
    sound,
)

__all__ = ["catalog"]


class Model:
    """Random turns on one table, and what its rows are to be by id."""

    def __init__(self, table: lsm.Table, seed: int) -> None:
        self.table, self.draw = table, random.Random(seed)
        self.evolves = table.schema.evolves_data
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.states: dict[int, dict[int, tuple[Any, ...]]] = {}
        self.next_id = self.next_key = 0

    def append(self) -> None:
        for part in self.draw.sample("xy", k=self.draw.randint(1, 2)):
            numbers = range(self.next_key, self.next_key + self.draw.randint(1, 4))
            self.next_key = numbers.stop
            self.table.append(rows(*numbers, partition=part))
            for number in numbers:
                self.rows[self.next_id] = (part, number, f"v{number}")
                self.next_id += 1

    def change(self) -> None:
        some = self.draw.sample(sorted(self.rows), k=min(len(self.rows), self.draw.randint(1, 3)))
        if not some:
            return
        if not self.evolves:
            self.table.delete([{"a": self.rows.pop(number)[1]} for number in some])
            return
        name = self.draw.choice(["a", "v", "both"])
        new = {n: (n * 10 + self.next_key, f"{self.next_key}") for n in some}
        columns = {"a": [new[n][0] for n in some], "v": [new[n][1] for n in some]}
        given = {"_ROW_ID": some, **{k: v for k, v in columns.items() if name in (k, "both")}}
        self.table.update_columns(pa.table(given))
        for number in some:
            part, a, v = self.rows[number]
            a, v = (new[number][0] if "a" in given else a), (new[number][1] if "v" in given else v)
            self.rows[number] = (part, a, v)

    def compact(self) -> None:
        self.table.compact(full=self.draw.random() < 0.5)

    def go_back(self) -> None:
        kept = [one.id for one in self.table.snapshots() if one.id in self.states]
        if kept:
            at = self.draw.choice(kept)
            self.table.rollback_to_as_latest(at)
            self.rows = dict(self.states[at])

    def expire(self) -> None:
        self.table.expire_snapshots(retain_max=4, retain_min=3)

    def check(self) -> None:
        assert {number: row[:3] for number, row in by_id(self.table).items()} == self.rows
        newest = self.table.latest_snapshot()
        if newest is not None:
            assert newest.next_row_id == self.next_id
            self.states[newest.id] = dict(self.rows)
            low = self.draw.randint(0, 40)
            found = by_id(self.table, where=(lsm.col("a") >= low) & (lsm.col("v") > "v1"))
            assert set(found) == {n for n, r in self.rows.items() if r[1] >= low and r[2] > "v1"}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [EVOLVING, DELETING], ids=["columns", "vectors"])
def test_random_turns_keep_every_id(
    catalog: lsm.Catalog,
    options: dict[str, str],
    seed: int,
) -> None:
    model = Model(made(catalog, options), seed)
    turns = [model.append, model.change, model.compact, model.go_back, model.expire]
    for _ in range(16):
        model.draw.choices(turns, [4, 4, 2, 1, 1])[0]()
        model.check()
    sound(model.table)


def falsified(table: lsm.Table, snapshot_id: int, **facts: Any) -> None:
    """Change what the manifest of a snapshot's new files records of them."""
    disk, session = table.session.file_io, table.session
    forget_checksums(disk)
    snapshot = session.snapshots.load(snapshot_id)
    (meta,) = session.manifests.read_list(snapshot.delta_manifest_list)
    entries = session.manifests.read_entries(meta)
    changed = [replace(entry, file=replace(entry.file, **facts)) for entry in entries]
    path = Path(table.location) / "manifest" / meta.file_name
    path.write_bytes(encode_manifest(changed))


@pytest.mark.parametrize(("options", "facts", "said"), [
    (TRACKED, {"first_row_id": 0}, "given twice"),
    (TRACKED, {"first_row_id": 7}, "nextRowId is 4"),
    (TRACKED, {"first_row_id": None}, "no row ids"),
    (EVOLVING, {"first_row_id": 1}, "and not all of them"),
    (EVOLVING, {"first_row_id": None}, "no row ids"),
])  # fmt: skip
def test_verify_lists_ids_that_cannot_be(
    catalog: lsm.Catalog,
    options: dict[str, str],
    facts: dict[str, Any],
    said: str,
) -> None:
    table = made(catalog, options, rows(1, 2), rows(3, 4))
    falsified(table, 2, **facts)
    problems = lsm.open_table(table.location).verify().problems
    assert problems
    assert any(said in problem for problem in problems)


def test_verify_finds_an_id_that_two_files_store(
    catalog: lsm.Catalog,
) -> None:
    table = made(catalog, TRACKED, rows(1), rows(2))
    table.compact(full=True)
    table.append(rows(3))
    falsified(table, 4, first_row_id=1)
    again = lsm.open_table(table.location)
    assert any("given twice" in one for one in again.verify(deep=True).problems)
