"""Measure every goal of tests/bench/goals.md, and compare it with the figure that is recorded there.

    python -m tests.bench.goals                                   # all, about half an hour
    python -m tests.bench.goals --only compaction_limit key_scans
    python -m tests.bench.goals --write                           # and record what was measured

A row of that table names a bench of this folder with its arguments, and words that the ratio's name has. The worst of
several such ratios counts: a goal against the best of others is one against each. Benches run one after the other. A figure is worse if even its best round is 3 % beyond
the one that is recorded; then the command ends with 1. `--write` puts what was measured into the page, with `met`
or `missed`; goals and reasons stay as somebody wrote them.
"""

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "bench" / "goals.md"
TITLE = "## Goals"
TOLERANCE = 1.03
MEASURED_BY = re.compile(r"`([^`]+)`: (.+)")


@dataclass(frozen=True)
class Goal:
    """A row of the table. `goal` and `figure` as they are written; `rounds`: what was measured now."""

    work: str
    goal: str
    figure: str
    stands: str
    command: str
    words: str
    why: str
    rounds: tuple[float, ...] = ()

    @property
    def row(self) -> str:
        """The row as it is written."""
        by = f"`{self.command}`: {self.words}"
        return f"| {' | '.join((self.work, self.goal, self.figure, self.stands, by, self.why))} |"

    @property
    def more_is_better(self) -> bool:
        """Whether the goal is a least one."""
        return self.goal.startswith("≥")

    def measured(self, ratios: Sequence[dict[str, Any]]) -> "Goal":
        """The row with what was measured; as it is where no ratio has its words."""
        found = [
            one["rounds"]
            for one in ratios
            if all(word in f"{one['what']} {one['ratio']}" for word in self.words.split(" + "))
        ]
        if not found:
            return self
        rounds = (min if self.more_is_better else max)(found, key=statistics.median)
        middle, goal = statistics.median(rounds), number(self.goal)
        met = middle >= goal if self.more_is_better else middle <= goal
        written = f"{middle:.2f}" if middle < 100 else f"{middle:,.0f}"
        return replace(
            self,
            figure=f"**{written}**",
            stands="met" if met else "missed",
            rounds=tuple(rounds),
        )

    def worse_than(self, recorded: "Goal") -> bool:
        """Whether even the best round is beyond what was recorded."""
        if self.more_is_better:
            return max(self.rounds) * TOLERANCE < number(recorded.figure)
        return min(self.rounds) > number(recorded.figure) * TOLERANCE


def number(text: str) -> float:
    """The number in a cell."""
    return float(re.sub(r"[^0-9.]", "", text))


def goals_of(page: str) -> list[Goal]:
    """The rows of the table."""
    found = []
    for line in page.split(TITLE, 1)[1].split("\n## ", 1)[0].splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        by = MEASURED_BY.fullmatch(cells[4]) if len(cells) == 6 else None
        if by is not None:
            found.append(Goal(*cells[:4], *by.groups(), cells[5]))
    return found


def ratios_of(command: str, patience: float) -> list[dict[str, Any]]:
    """Run a bench with the arguments that the table gives it."""
    bench, *given = shlex.split(command)
    with tempfile.TemporaryDirectory(prefix="bench-goals-") as scratch:
        out = Path(scratch, "told.json")
        waits = [] if bench.startswith("lookup_") else ["--patience", str(patience)]
        subprocess.run(
            [sys.executable, "-m", f"tests.bench.{bench}", *given, *waits, "--json", str(out)],
            cwd=ROOT,
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(out.read_text())["ratios"]
        return found


def told(pairs: Iterable[tuple[Goal, Goal]]) -> str:
    """What was recorded, what was measured, and what that changes."""
    lines = ["| work | goal | recorded | measured | change | |", "|---|---|---|---|---|---|"]
    for old, new in pairs:
        change = f"{number(new.figure) / number(old.figure) - 1:+.0%}"
        worse = "**worse**" if new.worse_than(old) else new.stands
        lines.append(
            f"| {old.work} | {old.goal} | {old.figure} | {new.figure} | {change} | {worse} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Measure as the command line says; 1 if a figure became worse."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", help="names of benches")
    parser.add_argument("--write", action="store_true", help="put the figures into the page")
    parser.add_argument("--patience", type=float, default=0.0, help="as that of the benches")
    parser.add_argument("--told", nargs="+", type=Path, help="JSON of benches that have run")
    given = parser.parse_args()
    page = PAGE.read_text()
    goals = goals_of(page)
    known: dict[str, list[dict[str, Any]]] = {}
    for path in given.told or ():
        document = json.loads(path.read_text())
        known.setdefault(document["benchmark"], []).extend(document["ratios"])
    for command in dict.fromkeys(goal.command for goal in goals):
        bench = command.split()[0]
        if given.told is None and (given.only is None or bench in given.only):
            known.setdefault(bench, []).extend(ratios_of(command, given.patience))
    pairs = [
        (goal, now)
        for goal in goals
        if (now := goal.measured(known.get(goal.command.split()[0], ()))).rounds
    ]
    print(told(pairs))
    if given.write:
        for old, new in pairs:
            page = page.replace(old.row, new.row)
        PAGE.write_text(page)
    return int(any(new.worse_than(old) for old, new in pairs))


if __name__ == "__main__":
    sys.exit(main())
