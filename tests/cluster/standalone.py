"""A standalone Spark cluster: a master and two workers, each a process that sees disks of its own.

A worker lives in a mount namespace where the driver's directory and the other worker's are empty. What it is
allowed to see of this machine are programs, the sources, its own directory and whatever is shared on purpose.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.cluster.page import command
from tests.promised import missing
from tests.stores.servers import free_port

SPARK_HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
_HOST = "127.0.0.1"
# Addresses of their own, still on loopback: executors of one host read each other's shuffle files.
WORKERS = {"worker-1": "127.0.0.2", "worker-2": "127.0.0.3"}
_STARTS_WITHIN = 90.0
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A running cluster below `home`; `driver` is the directory that no worker sees."""

    home: Path
    master: str
    workers: dict[str, int]

    @property
    def driver(self) -> Path:
        return self.home / "driver"

    def settings(self) -> dict[str, str]:
        """What a driver sets to use it, small."""
        return {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.driver.memory": "2g",
            "spark.executor.memory": "480m",  # Spark refuses 450
            "spark.network.io.preferDirectBufs": "false",
            "spark.driver.extraJavaOptions": _QUICK,
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.python.daemon.module": "lsm_engine.spark.worker_daemon",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }

    def program(
        self,
        program: Path,
        *arguments: str,
        settings: dict[str, str],
        variables: dict[str, str] | None = None,
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment of a program as a driver, with settings by default.

        It runs in the driver's directory. Executors, too, get the environment variables.
        """
        variables = variables or {}
        shipped = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        written = {**self.settings(), **settings, **shipped}
        lines = "".join(f"{key} {value}\n" for key, value in written.items())
        (self.driver / "spark-defaults.conf").write_text(lines)
        environment = {
            **os.environ, "TMPDIR": str(self.driver / "tmp"), "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(self.driver),
            "SPARK_LOCAL_IP": _HOST, "MASTER": self.master, **variables,
        }  # fmt: skip
        return [sys.executable, str(program), *arguments], environment

    def run(
        self,
        program: Path,
        *arguments: str,
        settings: dict[str, str],
        variables: dict[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess:
        """Run a program as a driver, to its end."""
        command, environment = self.program(
            program, *arguments, settings=settings, variables=variables
        )
        return subprocess.run(
            command, cwd=self.driver, env=environment,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip


@contextmanager
def standalone_cluster(home: Path) -> Iterator[Cluster]:
    """Start a master and two workers of one core each; end them, and all they started."""
    _require_namespaces()
    for name in ("driver", "master", *WORKERS):
        (home / name / "tmp").mkdir(parents=True)
    port = free_port()
    with ExitStack() as stack:

        def start(name: str, daemon: str) -> int:
            hidden = [home / each for each in ("driver", *WORKERS) if each != name]
            host = WORKERS.get(name, _HOST)
            variables = {
                "MASTER_HOST": _HOST, "MASTER_PORT": str(port), "SPARK_MASTER_WEBUI_PORT": "0",
                "WORKER_HOST": host, "SPARK_WORKER_WEBUI_PORT": "0", "SPARK_LOCAL_IP": host,
                "SPARK_WORKER_CORES": "1", "SPARK_WORKER_MEMORY": "1g",
            }  # fmt: skip
            return stack.enter_context(_daemon(home / name, hidden, command(daemon), variables))

        start("master", "Master")
        _wait_for(home / "master", "New state: ALIVE")
        workers = {name: start(name, "Worker") for name in WORKERS}
        for name in WORKERS:
            _wait_for(home / name, "Successfully registered")
        yield Cluster(home=home, master=f"spark://{_HOST}:{port}", workers=workers)


def kill_tree(pid: int) -> None:
    """Kill a process and its children as a power cut would."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)


@contextmanager
def _daemon(home: Path, hidden: list[Path], line: str, variables: dict[str, str]) -> Iterator[int]:
    """Run a daemon's command line with some directories hidden from it and its children."""
    hide = "".join(f'mount -t tmpfs none "{path}"; ' for path in hidden)
    environment = {
        **os.environ, **variables, "SPARK_HOME": str(SPARK_HOME),
        "TMPDIR": str(home / "tmp"), "SPARK_LOCAL_DIRS": str(home / "tmp"),
        "SPARK_WORKER_DIR": str(home / "work"), "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Djava.io.tmpdir={home / 'tmp'}",
    }  # fmt: skip
    with (home / "output.txt").open("wb") as log:
        process = subprocess.Popen(
            [*_namespace(), "sh", "-ec", f"{hide}exec {line}"],
            cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        kill_tree(process.pid)
        process.wait(timeout=30)


def _namespace() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount"]


def _require_namespaces() -> None:
    if shutil.which("unshare") is None:
        missing("unshare", "needs unshare of util-linux, to hide the driver's disk")
    tried = subprocess.run(
        [*_namespace(), "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        missing("unshare", f"may not make mount namespaces here: {tried.stderr.decode()}")


def _wait_for(home: Path, line: str) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while line not in (text := (home / "output.txt").read_text("utf-8", "replace")):
        if time.monotonic() > deadline:
            raise AssertionError(f"{home.name} does not start: {text[-2000:]}")
        time.sleep(0.1)
