"""Partial update against slow folds: plain columns, groups with clocks, removal, however it is cut."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError, InvalidOptionError
from lsm_engine.merge.function import build_merge_function
from tests.unit.merge import slow_merge as slow
from tests.unit.merge.bracketing import cuts, replayed, schema_of
from tests.unit.merge.slow_merge import RETRACTS

ENGINE = {"merge-engine": "partial-update"}
COLUMNS = [
    ("a", "INT"), ("b", "STRING"), ("g", "INT"), ("c", "DOUBLE"), ("d", "BIGINT"), ("h", "BIGINT"),
    ("i", "STRING"), ("e", "STRING"),
]  # fmt: skip
ONE_CLOCK = {"fields.g.sequence-group": "a,b"}
TWO_CLOCKS = {"fields.h,i.sequence-group": "c,d"}
SUM = {"fields.d.aggregate-function": "sum"}
VALUES = {
    "a": st.integers(0, 9), "b": st.sampled_from("xyz"), "g": st.integers(0, 3),
    "c": st.sampled_from([0.0, -0.0, 1.5]), "d": st.integers(-9, 9), "h": st.integers(0, 2),
    "i": st.sampled_from(["", "a", "b"]), "e": st.sampled_from("uvw"),
}  # fmt: skip
ROW = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def rows_of(kinds):
    row = st.tuples(st.integers(0, 2), st.sampled_from(kinds), ROW)
    return st.lists(row, max_size=14).map(
        lambda rows: [{"k": key, "kind": kind, **row} for key, kind, row in rows]
    )


def by_key(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["k"]].append((row["kind"], {name: row[name] for name in VALUES}))
    return found


def last_of_adds(rows, name):
    adds = [(kind, row[name]) for kind, row in rows if kind not in RETRACTS]
    return slow.column(slow.last_non_null_value, adds) if adds else None


GROUPS: dict[str, tuple[dict[str, str], list[tuple[tuple[str, ...], dict[str, Any]]]]] = {
    "none": (ENGINE, []),
    "one": (ENGINE | ONE_CLOCK, [(("g",), {"a": None, "b": None})]),
    "two": (
        ENGINE | ONE_CLOCK | TWO_CLOCKS | SUM,
        [
            (("g",), {"a": None, "b": None}),
            (("h", "i"), {"c": None, "d": slow.sum_step(lambda value: value)}),
        ],
    ),
    "max": (
        ENGINE | ONE_CLOCK | {"fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"},
        [(("g",), {"a": slow.greatest, "b": None})],
    ),
}  # fmt: skip


def expected(rows, groups):
    """One row per key that some version adds to; a single version stays as it is."""
    wanted = {}
    for key, versions in by_key(rows).items():
        if all(kind in RETRACTS for kind, _ in versions):
            continue
        if len(versions) == 1:
            wanted[key] = versions[0][1]
            continue
        row = {name: last_of_adds(versions, name) for name in VALUES}
        for sequence, members in groups:
            if slow.greatest in members.values():
                # The clock and the other members see retracts, the function does not.
                state, _ = slow.group_of(versions, sequence, dict.fromkeys(members))
                adds = [one for one in versions if one[0] not in RETRACTS]
                state["a"] = slow.group_of(adds, sequence, members)[0]["a"]
            else:
                state, _ = slow.group_of(versions, sequence, members)
            row |= state
        wanted[key] = row
    return wanted


@pytest.mark.parametrize("name", GROUPS)
@given(rows=rows_of(("+I", "+U")), plan=cuts())
def test_adds(name, rows, plan):
    options, groups = GROUPS[name]
    got = replayed(schema_of(COLUMNS, options), rows, plan)
    assert got == expected(rows, groups)


@pytest.mark.parametrize("name", ["one", "two", "max"])
@given(rows=rows_of(("+I", "+U", "-U", "-D")), plan=cuts())
def test_retracts_in_groups(name, rows, plan):
    options, groups = GROUPS[name]
    # A delete that nothing older contradicts is dropped with the last level: keys begin with an add.
    seen: set[int] = set()
    for row in rows:
        if row["k"] not in seen:
            row["kind"] = "+I"
        seen.add(row["k"])
    got = replayed(schema_of(COLUMNS, options), rows, plan)
    assert got == expected(rows, groups)


@given(rows=rows_of(("+I", "-U", "+U", "-D")), plan=cuts())
def test_ignore_delete(rows, plan):
    schema = schema_of(COLUMNS, ENGINE | {"ignore-delete": "true"})
    adds = [row for row in rows if row["kind"] not in RETRACTS]
    assert replayed(schema, rows, plan) == expected(adds, [])


@given(rows=rows_of(("+I", "-U", "+U", "-D")), plan=cuts())
def test_remove_record_on_delete(rows, plan):
    schema = schema_of(COLUMNS, ENGINE | {"partial-update.remove-record-on-delete": "true"})
    live = []
    for key, versions in by_key(rows).items():
        kept = slow.live_after(versions, lambda at, v=versions: v[at][0] == "-D")
        live += [{"k": key, "kind": kind, **row} for kind, row in kept if kind != "-U"]
    assert replayed(schema, rows, plan) == expected(live, [])


REMOVES = ENGINE | ONE_CLOCK | {"partial-update.remove-record-on-sequence-group": "g"}


def without_removed(key, versions):
    """What counts of a key's versions, and whether a clock that went with the last level matters."""
    clock, start, is_empty, removed, unsure = None, 0, True, None, False
    for at, (kind, row) in enumerate(versions):
        is_behind = row["g"] is None or (clock is not None and row["g"] < clock)
        removes = kind == "-D" and not is_behind
        unsure |= is_empty and is_behind and (kind == "-D" or removed is not None)
        unsure |= is_behind and row["g"] is not None and removed is not None and row["g"] < removed
        is_empty = removes or (is_empty and kind == "-D")
        clock = clock if is_behind else row["g"]
        if removes:
            start, removed = at + 1, row["g"]
    kept = [{"k": key, "kind": kind, **row} for kind, row in versions[start:]]
    if removed is not None and any(row["kind"] != "-D" for row in kept):
        kept.insert(0, {**dict.fromkeys(VALUES), "k": key, "kind": "+I", "g": removed})
    return kept, unsure


@pytest.mark.parametrize("function", [None, slow.sum_step(lambda value: value)])
@given(rows=rows_of(("+I", "+U", "-D")), plan=cuts())
def test_remove_record_on_sequence_group(function, rows, plan):
    texts = REMOVES if function is None else REMOVES | {"fields.a.aggregate-function": "sum"}
    live, unsure = [], set()
    for key, versions in by_key(rows).items():
        kept, is_unsure = without_removed(key, versions)
        live += kept
        unsure |= {key} if is_unsure else set()
    wanted = expected(live, [(("g",), {"a": function, "b": None})])
    got = replayed(schema_of(COLUMNS, texts), rows, plan)
    sure = (wanted.keys() | got.keys()) - unsure
    assert {key: got.get(key) for key in sure} == {key: wanted.get(key) for key in sure}


@pytest.mark.parametrize("function", [None, "sum"])
def test_a_row_that_comes_late_does_not_revive_a_removed_group(function):
    texts = REMOVES if function is None else REMOVES | {"fields.a.aggregate-function": function}
    rows = [
        {**dict.fromkeys(VALUES), "k": 1, "kind": kind, "g": clock, "a": value, "e": "u"}
        for kind, clock, value in (("+I", 1, 5), ("-D", 3, 5), ("+I", 0, 7), ("-D", 2, 7))
    ]
    removed = {**dict.fromkeys(VALUES), "g": 3, "e": "u"}
    schema = schema_of(COLUMNS, texts)
    assert replayed(schema, rows[:3], []) == {1: removed}
    assert replayed(schema, rows, []) == {1: removed}
    assert replayed(schema, [*rows, {**rows[0], "g": 3, "a": 8}], []) == {1: {**removed, "a": 8}}


def test_a_delete_that_is_behind_a_clock_further_down_removes_nothing_above():
    rows = [
        {**dict.fromkeys(VALUES), "k": 1, "kind": kind, "g": clock, "e": value}
        for kind, clock, value in (("+I", 1, None), ("+I", None, "u"), ("-D", 0, None))
    ]
    wanted = {1: {**dict.fromkeys(VALUES), "g": 1, "e": "u"}}
    assert replayed(schema_of(COLUMNS, REMOVES), rows, [(1, 0)]) == wanted
    assert replayed(schema_of(COLUMNS, REMOVES), rows, []) == wanted


def test_a_delete_beside_other_rows_is_refused_with_the_remedies():
    row = dict.fromkeys(VALUES) | {"k": 4}
    with pytest.raises(InvalidInputError, match="ignore-delete") as caught:
        replayed(schema_of(COLUMNS, ENGINE), [{**row, "kind": "+I"}, {**row, "kind": "-D"}], [])
    assert caught.value.facts["key"] == {"k": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields.k.sequence-group": "a"}, "key column 'k'"),
        ({"fields.g.sequence-group": "k"}, "key column 'k'"),
        ({"fields.g.sequence-group": "nope"}, "'nope', which the table does not have"),
        ({"fields.nope.sequence-group": "a"}, "'nope', which the table does not have"),
        ({"fields.g.sequence-group": ""}, "names no columns"),
        ({"fields.g.sequence-group": "a", "fields.h.sequence-group": "a"}, "two sequence groups"),
        ({"fields.g.sequence-group": "g"}, "two sequence groups, or twice"),
        ({"fields.a.aggregate-function": "sum"}, "in no sequence group"),
        ({"fields.g.sequence-group": "b", "fields.b.aggregate-function": "sum"}, "takes numbers"),
        ({"fields.g.sequence-group": "a", "fields.g.aggregate-function": "max"}, "is the clock"),
        ({"fields.g.sequence-group": "a", "fields.a.aggregate-function": "no"}, "choose one of"),
        ({"partial-update.remove-record-on-sequence-group": "a"}, "clock"),
        (
            {"fields.g.sequence-group": "a", "partial-update.remove-record-on-delete": "true"},
            "does not go with sequence groups",
        ),
        (
            {"ignore-delete": "true", "partial-update.remove-record-on-delete": "true"},
            "contradict",
        ),
    ],
)
def test_configurations_that_cannot_be(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        build_merge_function(schema_of(COLUMNS, ENGINE | options))
