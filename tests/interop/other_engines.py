"""ClickHouse inside a process, and a Trino server: engines that read Iceberg metadata, each in an environment of its own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.environments import (
    EnvironmentFailedError,
    made_once,
    make_virtual_environment,
    run,
)

CLICKHOUSE = ("chdb>=4.4,<5",)
TRINO = "476"  # the newest whose server Maven's repository has
TRINO_JAVA = 24
"""The oldest release of Java that this Trino runs on."""

_ASK_CLICKHOUSE = """
import json, sys, chdb
for query in json.loads(sys.argv[1]):
    print(json.dumps(json.loads(str(chdb.query(query, "JSONCompact")))["data"]))
"""


def ask_clickhouse(queries: list[str], lake: Path) -> list[list[list[Any]]]:
    """Return the rows of queries over the files of a lake; numbers of 64 bits are text."""
    facts: dict[str, object] = {"requirements": list(CLICKHOUSE), "python": sys.version.split()[0]}
    folder = made_once(
        "clickhouse", facts, lambda folder: make_virtual_environment(folder, CLICKHOUSE)
    )
    python = folder / "venv" / "bin" / "python"
    # It opens files below the current directory alone.
    answered = subprocess.run(
        [str(python), "-c", _ASK_CLICKHOUSE, json.dumps(queries)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=lake,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr[-3000:]
    return [json.loads(line) for line in answered.stdout.splitlines()]


def _java_home() -> Path:
    """Return a Java that is new enough for Trino; EnvironmentFailedError if there is none."""
    for home in sorted(Path("/usr/lib/jvm").glob("*"), reverse=True):
        release = home / "release"
        text = release.read_text() if release.is_file() else ""
        version = text.partition('JAVA_VERSION="')[2].partition('"')[0].partition(".")[0]
        if version.isdigit() and int(version) >= TRINO_JAVA:
            return home
    raise EnvironmentFailedError(f"no Java {TRINO_JAVA} or newer in /usr/lib/jvm")


def installed_trino() -> tuple[Path, Path]:
    """Return a Java for Trino, and the server's folder, fetched once; EnvironmentFailedError if these cannot be had."""

    def fetch(folder: Path) -> None:
        artifact = f"-Dartifact=io.trino:trino-server:{TRINO}:tar.gz"
        run("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}")
        archive = folder / f"trino-server-{TRINO}.tar.gz"
        run("tar", "-xzf", str(archive), "-C", str(folder))
        archive.unlink()
        for plugin in (folder / f"trino-server-{TRINO}" / "plugin").iterdir():
            if plugin.name != "iceberg":
                shutil.rmtree(plugin)

    return _java_home(), made_once("trino", {"version": TRINO}, fetch) / f"trino-server-{TRINO}"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Trino:
    """A server on loopback. Its catalog `lake` is Iceberg's REST catalog of `lsm serve`."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, statement: str) -> list[list[Any]]:
        """Return the rows of a statement."""
        headers = {"X-Trino-User": "tests", "X-Trino-Time-Zone": "UTC"}
        address = f"{self._address}/v1/statement"
        answer = self._get(urllib.request.Request(address, statement.encode(), headers))
        rows: list[list[Any]] = []
        while True:
            assert "error" not in answer, (statement, answer["error"]["message"])
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._get(urllib.request.Request(answer["nextUri"]))

    def is_ready(self) -> bool:
        """Whether the server answers statements."""
        try:
            return not self._get(urllib.request.Request(f"{self._address}/v1/info"))["starting"]
        except OSError:  # nothing listens there yet
            return False

    @staticmethod
    def _get(request: urllib.request.Request) -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=120) as reply:
            document: dict[str, Any] = json.load(reply)
            return document


@contextmanager
def trino(catalog_url: str, token: str, folder: Path) -> Iterator[Trino]:
    """Run a server until the end of the block. `catalog_url`: of `lsm serve`."""
    home, server_folder = installed_trino()
    shutil.copytree(server_folder, folder)
    port = _free_port()
    files = {
        "node.properties": f"node.environment=tests\nnode.id=tests\nnode.data-dir={folder}/data\n",
        "jvm.config": "-Xmx2G\n--add-modules=jdk.incubator.vector\n--enable-native-access=ALL-UNNAMED\n"
        "-Djdk.attach.allowAttachSelf=true\n--sun-misc-unsafe-memory-access=allow\n",
        "config.properties": "coordinator=true\nnode-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\nnode.internal-address=127.0.0.1\n",
        "catalog/lake.properties": "connector.name=iceberg\niceberg.catalog.type=rest\n"
        f"iceberg.rest-catalog.uri={catalog_url}/iceberg\niceberg.rest-catalog.security=OAUTH2\n"
        f"iceberg.rest-catalog.oauth2.token={token}\nfs.hadoop.enabled=true\n",
    }  # fmt: skip
    for name, text in files.items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {
        **os.environ,
        "JAVA_HOME": str(home),
        "PATH": f"{home}/bin:{os.environ['PATH']}",
    }
    output = folder / "output.txt"
    with output.open("wb") as written:
        process = subprocess.Popen(
            [str(folder / "bin" / "launcher"), "run"], stdout=written, stderr=written, env=environment
        )  # fmt: skip
    try:
        server = Trino(port)
        for _ in range(600):
            assert process.poll() is None, output.read_text()[-3000:]
            if server.is_ready():
                break
            time.sleep(0.5)
        yield server
    finally:
        process.terminate()
        process.wait(60)
