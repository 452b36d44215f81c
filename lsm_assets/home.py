"""DAGSTER_HOME: made ready once, with the shipped dagster.yaml, and how to open the UI on it."""

import sys
from importlib.resources import files
from pathlib import Path

import dagster as dg

from lsm_assets.settings import (
    CATALOG_URL,
    DAGSTER_HOME,
    EXECUTOR,
    SPARK_MASTER,
    WAREHOUSE,
    Settings,
)

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 3000


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
    found = {
        DAGSTER_HOME: settings.dagster_home,
        WAREHOUSE: settings.warehouse,
        CATALOG_URL: settings.catalog_url,
        EXECUTOR: settings.executor,
    }
    return found | ({SPARK_MASTER: settings.spark_master} if settings.spark_master else {})


def ui_command(settings: Settings, port: int = DEFAULT_PORT) -> list[str]:
    """Return the command that starts the UI and the daemon on a home that was made ready.

    There is no login in front of the UI, so it listens on the loopback address only.
    """
    return [
        # `dagster dev` prints that a tool of another package supersedes it; it does what is needed.
        *(sys.executable, "-W", "ignore:Function", "-m", "dagster", "dev"),
        *("-w", str(Path(settings.dagster_home) / "workspace.yaml")),
        *("-h", LOOPBACK, "-p", str(port)),
    ]
