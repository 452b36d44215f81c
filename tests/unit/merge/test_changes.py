"""What a merge changed: every transition, against a reference written row by row."""

import random

import numpy as np
import pyarrow as pa
import pytest

from lsm_engine.kernels.changes import equal_rows
from lsm_engine.kernels.merge_runs import MergeOrder
from lsm_engine.merge.selection import BeforeMerge, ChangeRules

KINDS = ("+I", "-U", "+U", "-D")
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32()),
        pa.field("v", pa.int64()),
        pa.field("w", pa.string()),
        pa.field("_SEQUENCE_NUMBER", pa.int64(), nullable=False),
        pa.field("_VALUE_KIND", pa.int8(), nullable=False),
    ]
)


def source(rows):
    columns = list(zip(*rows, strict=True)) if rows else [[]] * 5
    return pa.record_batch(
        [pa.array(list(c), f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def order_of(sources):
    """By key, then in order of the sources."""
    rows = sorted(
        (row["k"], run, at)
        for run, one in enumerate(sources)
        for at, row in enumerate(one.to_pylist())
    )
    keys = [key for key, _, _ in rows]
    starts = [at for at, key in enumerate(keys) if at == 0 or keys[at - 1] != key]
    return MergeOrder(
        run=np.array([run for _, run, _ in rows], np.uint16),
        row=np.array([at for _, _, at in rows], np.int32),
        starts=np.array(starts, np.int64),
    )


def newest(state, sources):
    """The newest row of each key, as deduplicate merges."""
    order = state.order
    ends = [*order.starts[1:].tolist(), len(order)]
    rows = [sources[order.run[end - 1]].slice(int(order.row[end - 1]), 1) for end in ends]
    return pa.Table.from_batches(rows, schema=SCHEMA)


def told(table):
    if table is None:
        return []
    return [(KINDS[row["_VALUE_KIND"]], row["k"], row["v"]) for row in table.to_pylist()]


def changes_of(old, new, rules=None, ages=(5, 0)):
    sources = [source(old), source(new)]
    state = BeforeMerge.from_order(order_of(sources), ages)
    return told((rules or ChangeRules()).changes(state, sources, newest(state, sources)))


INSERT, BEFORE, AFTER, DELETE = range(4)


@pytest.mark.parametrize("old_kind", [None, INSERT, AFTER, BEFORE, DELETE])
@pytest.mark.parametrize("new_kind", [None, INSERT, AFTER, BEFORE, DELETE])
def test_every_transition(old_kind, new_kind):
    old = [] if old_kind is None else [(1, 10, "a", 0, old_kind)]
    new = [] if new_kind is None else [(1, 20, "b", 1, new_kind)]
    if not old and not new:
        return
    was, now = old_kind in (INSERT, AFTER), new_kind in (INSERT, AFTER)
    expected = []
    if new and was and now:
        expected = [("-U", 1, 10), ("+U", 1, 20)]
    elif new and now:
        expected = [("+I", 1, 20)]
    elif new and was:
        expected = [("-D", 1, 10)]
    assert changes_of(old, new) == expected


def test_changes_carry_their_own_sequence_numbers():
    sources = [source([(1, 10, "a", 3, INSERT)]), source([(1, 20, "a", 8, INSERT)])]
    state = BeforeMerge.from_order(order_of(sources), (5, 0))
    table = ChangeRules().changes(state, sources, newest(state, sources))
    assert table.column("_SEQUENCE_NUMBER").to_pylist() == [3, 8]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [(None, 2), (("v", "w"), 2), (("v",), 0), ((), 0)],
)
def test_pairs_that_are_equal_where_it_counts_are_not_told(compared, expected):
    rules = ChangeRules(compared=compared)
    changes = changes_of([(1, 10, "a", 0, INSERT)], [(1, 10, None, 1, AFTER)], rules)
    assert len(changes) == expected


def test_deletes_and_inserts_are_told_however_equal():
    rules = ChangeRules(compared=("v", "w"))
    assert changes_of([(1, 10, "a", 0, INSERT)], [(1, 10, "a", 1, DELETE)], rules)
    assert changes_of([(1, 10, "a", 0, DELETE)], [(1, 10, "a", 1, INSERT)], rules)


def test_a_first_row_never_changes():
    rules = ChangeRules(inserts_only=True)
    assert changes_of([(1, 10, "a", 0, INSERT)], [(1, 20, "a", 1, INSERT)], rules) == []
    assert changes_of([], [(1, 20, "a", 1, INSERT)], rules) == [("+I", 1, 20)]


def test_of_settled_rows_the_youngest_stands():
    sources = [
        source([(1, 1, "a", 0, INSERT), (2, 1, "a", 1, INSERT)]),
        source([(1, 2, "a", 2, INSERT)]),
        source([(1, 3, "a", 3, INSERT)]),
    ]
    state = BeforeMerge.from_order(order_of(sources), (5, 3, 0))
    assert state.order.run.tolist() == [1, 2, 0]
    assert state.before.tolist() == [0, 2]
    assert state.is_new.tolist() == [True, False]
    assert state.unknown.tolist() == [False, False]
    changes = ChangeRules().changes(state, sources, newest(state, sources))
    assert told(changes) == [("-U", 1, 2), ("+U", 1, 3)]


def test_random_merges_against_a_reference():
    dice = random.Random(7)
    for _ in range(200):
        ages = (5, 3, 0, 0)
        sources, number = [], 0
        for _ in ages:
            keys = sorted(dice.sample(range(8), dice.randint(0, 6)))
            rows = []
            for key in keys:
                number += 1
                rows.append((key, dice.randint(0, 2), "a", number, dice.randint(0, 3)))
            sources.append(source(rows))
        state = BeforeMerge.from_order(order_of(sources), ages)
        compared = dice.choice([None, ("v",)])
        found = ChangeRules(compared=compared).changes(state, sources, newest(state, sources))
        assert told(found) == list(reference(sources, ages, compared))


def reference(sources, ages, compared):
    keys = sorted({row["k"] for one in sources for row in one.to_pylist()})
    for key in keys:
        rows = [
            (age, row)
            for age, one in zip(ages, sources, strict=True)
            for row in one.to_pylist()
            if row["k"] == key
        ]
        new = [row for age, row in rows if age == 0]
        settled = sorted((age for age, _ in rows if age > 0))
        before = next((row for age, row in rows if settled and age == settled[0]), None)
        if not new:
            continue
        was = before is not None and before["_VALUE_KIND"] in (INSERT, AFTER)
        now = new[-1]["_VALUE_KIND"] in (INSERT, AFTER)
        if was and now:
            if compared is None or before["v"] != new[-1]["v"]:
                yield "-U", key, before["v"]
                yield "+U", key, new[-1]["v"]
        elif was:
            yield "-D", key, before["v"]
        elif now:
            yield "+I", key, new[-1]["v"]


NAN = float("nan")
NESTED = [
    (pa.int32(), [1, None, 2, None], [1, None, 3, 4]),
    (pa.float64(), [NAN, 1.0, None, 0.5], [NAN, 1.0, None, 0.25]),
    (pa.string(), ["a", None, "", "b"], ["a", None, "", None]),
    (pa.bool_(), [True, False, None, True], [True, False, None, False]),
    (pa.list_(pa.int32()), [[1, None], [], None, [1, 2]], [[1, None], [], None, [1, 3]]),
    (pa.list_(pa.int32()), [[1], [2, 3], [4], []], [[1], [2, 3], [4], [5]]),
    (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": 2, "b": ["y"]}],
        [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}, {"a": 2, "b": ["z"]}],
    ),
    (
        pa.map_(pa.string(), pa.int32()),
        [[("a", 1)], [], None, [("a", 1), ("b", 2)]],
        [[("a", 1)], [], None, [("a", 1), ("b", None)]],
    ),
    (pa.decimal128(20, 2), [1, None, 2, 3], [1, None, 2, 4]),
    (pa.timestamp("us"), [1, None, 2, 3], [1, None, 2, 4]),
]


@pytest.mark.parametrize(("kind", "one", "other"), NESTED)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_rows_are_equal_part_by_part(kind, one, other, cut):
    a, b = pa.array(one, kind).slice(cut), pa.array(other, kind).slice(cut)
    expected = [True, True, True, False][cut:]
    if kind == pa.int32():
        expected = [True, True, False, False][cut:]
    assert equal_rows([a], [b], len(a)).tolist() == expected
    assert equal_rows([a], [a], len(a)).all()
