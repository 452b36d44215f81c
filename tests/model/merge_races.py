"""Histories of MERGE beside other writers on one table, replayed one commit after the other on a dictionary.

Every commit of a MERGE, upsert or delete has to be what its operation makes of the state just before it: then
the history is as if one had come after the other. What a MERGE counted is compared too.
"""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsm_engine.api.table import Table
from lsm_engine.format.commit_message import WriteResult
from lsm_engine.format.snapshot import RowCounts, row_counts_of

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
IDS = 24
Row = tuple[int | None, str | None]
State = dict[int, Row]
Test = Callable[[Row, Row], bool]
Change = Callable[[Row, Row], Row]


def _less(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one < other


NONE: Row = (None, None)
CONDITIONS: tuple[tuple[str | None, Test], ...] = (
    (None, lambda _, __: True),
    ("source.n > 10", lambda _, theirs: _less(10, theirs[0])),
    ("source.n > target.n", lambda mine, theirs: _less(mine[0], theirs[0])),
    ("target.n IS NULL", lambda mine, _: mine[0] is None),
    ("source.text = 'x' OR target.n < 20", lambda mine, theirs: theirs[1] == "x" or _less(mine[0], 20)),
)  # fmt: skip
UPDATES: tuple[tuple[dict[str, Any] | None, Change], ...] = (
    (None, lambda _, theirs: theirs),  # all columns
    ({"n": "coalesce(target.n, 0) + 1"}, lambda mine, _: ((mine[0] or 0) + 1, mine[1])),
    (
        {"n": "target.n + source.n", "text": "source.text"},
        lambda mine, theirs: (
            None if None in (mine[0], theirs[0]) else mine[0] + theirs[0],
            theirs[1],
        ),
    ),
)
OF_SOURCE: tuple[tuple[str | None, Test], ...] = (
    (None, lambda _, __: True),
    ("source.n > 10", lambda _, theirs: _less(10, theirs[0])),
)
OF_TARGET: tuple[tuple[str, Test], ...] = (
    ("n < 5", lambda mine, _: _less(mine[0], 5)),
    ("text = 'y'", lambda mine, _: mine[1] == "y"),
)


@dataclass
class Clause:
    """One clause: what it is for, when it holds, what it makes of a row (None: no row)."""

    kind: str
    condition: tuple[str | None, Test]
    update: tuple[dict[str, Any] | None, Change] | None

    def add_to(self, merge: Any) -> Any:
        """The builder with this clause."""
        where = self.condition[0]
        if self.update is None:
            return getattr(merge, f"when_{self.kind}_delete")(where=where)
        values = self.update[0]
        if self.kind == "not_matched":
            return merge.when_not_matched_insert_all(where=where)
        if values is None:
            return merge.when_matched_update_all(where=where)
        return getattr(merge, f"when_{self.kind}_update")(values, where=where)


def some_rows(chance: random.Random, count: int) -> State:
    """Rows with distinct keys, nulls among their values."""
    ids = chance.sample(range(IDS), count)
    return {each: (chance.choice([None, chance.randrange(40)]), chance.choice("xyz")) for each in ids}  # fmt: skip


def as_arrow(rows: State) -> pa.Table:
    """Rows as a source."""
    found = [{"id": each, "n": n, "text": text} for each, (n, text) in rows.items()]
    return pa.Table.from_pylist(found, schema=COLUMNS)


class Operation:
    """An upsert, a delete by key, or a MERGE, with what it does to a state."""

    def __init__(self, chance: random.Random) -> None:
        self.kind = chance.choice(["merge", "merge", "merge", "by rows", "upsert", "delete"])
        self.rows = some_rows(chance, chance.randrange(1, 12))
        self.result: WriteResult | None = None
        self.clauses: list[Clause] = []
        if self.kind == "by rows":  # DELETE or UPDATE with a condition: a MERGE without a source
            update = chance.choice([None, UPDATES[1]])
            self.clauses.append(Clause("not_matched_by_source", chance.choice(OF_TARGET), update))
            self.rows = {}
            return
        for _ in range(chance.randrange(1, 4)):
            update = chance.choice([None, *UPDATES])
            self.clauses.append(Clause("matched", chance.choice(CONDITIONS), update))
        if chance.random() < 0.7:
            self.clauses.append(Clause("not_matched", chance.choice(OF_SOURCE), UPDATES[0]))
        if chance.random() < 0.3:
            update = chance.choice([None, UPDATES[1]])
            self.clauses.append(Clause("not_matched_by_source", chance.choice(OF_TARGET), update))

    def run(self, table: Table, merging: Callable[[Table, pa.Table], Any]) -> None:
        """Do it on a table."""
        source = as_arrow(self.rows)
        if self.kind == "upsert":
            self.result = table.upsert(source)
        elif self.kind == "delete":
            self.result = table.delete(source.select(["id"]))
        elif self.kind == "by rows":
            (clause,) = self.clauses
            where, values = clause.condition[0], clause.update and clause.update[0]
            self.result = (
                table.update(set=values, where=where) if values else table.delete(where=where)
            )
        else:
            merge = merging(table, source)
            for clause in self.clauses:
                merge = clause.add_to(merge)
            self.result = merge.execute()

    def applied(self, state: Mapping[int, Row]) -> tuple[State, RowCounts]:
        """The state after it, and what a MERGE would count."""
        after = dict(state)
        if self.kind == "upsert":
            return after | self.rows, RowCounts()
        if self.kind == "delete":
            return {key: row for key, row in after.items() if key not in self.rows}, RowCounts()
        counts = {"inserted": 0, "updated": 0, "deleted": 0}
        for key in state.keys() | self.rows.keys():
            mine, theirs = state.get(key), self.rows.get(key)
            kind = "matched" if None not in (mine, theirs) else "not_matched"
            kind = "not_matched_by_source" if theirs is None else kind
            for clause in self.clauses:
                if clause.kind != kind or not clause.condition[1](mine or NONE, theirs or NONE):
                    continue
                if clause.update is None:
                    del after[key]
                    counts["deleted"] += 1
                else:
                    after[key] = clause.update[1](mine or NONE, theirs or NONE)
                    counts["updated" if mine is not None else "inserted"] += 1
                break
        return after, RowCounts(**counts)


def state_of(table: Table, snapshot_id: int) -> State:
    """The rows of a snapshot."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
    return {row["id"]: (row["n"], row["text"]) for row in found}


def race(
    tables: list[Table],
    seed: int,
    operations: int,
    merging: Callable[[Table, pa.Table], Any],
    *,
    hides_new: bool = False,
) -> int:
    """Let a writer a table (all of one place) do operations at once, then replay; how many committed.

    `hides_new`: readers see rows once they are compacted, so that states are compared at the end only.
    """
    chance = random.Random(seed)
    state = some_rows(chance, 16)
    tables[0].upsert(as_arrow(state))
    todo = [[Operation(chance) for _ in range(operations)] for _ in tables]
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(tables))

    def write(table: Table, mine: list[Operation]) -> None:
        try:
            barrier.wait()
            for each in mine:
                each.run(table, merging)
        except BaseException as error:  # noqa: BLE001 -- raised by the caller
            failures.append(error)

    threads = [threading.Thread(target=write, args=pair) for pair in zip(tables, todo, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    every = [each for mine in todo for each in mine]
    by_id = {each.result.id: each for each in every if each.result is not None}
    assert len(by_id) == sum(each.result is not None for each in every), "two had one snapshot"
    for snapshot in tables[0].snapshots()[1:]:
        operation = by_id.pop(snapshot.id, None)
        found = state_of(tables[0], snapshot.id)
        if operation is None:
            assert snapshot.commit_kind.value == "COMPACT", snapshot
        else:
            state, counts = operation.applied(state)
            if operation.kind in ("merge", "by rows"):
                assert row_counts_of(snapshot.properties) == counts, (seed, snapshot.id)
        assert hides_new or found == state, (seed, snapshot.id)
    tables[0].compact(full=True)
    assert state_of(tables[0], tables[0].latest_snapshot().id) == state, seed
    assert not by_id, "commits that no snapshot shows"
    return sum(each.result is not None for each in every)
