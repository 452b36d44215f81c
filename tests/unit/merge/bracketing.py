"""One history, cut into flushes and compactions at random: every cut has to read the same."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.merge_runs import merge_order, sort_order
from lsm_engine.merge.function import MergeFunction, build_merge_function
from lsm_engine.merge.selection import without_deletes
from lsm_engine.merge.sequence import UserSequence
from lsm_engine.options.modes import RowKind
from lsm_engine.options.table_options import foreign_options
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, parse_type
from tests.unit.merge.slow_merge import RETRACTS

SYMBOLS = [kind.symbol for kind in RowKind]


def schema_of(columns: Sequence[tuple[str, Any]], options: dict[str, str]) -> TableSchema:
    fields = tuple(
        DataField(id=at, name=name, type=parse_type(kind))
        for at, (name, kind) in enumerate([("k", "INT NOT NULL"), *columns])
    )
    return TableSchema(
        id=0,
        fields=fields,
        highest_field_id=100,
        partition_keys=(),
        primary_keys=("k",),
        options=foreign_options(options),
    )


def batch_of(schema: TableSchema, rows: Sequence[dict[str, Any]], first: int) -> pa.RecordBatch:
    """Rows hold a `kind` beside the columns; they are numbered from `first`."""
    arrow = schema.key_value_arrow
    columns = [
        pa.array([row[name] for row in rows], arrow.field(name).type) for name in schema.names
    ]
    numbers = pa.array(range(first, first + len(rows)), pa.int64())
    kinds = pa.array([SYMBOLS.index(row["kind"]) for row in rows], pa.int8())
    return pa.RecordBatch.from_arrays([*columns, numbers, kinds], schema=arrow)


class Bucket:
    """The runs of one bucket, newest last, merged as the engine merges them."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.function: MergeFunction = build_merge_function(schema)
        self.sequence = UserSequence.from_schema(schema)
        self.runs: list[pa.Table | pa.RecordBatch] = []
        self.count = 0

    def flush(self, rows: Sequence[dict[str, Any]]) -> None:
        batch = batch_of(self.schema, rows, self.count)
        self.count += len(rows)
        order = sort_order(sort_keys([batch.column("k")]), self.sequence.row_ranks(batch))
        self.runs += self.function.history_layers(order, [batch])

    def merged(self, runs: Sequence[Any], *, drop_deletes: bool) -> pa.Table:
        runs = [run.combine_chunks() if isinstance(run, pa.Table) else run for run in runs]
        order = merge_order(
            [sort_keys([run.column("k")]) for run in runs],
            [self.sequence.row_ranks(run) for run in runs],
        )
        return self.function.merge(order, runs, drop_deletes=drop_deletes)

    def compact(self, newest: int) -> None:
        """Merge the newest runs, or all if retracts among them reach below (MergeFunction)."""
        chosen = self.runs[-newest:]
        any_row = self.function.adds_may_remove
        if self.function.may_need_full_history and (any_row or any(map(_retracts, chosen))):
            chosen = self.runs
        if not chosen:
            return
        whole = len(chosen) == len(self.runs)
        self.runs = [*self.runs[: -len(chosen)], self.merged(chosen, drop_deletes=whole)]

    def read(self) -> dict[int, dict[str, Any]]:
        if not self.runs:
            return {}
        rows = without_deletes(self.merged(self.runs, drop_deletes=True)).to_pylist()
        assert len({row["k"] for row in rows}) == len(rows)
        return {row["k"]: {name: row[name] for name in self.schema.names[1:]} for row in rows}


def _retracts(run: Any) -> bool:
    kinds = run.column("_VALUE_KIND").to_pylist()
    return any(SYMBOLS[kind] in RETRACTS for kind in kinds)


@st.composite
def cuts(draw: st.DrawFn) -> list[tuple[int, int]]:
    """How many rows each flush takes, and how many of the newest runs are then compacted."""
    return draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=8))


def replayed(
    schema: TableSchema, rows: Sequence[dict[str, Any]], plan: Sequence[tuple[int, int]]
) -> dict[int, dict[str, Any]]:
    """Write rows flush by flush, compact in between, and read; what is left is one last flush."""
    bucket, at = Bucket(schema), 0
    for size, newest in plan:
        if rows[at : at + size]:
            bucket.flush(rows[at : at + size])
        at += size
        if newest:
            bucket.compact(newest)
    if rows[at:]:
        bucket.flush(rows[at:])
    return bucket.read()
