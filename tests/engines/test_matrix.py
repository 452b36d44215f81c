"""A sample of the matrix of engines; `python -m tests.engines.matrix` is all of it."""

import pytest

from lsm_engine.read import engines as engines_read
from tests.engines.answers import ENGINES
from tests.engines.conditions import Condition, conditions, kept
from tests.engines.kinds import KINDS
from tests.engines.layouts import KEY, LAYOUTS, rows_of
from tests.engines.matrix import THEIRS, Difference, Matrix

SHARE = 0.003
BY_NAME = {kind.name: kind for kind in KINDS}
ON_SPARK = "Spark, "


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_engines_answer_as_on_rows_in_memory(layout: str) -> None:
    report = Matrix(SHARE, seed=1).ask([layout], KINDS, [engine() for engine in ENGINES.values()])
    assert report.ours == []
    assert report.unknown == []
    assert report.compared > 30


def differs(difference: Difference, engine_name: str) -> bool:
    """Whether an engine does on rows in memory what is said of it."""
    engine = ENGINES[engine_name]()
    kind = BY_NAME[(difference.kinds or ("int",))[0]]
    plain = rows_of().select([KEY, kind.name])
    keys, values = plain[KEY].to_pylist(), kind.plain(plain[kind.name])
    source = engine.of_rows(plain)
    asked = [
        condition
        for condition in conditions(kind)
        if difference.covers(engine_name, kind.name, condition.operator)
    ]
    return any(
        engine.keys(source, engine.condition(kind, condition)) != kept(condition, keys, values)
        for condition in asked
    )


@pytest.mark.parametrize("difference", THEIRS, ids=lambda difference: difference.why)
def test_what_engines_do_in_another_way_they_do_to_plain_arrow(difference: Difference) -> None:
    """One that an engine has mended goes from the list, and from docs/filters.md."""
    for engine in difference.engines:
        assert engine.startswith(ON_SPARK) or differs(difference, engine), engine


def test_the_matrix_sees_a_column_that_duckdb_filters_by_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    duckdb = pytest.importorskip("duckdb")

    def as_stored(schema):
        return [duckdb.ColumnExpression(name) for name in schema.names]

    monkeypatch.setattr(engines_read, "_duckdb_columns", as_stored)
    engines = [ENGINES["DuckDB relation"]()]
    report = Matrix(0.5, seed=0).ask(["compacted"], [BY_NAME["double_nan"]], engines)
    assert len(report.ours) > 3


def test_conditions_on_null_nan_and_zero() -> None:
    values = [None, float("nan"), -0.0, 1.0]
    wanted = {
        Condition("=", (0.0,)): [2],
        Condition("<>", (0.0,)): [1, 3],
        Condition("not <", (1.0,)): [1, 3],
        Condition("in", (float("nan"), 1.0)): [3],
        Condition("not in", (1.0,)): [1, 2],
        Condition("not between", (0.0, 1.0)): [1],
        Condition("is null"): [0],
        Condition(">", (5.0,), or_key=True): [0, 1, 2, 3],
    }
    for condition, keys in wanted.items():
        assert kept(condition, [0, 1, 2, 3], values) == keys, condition
