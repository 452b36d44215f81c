"""Every task of lsm_assets/docs/how-to.md works as it is written."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster._cli import create_dagster_cli
from dagster._daemon.cli import create_dagster_daemon_cli
from dagster_webserver.cli import create_dagster_webserver_cli

from lsm_assets.keys import AssetKind
from lsm_assets.recording import recorded_version
from lsm_assets.warehouse_component import LsmWarehouseComponent
from tests.dagster.lake import KEYS, MARKS, Lake, rows
from tests.docs.blocks import FENCE, ROOT
from tests.docs.blocks import run as run_block
from tests.engines.iceberg_readers import duckdb_extensions
from tests.postgres_server import running_server
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


def blocks(section: str, kind: str) -> list[str]:
    return [text for each, text in SECTIONS[section] if each == kind]


def run(command: list[str], directory: Path) -> str:
    return run_block(command, directory, ("dagster", "lsm_assets"))


@pytest.mark.parametrize("section", PYTHON)
def test_a_task_works(section: str, tmp_path: Path) -> None:
    for kind, text in PYTHON[section]:
        if kind == "python":
            run(["block", text], tmp_path)


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


@pytest.mark.parametrize("section", ["dbt downstream, on DuckDB", "Other engines by Iceberg"])
def test_dbt_reads_a_table(tmp_path: Path, section: str) -> None:
    program = shutil.which("dbt")
    if program is None:
        missing("dbt", "needs dbt-duckdb")
    *plugin, dagster_side = blocks(section, "py")
    (yaml_files,) = blocks(section, "yaml")
    (tmp_path / "lsm_source.py").write_text("".join(plugin))
    profiles, sources = yaml_files.split("# models/sources.yml\n")
    # In place of a download.
    packaged = profiles.replace("[avro, iceberg]", json.dumps(duckdb_extensions()))
    (tmp_path / "profiles.yml").write_text(packaged)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "sources.yml").write_text(sources)
    (tmp_path / "models" / "turnover.sql").write_text(
        "{{ config(materialized='table') }} select sum(price) as price from {{ source('shop', 'orders') }}"
    )
    (tmp_path / "dbt_project.yml").write_text("name: shop\nversion: 1.0.0\nprofile: shop\n")
    made = (
        "import lsm_engine as lsm; lsm.open_catalog('lake').create_table('shop.orders', "
        "{'id': int, 'price': float}, primary_key='id', options={'iceberg-compatibility.enabled': 'true'})"
        ".upsert([{'id': 1, 'price': 5.0}, {'id': 2, 'price': 7.0}])"
    )
    run(["block", made], tmp_path)
    if not plugin and not duckdb_extensions():
        missing("duckdb-extension-iceberg", "needs DuckDB's extension from a package")
    run([program, "run" if plugin else "parse", "--profiles-dir", "."], tmp_path)
    if plugin:
        assert_turnover(tmp_path)
        (tmp_path / "analytics.duckdb").unlink()
    if find_spec("dagster_dbt") is None:
        missing("dagster-dbt", "needs dagster-dbt")
    (tmp_path / "project.py").write_text(dagster_side)
    run(["block", DBT_ASSETS], tmp_path)
    assert_turnover(tmp_path)


DBT_ASSETS = """
import sys; sys.path.insert(0, ".")
import dagster as dg
from lsm_assets import current_settings
from lsm_assets.resource import resources_from
from project import RESOURCES, models
(source,) = set().union(*models.asset_deps.values())
resources = {**resources_from(current_settings()), **RESOURCES}
assert dg.materialize([dg.AssetSpec(source), models], resources=resources, selection=[models]).success
assert source.path in (["shop", "orders"], ["shop", "orders.iceberg"])
"""


def assert_turnover(directory: Path) -> None:
    read = "import duckdb; assert duckdb.connect('analytics.duckdb').sql('select price from turnover').fetchall() == [(12.0,)]"
    run(["block", read], directory)


def test_dagster_keeps_its_storage_in_postgresql_as_deployments_say(lake: Lake) -> None:
    if find_spec("dagster_postgres") is None:
        missing("dagster-postgres", "needs dagster-postgres")
    (settings,) = blocks("Deploy", "yaml")
    with running_server() as server, pytest.MonkeyPatch.context() as patch:
        url = server.fresh_url().replace("postgresql:", "postgresql+psycopg2:")
        patch.setenv("DAGSTER_POSTGRES_URL", url)
        with dg.instance_for_test(overrides=yaml.safe_load(settings)) as instance:
            there = Lake(lake.warehouse, instance, lake.tables, lake.to_write)
            there.write(rows(1))
            there.lsm.existing_table("shop.orders").upsert(rows(2))
            there.sync()
            assert there.snapshots == ["1", "2"]
            versions = recorded_version(instance, KEYS.asset(AssetKind.TABLE))
            assert versions is not None
            assert versions.snapshot_id == 2


def test_deployments_name_programs_and_extras_that_there_are() -> None:
    (docker,), (unit,) = blocks("Deploy", "dockerfile"), blocks("Deploy", "ini")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (named,) = re.findall(r"lsm-assets\[([a-z0-9,]+)\]", docker)
    assert set(named.split(",")) <= set(extras)
    code_server = json.loads(docker.rpartition("CMD ")[2])
    (webserver,) = re.findall("ExecStart=(.*)", unit)
    (daemon,) = re.findall("each with (dagster-daemon [a-z]+)", unit)
    assert Path(webserver.split()[0]).name == "dagster-webserver"
    for group, command in (
        (create_dagster_cli(), code_server[1:]),
        (create_dagster_webserver_cli(), webserver.split()[1:]),
        (create_dagster_daemon_cli(), daemon.split()[1:]),
    ):
        words = list(takewhile(lambda word: word[0] != "-", command))
        told = CliRunner().invoke(group, [*words, "--help"])
        assert told.exit_code == 0, told.output
        missing_flags = [flag for flag in command if flag[0] == "-" and flag not in told.output]
        assert not missing_flags
