"""`lsm-assets`: the project that it makes under any name, and what it refuses in words."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lsm_assets
from lsm_assets import cli
from lsm_assets.component import LsmTable
from lsm_assets.pinning import pinned_table
from lsm_assets.settings import CATALOG_URL, DAGSTER_HOME, EXECUTOR, WAREHOUSE
from lsm_engine.cli.main import lsm as lsm_command

pytestmark = pytest.mark.dagster


def invoked(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(cli.main, list(arguments), env=environment)


@pytest.mark.parametrize(
    ("directory", "name", "module"),
    [
        ("shop", "shop", "shop"),
        ("my shop", "my-shop", "my_shop"),
        ("7 (new) läden!", "7-new-l-den", "new_l_den"),
        ("dagster", "dagster", "dagster_tables"),
        ("lake", "lake", "lake_tables"),
        ("tests", "tests", "tests_tables"),
        ("class", "class", "class_tables"),
        ("...", "tables", "tables"),
    ],
)
def test_a_project_has_a_name_that_installs_and_imports(
    tmp_path: Path, directory: str, name: str, module: str
) -> None:
    made = tmp_path / f"{directory}"
    done = invoked("init", str(made))
    assert done.exit_code == 0, done.output
    project = tomllib.loads((made / "pyproject.toml").read_text())
    assert project["project"]["name"] == name
    assert project["tool"]["dagster"]["module_name"] == f"{module}.definitions"
    assert (made / module / "definitions.py").exists()
    # Found by itself, `lake` would be a second package once there are tables: pip refuses two.
    assert project["tool"]["setuptools"]["packages"] == [module, f"{module}.defs"]
    assert project["tool"]["dg"]["project"]["root_module"] == module
    assert (made / module / "defs" / "__init__.py").exists()
    assert project["build-system"]["build-backend"] == "setuptools.build_meta"


def test_the_rules_of_a_project_name_commands_and_functions_that_there_are(tmp_path: Path) -> None:
    assert invoked("init", str(tmp_path / "shop")).exit_code == 0
    rules = (tmp_path / "shop" / "AGENTS.md").read_text()
    commands = re.findall(r"`lsm ([a-z]+)", rules)
    assert len(commands) == 7
    listed = CliRunner().invoke(lsm_command, ["--help"]).output
    assert [name for name in commands if f"\n  {name} " not in listed] == []
    for name in ("Upsert", "Delete", "Overwrite", "changes_to_feed"):
        assert f"`{name}`" in rules or f"lsm_assets.{name}`" in rules
        assert name in lsm_assets.__all__
    assert callable(pinned_table)
    assert set(re.findall(r"`([a-z_]+)`", rules)) & set(LsmTable.model_fields) >= {
        "primary_key", "partitioned_by", "options", "writer", "deps",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "requirement"),
    [
        (None, "lsm-assets[dagster]"),
        (
            {"url": "file:///home/me/lake", "dir_info": {}},
            "lsm-assets[dagster] @ file:///home/me/lake",
        ),
        (
            {"url": "https://git.example/lake", "vcs_info": {"vcs": "git", "commit_id": "8ac3f1"}},
            "lsm-assets[dagster] @ git+https://git.example/lake@8ac3f1",
        ),
    ],
    ids=["an index", "a path", "Git"],
)
def test_a_project_requires_the_package_from_where_it_was_installed(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, Any] | None, requirement: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if source is None else json.dumps(source)

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert cli.package_requirement() == requirement


def test_a_project_is_not_made_in_the_place_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")
    for path in (file, file / "shop"):
        done = invoked("init", str(path))
        assert done.exit_code in (1, 2)
        assert str(path) in done.output
        assert isinstance(done.exception, SystemExit)
    assert file.read_text() == "mine"


def test_a_project_beside_the_folder_one_is_in_has_that_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    inner = tmp_path / "shop" / "tests"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert "is not empty" in invoked("init", "..").output
    monkeypatch.chdir(tmp_path)
    done = invoked("init", "shop/tests/../../clicks")
    assert done.exit_code == 0, done.output
    project = tomllib.loads((tmp_path / "clicks" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "clicks"


def test_a_folder_that_cannot_be_looked_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", closed)
    done = invoked("init", str(tmp_path))
    assert done.exit_code == 1
    assert f"cannot look into {tmp_path}: Permission denied" in done.output


def test_an_executor_that_is_none_is_refused_in_words() -> None:
    done = invoked("ui", **{EXECUTOR: "duck"})
    assert done.exit_code == 1
    assert "LSM_EXECUTOR must be one of spark, local" in done.output
    assert isinstance(done.exception, SystemExit)


def test_another_warehouse_has_its_own_catalog_and_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[list[str], dict[str, str]]] = []

    def run_with_companion(
        command: list[str], companion_command: list[str], environment: dict[str, str]
    ) -> int:
        ran.append((companion_command, environment))
        at = companion_command.index(
            "ui"
        )  # what begins as it does finds the catalog, before anything runs
        subprocess.run(
            [*companion_command[:at], "tables"], env={**os.environ, **environment}, check=True
        )
        return 0

    monkeypatch.setattr(cli, "run_with_companion", run_with_companion)
    of_a = {
        WAREHOUSE: str(tmp_path / "a"),
        CATALOG_URL: f"sqlite:///{tmp_path}/a/catalog.db",
        DAGSTER_HOME: str(tmp_path / "a" / "dagster"),
    }
    assert invoked("ui", "--warehouse", str(tmp_path / "b"), **of_a).exit_code == 0
    assert invoked("ui", **of_a).exit_code == 0
    (pages, of_b), (_, again) = ran
    assert of_b[CATALOG_URL] == f"sqlite:///{tmp_path}/b/catalog.db"
    assert of_b[DAGSTER_HOME] == os.fspath(tmp_path / "b" / "dagster")
    assert of_b[CATALOG_URL] in pages
    assert {name: again[name] for name in of_a} == of_a


@pytest.mark.parametrize("ignored", [False, True], ids=["in front", "in the background"])
def test_sigterm_ends_a_command_and_what_runs_beside_it(ignored: bool, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    waits = (
        "import time\ntry: print('waits', flush=True); time.sleep(60)\n"
        f"except KeyboardInterrupt: open({str(ended)!r}, 'w')"
    )
    program = (
        "import os, signal, sys\nfrom lsm_assets.home import run_with_companion\n"
        f"acts = {'signal.SIG_IGN' if ignored else 'signal.default_int_handler'}\n"
        "signal.signal(signal.SIGINT, acts)\n"
        "signal.signal(signal.SIGTERM, acts)\n"  # as Dagster does when it is imported
        f"sys.exit(run_with_companion([sys.executable, '-c', {waits!r}], ['sleep', '60'], dict(os.environ)))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"waits\n"
        running.terminate()
        try:
            assert running.wait(timeout=20) == 0
        finally:
            running.kill()
    assert ended.exists()
