"""Every row of goals.md can be measured, and a figure that became worse is reported."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.bench.goals import PAGE, TITLE, Goal, goals_of, number, told

GOALS = goals_of(PAGE.read_text())


def test_every_row_names_a_bench_and_says_how_it_stands() -> None:
    section = PAGE.read_text().split(TITLE, 1)[1].split("\n## ", 1)[0]
    assert len(GOALS) == section.count("\n| ") - 1
    for goal in GOALS:
        assert find_spec(f"tests.bench.{goal.command.split()[0]}"), goal.command
        figure, bound = number(goal.figure), number(goal.goal)
        met = figure >= bound if goal.more_is_better else figure <= bound
        assert goal.stands == ("met" if met else "missed"), goal.work
        assert goal.why or met, goal.work


def test_a_row_is_written_as_it_was_read() -> None:
    assert all(f"\n{goal.row}\n" in PAGE.read_text() for goal in GOALS)


@pytest.mark.parametrize(
    ("goal", "rounds", "figure", "stands", "worse"),
    [
        ("≤ 1.5", (1.0, 1.2, 3.0), "**1.20**", "met", False),
        ("≤ 1.5", (2.2, 2.4, 3.0), "**2.40**", "missed", True),
        ("≥ 1.5", (1.0, 1.2, 3.0), "**1.20**", "missed", False),
        ("≥ 1.5", (1.0, 1.2, 1.3), "**1.20**", "missed", True),
    ],
)
def test_what_is_beyond_in_every_round_is_worse(
    goal: str, rounds: tuple[float, ...], figure: str, stands: str, *, worse: bool
) -> None:
    old = Goal("w", goal, "**2.00**", "missed", "b", "of one + cpu", "")
    ratios = [
        {"what": "of one", "ratio": "cpu", "rounds": rounds},
        {"what": "of one", "ratio": "wall", "rounds": (99.0,)},
    ]
    new = old.measured(ratios)
    assert (new.figure, new.stands) == (figure, stands)
    assert new.worse_than(old) is worse
    assert ("**worse**" in told([(old, new)])) is worse
    assert replace(old, words="other").measured(ratios).rounds == ()
