"""Seconds, ratios and tables of them, on a machine that others use too.

A figure is a ratio of two things measured in turn in the same run. CPU seconds count all threads of
a process and bear company; the clock does not, so a round waits for a quiet moment first.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PROC_STAT = Path("/proc/stat")
PACKAGES = ("pyarrow", "numpy", "numba")


@dataclass(frozen=True)
class Seconds:
    """What something took, on the clock and on all threads."""

    wall: float
    cpu: float


@contextmanager
def stopwatch() -> Iterator[Callable[[], Seconds]]:
    """Gives what was spent in the block, once it is left."""
    wall, cpu = time.perf_counter(), time.process_time()
    done: list[Seconds] = []
    yield lambda: done[0]
    done.append(Seconds(time.perf_counter() - wall, time.process_time() - cpu))


@dataclass
class Samples:
    """What was measured, by name of the thing and of who did it, in the order of the rounds."""

    taken: dict[tuple[str, str], list[Seconds]] = field(default_factory=dict)
    quiet: bool = False

    def add(self, what: str, who: str, seconds: Seconds) -> None:
        """Note one measurement."""
        self.taken.setdefault((what, who), []).append(seconds)
        if not self.quiet:
            print(f"  {what}: {who} {seconds.wall:.3f} s, cpu {seconds.cpu:.3f} s", flush=True)

    def of(self, what: str, who: str, kind: str = "cpu") -> list[float]:
        """The seconds of one kind, ``cpu`` or ``wall``, per round."""
        return [getattr(seconds, kind) for seconds in self.taken[what, who]]

    def ratio(
        self, what: str, who: str, to: str, *, kind: str = "cpu", goal: float | None = None
    ) -> "Ratio":
        """``who`` divided by ``to``, round by round."""
        pairs = zip(self.of(what, who, kind), self.of(what, to, kind), strict=True)
        return Ratio(
            what=what,
            name=f"{who} / {to}, {kind}",
            rounds=tuple(one / other for one, other in pairs),
            goal=goal,
        )

    def as_json(self) -> list[dict[str, Any]]:
        """Every measurement."""
        return [
            {
                "what": what,
                "who": who,
                "wall": [s.wall for s in taken],
                "cpu": [s.cpu for s in taken],
            }
            for (what, who), taken in self.taken.items()
        ]


@dataclass(frozen=True)
class Ratio:
    """One ratio over the rounds. ``goal`` is what its median must reach: at least it when
    ``more_is_better``, else at most.
    """

    what: str
    name: str
    rounds: tuple[float, ...]
    goal: float | None = None
    more_is_better: bool = False

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.rounds)

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or nothing without a goal."""
        if self.goal is None:
            return ""
        met = self.median >= self.goal if self.more_is_better else self.median <= self.goal
        sign = "≥" if self.more_is_better else "≤"
        return f"{sign} {self.goal:g} {'met' if met else 'MISSED'}"


def table(ratios: Sequence[Ratio]) -> str:
    """The ratios as a Markdown table, for the eye and for docs/performance-details.md."""
    lines = ["| what | ratio | min | median | max | goal |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.name} | {min(one.rounds):.2f} | **{one.median:.2f}** "
        f"| {max(one.rounds):.2f} | {one.verdict} |"
        for one in ratios
    ]
    return "\n".join(lines)


def report(
    name: str,
    ratios: Sequence[Ratio],
    samples: Samples,
    *,
    facts: dict[str, Any],
    out: Path | None,
) -> None:
    """Print the table and, as the last line or to a file, everything as JSON."""
    print(f"\n{name}: {machine()}; {json.dumps(facts)}\n\n{table(ratios)}\n")
    document = json.dumps(
        {
            "benchmark": name,
            "machine": machine(),
            "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
            "facts": facts,
            "ratios": [
                {
                    "what": one.what,
                    "ratio": one.name,
                    "rounds": one.rounds,
                    "median": one.median,
                    "verdict": one.verdict,
                }
                for one in ratios
            ],
            "samples": samples.as_json(),
        }
    )
    if out is None:
        print(document)
    else:
        out.write_text(document)


def arguments(about: str | None, *, rows: int, rounds: int) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=rows, help=f"default {rows:,}")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default {rounds}")
    parser.add_argument("--json", type=Path, help="write the JSON there instead of printing it")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="most seconds to wait for quiet, per round"
    )
    return parser


def machine() -> str:
    """The machine in words."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {platform.machine()}, Python {sys.version.split()[0]}"


def rotated(contestants: Sequence[T], turn: int) -> list[T]:
    """The contestants of one turn, another one first each time: who goes first pays more."""
    start = turn % len(contestants)
    return [*contestants[start:], *contestants[:start]]


def add_in_pairs(
    samples: Samples,
    pairs: Sequence[Sequence[tuple[str, str, Callable[[], int]]]],
    rounds: int,
    *,
    patience: float,
) -> None:
    """Measure pairs of ways to ask the same thing (what, whom, how) in turn; the first turn counts for nothing.

    Of each pair the other one comes first in every second turn: it finds the memory that both need
    freed and warm. Both have to give the same answer.
    """
    for turn in range(rounds + 1):
        wait_for_quiet(patience)
        seen: dict[str, set[int]] = {}
        in_order = [pair[:: -1 if turn % 2 else 1] for pair in rotated(pairs, turn)]
        for what, who, ask in chain.from_iterable(in_order):
            with stopwatch() as spent:
                seen.setdefault(what, set()).add(ask())
            if turn:
                samples.add(what, who, spent())
        assert all(len(answers) == 1 for answers in seen.values()), seen


def wait_for_quiet(patience_seconds: float, *, busy_below: float = 0.15) -> float:
    """Wait until the machine is idle but for us; the busy share of all cores when it ended.

    The load average would count this very benchmark for a minute after each round.
    """
    until = time.monotonic() + patience_seconds
    while True:
        share = busy_share(1.0)
        if share < busy_below or time.monotonic() > until:
            if patience_seconds and share >= busy_below:
                print(f"  (not quiet: {share:.0%} of the machine is busy)", flush=True)
            return share
        time.sleep(2.0)


def busy_share(seconds: float) -> float:
    """How much of all cores was busy while this process slept; 0 where nobody tells."""
    if not PROC_STAT.exists():
        return 0.0
    before = processor_ticks()
    time.sleep(seconds)
    idle, total = (after - at for after, at in zip(processor_ticks(), before, strict=True))
    return 1 - idle / max(total, 1)


def processor_ticks() -> tuple[int, int]:
    """Idle and all ticks of all cores since the machine started."""
    ticks = [int(text) for text in PROC_STAT.read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)
