"""Local files that a process can do without: its private directories, and spilled rows."""

import contextlib
import fcntl
import glob
import json
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from lsm_engine.base.errors import InvalidInputError, LsmError, StorageError
from lsm_engine.base.record import record
from lsm_engine.storage.file_io import to_storage_error

# -- Local directories of a process for disposable files: spilled rows, lookup files ---------------

_NAMED_BY_SPARK = ("SPARK_LOCAL_DIRS", "LOCAL_DIRS")
"""Lists with commas: of Spark, which sets it for each Python worker, and of YARN's containers."""


def local_directories() -> list[str]:
    """Return every directory that processes of this environment may keep local files in.

    Those that `SPARK_LOCAL_DIRS` and `LOCAL_DIRS` name, in this order, and the system's place for temporary files.
    """
    lists = [os.environ.get(name, "").split(",") for name in _NAMED_BY_SPARK]
    spread = [[os.path.abspath(path.strip()) for path in paths if path.strip()] for paths in lists]
    return [*chain.from_iterable(map(_from_own, spread)), tempfile.gettempdir()]


def local_directory() -> str:
    """Return the directory for local files that need not outlive this process.

    One of those that `SPARK_LOCAL_DIRS`, else `LOCAL_DIRS`, names, where either does: processes are spread over
    them, and one that cannot be written to is passed over. Else the system's place for temporary files.
    """
    *directories, last = local_directories()
    return next(filter(_takes_files, directories), last)


def _from_own(directories: list[str]) -> list[str]:
    """Return the same directories, that of this process first."""
    first = os.getpid() % len(directories) if directories else 0
    return [*directories[first:], *directories[:first]]


def _takes_files(directory: str) -> bool:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


# -- A directory of one process's private files, which other processes sweep once it is dead -------
#
# <root>/                  private to the user (0700)
#   lock                   held while a process arrives and sweeps what dead ones left
#   process-<random>/      private to one process
#     lock                 held for as long as the process lives
#     state.json           the state that its cache last published, for `lsm cache`
#     <number>.lookup      one entry

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
    """The lookup files of one process, as they are on disk."""

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
        # No process has kept anything here yet.
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
        # Another process may just delete it, or have died while it wrote.
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
        # Without a lock file the process is dead, or its directory is being deleted.
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
    """Remove the user's directories of this prefix whose lock is free, in any container."""
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
    """Write a file that its owner alone may read, and that never changes."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        with os.fdopen(descriptor, "wb", 1 << 20) as sink:
            build(sink)
    except OSError as cause:
        raise cause if isinstance(cause, LsmError) else to_storage_error(path, cause) from cause


# -- Rows that do not fit in memory: private local files, deleted when their owner closes ----------

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

_PREFIX = "lsm-spill-"


def sweep_spills() -> None:
    """Remove the rows that processes which died had spilled to any of the local directories."""
    for directory in dict.fromkeys(local_directories()):
        sweep_dead(directory, _PREFIX)


class SpilledRows:
    """Batches on local disk, read back in the order they were written, any number of times."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._path is None:
            return
        with pa.OSFile(str(self._path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader


class SpillArea:
    """A local directory (storage/local_state) of one writer, made on first use, readable by its owner alone.

    Its `lock` is held until it is closed: by that a sweep sees that the writer lives.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._held: int | None = None
        self._count = 0

    def spill(self, batches: Iterable[pa.RecordBatch]) -> SpilledRows:
        """Write batches to a new file; raises StorageError, naming it, when the disk is full."""
        path = self._new_path()
        rows = iter(batches)
        first = next(rows, None)
        if first is None:
            return SpilledRows(None)
        try:
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_stream(sink, first.schema, options=_OPTIONS) as writer,
            ):
                for batch in chain([first], rows):
                    writer.write_batch(batch)
        except OSError as cause:
            raise to_storage_error(str(path), cause) from cause
        return SpilledRows(path)

    def close(self) -> None:
        """Remove the files; harmless when nothing was spilled or it is closed."""
        if self._directory is None:
            return
        clear(str(self._directory))
        if self._held is not None:
            os.close(self._held)
        self._directory, self._held, self._count = None, None, 0

    def _new_path(self) -> Path:
        if self._directory is None:
            # Mode 0700. It gets the name that a sweep looks for once its lock is held.
            directory = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=local_directory()))
            with contextlib.suppress(OSError):  # a disk without locks: no sweep gets one there
                self._held = take(str(directory / "lock"), fcntl.LOCK_EX)
            self._directory = directory.rename(
                directory.with_name(directory.name.removeprefix("."))
            )
        path = self._directory / f"{self._count}{SPILL_SUFFIX}"
        self._count += 1
        return path
