"""Prepare DAGSTER_HOME with the shipped dagster.yaml, and build the commands that open the UI."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from lsm_engine import InvalidOptionError

# -- Run a process, until it ends or Ctrl-C, together with a companion process ---------------------


def run_with_companion(
    command: Sequence[str], companion_command: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Run a command and return its exit code. A companion process runs as long. SIGTERM ends both cleanly.

    Args:
        command: The command.
        companion_command: The command of the companion process.
        environment: Environment of both processes.
    """
    # Children inherit ignored signals. The companion is ended by SIGTERM, so that it must not be ignored here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    companion = subprocess.Popen(companion_command, env=environment)
    # A background job of a shell ignores SIGINT. The process is ended by SIGINT, and must not inherit that.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, env=environment)
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(signal.SIGINT))
        while process.poll() is None:
            with suppress(
                KeyboardInterrupt
            ):  # the process hears it as well, and ends in its own time
                process.wait()
        return process.returncode
    finally:
        # The companion must not outlive the command.
        companion.terminate()
        companion.wait(timeout=30)


@contextmanager
def served_catalog(settings: Settings) -> Iterator[dict[str, str]]:
    """Serve the catalog by `lsm serve` until the end of the block; yield the variables by which Dagster asks the server.

    Raises InvalidOptionError if the server does not start, such as on a port that is taken; it has said why on stderr.
    """
    token = secrets.token_urlsafe(24)
    command = [
        *(sys.executable, "-m", "lsm_engine.cli.main", "--json"),
        *("--catalog", settings.catalog_url, "--warehouse", settings.warehouse),
        *("serve", "--no-log", "--port", str(SERVER_PORT)),
    ]
    variables = {**os.environ, "LSM_SERVE_TOKEN": token}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()  # it has one once the server listens
            if not line:
                raise InvalidOptionError(
                    "lsm serve does not start; end what listens on its port", port=SERVER_PORT
                )
            yield {CATALOG_URL: json.loads(line)["url"], TOKEN: token}
        finally:
            server.terminate()
            server.wait(timeout=30)


# -- Home ------------------------------------------------------------------------------------------

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 3000
PAGES_PORT = 8577
"""The port on which `lsm ui` serves the pages of tables and of the lineage."""
SERVER_PORT = 8578
"""The port on which `lsm serve` answers clients of the REST catalog."""
TOKEN = "LSM_TOKEN"
SERVED_LINEAGE = f"http://{LOOPBACK}:{PAGES_PORT}/lineage"


# The location has the name in the repository's workspace.yaml, because Dagster stores the state of sensors under it.
_WORKSPACE = """load_from:
  - python_module:
      module_name: lsm_assets.definitions
      location_name: lsm_assets
"""


def prepare_home(settings: Settings) -> Path:
    """Return DAGSTER_HOME. Create the directory, dagster.yaml and workspace.yaml if they do not exist."""
    home = Path(settings.dagster_home)
    home.mkdir(parents=True, exist_ok=True)
    shipped = files("lsm_assets").joinpath("dagster.yaml").read_text()
    for name, text in (("dagster.yaml", shipped), ("workspace.yaml", _WORKSPACE)):
        # An existing file may have settings of the user.
        if not (home / name).exists():
            (home / name).write_text(text)
    return home


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Return the Dagster instance that the UI shows."""
    return dg.DagsterInstance.from_config(str(prepare_home(settings)))


def ui_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables with which `dagster dev` shows this warehouse."""
    variables = {
        LINEAGE_URL: os.environ.get(LINEAGE_URL, SERVED_LINEAGE),
        DAGSTER_HOME: settings.dagster_home,
        WAREHOUSE: settings.warehouse,
        CATALOG_URL: settings.catalog_url,
        EXECUTOR: settings.executor,
    }
    return variables | ({SPARK_MASTER: settings.spark_master} if settings.spark_master else {})


def pages_command(settings: Settings, dagster_port: int) -> list[str]:
    """Return the command `lsm ui`, which serves pages of tables and lineage with links to Dagster's UI."""
    return [
        *(sys.executable, "-m", "lsm_engine.cli.main"),
        *("--catalog", settings.catalog_url, "--warehouse", settings.warehouse),
        *("ui", "--no-browser", "--port", str(PAGES_PORT)),
        *("--dagster", f"http://{LOOPBACK}:{dagster_port}"),
    ]


def ui_command(
    settings: Settings, port: int = DEFAULT_PORT, *, with_workspace: bool = True
) -> list[str]:
    """Return the command that starts Dagster's UI and daemon, after `prepare_home`.

    The UI has no login and therefore listens on the loopback address only.

    Args:
        settings: Settings with DAGSTER_HOME.
        port: Port of the UI.
        with_workspace: Whether to show the sample's workspace; else the project in the current directory.
    """
    workspace = ["-w", str(Path(settings.dagster_home) / "workspace.yaml")]
    return [
        # `dagster dev` warns that a tool of another package supersedes it. It still does what is needed.
        *(sys.executable, "-W", "ignore:Function", "-m", "dagster", "dev"),
        *(workspace if with_workspace else []),
        *("-h", LOOPBACK, "-p", str(port)),
    ]
