"""dbt-spark and the magic %%sparksql over `spark.sql`, in an environment of their own."""

import os
import subprocess
import sys
import sysconfig

import pytest

import lsm_engine as lsm
from tests.docs.blocks import DOCS, ROOT, blocks
from tests.interop.environments import (
    EnvironmentFailedError,
    made_once,
    make_virtual_environment,
)

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop_full]

REQUIREMENTS = (
    "dbt-core==1.10.23",
    "dbt-spark==1.11.0",
    "sparksql-magic==0.0.3",
    "ipython>=8,<9",
    "setuptools<81",
)
CELLS = """
from IPython.core.interactiveshell import InteractiveShell
from lsm_engine.spark import local_session, register
register(local_session(), warehouse="lake")
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "sparksql_magic")
for cell in (
    "CREATE TABLE shop.cells (id INT, n INT) USING lsm TBLPROPERTIES ('primary-key' = 'id')",
    "MERGE INTO shop.cells t USING (SELECT 1 id, 2 n) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
):
    shell.run_cell_magic("sparksql", "", cell)
shell.run_cell_magic("sparksql", "rows", "SELECT n FROM shop.cells VERSION AS OF 1")
assert [tuple(row) for row in shell.user_ns["rows"].collect()] == [(2,)]
"""


@pytest.fixture(scope="module")
def python():
    facts = {"requirements": list(REQUIREMENTS), "python": sys.version.split()[0]}
    try:
        home = made_once("dbt", facts, lambda folder: make_virtual_environment(folder, REQUIREMENTS))  # fmt: skip
    except EnvironmentFailedError as failed:
        pytest.skip(f"cannot be fetched here: {failed}")
    (packages,) = home.glob("venv/lib/python*/site-packages")
    (packages / "behind.pth").write_text(sysconfig.get_path("purelib"))  # PySpark and Arrow
    return home / "venv" / "bin" / "python"


def _run(python, text, folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    done = subprocess.run(
        [str(python), "-c", text, *arguments], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]


def test_the_dbt_project_of_the_recipe(python, tmp_path):
    *files, (_, program) = blocks(DOCS / "recipes" / "dbt.md")
    for _, text in files:
        first, body = text.split("\n", 1)
        path = tmp_path / first.split()[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
    for arguments in ((), ("--vars", "{price: 8}")):
        _run(python, program, tmp_path, *arguments)
    with lsm.open_catalog(tmp_path / "lake") as catalog:
        turnover = catalog["shop.turnover"]
        assert sorted(turnover.scan(columns=["id", "price"]).to_arrow().to_pylist(), key=str) == [
            {"id": 1, "price": 5},
            {"id": 2, "price": 8},
            {"id": 3, "price": 9},
        ]
        assert len(turnover.snapshots()) == 2, "the incremental model keeps what was"
        history = catalog["shop.orders_history"].scan(columns=["customer", "price", "dbt_valid_to"])
        rows = history.to_arrow().to_pylist()
    assert sorted((row["customer"], row["price"], row["dbt_valid_to"] is None) for row in rows) == [
        ("Ann", 5, True),
        ("Bo", 7, False),
        ("Bo", 8, True),
    ]


def test_cells_of_sparksql_magic(python, tmp_path):
    _run(python, CELLS, tmp_path)
