"""A bounded directory of local files that all processes of a user share, each of which can be made again.

<local directory>/lsm-manifests-<user>/     private to the user (0700)
  <name>              an entry: its bytes, and behind them the CRC-32 of its key and them
  <name>, empty       an entry that was asked for once: it is made when it is asked for again
  .<random>           one that is being written

An entry is written aside and renamed, so that no process sees half of one; what a power cut leaves has another
checksum and counts as absent. What was used least lately goes first; a process that has it mapped keeps it.
Nothing here fails a caller: a directory that is full, missing or not ours is a cache without entries.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import BinaryIO

import pyarrow as pa

from lsm_engine.base.errors import LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.format.checksum import checksum_of
from lsm_engine.storage.clock import SystemIds
from lsm_engine.storage.local_state import (
    check_private,
    local_directories,
    local_directory,
    private_root,
    private_roots,
    unlink,
    write_private,
)

log = logging.getLogger(__name__)
_CHECKSUM_BYTES = 4
_ASKED_BYTES = 64 << 10  # what an empty entry counts as, so that there are not too many
_IDLE_SECONDS = 7 * 24 * 3600
_NAME = re.compile(r"[0-9a-f]{40}|\.[0-9a-f-]{36}")


@record
class ManifestCache:
    """The decoded manifests that a user's processes share on this machine."""

    path: str
    file_count: int
    byte_count: int


def manifest_cache() -> ManifestCache:
    """Return what there is now, in the directory that this process would use."""
    path = manifest_cache_root()
    sizes = [size for _, _, size in _files(path)]
    return ManifestCache(path=path, file_count=len(sizes), byte_count=sum(sizes))


def clear_manifest_cache() -> ManifestCache:
    """Remove decoded manifests from every directory that processes of a user may use; return what there was."""
    before = manifest_cache()
    for directory in dict.fromkeys(local_directories()):
        for root in private_roots(_root_in(directory)):
            for path, _, _ in _files(root):
                unlink(path)
    return before


def manifest_cache_root() -> str:
    """Return the directory of a user's decoded manifests."""
    return private_root(_root_in(local_directory()))


def _root_in(directory: str) -> str:
    return os.path.join(directory, f"lsm-manifests-{os.getuid()}")


class SharedCache:
    """Entries by text keys, together up to `max_bytes`; each further process that writes adds an eighth of it."""

    def __init__(self, root: str, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._left = 0  # bytes to be written before the directory is looked at again
        self.is_usable = max_bytes > 0

    def find(self, key: str) -> pa.Buffer | None:
        """Return the bytes of an entry, mapped, or None."""
        path = self._path(key)
        with contextlib.suppress(OSError, LsmError):
            if not self.holds(key):
                return None
            with pa.memory_map(path) as mapped:
                stored = mapped.read_buffer()
            content = stored.slice(0, max(0, stored.size - _CHECKSUM_BYTES))
            checksum = checksum_of(content, checksum_of(key.encode()))
            if checksum.to_bytes(_CHECKSUM_BYTES, "little") != bytes(stored.slice(content.size)):
                unlink(path)
                return None
            os.utime(path)
            return content
        return None

    def holds(self, key: str) -> bool:
        """Whether there is such an entry, of this user in a directory that is private to him."""
        with contextlib.suppress(OSError, LsmError):
            if self._max_bytes > 0:
                check_private(self._root)
                status = os.lstat(self._path(key))
                return status.st_size > 0 and status.st_uid == os.getuid()
        return False

    def is_asked_again(self, key: str) -> bool:
        """Whether an entry that is not there has been asked for before; from now on it has."""
        path, is_known = self._path(key), False
        with self._trying():
            self._prepare()
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400))
            except FileExistsError:
                os.utime(path)
                is_known = True
        return is_known

    def put(self, key: str, write: Callable[[BinaryIO], None]) -> None:
        """Make an entry of what `write` writes; the least recently used entries are evicted for it."""
        aside = os.path.join(self._root, f".{SystemIds().new_id()}")
        with self._trying():
            self._prepare()
            try:
                write_private(
                    aside, lambda sink: _write_checked(sink, write, checksum_of(key.encode()))
                )
                if self._make_room(aside):
                    os.replace(aside, self._path(key))
            finally:
                unlink(aside)

    def _path(self, key: str) -> str:
        return os.path.join(self._root, blake2b(key.encode(), digest_size=20).hexdigest())

    def _prepare(self) -> None:
        if not self.is_usable:
            raise StorageError("the cache is off, or could not be written to", path=self._root)
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        check_private(self._root)

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        """Let something be written, if that works: once it has not, nothing more is tried."""
        try:
            yield
        except (OSError, LsmError) as error:
            if self.is_usable:
                log.debug("decoded manifests are not kept on disk: %s", error)
            # A directory that has vanished is made again.
            self.is_usable = self.is_usable and isinstance(error, FileNotFoundError | NotFoundError)

    def _make_room(self, path: str) -> bool:
        """Remove what was used least lately, or not for a week, until a new file fits; False if it never will."""
        new = os.stat(path)
        if new.st_size > self._max_bytes:
            return False
        self._left -= new.st_size
        if self._left >= 0:
            return True
        room = self._max_bytes - new.st_size
        files = sorted(_files(self._root), key=lambda file: file[1])
        total = sum(size for _, _, size in files) - new.st_size
        for name, used, size in files:
            if total <= room - self._max_bytes // 8 and used > new.st_mtime - _IDLE_SECONDS:
                break
            if name != path:
                unlink(name)
                total -= size
        self._left = self._max_bytes // 8
        return True


def _files(root: str) -> Iterator[tuple[str, float, int]]:
    """Yield path, time of the last use and bytes of what a cache may have written."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name):
                    yield entry.path, status.st_mtime, status.st_size or _ASKED_BYTES


def _write_checked(sink: BinaryIO, write: Callable[[BinaryIO], None], before: int) -> None:
    checked = _Checked(sink, before)
    write(checked)  # type: ignore[arg-type]  # it has what Arrow's writers call
    sink.write(checked.checksum.to_bytes(_CHECKSUM_BYTES, "little"))


class _Checked:
    """A file being written, with the checksum of what was."""

    def __init__(self, sink: BinaryIO, before: int) -> None:
        self._sink = sink
        self.checksum = before
        self.closed = False

    def write(self, data: bytes) -> int:
        self.checksum = checksum_of(data, self.checksum)
        return self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()

    def tell(self) -> int:
        return self._sink.tell()
