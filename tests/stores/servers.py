"""Object stores of one's own, on loopback, each a process that ends with the test.

Their programs are fetched by Maven, npm and pip, each from where the machine is set to fetch from, and kept in
the folder of the interop clients (`LSM_INTEROP_CACHE`). Where one cannot be had the test is skipped with the
reason, or fails if `LSM_PROMISED` names the server.

`python -m tests.stores.servers` fetches them all, for a machine that is being prepared;
`python -m tests.stores.servers s3proxy` runs one of them until Ctrl-C.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from tests.interop.environments import (
    EnvironmentFailedError,
    made_once,
    make_virtual_environment,
    run,
)
from tests.promised import missing

S3PROXY = "org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies"
S3MOCK = "com.adobe.testing:s3mock:5.2.0:jar:exec"
AZURITE = "azurite@3.35.0"
MOTO = "moto[server,s3]==5.2.5"
# The cluster that Hadoop's own tests start, and what its jars leave to whoever runs them.
HADOOP = "3.4.1"
MINI_CLUSTER = (
    *(f"org.apache.hadoop:hadoop-client-{part}:{HADOOP}" for part in ("minicluster", "api", "runtime")),
    *("org.slf4j:slf4j-api:2.0.17", "org.slf4j:jcl-over-slf4j:2.0.17"),
    *("junit:junit:4.13.2", "org.hamcrest:hamcrest-core:1.3"),
)  # fmt: skip
BUCKET = "lake"
ACCESS_KEY = "lsm"  # the account's name, on Azurite
SECRET_KEY = base64.b64encode(b"a key that opens nothing but the servers of these tests").decode()
STARTS_WITHIN = 90.0  # seconds; the slowest, S3Mock, took 17 with both cores busy
# Programs that live for seconds: no time for optimising compilers.
_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, kw_only=True)
class StoreServer:
    """A running server, and the bucket or container that it has; S3 servers are asked path-style."""

    kind: str
    host: str
    port: int
    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    bucket: str = BUCKET
    region: str = "us-east-1"
    pid: int

    @property
    def endpoint(self) -> str:
        """Where requests go; Azurite keeps its account in the path."""
        account = f"/{self.access_key}" if self.kind == "azurite" else ""
        return f"http://{self.host}:{self.port}{account}"

    def answer(
        self, verb: str, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one plain request without a body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(verb, path, headers=dict(headers or {}))
            reply = connection.getresponse()
            return reply.status, reply.read()


@contextmanager
def s3proxy(directory: Path) -> Iterator[StoreServer]:
    """S3 over a directory: conditional writes have one winner. The bucket is a folder in it."""
    jar = s3proxy_jar()
    (directory / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET_KEY,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(directory),
    }
    with _scratch() as scratch:
        written = scratch / "s3proxy.conf"
        written.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = (*_JAVA, "-Xmx512m", "-jar", str(jar), "--properties", str(written))
        with _running("s3proxy", port, command, scratch) as server:
            yield server


def s3proxy_jar() -> Path:
    """S3Proxy's program, fetched if need be."""
    return _program("s3proxy", ("mvn", "java"), _s3proxy)


@contextmanager
def azurite() -> Iterator[StoreServer]:
    """Azure Blob storage in memory, with an account of its own."""
    script = _program("azurite", ("npm", "node"), _azurite)
    port = free_port()
    with _scratch() as scratch:
        where = ("--blobHost", "127.0.0.1", "--blobPort", str(port))
        how = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry")
        accounts = {"AZURITE_ACCOUNTS": f"{ACCESS_KEY}:{SECRET_KEY}"}
        command = ("node", str(script), *where, *how)
        with _running("azurite", port, command, scratch, accounts) as server:
            _make_container(server)
            yield server


@contextmanager
def s3mock() -> Iterator[StoreServer]:
    """S3 that checks a condition and then writes: several writers win. It must be refused.

    It listens once more, on a port that nobody is given, on every interface; that can't be turned off.
    """
    jar = _program("s3mock", ("mvn", "java"), _s3mock)
    port = free_port()
    with _scratch() as scratch:
        java = (*_JAVA, "-Xmx512m", f"-Djava.io.tmpdir={scratch}")
        where = ("--server.address=127.0.0.1", f"--server.port={port}")
        how = ("--server.ssl.enabled=false", "--http.port=0")
        with _running("s3mock", port, (*java, "-jar", str(jar), *where, *how), scratch) as server:
            _make_bucket(server)
            yield server


@contextmanager
def moto() -> Iterator[StoreServer]:
    """S3 in memory in one Python process; not for races, which it loses now and then."""
    script = _program("moto", (), _moto)
    port = free_port()
    with _scratch() as scratch:
        command = (str(script), "-H", "127.0.0.1", "-p", str(port))
        with _running("moto", port, command, scratch) as server:
            _make_bucket(server)
            yield server


@contextmanager
def hdfs() -> Iterator[StoreServer]:
    """A NameNode and a DataNode in one process, with files in a directory of its own."""
    jars = _program("hdfs", ("mvn", "java"), _hadoop)
    port = free_port()
    with _scratch() as scratch:
        manager = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
        java = (*_JAVA, "-Xmx512m", "-cp", f"{jars}/*", manager)
        with _running(
            "hdfs", port, (*java, "-format", "-nomr", "-nnport", str(port)), scratch
        ) as server:
            _wait_for_a_datanode(server)
            yield server


def _wait_for_a_datanode(server: StoreServer) -> None:
    library = import_module("hdfs_native")
    client = library.Client(f"hdfs://{server.host}:{server.port}")
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            with client.create("/started", library.WriteOptions(overwrite=True)) as writer:
                writer.write(b"1")
            return
        except (OSError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _in_a_new_directory() -> AbstractContextManager[StoreServer]:
    return s3proxy(Path(tempfile.mkdtemp(prefix="lsm-s3proxy-")))


SERVERS: dict[str, Callable[[], AbstractContextManager[StoreServer]]] = {
    "s3proxy": _in_a_new_directory,
    "azurite": azurite,
    "s3mock": s3mock,
    "moto": moto,
    "hdfs": hdfs,
}


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@cache
def _fetched(fetch: Callable[[], Path]) -> Path | EnvironmentFailedError:
    """What a fetch left, or why it failed: a machine without a network is found out once."""
    try:
        return fetch()
    except EnvironmentFailedError as failed:
        return failed


def _program(kind: str, tools: tuple[str, ...], fetch: Callable[[], Path]) -> Path:
    for tool in tools:
        if shutil.which(tool) is None:
            missing(kind, f"{kind} needs {tool}, which is not on this machine")
    found = _fetched(fetch)
    if isinstance(found, EnvironmentFailedError):
        missing(kind, f"{kind} could not be fetched: {found}")
    return found


def _jar(artifact: str) -> Path:
    facts = {"artifact": artifact}
    (jar,) = made_once(artifact.split(":")[1], facts, partial(_copy, artifact)).glob("*.jar")
    return jar


def _copy(artifact: str, folder: Path) -> None:
    where = (f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    run("mvn", "-q", "-B", "dependency:copy", *where)


def _s3proxy() -> Path:
    return _jar(S3PROXY)


def _s3mock() -> Path:
    return _jar(S3MOCK)


def _hadoop() -> Path:
    def copy(folder: Path) -> None:
        for artifact in MINI_CLUSTER:
            _copy(artifact, folder)

    return made_once("hadoop", {"artifacts": MINI_CLUSTER}, copy)


def _azurite() -> Path:
    folder = made_once(
        "azurite",
        {"package": AZURITE},
        lambda folder: run("npm", "install", "--prefix", str(folder), AZURITE) and None,
    )
    return folder / "node_modules" / ".bin" / "azurite-blob"


def _moto() -> Path:
    facts: dict[str, object] = {"requirements": [MOTO], "python": sys.version.split()[0]}
    folder = made_once("moto", facts, lambda folder: make_virtual_environment(folder, (MOTO,)))
    return folder / "venv" / "bin" / "moto_server"


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lsm-store-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch)


@contextmanager
def _running(
    kind: str,
    port: int,
    command: tuple[str, ...],
    scratch: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[StoreServer]:
    """Start the program, wait until it answers, kill it at the end: none keeps what it has."""
    output = scratch / "output.txt"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=os.environ | dict(environment or {}),
        )  # fmt: skip
    server = StoreServer(kind=kind, host="127.0.0.1", port=port, pid=process.pid)
    try:
        _wait_for(server, process, output)
        yield server
    finally:
        process.kill()
        process.wait(timeout=30)


def _wait_for(server: StoreServer, process: "subprocess.Popen[bytes]", output: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            server.answer("GET", "/")
            return
        except (OSError, http.client.HTTPException):
            if process.poll() is not None or time.monotonic() > deadline:
                end = output.read_text("utf-8", "replace")[-2000:]
                raise AssertionError(f"no {server.kind}: {process.poll()}\n{end}") from None
            time.sleep(0.05)


def _make_bucket(server: StoreServer) -> None:
    status, answer = server.answer("PUT", f"/{server.bucket}")
    assert status == 200, answer


def _make_container(server: StoreServer) -> None:
    """Ask for a container with a request signed by the account's shared key."""
    query = {"restype": "container"}
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    account = server.access_key
    signed = [
        "PUT", *("",) * 11,
        *(f"{name}:{value}" for name, value in sorted(headers.items())),
        f"/{account}/{account}/{server.bucket}",
        *(f"{name}:{value}" for name, value in query.items()),
    ]  # fmt: skip
    key = base64.b64decode(server.secret_key)
    digest = hmac.digest(key, "\n".join(signed).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    path = f"/{account}/{server.bucket}?restype=container"
    status, answer = server.answer("PUT", path, headers)
    assert status == 201, answer


def main(names: list[str]) -> None:
    """Fetch every program, or run one server until it is interrupted."""
    if not names:
        for found in (_s3proxy(), _s3mock(), _azurite(), _moto(), _hadoop()):
            print(found)
        return
    with SERVERS[names[0]]() as server, contextlib.suppress(KeyboardInterrupt):
        print(server, server.endpoint, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1:])
