"""Buffers and streams merge as the model's dictionary does, however rows are cut and spilled."""

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.options.table_options import TableOptions
from lsm_engine.read.buffer import WriteBuffer
from lsm_engine.read.merge import merge_runs
from lsm_engine.storage.local_state import SpillArea
from lsm_engine.table.incoming import conformed, open_rows
from lsm_engine.table.merge_rules import merge_rules
from lsm_engine.types.table_schema import TableSchema
from tests.model.column_kinds import rank, to_plain, to_rows
from tests.model.strategies import arrow_rows, key_pool, picked_rows, picks, shapes
from tests.model.table_model import RETRACTS, Row, Shape, TableModel
from tests.unit.api.test_route import schema_of

KINDS = ("+I", "-U", "+U", "-D")
Rows = list[tuple[str, Row]]


def unpartitioned(shape: Shape) -> Shape:
    """One bucket: partition columns are key columns like others."""
    return Shape(shape.columns, shape.primary_key, (), shape.sequence, shape.sequence_descending)


def table_schema(shape: Shape) -> TableSchema:
    texts = {"bucket": "1"}
    if shape.sequence:
        order = "descending" if shape.sequence_descending else "ascending"
        texts |= {"sequence.field": ",".join(shape.sequence), "sequence.field.sort-order": order}
    plain = schema_of(shape, 1)
    return TableSchema(
        id=0,
        fields=plain.fields,
        highest_field_id=plain.highest_field_id,
        partition_keys=(),
        primary_keys=plain.primary_keys,
        options=TableOptions(texts=texts),
    )


def buffered(shape: Shape, batches: list[Rows], spills: SpillArea, first: int) -> WriteBuffer:
    schema = table_schema(shape)
    buffer = WriteBuffer(schema.key_value_arrow, merge_rules(schema), spills, first)
    for rows in batches:
        for incoming in conformed(open_rows(arrow_rows(shape, rows)), schema):
            buffer.add(incoming.rows, incoming.kinds)
    return buffer


def expected(shape: Shape, rows: Rows, *, drop_deletes: bool) -> list[tuple[Row, str]]:
    """The last version of each key, in key order."""
    model = TableModel(shape)
    model.write(rows)
    last = {key: next(iter(histories))[-1] for key, histories in model.state.items()}
    ordered = sorted(last, key=lambda key: tuple(map(rank, key)))
    found = [(last[key].row, last[key].kind) for key in ordered]
    return [pair for pair in found if not (drop_deletes and pair[1] in RETRACTS)]


def rows_and_kinds(shape: Shape, pieces: list[pa.Table]) -> list[tuple[Row, str]]:
    found = []
    for piece in pieces:
        kinds = [KINDS[kind] for kind in to_plain(piece.column("_VALUE_KIND"))]
        found += list(zip(to_rows(piece, shape.names), kinds, strict=True))
    return found


@given(shape=shapes(), batches=st.lists(picks, min_size=1, max_size=4), spill=st.integers(0, 15))
def test_a_buffer_merges_what_it_took(shape: Shape, batches: list, spill: int) -> None:
    shape = unpartitioned(shape)
    pool = key_pool(shape)
    written = [picked_rows(shape, pool, chosen) for chosen in batches]
    spills = SpillArea()
    try:
        schema = table_schema(shape)
        buffer = WriteBuffer(schema.key_value_arrow, merge_rules(schema), spills, 100)
        for number, rows in enumerate(written):
            for incoming in conformed(open_rows(arrow_rows(shape, rows)), schema):
                buffer.add(incoming.rows, incoming.kinds)
            if spill >> number & 1:
                buffer.spill()
                assert buffer.byte_count == 0
        pieces = list(buffer.merged())
        assert buffer.is_empty
        everything = [row for rows in written for row in rows]
        assert rows_and_kinds(shape, pieces) == expected(shape, everything, drop_deletes=False)
        numbers = [
            number for piece in pieces for number in to_plain(piece.column("_SEQUENCE_NUMBER"))
        ]
        assert buffer.next_sequence_number == 100 + len(everything)
        assert set(numbers) <= set(range(100, buffer.next_sequence_number))
    finally:
        spills.close()


@given(
    shape=shapes(),
    runs=st.lists(picks, min_size=1, max_size=5),
    cut=st.integers(1, 4),
    drop_deletes=st.booleans(),
)
def test_runs_merge_however_they_are_cut(
    shape: Shape, runs: list, cut: int, drop_deletes: bool
) -> None:
    shape = unpartitioned(shape)
    pool = key_pool(shape)
    written = [picked_rows(shape, pool, chosen) for chosen in runs]
    rules = merge_rules(table_schema(shape))
    spills = SpillArea()
    try:
        sources: list[Iterator[pa.RecordBatch]] = []
        first = 0
        for rows in written:
            buffer = buffered(shape, [rows], spills, first)
            (merged,) = buffer.merged()
            first = buffer.next_sequence_number
            sources.append(iter(merged.to_batches(max_chunksize=cut)))
        pieces = list(merge_runs(sources, rules, drop_deletes=drop_deletes))
        everything = [row for rows in written for row in rows]
        assert rows_and_kinds(shape, pieces) == expected(
            shape, everything, drop_deletes=drop_deletes
        )
    finally:
        spills.close()
