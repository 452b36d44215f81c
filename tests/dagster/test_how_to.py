"""Every task of lsm_assets/docs/how-to.md works as it is written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lsm_assets.warehouse_component import LsmWarehouseComponent
from tests.dagster.lake import MARKS
from tests.docs.blocks import FENCE, ROOT
from tests.promised import missing

pytestmark = [
    *MARKS,
    pytest.mark.slow,
    # Dagster's own loader of YAML.
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
]
PAGE = ROOT / "lsm_assets" / "docs" / "how-to.md"
SECTIONS = {
    part.partition("\n")[0]: FENCE.findall(part) for part in PAGE.read_text().split("\n## ")[1:]
}
PYTHON = {
    name: found for name, found in SECTIONS.items() if any(kind == "python" for kind, _ in found)
}


def run(command: list[str], directory: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {name: text for name, text in os.environ.items() if not name.startswith("LSM_")}
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=280, check=False,
        env={**known, "PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("section", PYTHON)
def test_a_task_works(section: str, tmp_path: Path) -> None:
    for kind, text in PYTHON[section]:
        if kind == "python":
            run([sys.executable, "-W", "ignore", "-c", text], tmp_path)


def test_a_project_is_made_and_its_test_passes(tmp_path: Path) -> None:
    ((kind, text),) = SECTIONS["A project of your own"]
    assert kind == "bash"
    program = f"{sys.executable} -m lsm_assets.cli"
    told = run(["bash", "-euo", "pipefail", "-c", text.replace("lsm-assets", program)], tmp_path)
    assert "1 passed" in told
    again = subprocess.run(
        [sys.executable, "-m", "lsm_assets.cli", "init", str(tmp_path / "shop")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_the_warehouse_in_yaml_is_understood() -> None:
    ((_, text),) = SECTIONS["A warehouse in YAML"]
    told = yaml.safe_load(text)["attributes"]
    told["tables"][0].pop("writer")  # a project's own
    component = LsmWarehouseComponent.resolve_from_dict(told)
    (orders,) = component.tables
    made = orders.assets(with_jobs=False).declaration
    assert made.partitions_def is not None
    assert made.templates is not None
    assert made.templates.values("2024-01-05") == ("2024-01-05",)
    assert component.settings().warehouse.endswith("/lake")


def test_dbt_reads_a_table(tmp_path: Path) -> None:
    program = shutil.which("dbt")
    if program is None:
        missing("dbt", "needs dbt-duckdb")
    files = dict(SECTIONS["dbt downstream, on DuckDB"])
    (tmp_path / "lsm_source.py").write_text(files["py"])
    profiles, sources = files["yaml"].split("# models/sources.yml\n")
    (tmp_path / "profiles.yml").write_text(profiles)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "sources.yml").write_text(sources)
    (tmp_path / "models" / "turnover.sql").write_text(
        "{{ config(materialized='table') }} select sum(price) as price from {{ source('shop', 'orders') }}"
    )
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: 1.0.0\nprofile: shop\n")
    made = (
        "import lsm_engine as lsm; lsm.open_catalog('lake').create_table('shop.orders', "
        "{'id': int, 'price': float}, primary_key='id').upsert([{'id': 1, 'price': 5.0}, {'id': 2, 'price': 7.0}])"
    )
    run([sys.executable, "-c", made], tmp_path)
    run([program, "run", "--profiles-dir", "."], tmp_path)
    read = "import duckdb; assert duckdb.connect('analytics.duckdb').sql('select price from turnover').fetchall() == [(12.0,)]"
    run([sys.executable, "-c", read], tmp_path)
