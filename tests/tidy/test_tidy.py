"""Rules about the source itself: sizes, names, forbidden calls, documents in step."""

import ast
import dataclasses
import importlib
import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lsm_assets
import lsm_engine
from tests.tidy.sources import ROOT, nodes, trees

SOURCES = sorted(
    path for package in ("lsm_engine", "lsm_assets") for path in (ROOT / package).rglob("*.py")
)
FILE_LINES_MAX = 1200
TABLES_OF_DATA = {
    "lsm_engine/options/core_options.py": "one declaration per option: a table, not a room"
}
NAMED_BY_DAGSTER = {"LsmIOManager", "io_manager"}
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|common|impl|misc)($|_)")
MAY_OPEN_FILES = (
    "lsm_engine/storage/",
    "lsm_engine/cache/",
    "lsm_engine/data_files/",
    "lsm_engine/cli/",
    "lsm_engine/ui/",
    "lsm_assets/",
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_grows_without_end() -> None:
    long = {
        relative(path): lines
        for path in SOURCES
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
        and relative(path) not in TABLES_OF_DATA
    }
    assert not long


def test_names_say_what_things_are() -> None:
    wrong = [
        relative(path)
        for path in SOURCES
        if path.stem not in NAMED_BY_DAGSTER and FORBIDDEN_NAMES.search(path.stem)
    ]
    wrong += [
        f"{name}:{node.name}"
        for name, inside in nodes().items()
        for node in inside
        if isinstance(node, ast.ClassDef)
        and node.name not in NAMED_BY_DAGSTER
        and re.search(r"(Utils?|Helper|Manager|Common|Impl)$|^(Base|Common)", node.name)
    ]
    assert not wrong


def test_every_room_says_what_it_is() -> None:
    assert not [
        name for name, tree in trees().items() if tree.body and ast.get_docstring(tree) is None
    ]


def test_packages_hold_a_docstring_and_nothing_else() -> None:
    front_doors = {
        "lsm_engine/__init__.py",
        "lsm_assets/__init__.py",
        "lsm_engine/spark/__init__.py",
    }
    full = [
        name
        for name, tree in trees().items()
        if name.endswith("__init__.py") and name not in front_doors and len(tree.body) > 1
    ]
    assert not full


def test_only_the_io_floor_opens_files() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, inside in nodes().items()
        if not name.startswith(MAY_OPEN_FILES)
        for node in inside
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not wrong


MAKERS_OF_POOLS = {
    "lsm_engine/storage/executor.py",
    "lsm_engine/table/components.py",
    "lsm_engine/read/prefetch.py",
    "lsm_engine/data_files/writer.py",
    "lsm_engine/server/application.py",
    "lsm_engine/ui/routes.py",
}


def test_pools_of_threads_are_made_where_decision_72_says() -> None:
    makers = {
        path
        for path, inside in nodes().items()
        for node in inside
        if "ThreadPoolExecutor" in (getattr(node, "id", None), getattr(node, "attr", None))
        or (isinstance(node, ast.alias) and node.name == "ThreadPoolExecutor")
    }
    assert makers == MAKERS_OF_POOLS, "use storage/executor, or say in decision 72 why not"


def test_nothing_is_deleted_recursively_or_evaluated() -> None:
    """A wrong path must never take a directory with it, and stored text never becomes code."""
    banned = re.compile(
        r"\brmtree\b|\bremovedirs\b|\beval\(|\bexec\(|\byaml\.load\(|\bos\.system\b"
    )
    wrong = [
        f"{relative(path)}: {line.strip()}"
        for path in SOURCES
        for line in path.read_text().splitlines()
        if banned.search(line)
    ]
    assert not wrong


def test_assertions_are_on() -> None:
    assert __debug__


def modules() -> Iterator[str]:
    for package in (lsm_engine, lsm_assets):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield found.name


def test_every_record_pickles_by_reference() -> None:
    """Records travel to Spark tasks: their classes must be found by name again."""
    for name in modules():
        module = importlib.import_module(name)
        for value in vars(module).values():
            if dataclasses.is_dataclass(value) and isinstance(value, type):
                assert pickle.loads(pickle.dumps(value)) is value


def test_the_engine_imports_without_spark_dagster_and_the_catalogs_database() -> None:
    script = (
        "import sys\n"
        "for name in ('pyspark', 'dagster', 'sqlalchemy', 'click', 'rich'): sys.modules[name] = None\n"
        "import lsm_engine\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["lint-imports"],
        ["mypy"],
    ],
    ids=lambda command: " ".join(command),
)
def test_tools_find_nothing(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([str(program), *command[1:]], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_no_registry_host_is_named() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    host = re.compile(
        "|".join(
            (
                "py" + r"pi\.org",
                r"pythonhosted\.o" + "rg",
                r"npm" + r"js\.(org|com)",
                r"crates" + r"\.io",
            )
        )
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if not name.startswith("tests/fixtures/"):
            assert not host.search((ROOT / name).read_bytes().decode("utf-8", "replace")), name
