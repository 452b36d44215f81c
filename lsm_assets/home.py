"""DAGSTER_HOME: made ready once, with the shipped dagster.yaml, and how to open the UI on it."""

import os
import sys
from importlib.resources import files
from pathlib import Path

import dagster as dg

from lsm_assets.settings import (
    CATALOG_URL,
    DAGSTER_HOME,
    EXECUTOR,
    LINEAGE_URL,
    SPARK_MASTER,
    WAREHOUSE,
    Settings,
)

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 3000
PAGES_PORT = 8577
"""Where `lsm ui` serves pages of tables and the lineage."""
SERVED_LINEAGE = f"http://{LOOPBACK}:{PAGES_PORT}/lineage"


# The name is that of the repository's own workspace.yaml: sensors keep their state under it.
_WORKSPACE = """load_from:
  - python_module:
      module_name: lsm_assets.definitions
      location_name: lsm_assets
"""


def prepare_home(settings: Settings) -> Path:
    """Return Dagster's home, made with the shipped dagster.yaml where there is none."""
    home = Path(settings.dagster_home)
    home.mkdir(parents=True, exist_ok=True)
    shipped = files("lsm_assets").joinpath("dagster.yaml").read_text()
    for name, text in (("dagster.yaml", shipped), ("workspace.yaml", _WORKSPACE)):
        if not (home / name).exists():
            (home / name).write_text(text)
    return home


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Open the instance that the UI shows."""
    return dg.DagsterInstance.from_config(str(prepare_home(settings)))


def ui_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that make `dagster dev` show this warehouse."""
    variables = {
        LINEAGE_URL: os.environ.get(LINEAGE_URL, SERVED_LINEAGE),
        DAGSTER_HOME: settings.dagster_home,
        WAREHOUSE: settings.warehouse,
        CATALOG_URL: settings.catalog_url,
        EXECUTOR: settings.executor,
    }
    return variables | ({SPARK_MASTER: settings.spark_master} if settings.spark_master else {})


def pages_command(settings: Settings, dagster_port: int) -> list[str]:
    """Return the command that serves tables and their lineage beside the UI, each leading to the other."""
    return [
        *(sys.executable, "-m", "lsm_engine.cli.main"),
        *("--catalog", settings.catalog_url, "--warehouse", settings.warehouse),
        *("ui", "--no-browser", "--port", str(PAGES_PORT)),
        *("--dagster", f"http://{LOOPBACK}:{dagster_port}"),
    ]


def ui_command(
    settings: Settings, port: int = DEFAULT_PORT, *, with_workspace: bool = True
) -> list[str]:
    """Return the command that starts the UI and the daemon on a home that was made ready.

    There is no login in front of the UI, so it listens on the loopback address only. Without the
    workspace, which is the sample's, it shows the project of the current directory.
    """
    workspace = ["-w", str(Path(settings.dagster_home) / "workspace.yaml")]
    return [
        # `dagster dev` prints that a tool of another package supersedes it; it does what is needed.
        *(sys.executable, "-W", "ignore:Function", "-m", "dagster", "dev"),
        *(workspace if with_workspace else []),
        *("-h", LOOPBACK, "-p", str(port)),
    ]
