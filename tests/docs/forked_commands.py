"""Commands of pages, run by forks of one process that has loaded the engine.

A process of `lsm` needs most of a second to load the engine, and a page has dozens of them. The `lsm` of
`forked_commands()` hands its arguments, directory, environment and files to the process, which forks and runs `main`.
"""

import atexit
import contextlib
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import lsm_engine
from lsm_engine.cli.main import main

ROOT = Path(lsm_engine.__file__).parent.parent
NOT_LOADED = ("lsm_engine.spark", "lsm_engine.server", "lsm_engine.testing")
FILES = 3
"""Standard input, output and errors."""

CLIENT = f"""#!{sys.executable} -IS
import _socket, array, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect(os.path.join(os.path.dirname(sys.argv[0]), "socket"))
command = marshal.dumps((sys.argv, os.getcwd(), dict(os.environ)))
files = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", range({FILES})))
server.sendmsg([len(command).to_bytes(4, "big")], [files])
server.sendall(command)
os._exit(server.recv(1)[0])
"""


@cache
def forked_commands() -> str:
    """Return the directory of a command `lsm`; its process is started for this one, and ends with it."""
    place = Path(tempfile.mkdtemp(prefix="lsm-forked-"))
    (place / "lsm").write_text(CLIENT)
    (place / "lsm").chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.forked_commands", str(place / "socket")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.communicate(timeout=60)
        for name in ("lsm", "socket"):
            (place / name).unlink(missing_ok=True)
        place.rmdir()

    atexit.register(end)
    return str(place)


def serve(path: str) -> None:
    """Fork for each command that comes, until standard input ends; return in a fork, ready to run its command."""
    for module in pkgutil.walk_packages(lsm_engine.__path__, "lsm_engine."):
        if not module.name.startswith(NOT_LOADED):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks leave nothing behind
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return run(client)
        client.close()


def run(client: socket.socket) -> None:
    """Take the place of the client; its status is answered by a process that waits for this one."""
    length, files, _, _ = socket.recv_fds(client, 4, FILES)
    command = b""
    while len(command) < int.from_bytes(length, "big"):
        command += client.recv(1 << 20)
    arguments, place, environment = marshal.loads(command)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if worker := os.fork():
        _, status = os.waitpid(worker, 0)
        client.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
        os._exit(0)
    client.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[:] = arguments


if __name__ == "__main__":
    serve(sys.argv[1])
    main()
