"""What a verb loads: help nothing of the engine, a verb no more than it needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOADED = """
import contextlib, io, json, resource, sys
from lsm_engine.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
spent = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([sorted(sys.modules), spent.ru_utime + spent.ru_stime]))
"""
EXTRAS = {"pandas", "polars", "duckdb", "pyspark", "dagster"}
COMPILERS = {"numba", "sqlglot", "datasketches"}


def loaded(*words: object) -> tuple[set[str], float]:
    """The modules that a command line loads, packages by their names alone too, and its CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *map(str, words)],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    modules, seconds = json.loads(done.stdout.splitlines()[-1])
    return {*modules, *(name.partition(".")[0] for name in modules)}, seconds


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=" ".join)
def test_help_loads_no_verb_and_nothing_of_the_engine(words) -> None:
    modules, seconds = loaded(*words)
    assert modules.isdisjoint({"pyarrow", "numpy", "sqlalchemy", "rich", *EXTRAS, *COMPILERS})
    ours = {name for name in modules if name.startswith("lsm_engine.")}
    assert not {name for name in ours if name.startswith("lsm_engine.cli.commands.")}
    assert len(ours) <= 15, ours
    assert seconds < 0.5  # 0.07 on a quiet machine; it was 1.35


@pytest.mark.parametrize(
    ("words", "left_out", "most"),
    [
        (["version"], ("sqlalchemy", "lsm_engine.table"), 30),
        (["tables"], ("lsm_engine.spark", "lsm_engine.ui", "rich.progress"), 510),
        (["show", "snapshots", "{table}"], ("sqlalchemy", "lsm_engine.cli.commands.write"), 480),
        (["scan", "{table}"], ("sqlalchemy", "lsm_engine.cli.commands.look"), 480),
        (["doctor", "--shallow"], ("lsm_engine.cli.commands.write", "lsm_engine.ui"), 510),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_verb_loads_what_it_needs(shop, words, left_out, most) -> None:
    table = shop.warehouse / "shop.db" / "orders"
    given = [word.format(table=table) for word in words]
    modules, _ = loaded("--warehouse", shop.warehouse, *given)
    assert modules.isdisjoint({*EXTRAS, *COMPILERS, *left_out})
    ours = {name for name in modules if name.startswith("lsm_engine.")}
    verbs = {name for name in ours if name.startswith("lsm_engine.cli.commands.")}
    assert len(verbs) <= 3, verbs
    assert len(ours) <= most


@pytest.mark.parametrize(
    "group", ["show", "tag", "branch", "consumer", "trash", "catalog", "lineage"]
)
def test_a_group_loads_all_of_its_verbs(group) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lsm_engine.cli.main", group, "--help"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    page = Path(__file__).parent / "help" / f"lsm-{group}.txt"
    assert done.stdout.split() == page.read_text().split()
