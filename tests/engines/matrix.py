"""Every engine, asked every condition on every type in every layout, answers as on the rows themselves.

python -m tests.engines.matrix [--share 1] [--first 0] [--seed 0] [--engines a;b] [--layouts a;b] [--kinds a;b] [--spark]

An engine that answers otherwise on a table of ours than on the same rows in memory does so by our fault. One that
answers otherwise on rows in memory than a scan, whose rules are SQL's, and IEEE's for floating numbers, does so by
itself: `THEIRS` says where, and anything else of that kind is reported too.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.api.table import Table
from tests.engines.answers import ENGINES, Engine, Scan, Unasked, answer
from tests.engines.conditions import Condition, conditions, kept
from tests.engines.kinds import KINDS, Kind
from tests.engines.layouts import KEY, LAYOUTS, PARTITION, rows_of

SUMMARIES_SHARE = 0.25
"""Of the share of conditions, how many times as often a column's summaries are asked for, at most always."""
KINDS_PER_TABLE = 5
FLOATS = ("float", "double", "float_nan", "double_nan")


@dataclass(frozen=True)
class Difference:
    """What engines do on rows in memory in another way than a scan; `None` is any."""

    why: str
    engines: tuple[str, ...]
    kinds: tuple[str, ...] | None = None
    operators: tuple[str, ...] | None = None

    def covers(self, engine: str, kind: str, operator: str) -> bool:
        """Whether an answer may differ by it."""
        return (
            engine in self.engines
            and (self.kinds is None or kind in self.kinds)
            and (self.operators is None or operator in self.operators)
        )


THEIRS = (
    Difference(
        "NaN is equal to itself, and above every number",
        (
            "DuckDB relation",
            "polars",
            "DataFusion",
            "Spark, read_dataframe",
            'Spark, format("lsm")',
        ),
        FLOATS,
    ),
    Difference(
        "a filter that pyarrow applies forgets NaN, and `not >` and `<=` of NaN keep nulls",
        ("DuckDB, a dataset by name", "DuckDB, a scan by name", "polars, scan_pyarrow_dataset"),
        FLOATS,
    ),
    Difference("NaN is in a set that holds it", ("pyarrow dataset",), FLOATS, ("in", "not in")),
    Difference(
        "null is outside of every set",
        ("pyarrow dataset", "polars, scan_pyarrow_dataset", "DataFusion"),
        None,
        ("not in",),
    ),
    Difference(
        "instants in nanoseconds are compared as microseconds",
        ("DuckDB, a dataset by name", "DuckDB, a scan by name"),
        ("instant_9",),
    ),
    Difference(
        "sets of times in nanoseconds become microseconds",
        ("DuckDB, a dataset by name", "DuckDB, a scan by name"),
        ("timestamp_9",),
        ("in", "not in"),
    ),
)


@dataclass(frozen=True)
class Share:
    """A stretch of the numbers from 0 to 1."""

    first: float
    end: float

    def holds(self, number: float) -> bool:
        """Whether a number is in it."""
        return self.first <= number < self.end


@dataclass
class Report:
    """How many answers were compared, and which differ: by our fault, as known, and otherwise."""

    compared: int = 0
    ours: list[str] = field(default_factory=list)
    theirs: Counter[Difference] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)


class Matrix:
    """Asks a share of all questions, in an order that a seed decides, from `first` on, which is a share as well.

    Shares of one seed that follow each other ask every question once.
    """

    def __init__(self, share: float, seed: int, first: float = 0.0) -> None:
        self.report = Report()
        self._asked = Share(first, first + share)
        self._seed = seed
        self.answers: dict[tuple[object, ...], Any] = {}
        """Of rows in memory, by engine, type, rows and question: each is asked for once."""

    def ask(
        self, layouts: Iterable[str], kinds: Sequence[Kind], engines: Sequence[Engine]
    ) -> Report:
        """Ask tables with columns of some types in some layouts."""
        rows = rows_of().select([KEY, PARTITION, *(kind.name for kind in kinds)])
        with tempfile.TemporaryDirectory() as lake, lsm.open_catalog(lake) as catalog:
            for layout in layouts:
                table = LAYOUTS[layout](catalog, rows, kinds)
                whole = table.to_arrow()
                for kind in kinds:
                    if kind.name not in whole.column_names:
                        continue
                    for engine in engines:
                        plain = whole.select([KEY, kind.name])
                        Questions(self, layout, kind, engine).ask(table, plain)
        return self.report

    def dice(self, *place: str) -> random.Random:
        """Return what chooses the questions of a place."""
        return random.Random(f"{self._seed} {place}")

    def chosen(self, kind: Kind, dice: random.Random) -> list[Condition]:
        """Return some of the conditions on a column."""
        return [each for each in conditions(kind) if self._asked.holds(dice.random())]

    def summarised(self, dice: random.Random) -> bool:
        """Whether a column's summaries are asked for."""
        return self._asked.holds(dice.random() * SUMMARIES_SHARE)


class Questions:
    """What one engine is asked about one column in one layout."""

    def __init__(self, matrix: Matrix, layout: str, kind: Kind, engine: Engine) -> None:
        self._matrix = matrix
        self._report = matrix.report
        self._answers = matrix.answers
        self._kind = kind
        self._engine = engine
        self._layout = layout

    def ask(self, table: Table, plain: pa.Table) -> None:
        """Compare answers from a table with those from its rows in memory."""
        kind, engine = self._kind, self._engine
        dice = self._matrix.dice(self._layout, kind.name, engine.name)
        asked, summarised = self._matrix.chosen(kind, dice), self._matrix.summarised(dice)
        if not asked and not summarised:
            return
        source, reference = engine.of_table(table, kind), engine.of_rows(plain)
        keys, values = plain[KEY].to_pylist(), kind.plain(plain[kind.name])
        place = (engine.name, kind.name, str(values))
        forms = dict(self._forms(asked))
        got = engine.all_keys(source, [*forms.values()])
        missing = [condition for condition in forms if (*place, condition) not in self._answers]
        if engine.name != Scan.name:
            wanted = engine.all_keys(reference, [forms[condition] for condition in missing])
            self._answers.update(
                ((*place, condition), keys_in_memory)
                for condition, keys_in_memory in zip(missing, wanted, strict=True)
            )
        for condition, found in zip(forms, got, strict=True):
            truth = kept(condition, keys, values)
            from_memory = self._answers.get((*place, condition), truth)
            self._compare(str(condition), found, from_memory)
            if from_memory != truth:
                self._note(condition, from_memory, truth)
        if summarised:
            self._compare_summaries(place, source, reference)

    def _forms(self, asked: Sequence[Condition]) -> Iterator[tuple[Condition, object]]:
        for condition in asked:
            with contextlib.suppress(Unasked):
                yield condition, self._engine.condition(self._kind, condition)

    def _compare_summaries(
        self, place: tuple[object, ...], source: object, reference: object
    ) -> None:
        engine, kind = self._engine, self._kind
        if place not in self._answers:
            self._answers[place] = _summaries(engine, reference, kind)
        wanted = self._answers[place]
        got = _summaries(engine, source, kind)
        for name in got | wanted:
            self._compare(name, got.get(name), wanted.get(name))

    def _compare(self, question: str, got: Any, from_memory: Any) -> None:
        self._report.compared += 1
        if got != from_memory:
            self._report.ours.append(
                f"{self._layout}; {self._engine.name}; {self._kind.name} {question}: {got}, "
                f"and in memory {from_memory}"
            )

    def _note(self, condition: Condition, from_memory: Any, truth: list[int]) -> None:
        place = (self._engine.name, self._kind.name, condition.operator)
        known = next((each for each in THEIRS if each.covers(*place)), None)
        if known is not None:
            self._report.theirs[known] += 1
            return
        line = f"{self._engine.name}; {self._kind.name} {condition}: {from_memory}, not {truth}"
        if line not in self._report.unknown:
            self._report.unknown.append(line)


def _summaries(engine: Engine, source: object, kind: Kind) -> Mapping[str, Any]:
    found = answer(lambda: engine.summaries(source, kind))
    if isinstance(found, str):
        return {"summaries": found.split(":")[0]}
    # Which zero is the least is not said; as text NaN is equal to itself.
    return {
        name: sorted(repr(0.0 if value == 0 else value) for value in values)
        for name, values in found.items()
    }


def _spark_engines() -> list[Engine]:
    # A session takes half a minute, and PySpark is not installed everywhere.
    from lsm_engine.spark import local_session
    from tests.engines.spark_answers import SparkFormat, SparkFrame

    root = str(Path(__file__).parent.parent.parent)
    spark = local_session(
        threads=2, quick_start=True, settings={"spark.executorEnv.PYTHONPATH": root}
    )
    return [SparkFrame(spark), SparkFormat(spark)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.engines.matrix", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the questions, how many")
    parser.add_argument("--first", type=float, default=0.0, help="the share to leave out before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spark", action="store_true", help="Spark too, by both of its ways")
    for name in ("engines", "layouts", "kinds"):
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args()
    os.environ["RUST_BACKTRACE"] = "0"

    def chosen(names: Iterable[str], text: str) -> list[str]:
        return [name for name in names if not text or name in text.split(";")]

    kinds = [kind for kind in KINDS if not given.kinds or kind.name in given.kinds.split(";")]
    engines = [ENGINES[name]() for name in chosen(ENGINES, given.engines)]
    if given.spark:
        engines += _spark_engines()
    matrix = Matrix(given.share, given.seed, given.first)
    report = matrix.report
    for layout in chosen(LAYOUTS, given.layouts):
        # Files of few columns are opened sooner.
        for group in range(0, len(kinds), KINDS_PER_TABLE):
            matrix.ask([layout], kinds[group : group + KINDS_PER_TABLE], engines)
            print(
                f"{layout}: {report.compared} answers compared, {len(report.ours)} differ",
                flush=True,
            )
    print(*report.ours, *(f"not known: {line}" for line in report.unknown), sep="\n")
    for difference, count in report.theirs.items():
        print(f"theirs, {count} times: {difference.why}")
    print(
        f"{report.compared} answers compared: {len(report.ours)} differences that are ours, "
        f"{report.theirs.total()} of known kinds that are theirs, {len(report.unknown)} others"
    )
    sys.exit(bool(report.ours or report.unknown))


if __name__ == "__main__":
    main()
