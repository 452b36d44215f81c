"""Commands and Python of pages, run by forks of one process that has loaded the engine.

A process needs most of a second to load the engine, and a page has dozens of them. The commands of
`forked_commands()` hand their arguments, directory, environment and files to the process, which forks: `lsm` runs the
command line, `block` a text as `python -c` does.
"""

import ast
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
from types import ModuleType

import lsm_engine

ROOT = Path(lsm_engine.__file__).parent.parent
LOADED: set[str] = set()
"""The modules that `import lsm_engine` and the packages load."""
NOT_LOADED = ("lsm_engine.spark", "lsm_engine.server", "lsm_engine.testing")
COMMANDS = ("lsm", "block")
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
def forked_commands(*packages: str) -> str:
    """Return the directory of the commands; their process is started for this one, and ends with it.

    `packages` are loaded as well.
    """
    place = Path(tempfile.mkdtemp(prefix="lsm-forked-"))
    for name in COMMANDS:
        (place / name).write_text(CLIENT)
        (place / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.forked_commands", str(place / "socket"), *packages],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.communicate(timeout=60)
        for name in (*COMMANDS, "socket"):
            (place / name).unlink(missing_ok=True)
        place.rmdir()

    atexit.register(end)
    return str(place)


def serve(path: str, *packages: str) -> None:
    """Fork for each command that comes, until standard input ends; return in a fork, ready to run its command."""
    for package in packages:
        importlib.import_module(package)
    LOADED.update(sys.modules)
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


def run_block(text: str) -> None:
    """Run Python as `python -c` does. A module of a package that the text does not import is refused: it is loaded here."""
    packages: dict[str, str] = {}
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
            packages |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = f"{packages.get(node.value.id)}.{node.attr}"
            assert module not in sys.modules or module in LOADED | imported, (
                f"not imported: {module}"
            )
    sys.path.insert(0, "")
    sys.modules["__main__"] = block = ModuleType("__main__")
    exec(compile(text, "<block>", "exec"), vars(block))


if __name__ == "__main__":
    serve(*sys.argv[1:])
    if Path(sys.argv[0]).name == "block":
        run_block(sys.argv[1])
    else:
        from lsm_engine.cli.main import main

        main()
