"""A directory of one process's private files, which other processes sweep once it is dead.

<root>/                  private to the user (0700)
  lock                   held while a process arrives and sweeps what dead ones left
  process-<random>/      private to one process
    lock                 held for as long as the process lives
    state.json           the state that its cache last published, for `lsm cache`
    <number>.lookup      one entry
"""

import contextlib
import fcntl
import glob
import json
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lsm_engine.base.errors import InvalidInputError, LsmError, StorageError
from lsm_engine.base.record import record
from lsm_engine.io.local_directories import local_directories, local_directory
from lsm_engine.io.storage_errors import to_storage_error

log = logging.getLogger(__name__)

_refused: set[str] = set()
"""Directories that were found not to be private, so that a warning is given once."""
_fallback_lock = threading.Lock()
_PROCESS = "process-"
SUFFIX = ".lookup"
SPILL_SUFFIX = ".arrow"
STATE = "state.json"
_STATE_BYTES_MAX = 1 << 20


class ProcessDirectory:
    """The files of one process. Made under the root's lock, so that no sweep takes it for dead."""

    def __init__(self, root: str) -> None:
        self.process = os.getpid()
        self._count = 0
        self._count_lock = threading.Lock()
        try:
            os.makedirs(root, mode=0o700, exist_ok=True)
            check_private(root)
            with _locked(os.path.join(root, "lock")):
                sweep_dead(root, _PROCESS)
                self.path = tempfile.mkdtemp(prefix=_PROCESS, dir=root)
                self._held = take(os.path.join(self.path, "lock"), fcntl.LOCK_EX)
        except OSError as cause:
            raise cause if isinstance(cause, LsmError) else to_storage_error(root, cause) from cause

    def new_path(self) -> str:
        with self._count_lock:
            self._count += 1
            return os.path.join(self.path, f"{self._count}{SUFFIX}")

    def publish_state(self, state: Mapping[str, object]) -> None:
        """Write the cache's state to state.json; a failure to write it is ignored."""
        path = os.path.join(self.path, STATE)
        with contextlib.suppress(OSError):
            with open(f"{path}.new", "w", encoding="utf-8") as sink:
                sink.write(json.dumps(state))  # in one piece: that is compiled, dump is not
            os.replace(f"{path}.new", path)

    def close(self) -> None:
        clear(self.path)
        os.close(self._held)


@record
class LeftFiles:
    """The lookup files of one process, as anybody who may look finds them on disk."""

    path: str
    file_count: int
    byte_count: int
    is_alive: bool
    state: Mapping[str, Any]
    """The state that its cache last published (see DiskCache); empty if it published none."""


def default_root() -> str:
    """Return the default directory of a user's lookup files."""
    return private_root(_root_in(local_directory()))


def default_roots() -> list[str]:
    """Return the default directories that processes of a user have made on this machine."""
    names = dict.fromkeys(map(_root_in, local_directories()))
    return [root for name in names for root in private_roots(name)]


def private_root(path: str) -> str:
    """Return a directory for private files: `path`, which need not exist, or another one beside it.

    It is another one where `path` is a link, belongs to another user or is open to others. Anybody may make a
    directory of a name that is known beforehand, so that the name of the other one is drawn at random. Processes of
    the user share it.
    """
    if not os.path.lexists(path) or _is_private(path):
        return path
    with _fallback_lock:
        roots = private_roots(path)
        directory, name = os.path.split(path)
        root = roots[0] if roots else tempfile.mkdtemp(prefix=f"{name}-", dir=directory)
        if path not in _refused:
            _refused.add(path)
            log.warning("%s is not private to this user; %s is used in its place", path, root)
    return root


def private_roots(path: str) -> list[str]:
    """Return the directories that `private_root` may have returned for a path, as far as they exist."""
    return [
        root for root in (path, *sorted(glob.glob(f"{glob.escape(path)}-*"))) if _is_private(root)
    ]


def _is_private(path: str) -> bool:
    try:
        check_private(path)
    except OSError:  # a directory that is not private, or that is not there
        return False
    return True


def _root_in(directory: str) -> str:
    return os.path.join(directory, f"lsm-lookup-{os.getuid()}")


def processes_of(root: str | None = None) -> list[LeftFiles]:
    """Return what every process keeps under a root; nothing is changed."""
    root = root or default_root()
    processes = []
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise to_storage_error(root, cause) from cause
    except ValueError as cause:  # a NUL in the name
        raise InvalidInputError(f"no directory is named {root!r}", root=root) from cause
    for name in names:
        path = os.path.join(root, name)
        if name.startswith(_PROCESS) and os.path.isdir(path) and not os.path.islink(path):
            sizes = []
            with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
                sizes = [e.stat().st_size for e in entries if e.name.endswith(SUFFIX)]
            count, size = len(sizes), sum(sizes)
            alive = _is_alive(path)
            processes.append(
                LeftFiles(
                    path=path,
                    file_count=count,
                    byte_count=size,
                    is_alive=alive,
                    state=_state_of(path),
                )
            )
    return processes


def _state_of(directory: str) -> Mapping[str, Any]:
    try:
        with open(os.path.join(directory, STATE), "rb") as source:
            state = json.loads(source.read(_STATE_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def sweep(root: str | None = None) -> None:
    """Remove what dead processes left under a root."""
    root = root or default_root()
    if os.path.isdir(root):
        check_private(root)
        with _locked(os.path.join(root, "lock")):
            sweep_dead(root, _PROCESS)


def _is_alive(path: str) -> bool:
    try:
        descriptor = os.open(os.path.join(path, "lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def check_private(root: str) -> None:
    status = os.lstat(root)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise StorageError(
            "the lookup directory is a link, belongs to another user or is open to others; remove "
            "it, or name another one",
            path=root,
        )


def take(path: str, operation: int) -> int:
    """Return a descriptor of a lock file, made if missing, that holds its lock until it is closed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _locked(path: str) -> Any:
    descriptor = take(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def sweep_dead(root: str, prefix: str) -> None:
    """Remove the user's directories of this prefix whose lock nobody holds, in any container."""
    for path in map(str, Path(root).glob(f"{prefix}*")):
        with contextlib.suppress(FileNotFoundError):  # another sweep was quicker
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            try:
                descriptor = take(os.path.join(path, "lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # alive
            clear(path)
            os.close(descriptor)


def clear(directory: str) -> None:
    """Remove the files that such a directory may hold, and it; anything else is kept."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.endswith((SUFFIX, SPILL_SUFFIX)) or name in ("lock", STATE, f"{STATE}.new"):
                unlink(os.path.join(directory, name))
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def write_private(path: str, build: Callable[[BinaryIO], None]) -> None:
    """Write a file that its owner alone may read and nobody may change."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(descriptor, "wb", 1 << 20) as sink:
            build(sink)
    except OSError as cause:
        raise cause if isinstance(cause, LsmError) else to_storage_error(path, cause) from cause
