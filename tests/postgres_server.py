"""A PostgreSQL server of one's own, on loopback, from Debian's packages; its data is thrown away."""

import contextlib
import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg

from tests.promised import missing

USER = "lsm"
_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=60")


class PostgresServer:
    """A running server. `fresh_url` names a new, empty database each time."""

    def __init__(self, port: int, data: Path) -> None:
        self.port = port
        self.data = data
        self._numbers = count(1)

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=database, autocommit=True
        )

    def fresh_url(self) -> str:
        name = f"lake_{os.getpid()}_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://{USER}:not-a-secret@127.0.0.1:{self.port}/{name}"


def program(name: str) -> str:
    """Return a server program; without one a test is skipped, but fails where `LSM_PROMISED` names it."""
    found = shutil.which(name)
    for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        found = found or shutil.which(name, path=str(directory))
    return found or missing("postgresql", "needs a PostgreSQL server: apt-get install postgresql")


@contextlib.contextmanager
def running_server(*more: str) -> Iterator[PostgresServer]:
    """Make a cluster in a directory of its own, start it, stop it, and throw it away; `more`: settings."""
    initdb, postgres = program("initdb"), program("postgres")
    # The server refuses to run as root; Debian's packages bring a user for it.
    who = "postgres" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="lsm-postgres-", dir="/tmp"))
    if who is not None:
        shutil.chown(home, who)
    as_user = {"user": who, "group": pwd.getpwnam(who).pw_gid} if who else {}
    data = home / "data"
    subprocess.run(
        [initdb, "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True, capture_output=True, cwd=home, **as_user,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = [word for setting in (*_SETTINGS, *more) for word in ("-c", setting)]
    server = subprocess.Popen(
        [postgres, "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", *settings],
        cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_user,
    )  # fmt: skip
    try:
        found = PostgresServer(port, data)
        _wait_for(found, server)
        yield found
    finally:
        server.send_signal(signal.SIGINT)  # a fast stop, which waits for no connection
        server.wait(timeout=30)
        shutil.rmtree(home, ignore_errors=True)


def _wait_for(found: PostgresServer, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            found.connect().close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no server as {getpass.getuser()}: {server.poll()}") from None
            time.sleep(0.1)
