"""Rows that have ids: Java 1.4.2 and we take turns on one table, and both read the same ids.

`LSM_NEWEST_JAVA=40` plays so many times as many histories as the sample does.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.ddl.create import create_table
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.warehouse import open_directory
from tests.interop.clients import Client
from tests.interop.newest_java import TIMES, NewestJava

pytestmark = pytest.mark.interop

COLUMNS = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("b", pa.string())])
TRACKED = {"row-tracking.enabled": "true", "write-only": "true", "bucket": "-1"}
EVOLVING = {**TRACKED, "data-evolution.enabled": "true"}
DELETING = {**TRACKED, "deletion-vectors.enabled": "true"}
Row = tuple[Any, ...]


def created(path: Path, options: dict[str, str]) -> str:
    """An empty table of ours."""
    path.mkdir(parents=True)
    create_table(
        open_directory(str(path)), COLUMNS, primary_key=(), partitioned_by=(),
        options=options, comment=None, clock=SystemClock(),
    )  # fmt: skip
    return str(path)


class Turns:
    """One table, and what its rows are to be by id."""

    def __init__(self, path: Path, options: dict[str, str], java: NewestJava, seed: int) -> None:
        self.path, self.java, self.draw = created(path, options), java, random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.next_id = self.next_key = 0
        self.evolves = "data-evolution.enabled" in options
        self.deletes = "deletion-vectors.enabled" in options

    @property
    def table(self) -> lsm.Table:
        return lsm.open_table(self.path)

    def new_rows(self) -> list[Row]:
        rows: list[Row] = []
        for _ in range(self.draw.randint(1, 5)):
            b = self.draw.choice([None, "x", "long " * 5])
            rows.append((self.next_key, self.draw.choice([None, self.next_key % 7]), b))
            self.next_key += 1
        return rows

    def append(self) -> None:
        rows = self.new_rows()
        if self.draw.random() < 0.5:
            columns = list(zip(*rows, strict=True))
            self.table.append(
                pa.table([pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)],
                         schema=COLUMNS)
            )  # fmt: skip
        else:
            self.java.ask("write", path=self.path, rows=[["+I", list(row)] for row in rows])
        for row in rows:
            self.rows[self.next_id] = row
            self.next_id += 1

    def compact(self) -> None:
        if self.draw.random() < 0.5:
            self.table.compact(full=True)
        else:
            self.java.ask("compact_rows", path=self.path)

    def expire(self) -> None:
        if self.draw.random() < 0.5:
            self.table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
        else:
            self.java.ask("expire", path=self.path, max=2)

    def change(self) -> None:
        """Change rows in the way of the table."""
        if not self.rows:
            return
        if self.deletes:
            gone = self.draw.sample(sorted(self.rows), k=min(2, len(self.rows)))
            self.table.delete([{"k": self.rows.pop(number)[0]} for number in gone])
        elif self.evolves:
            self.replace_columns()
        else:
            some = self.draw.sample(sorted(self.rows), k=min(3, len(self.rows)))
            ids = {str(number): f"new {number} {self.next_key}" for number in some}
            self.java.ask("update_rows", path=self.path, ids=ids)
            for number in some:
                self.rows[number] = (*self.rows[number][:2], ids[str(number)])

    def replace_columns(self) -> None:
        entries = self.table.session.live_entries(self.table.latest_snapshot())
        file = self.draw.choice(entries).file
        assert file.first_row_id is not None
        ids = range(file.first_row_id, file.first_row_id + file.row_count)
        names = self.draw.choice([["a"], ["b"], ["b", "a"], ["k", "a", "b"]])
        values = {"k": lambda number: self.rows[number][0], "a": lambda _: self.draw.randint(0, 99),
                  "b": lambda number: f"{number} {self.next_key}"}  # fmt: skip
        made = [[values[name](number) for name in names] for number in ids]
        if self.draw.random() < 0.5:
            some = {"_ROW_ID": list(ids), **dict(zip(names, zip(*made, strict=True), strict=True))}
            self.table.update_columns(pa.table(some))
        else:
            self.java.ask(
                "update_columns", path=self.path, first=file.first_row_id, columns=names, rows=made
            )
        for number, row in zip(ids, made, strict=True):
            changed = dict(zip(COLUMNS.names, self.rows[number], strict=True)) | dict(
                zip(names, row, strict=True)
            )
            self.rows[number] = tuple(changed.values())

    def agree(self) -> None:
        columns = [*COLUMNS.names, "_ROW_ID", "_SEQUENCE_NUMBER"]
        found = self.table.scan(columns=columns).to_arrow()
        ours = sorted(map(list, zip(*found.to_pydict().values(), strict=True)), key=by_id)
        assert {row[3]: tuple(row[:3]) for row in ours} == self.rows
        assert len(ours) == len(self.rows)
        theirs = self.java.ask("tracked", path=self.path)
        assert sorted(theirs, key=by_id) == ours


def by_id(row: list[Any]) -> int:
    return int(row[3])


def play(turns: Turns, count: int) -> None:
    for _ in range(count):
        turn = turns.draw.choices(
            [turns.append, turns.change, turns.compact, turns.expire], [4, 3, 2, 1]
        )[0]
        turn()
        turns.agree()
    problems = turns.table.verify(deep=True).problems
    assert not problems
    where = lsm.col("a") >= 3
    found = turns.table.scan(columns=["_ROW_ID"], where=where).to_arrow().column(0).to_pylist()
    assert sorted(found) == sorted(i for i, r in turns.rows.items() if (r[1] or 0) >= 3)


@pytest.mark.parametrize(
    "options", [TRACKED, EVOLVING, DELETING], ids=["ids", "columns", "vectors"]
)
def test_java_and_we_take_turns_and_row_ids_stay(
    options: dict[str, str],
    tmp_path: Path,
    java_2: NewestJava,
) -> None:
    for seed in range(TIMES):
        play(Turns(tmp_path / f"t{seed}", options, java_2, seed), 14 if TIMES > 1 else 9)


@pytest.mark.parametrize("options", [TRACKED, EVOLVING], ids=["ids", "columns"])
def test_pypaimon_reads_the_same_ids_and_gives_the_next(
    options: dict[str, str], tmp_path: Path, pypaimon: Client
) -> None:
    path = created(tmp_path / "t", options)
    rows = [pa.table([[k, k + 1], pa.array([k, None], pa.int32()), ["x", "y"]], schema=COLUMNS)
            for k in (0, 2, 4)]  # fmt: skip
    for some in rows:
        lsm.open_table(path).append(some)
    if options is EVOLVING:
        lsm.open_table(path).update_columns([{"_ROW_ID": 1, "b": "new"}])
    lsm.open_table(path).compact(full=True)
    pypaimon.write(path, rows[0])
    lsm.open_table(path).append(rows[1])
    if options is EVOLVING:
        lsm.open_table(path).update_columns([{"_ROW_ID": 6, "a": 60}, {"_ROW_ID": 9, "a": 90}])
    names = ["k", "a", "b", "_ROW_ID", "_SEQUENCE_NUMBER"]
    ours = lsm.open_table(path).scan(columns=names).to_arrow()
    theirs = pypaimon.read(path, columns=names)
    assert theirs.select(names).cast(ours.schema).sort_by("_ROW_ID") == ours.sort_by("_ROW_ID")
    assert sorted(ours.column("_ROW_ID").to_pylist()) == list(range(10))
