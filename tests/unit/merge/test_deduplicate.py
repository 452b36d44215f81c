"""Deduplicate against a dict: the newest row of each key, whole, deletes included until dropped."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.kernels.groups import last_of_each
from lsm_engine.kernels.keys import sort_keys
from lsm_engine.kernels.merge_runs import merge_order, sort_order
from lsm_engine.merge.function import build_merge_function
from lsm_engine.merge.selection import SortedVersions, without_deletes
from lsm_engine.merge.sequence import UserSequence
from lsm_engine.options.modes import RowKind, SortOrder
from lsm_engine.options.table_options import foreign_options
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, parse_type


def schema_of(**options):
    fields = [("k", "STRING NOT NULL"), ("v", "INT"), ("s", "INT"), ("t", "STRING")]
    return TableSchema(
        id=0,
        fields=tuple(
            DataField(id=at, name=name, type=parse_type(text))
            for at, (name, text) in enumerate(fields)
        ),
        highest_field_id=3,
        partition_keys=(),
        primary_keys=("k",),
        options=foreign_options({key.replace("_", "-"): text for key, text in options.items()}),
    )


PLAIN = schema_of()
ROWS = st.tuples(
    st.text("abc", max_size=2),
    st.none() | st.integers(0, 99),
    st.none() | st.integers(0, 2),
    st.none() | st.text("xy", max_size=1),
    st.sampled_from(list(RowKind)),
)


def batch_of(rows, first_sequence):
    columns = [*zip(*rows, strict=True)] if rows else [()] * 5
    numbers = range(first_sequence, first_sequence + len(rows))
    *values, kinds = columns
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, kind)
            for column, kind in zip(
                [*values, numbers, kinds], PLAIN.key_value_arrow.types, strict=True
            )
        ],
        schema=PLAIN.key_value_arrow,
    )


def rank_of(row, number, columns, order):
    """What decides between rows of one key, as the options say it."""
    parts = []
    for name in columns:
        value = row[("k", "v", "s", "t").index(name)]
        number_of = sum(ord(c) + 1 for c in value) if isinstance(value, str) else value
        sign = -1 if order is SortOrder.DESCENDING else 1
        parts.append((value is not None, sign * (number_of or 0)))
    return (*parts, number)


@given(
    st.lists(st.lists(ROWS, max_size=12), min_size=1, max_size=5),
    st.sampled_from([(), ("s",), ("s", "t"), ("t", "s")]),
    st.sampled_from(list(SortOrder)),
    st.booleans(),
)
def test_equals_a_dict(writes, columns, order, drop_deletes):
    sequence = UserSequence(columns=columns, order=order)
    function = build_merge_function(PLAIN)
    runs, model, number = [], {}, 0
    for rows in writes:
        batch = batch_of(rows, number)
        for row in rows:
            rank = rank_of(row, number, columns, order)
            if row[0] not in model or rank > model[row[0]][0]:
                model[row[0]] = (rank, row)
            number += 1
        keys = sort_keys([batch.column("k")])
        sorted_rows = sort_order(keys, sequence.row_ranks(batch))
        runs.append(function.merge(sorted_rows, [batch]))
    merged = function.merge(
        merge_order(
            [sort_keys([run.column("k")]) for run in runs],
            [sequence.row_ranks(run) for run in runs],
        ),
        runs,
        drop_deletes=drop_deletes,
    )
    wanted = [row for _, (_, row) in sorted(model.items(), key=lambda item: item[0].encode())]
    if drop_deletes:
        wanted = [row for row in wanted if not row[4].is_retract]
    got = [
        (row["k"], row["v"], row["s"], row["t"], row["_VALUE_KIND"]) for row in merged.to_pylist()
    ]
    assert got == [tuple(row) for row in wanted]
    assert merged.schema.equals(PLAIN.key_value_arrow)
    if not drop_deletes:
        assert without_deletes(merged).num_rows == sum(not row[4].is_retract for row in wanted)


def test_losers_are_never_collected(monkeypatch):
    batch = batch_of([("a", at, None, None, RowKind.INSERT) for at in range(5)], 0)
    keys, ranks = sort_keys([batch.column("k")]), UserSequence().row_ranks(batch)
    collected = []
    original = build_merge_function(PLAIN).merge.__globals__["gather"]

    def spy(sources, run, row):
        collected.append(len(row))
        return original(sources, run, row)

    monkeypatch.setattr("lsm_engine.merge.selection.gather", spy)
    build_merge_function(PLAIN).merge(merge_order([keys], [ranks]), [batch])
    assert collected == [1]


def test_update_after_stays_update_after():
    batch = batch_of([("a", 1, None, None, RowKind.UPDATE_AFTER)], 0)
    order = merge_order([sort_keys([batch.column("k")])], [UserSequence().row_ranks(batch)])
    merged = build_merge_function(PLAIN).merge(order, [batch], drop_deletes=True)
    assert merged.column("_VALUE_KIND").to_pylist() == [RowKind.UPDATE_AFTER]


def test_sequence_options_are_read_from_the_schema():
    schema = schema_of(**{"sequence.field": "s, t", "sequence.field.sort_order": "descending"})
    assert UserSequence.from_schema(schema) == UserSequence(
        columns=("s", "t"), order=SortOrder.DESCENDING
    )
    assert UserSequence.from_schema(PLAIN) == UserSequence()
    assert UserSequence().ranks(batch_of([], 0)) is None


def test_versions_collect_what_is_asked_for():
    older = batch_of(
        [("a", 1, None, None, RowKind.INSERT), ("b", 2, None, None, RowKind.INSERT)], 0
    )
    newer = batch_of([("a", 3, None, None, RowKind.DELETE)], 2)
    sources = [older, newer]
    order = merge_order(
        [sort_keys([one.column("k")]) for one in sources],
        [UserSequence().row_ranks(one) for one in sources],
    )
    versions = SortedVersions.from_order(order, sources)
    assert len(versions.order.starts) == 2
    assert versions.column("v").to_pylist() == [1, 3, 2]
    assert versions.rows().column("k").to_pylist() == ["a", "a", "b"]
    assert versions.kinds().tolist() == [0, 3, 0]
    assert last_of_each(order.starts, len(order)).tolist() == [1, 2]
    assert np.array_equal(order.starts, [0, 2])
