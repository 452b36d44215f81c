"""A local S3 server for the sample: S3Proxy over a directory, in a process of its own.

It supports conditional puts, which commits need. It needs Java, as Spark does. It listens on the loopback address only,
and each start generates a new secret key.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lsm_assets.home import LOOPBACK
from lsm_assets.settings import CATALOG_URL, DAGSTER_HOME, WAREHOUSE
from lsm_engine import NotFoundError, StorageError

ARTIFACT = "org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies"
JAR = "LSM_S3PROXY_JAR"
DIRECTORY = "lake-s3"
_BUCKET = "lake"
_LOCATION = f"s3://{_BUCKET}/sample"
_OPTIONS = "LSM_STORAGE_S3_"
_STARTS_WITHIN = 120.0  # seconds
_STOPS_WITHIN = 10.0
_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


@contextmanager
def local_s3(directory: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Run a server over `directory`/buckets; yield the environment variables of a warehouse on it.

    The catalog and DAGSTER_HOME are in `directory`, too. Raises NotFoundError if Java or the server's jar is missing and
    cannot be fetched, and StorageError if the server does not start.
    """
    jar = _jar(directory, environment)
    (directory / "buckets" / _BUCKET).mkdir(parents=True, exist_ok=True)
    endpoint, key = f"http://{LOOPBACK}:{_free_port()}", secrets.token_hex(16)
    settings = {
        "s3proxy.endpoint": endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": "sample",
        "s3proxy.credential": key,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(directory / "buckets"),
    }
    config = directory / "s3proxy.conf"
    # The file has the secret key: only this user may read it.
    with open(os.open(config, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as sink:
        sink.writelines(f"{name}={value}\n" for name, value in settings.items())
    with (directory / "s3proxy.log").open("wb") as log:
        server = subprocess.Popen(
            [*_JAVA, "-jar", str(jar), "--properties", str(config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _wait_for(server, endpoint, directory)
        inherited = {
            name: text for name, text in environment.items() if not name.startswith(_OPTIONS)
        }
        yield {
            **inherited,
            f"{_OPTIONS}ENDPOINT": endpoint,
            f"{_OPTIONS}ACCESS_KEY": "sample",
            f"{_OPTIONS}SECRET_KEY": key,
            WAREHOUSE: _LOCATION,
            CATALOG_URL: f"sqlite:///{directory}/catalog.db",
            DAGSTER_HOME: str(directory / "dagster"),
        }
    finally:
        server.terminate()
        try:
            server.wait(timeout=_STOPS_WITHIN)
        except subprocess.TimeoutExpired:  # the server waits for idle connections of this process
            server.kill()
            server.wait()


def command_words(warehouse: str, dagster_home: str) -> list[str]:
    """Return the options of `lsm-sample` for a warehouse; empty for ./lake."""
    if warehouse == Path("lake").absolute().as_posix():
        return []
    if warehouse != _LOCATION:
        return ["--warehouse", warehouse]
    home = Path(dagster_home).parent
    return [
        "--on",
        "s3",
        *([] if home == Path(DIRECTORY).absolute() else ["--warehouse", str(home)]),
    ]


def _jar(directory: Path, environment: Mapping[str, str]) -> Path:
    configured = environment.get(JAR)
    if configured:
        if not Path(configured).is_file():
            raise NotFoundError(f"{JAR} names no file; correct it", path=configured)
        return Path(configured)
    jars = sorted(directory.glob("s3proxy-*.jar"))
    if not jars:
        maven = shutil.which("mvn")
        remedy = f"install Maven, or name the file in {JAR}"
        if maven is None:
            raise NotFoundError(f"S3Proxy is fetched by Maven once; {remedy}", artifact=ARTIFACT)
        directory.mkdir(parents=True, exist_ok=True)
        artifact_options = (f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={directory}")
        fetched = subprocess.run(
            [maven, "-q", "-B", "dependency:copy", *artifact_options],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        jars = sorted(directory.glob("s3proxy-*.jar"))
        if fetched.returncode != 0 or not jars:
            raise NotFoundError(
                f"S3Proxy could not be fetched by Maven; {remedy}",
                artifact=ARTIFACT,
                output=fetched.stdout[-500:],
            )
    return jars[-1]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(server: "subprocess.Popen[bytes]", endpoint: str, directory: Path) -> None:
    port = int(endpoint.rpartition(":")[2])
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
            return
        except OSError as cause:
            # The server needs seconds to start. A process that has ended will never listen.
            if server.poll() is not None or time.monotonic() > deadline:
                raise StorageError(
                    "the local S3 server does not start; its log has the reason",
                    log=str(directory / "s3proxy.log"),
                ) from cause
            time.sleep(0.1)
