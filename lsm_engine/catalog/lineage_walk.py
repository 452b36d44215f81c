"""Walks over inputs from snapshot to snapshot, upstream to the sources or downstream to the results.

A snapshot is one commit; its state is the result of all commits up to it. A walk follows either single
commits (the inputs of that commit), or, with `history`, all commits of a state. Commits are followed as
ranges (after, upto], so that a long history is one query.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Select, func, select

from lsm_engine.catalog.models import INPUTS, SNAPSHOTS, TABLES
from lsm_engine.catalog.names import TableName

DEPTH_MAX = 64

Range = tuple[int, int]
"""Snapshot ids (after, upto]."""

WALK_SCHEMA = pa.schema(
    [
        ("depth", pa.int64()),  # 1: one step from where the walk began
        ("table_name", pa.string()),  # what was made,
        ("snapshot_id", pa.int64()),  # by this commit,
        ("dataset", pa.string()),  # from this dataset,
        ("input_snapshot_id", pa.int64()),  # read at this state,
        ("after_snapshot_id", pa.int64()),  # or only the changes after this one
        ("input_version", pa.string()),
        ("role", pa.string()),
        ("run_id", pa.string()),
        ("time_millis", pa.int64()),
    ]
)


class Covered:
    """Visited ranges per dataset: no range is visited twice, and cycles end."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[Range]] = defaultdict(list)

    def add(self, dataset: str, new: Range) -> list[Range]:
        """Return the parts of `new` that are not covered yet, and cover them."""
        parts = [new] if new[0] < new[1] else []
        for after, upto in self._ranges[dataset]:
            parts = [
                part
                for start, end in parts
                for part in ((start, min(end, after)), (max(start, upto), end))
                if part[0] < part[1]
            ]
        self._ranges[dataset] = _joined([*self._ranges[dataset], *parts])
        return parts


def _joined(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for after, upto in sorted(ranges):
        if joined and after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(upto, joined[-1][1]))
        else:
            joined.append((after, upto))
    return joined


class Walk:
    """One walk over the inputs of a catalog, inside a transaction."""

    def __init__(self, connection: Connection, catalog_key: str, *, history: bool) -> None:
        self._connection = connection
        self._history = history
        self._covered = Covered()
        self._names = _table_names(connection, catalog_key)
        self._numbers = {name: number for number, name in self._names.items()}

    def upstream(self, start: TableName, snapshot_id: int, depth_max: int) -> pa.Table:
        """Return the inputs of the snapshot, nearest first."""
        frontier = {start.text: self._covered.add(start.text, self._contents(snapshot_id, None))}
        return self._collect(frontier, depth_max, self._inputs_of, self._above)

    def upstream_of_all(
        self, start: TableName, snapshot_ids: Sequence[int], depth_max: int = DEPTH_MAX
    ) -> pa.Table:
        """Return the inputs of several commits of a table, nearest first."""
        ranges = [part for number in snapshot_ids for part in self._commit(start, number)]
        frontier = {start.text: ranges} if ranges else {}
        return self._collect(frontier, depth_max, self._inputs_of, self._above)

    def _commit(self, start: TableName, snapshot_id: int) -> list[Range]:
        return self._covered.add(start.text, (snapshot_id - 1, snapshot_id))

    def downstream(self, start: TableName, snapshot_id: int, depth_max: int) -> pa.Table:
        """Return the commits that were computed from the snapshot, nearest first."""
        only = (snapshot_id - 1, snapshot_id)
        frontier = {start.text: self._covered.add(start.text, only)}
        return self._collect(frontier, depth_max, self._readers_of, self._below)

    def _collect(self, frontier: Any, depth_max: int, ask: Any, follow: Any) -> pa.Table:
        edges: dict[tuple[Any, ...], dict[str, Any]] = {}
        for depth in range(1, depth_max + 1):
            following: dict[str, list[Range]] = defaultdict(list)
            for dataset, ranges in sorted(frontier.items()):
                for row in ask(dataset, _joined(ranges)):
                    key = (row["table_id"], row["snapshot_id"], row["position"])
                    name = self._names.get(row["table_id"])
                    if key in edges or name is None:
                        continue
                    edges[key] = {**row, "depth": depth, "table_name": name}
                    for next_dataset, part in follow(name, row):
                        following[next_dataset].append(part)
            if not following:
                break
            frontier = following
        return pa.Table.from_pylist(list(edges.values()), schema=WALK_SCHEMA)

    def _contents(self, snapshot_id: int, after: int | None) -> Range:
        """Return the range of commits that a read of `snapshot_id` covers."""
        if after is not None:
            return (after, snapshot_id)
        return (0 if self._history else snapshot_id - 1, snapshot_id)

    def _inputs_of(self, dataset: str, ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
        number = self._numbers.get(dataset)
        if number is None:
            return []
        output_id = INPUTS.c.snapshot_id
        return [
            row
            for after, upto in ranges
            for row in self._rows(
                _edges().where(INPUTS.c.table_id == number, output_id > after, output_id <= upto)
            )
        ]

    def _above(self, _name: str, row: Mapping[str, Any]) -> list[tuple[str, Range]]:
        if row["input_snapshot_id"] is None:
            return []
        read = self._contents(row["input_snapshot_id"], row["after_snapshot_id"])
        parts = self._covered.add(row["dataset"], read)
        return [(row["dataset"], part) for part in parts]

    def _readers_of(self, dataset: str, ranges: Sequence[Range]) -> list[Mapping[str, Any]]:
        read = INPUTS.c.input_snapshot_id
        lowest = 0 if self._history else read - 1
        from_after = func.coalesce(INPUTS.c.after_snapshot_id, lowest)
        return [
            row
            for after, upto in ranges
            for row in self._rows(
                _edges().where(INPUTS.c.dataset == dataset, read > after, from_after < upto)
            )
        ]

    def _below(self, name: str, row: Mapping[str, Any]) -> list[tuple[str, Range]]:
        commit = (row["snapshot_id"] - 1, row["snapshot_id"])
        return [(name, part) for part in self._covered.add(name, commit)]

    def _rows(self, statement: Select[Any]) -> list[Mapping[str, Any]]:
        return [dict(row) for row in self._connection.execute(statement).mappings()]


def _edges() -> Select[Any]:
    same = (SNAPSHOTS.c.table_id == INPUTS.c.table_id) & (
        SNAPSHOTS.c.snapshot_id == INPUTS.c.snapshot_id
    )
    return (
        select(INPUTS, SNAPSHOTS.c.run_id, SNAPSHOTS.c.time_millis)
        .join(SNAPSHOTS, same)
        .order_by(INPUTS.c.table_id, INPUTS.c.snapshot_id.desc(), INPUTS.c.position)
    )


def _table_names(connection: Connection, catalog_key: str) -> dict[int, str]:
    statement = select(TABLES).where(TABLES.c.catalog_key == catalog_key)
    return {
        row["table_id"]: TableName(
            database=row["database_name"], table=row["table_name"], branch=row["branch"]
        ).text
        for row in connection.execute(statement).mappings()
    }
