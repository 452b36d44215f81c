"""Runs mutants: each in a process of its own, against only the tests that reach the changed lines.

One process imports everything and runs the tests once, noting which lines of the rules each test
reaches. For each mutant it forks: the child swaps the compiled code of the changed function in place,
which every importer sees, and runs the tests that reach it, the quickest first, until one fails.
"""

import ast
import functools
import importlib
import inspect
import os
import signal
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import lsm_engine
from tests.mutation.operators import Mutant, mutants_of

MODULES = (
    "filter.partition",
    "filter.predicate",
    "filter.stats",
    "lsm.levels",
    "lsm.rewrite_plan",
    "lsm.universal",
    "planning.buckets",
    "planning.commit",
    "planning.commit_identifiers",
    "planning.compaction",
    "planning.conflicts",
    "planning.expire",
    "planning.keys",
    "planning.names",
    "planning.ownership",
    "planning.proposal",
    "planning.retention",
    "planning.row_ids",
    "planning.scan",
    "planning.tags",
)
"""The modules that hold rules. Reports for people and Arrow's own expression form are no rules."""

NOT_RULES = frozenset(
    {
        *(
            f"planning.commit.{name}"
            for name in ("_BYTES_MAX", "_COUNT_MAX", "_LISTS_MAX", "_NOTE_MAX")
        ),
        *(
            "planning.keys.TASK_COUNT_MAX",
            "planning.keys._ITEM_COST_BYTES",
            "planning.keys._TASK_BYTES_MAX",
        ),
        *("planning.keys._TASK_BYTES_MIN", "planning.proposal._SHORTEST_PART"),
        "planning.compaction._size_of_files",
        "planning.commit.copied_lists",
        "planning.commit.lists_to_fetch",
        "planning.commit.named_manifests",
        "planning.commit.new_manifests",
        "planning.commit.note_of_files",
        "planning.commit.noted_files",
        "planning.commit.noted_state",
        "planning.commit.packed_lists",
        "planning.commit.with_manifests",
        "planning.compaction.Amplification",
        "planning.compaction.Arrivals",
        "planning.compaction.BucketForecast",
        "planning.compaction.BucketPressure",
        "planning.compaction._deepest",
        "planning.compaction._forecast",
        "planning.compaction._in",
        "planning.compaction._reason",
        "planning.compaction._until",
        "planning.compaction.amplification",
        "planning.compaction.arrivals_of",
        "planning.compaction.forecasts",
        "planning.compaction.pressure_of",
        "planning.compaction.pressures",
        "planning.conflicts._wrong",
        "planning.conflicts.find_row_id_conflict",
        "planning.keys.FileShare",
        "planning.keys.MovedKeys",
        "planning.keys.SortedRows",
        "planning.keys._all_stay",
        "planning.keys._cut",
        "planning.keys._first_stays",
        "planning.keys._newest_moves",
        "planning.keys._without_leaving",
        "planning.keys.balanced",
        "planning.keys.check_moves_delete",
        "planning.keys.emits_moves",
        "planning.keys.file_shares",
        "planning.keys.fill_buckets",
        "planning.keys.keys_move",
        "planning.keys.moves",
        "planning.keys.moves_records",
        "planning.keys.packed",
        "planning.keys.remembered_buckets",
        "planning.proposal.CommitIdentity",
        "planning.proposal.CommitOptions",
        "planning.proposal.CommitOutcome",
        "planning.proposal.LiveChange",
        "planning.proposal.Proposal",
        "planning.proposal.RowsUnchanged",
        "planning.proposal.SameState",
        "planning.proposal.overwriting",
        "planning.proposal.retry_wait_millis",
        "planning.proposal.rewrite_wait_millis",
        "planning.row_ids._newest_first",
        "planning.row_ids.column_groups",
        "planning.row_ids.row_ids_of",
        "planning.row_ids.stores_row_ids",
        "planning.row_ids.with_row_ids",
        "planning.scan.PruneCounts",
        "planning.scan.ScanExplanation",
        "planning.scan._split_line",
        "planning.scan.prune_counts",
    }
)
"""Functions and classes of these modules that are no rules: figures for people, packing, and values."""

HERE = Path(__file__).parent
PAGE = Path(lsm_engine.__file__).parent / "docs" / "testing.md"
SECONDS_MAX = 20
KILLED, SURVIVED, INVALID = 0, 1, 2


@functools.cache
def constants(module: str) -> dict[int, str]:
    """Return the names that a module assigns at its top, by the lines of the assignments."""
    tree = ast.parse(Path(str(importlib.import_module(module).__file__)).read_text())
    return {
        line: node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def is_no_rule(mutant: Mutant) -> bool:
    """Whether a mutant stands in a function, class or constant that decides nothing."""
    owner = constants(mutant.module).get(mutant.lines.start) or mutant.function.split(".")[0]
    return f"{mutant.module.removeprefix('lsm_engine.')}.{owner}" in NOT_RULES


def equivalents() -> dict[str, str]:
    """Return the mutants that change nothing that can be seen, each with the reason."""
    known: dict[str, str] = {}
    reason = ""
    for line in (HERE / "equivalent.txt").read_text().splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line.strip():
            known[line.strip()] = reason
    return known


def imported(modules: Sequence[str] = ()) -> list[ModuleType]:
    """Return the modules whose rules are changed, narrowed by parts of their names."""
    return [
        importlib.import_module(f"lsm_engine.{name}")
        for name in MODULES
        if not modules or any(part in name for part in modules)
    ]


class MutationRun:
    """A pytest plugin that runs mutants in place of a test session."""

    def __init__(self, *, modules: Sequence[str], nth: int, jobs: int) -> None:
        self.results: dict[str, dict[str, bool]] = {}
        self.survivors: list[Mutant] = []
        self._untried = 0
        self._nth = nth
        self._jobs = jobs
        self._modules = imported(modules)
        self._files = {module.__file__: module for module in self._modules}
        self._reached: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._seconds: list[float] = []
        self._equivalent = equivalents()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        started = time.monotonic()
        if session.testsfailed or not self._baseline(session.items):
            return True
        self._known = time.monotonic() - started
        for module in self._modules:
            tree = ast.parse(Path(str(module.__file__)).read_text())
            self._hunt(module, tree, session.items)
        self._took = time.monotonic() - started
        return True

    # --- which test reaches which line ------------------------------------------------------------

    def _baseline(self, items: Sequence[pytest.Item]) -> bool:
        for number, item in enumerate(items):
            began = time.perf_counter()
            passed = self._traced(item, number)
            self._seconds.append(time.perf_counter() - began)
            if not passed:
                print(f"fails as it is: {item.nodeid}", file=sys.stderr)
                return False
        return True

    def _traced(self, item: pytest.Item, number: int) -> bool:
        def within(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                self._reached[frame.f_code.co_filename, frame.f_lineno].add(number)
            return within

        def entered(frame: FrameType, event: str, argument: Any) -> Any:
            name = frame.f_code.co_filename
            return within(frame, event, argument) if name in self._files else None

        sys.settrace(entered)
        try:
            return _passes(item)
        finally:
            sys.settrace(None)

    def _tests_of(self, mutant: Mutant, file: str) -> list[int]:
        reaching = set().union(*(self._reached.get((file, line), ()) for line in mutant.lines))
        if mutant.function == "module" or not mutant.lines:
            reaching = {
                test for (name, _), tests in self._reached.items() if name == file for test in tests
            }
        return sorted(reaching, key=lambda test: self._seconds[test])

    # --- mutants ----------------------------------------------------------------------------------

    def _hunt(self, module: ModuleType, tree: ast.Module, items: Sequence[pytest.Item]) -> None:
        chosen = [
            mutant
            for mutant in mutants_of(module, tree)
            if mutant.key not in self._equivalent
            and not is_no_rule(mutant)
            and zlib.crc32(mutant.key.encode()) % self._nth == 0
        ]
        verdicts = self.results.setdefault(module.__name__, {})
        running: dict[int, Mutant] = {}
        for mutant in chosen:
            while len(running) >= self._jobs:
                self._collect(running, verdicts)
            running[self._start(mutant, module, tree, items)] = mutant
        while running:
            self._collect(running, verdicts)

    def _start(
        self, mutant: Mutant, module: ModuleType, tree: ast.Module, items: Sequence[pytest.Item]
    ) -> int:
        tests = self._tests_of(mutant, str(module.__file__))
        process = os.fork()
        if process:
            return process
        ended = INVALID
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS_MAX)
            mutant.apply()
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            applied = (
                reassign(module, tree, mutant.lines.start)
                if mutant.function == "module"
                else swap(module, compile(tree, str(module.__file__), "exec"))
            )
            if applied:
                ended = KILLED
                if all(_passes(items[test]) for test in tests):
                    ended = SURVIVED
        finally:
            os._exit(ended)

    def _collect(self, running: dict[int, Mutant], verdicts: dict[str, bool]) -> None:
        process, status = os.wait()
        mutant = running.pop(process)
        code = os.waitstatus_to_exitcode(status)
        if code == INVALID:
            self._untried += 1
            return
        verdicts[mutant.key] = code != SURVIVED  # one that never ends is noticed as well
        if code == SURVIVED:
            self.survivors.append(mutant)

    # --- what came of it --------------------------------------------------------------------------

    @property
    def percent(self) -> float:
        """Mutants that a test notices, of 100."""
        verdicts = [killed for some in self.results.values() for killed in some.values()]
        return 100 * sum(verdicts) / max(1, len(verdicts))

    def report(self) -> str:
        """Return the survivors, the rates and how long it took."""
        lines = [f"survives: {mutant.place}  {mutant.key}" for mutant in self.survivors]
        lines += [
            f"no such mutant any more, delete it from equivalent.txt: {key}"
            for key in stale_equivalents(self._modules)
        ]
        taken = f"{self._took:.0f} s, {self._known:.0f} of them to learn which test reaches what"
        untried = f"{self._untried} changes could not be tried"
        return "\n".join([*lines, "", *self.table(), "", f"{taken}; {untried}"])

    def table(self) -> list[str]:
        """Return the rates as a table in Markdown."""
        lines = ["| Module | Mutants | Killed | Rate |", "|---|---|---|---|"]
        for module, verdicts in self.results.items():
            if verdicts:
                name = module.removeprefix("lsm_engine.")
                lines.append(_row(f"`{name}`", list(verdicts.values())))
        verdicts = [killed for some in self.results.values() for killed in some.values()]
        return [*lines, _row("all", verdicts)]

    def record(self) -> None:
        """Write the table into docs/testing.md."""
        head, _, rest = PAGE.read_text().partition("<!-- recorded -->\n")
        _, _, tail = rest.partition("<!-- end -->\n")
        table = "\n".join(self.table())
        PAGE.write_text(f"{head}<!-- recorded -->\n{table}\n<!-- end -->\n{tail}")


def stale_equivalents(modules: Sequence[ModuleType]) -> list[str]:
    """Return the listed equivalents of some modules that no mutant is called any more."""
    keys = {
        mutant.key
        for module in modules
        for mutant in mutants_of(module, ast.parse(Path(str(module.__file__)).read_text()))
    }
    names = tuple(module.__name__.removeprefix("lsm_engine.") + "." for module in modules)
    return [key for key in equivalents() if key.startswith(names) and key not in keys]


def _row(name: str, verdicts: Sequence[bool]) -> str:
    killed = sum(verdicts)
    return f"| {name} | {len(verdicts)} | {killed} | {100 * killed / max(1, len(verdicts)):.1f} % |"


def _passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(report.passed or report.skipped for report in reports)


# --- swapping code in place -----------------------------------------------------------------------


def swap(module: ModuleType, mutated: CodeType) -> bool:
    """Give a module's functions the code that `mutated` has for them; False if it cannot be."""
    codes = {code.co_qualname: code for code in _codes(mutated)}
    swapped = False
    for function in functions_of(module):
        code = codes.get(function.__qualname__)
        if code is None or code == function.__code__:
            continue
        try:
            function.__code__ = code
        except ValueError:  # another number of variables from outside
            return False
        swapped = True
    return swapped


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions and methods that a module defines."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            yield value
        elif inspect.isclass(value):
            for member in vars(value).values():
                plain = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(plain, FunctionType):
                    yield plain


def reassign(module: ModuleType, tree: ast.Module, line: int) -> bool:
    """Compute the constant of a line anew and set it wherever it is imported."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and statement.lineno == line:
            text = compile(ast.Expression(statement.value), str(module.__file__), "eval")
            name = ast.unparse(statement.targets[0])
            old, value = vars(module)[name], eval(text, vars(module))
            for importer in list(sys.modules.values()):
                if vars(importer).get(name) is old:
                    setattr(importer, name, value)
            return True
    return False
