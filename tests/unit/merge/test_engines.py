"""First-row, removal in aggregation tables, ignored deletes, order by columns: however rows are cut."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError, InvalidOptionError
from lsm_engine.merge.function import build_merge_function, retract_rule
from tests.unit.merge import slow_merge as slow
from tests.unit.merge.bracketing import Bucket, cuts, replayed, schema_of
from tests.unit.merge.slow_merge import RETRACTS

COLUMNS = [("a", "INT"), ("t", "INT"), ("u", "STRING")]
KINDS = ("+I", "-U", "+U", "-D")


def rows_of(kinds):
    row = st.fixed_dictionaries(
        {
            "k": st.integers(0, 2),
            "kind": st.sampled_from(kinds),
            "a": st.none() | st.integers(0, 9),
            "t": st.none() | st.integers(0, 2),
            "u": st.none() | st.sampled_from("xy"),
        }
    )
    return st.lists(row, max_size=14)


def by_key(rows):
    found = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row)
    return found


def values_of(row):
    return {name: row[name] for name, _ in COLUMNS}


@given(rows=rows_of(("+I", "+U")), plan=cuts())
def test_first_row(rows, plan):
    schema = schema_of(COLUMNS, {"merge-engine": "first-row"})
    wanted = {key: values_of(found[0]) for key, found in by_key(rows).items()}
    assert replayed(schema, rows, plan) == wanted


@pytest.mark.parametrize("engine", ["first-row", "deduplicate"])
@given(rows=rows_of(KINDS), plan=cuts())
def test_ignore_delete(engine, rows, plan):
    schema = schema_of(COLUMNS, {"merge-engine": engine, "ignore-delete": "true"})
    adds = by_key([row for row in rows if row["kind"] not in RETRACTS])
    at = 0 if engine == "first-row" else -1
    wanted = {key: values_of(found[at]) for key, found in adds.items()}
    assert replayed(schema, rows, plan) == wanted


@given(rows=rows_of(("+I", "+U", "-D")), plan=cuts())
def test_aggregation_removes_on_delete(rows, plan):
    texts = {
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.a.aggregate-function": "sum",
        "fields.default-aggregate-function": "max",
    }
    wanted = {}
    for key, found in by_key(rows).items():
        live = slow.live_after(found, lambda at, rows=found: rows[at]["kind"] == "-D")
        if live:
            wanted[key] = {
                name: slow.column(step, [("+I", row[name]) for row in live])
                for name, step in (
                    ("a", slow.sum_step(lambda value: value)),
                    ("t", slow.greatest),
                    ("u", slow.greatest),
                )
            }
    assert replayed(schema_of(COLUMNS, texts), rows, plan) == wanted


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("columns", ["t", "t,u", "u,t"])
@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
@given(rows=rows_of(("+I", "+U")), plan=cuts())
def test_order_by_columns(engine, columns, descending, rows, plan):
    """The newest row by its columns, then by arrival; sums do not mind which part is merged first."""
    texts = {"merge-engine": engine, "sequence.field": columns}
    texts["sequence.field.sort-order"] = "descending" if descending else "ascending"
    if engine == "aggregation":
        texts |= {"fields.a.aggregate-function": "sum"}
    names = columns.split(",")

    def age(row):
        ranks = []
        for name in names:
            value = row[name]
            number = 0 if value is None else ord(value) if isinstance(value, str) else value
            ranks.append((value is not None, -number if descending else number))
        return ranks

    wanted = {}
    for key, found in by_key(rows).items():
        newest = sorted(found, key=age)[-1]
        wanted[key] = values_of(newest)
        if engine == "aggregation" and len(found) > 1:
            numbers = [("+I", row["a"]) for row in found]
            wanted[key]["a"] = slow.column(slow.sum_step(lambda value: value), numbers)
            if "u" not in names:
                wanted[key].pop("u")
    got = replayed(schema_of(COLUMNS, texts), rows, plan)
    shown = {key: {name: got[key][name] for name in row} for key, row in wanted.items()}
    assert shown == wanted
    assert got.keys() == wanted.keys()


@given(rows=rows_of(KINDS))
def test_several_runs_of_one_flush_rise_in_sequence(rows):
    """Files of level 0 stand in the order of their greatest sequence number."""
    texts = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    bucket = Bucket(schema_of(COLUMNS, texts))
    bucket.flush([{"k": 9, "kind": "+I", "a": 1, "t": 1, "u": "x"}, *rows])
    newest = [max(run.column("_SEQUENCE_NUMBER").to_pylist()) for run in bucket.runs]
    assert newest == sorted(set(newest))
    for run in bucket.runs:
        keys = run.column("k").to_pylist()
        assert keys == sorted(set(keys))


def test_what_tables_take():
    refuse = retract_rule(schema_of(COLUMNS, {"merge-engine": "partial-update"}))
    assert {kind.symbol for kind in refuse.refused} == {"-U", "-D"}
    assert "ignore-delete" in refuse.remedy
    texts = {"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}
    assert "'a'" in retract_rule(schema_of(COLUMNS, texts)).remedy
    texts["aggregation.remove-record-on-delete"] = "true"
    assert {kind.symbol for kind in retract_rule(schema_of(COLUMNS, texts)).refused} == {"-U"}
    texts = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}
    assert not retract_rule(schema_of(COLUMNS, texts)).refused
    assert not retract_rule(schema_of(COLUMNS, {})).refused


def test_a_retract_beside_other_rows_of_first_row_is_refused():
    rows = [{"k": 1, "kind": kind, "a": 1, "t": 1, "u": "x"} for kind in ("+I", "-D")]
    with pytest.raises(InvalidInputError, match="first row stays"):
        replayed(schema_of(COLUMNS, {"merge-engine": "first-row"}), rows, [])


def test_a_retract_that_a_function_cannot_take_is_refused():
    texts = {"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}
    rows = [{"k": 5, "kind": kind, "a": 1, "t": 1, "u": "x"} for kind in ("+I", "-D")]
    with pytest.raises(InvalidInputError, match="'max' cannot take values back") as caught:
        replayed(schema_of(COLUMNS, texts), rows, [])
    assert caught.value.facts == {"column": "a", "key": {"k": 5}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fields.a.aggregate-function": "median"}, "there is no aggregate function"),
        ({"fields.default-aggregate-function": "sum"}, "takes numbers"),
        ({"fields.a.ignore-retract": "perhaps"}, "true or false"),
        ({"ignore-delete": "true", "aggregation.remove-record-on-delete": "true"}, "contradict"),
        ({"fields.a.aggregate-function": "nested_update"}, "arrays of rows"),
        (
            {
                "fields.u.aggregate-function": "listagg",
                "fields.u.list-agg-delimiter": "",
                "fields.u.distinct": "true",
            },
            "nothing parts the tokens",
        ),
    ],
)
def test_configurations_that_cannot_be(options, message):
    with pytest.raises(InvalidOptionError, match=message):
        build_merge_function(schema_of(COLUMNS, {"merge-engine": "aggregation"} | options))
