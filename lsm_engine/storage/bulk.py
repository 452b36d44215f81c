"""Functions over FileIO: many storage calls as one, concurrent, one by one, or prefetched."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from lsm_engine.base.errors import InvalidOptionError, LsmError, NotFoundError
from lsm_engine.storage.clock import Clock, SystemIds
from lsm_engine.storage.executor import ACTS, at_once, begin
from lsm_engine.storage.file_io import (
    Batching,
    FileIO,
    FileStatus,
    Prefetching,
    StoreFacts,
    check_path,
)

# -- Concurrent storage calls, for remote stores; an act may be several requests -------------------
#
# On a local store they run one after the other, in the calling thread.

T = TypeVar("T")
U = TypeVar("U")

_behind: set[tuple[int, "Future[Any]"]] = set()
"""Acts that no caller waits for, with their process: a fork has none of its parent's. Changed by single calls, without a
lock, which a fork could find held."""
_here = threading.local()


def results_of(file_io: FileIO, *acts: Callable[[], T]) -> list[T]:
    """Run calls concurrently on a remote store; return their results in order. Raises the first error once all have ended.

    On a remote store they run concurrently, unless an act calls this.
    """
    if not file_io.facts.is_remote or len(acts) < 2 or _is_act():
        return [act() for act in acts]
    begun: list[Future[T]] = []
    try:
        # An error here, or in the first act, leaves those that have begun in `begun`: they end before the caller goes on.
        begun.extend(begin(_as_act, act, pool=ACTS) for act in acts[1:])
        first = acts[0]()
    finally:
        wait(begun)
    return [first, *(future.result() for future in begun)]


def both(file_io: FileIO, act: Callable[[], T], other_act: Callable[[], U]) -> tuple[T, U]:
    """Return the results of two calls, as `results_of` does."""
    first, second = results_of(file_io, cast(Callable[[], Any], act), other_act)
    return first, second


def behind(file_io: FileIO, act: Callable[[], object]) -> None:
    """Start a call without waiting for it; on a local store it runs right away.

    The act must not raise. A process runs it before it ends, unless it is killed.
    """
    if not file_io.facts.is_remote or _is_act():
        act()
        return
    begun = begin(_as_act, act, pool=ACTS)
    entry = os.getpid(), begun
    _behind.add(entry)
    begun.add_done_callback(lambda _: _behind.discard(entry))


def settle() -> None:
    """Wait for all calls of `behind`, before one that must come after them."""
    if not _is_act():
        wait([act for process, act in tuple(_behind) if process == os.getpid()])


def _as_act(act: Callable[[], T]) -> T:
    _here.is_act = True
    try:
        return act()
    finally:
        _here.is_act = False


def _is_act() -> bool:
    return getattr(_here, "is_act", False)


# -- Many files, concurrently on a remote store ----------------------------------------------------

_READ_AT_ONCE = 16


def read_many(
    file_io: FileIO, paths: Iterable[str], length: int | None = None
) -> Iterator[tuple[str, bytes | None]]:
    """Yield (path, its first `length` bytes) in the order asked; None for one that is missing.

    Of a remote store a few files are read ahead.
    """

    def read(path: str) -> tuple[str, bytes | None]:
        try:
            return path, file_io.read(path, length=length)
        except NotFoundError:
            return path, None

    return (
        at_once(read, paths, width=_READ_AT_ONCE) if file_io.facts.is_remote else map(read, paths)
    )


def write_many(file_io: FileIO, files: Mapping[str, bytes]) -> None:
    """Write new files; after an error none of them is left."""
    for path in files:
        check_path(path)
    written: list[str] = []

    def write(path: str) -> None:
        file_io.write_new(path, files[path])
        written.append(path)

    try:
        for _ in at_once(write, files) if file_io.facts.is_remote else map(write, files):
            pass
    except LsmError:
        # All or none: nothing names files of which some are missing. Where taken names are refused, the one that failed
        # may be another's file. Elsewhere it may be there all the same, as its answer was lost.
        file_io.delete_many(written if file_io.facts.has_directories else files)
        raise


def sync_directory(file_io: FileIO, directory: str) -> None:
    """Return when what was deleted from a directory stays deleted after a power cut."""
    # A remote store has a deletion on its disks when it answers, and directories of an object store are names alone.
    if file_io.facts.has_directories and not file_io.facts.is_remote:
        # A branch that another process has renamed or deleted meanwhile has no directory to bring anything back in.
        with suppress(NotFoundError):
            file_io.sync([directory])


# -- What some stores offer: nothing happens on the others -----------------------------------------


def prefetch(file_io: FileIO, path: str) -> None:
    """Begin to fetch a file that will soon be read as a whole."""
    if isinstance(file_io, Prefetching):
        file_io.prefetch(path)


def forget_prefetched(file_io: FileIO, paths: Iterable[str]) -> None:
    """Drop the prefetched bytes of files that will not be read."""
    if isinstance(file_io, Prefetching):
        file_io.forget_prefetched(paths)


def writing_behind(file_io: FileIO) -> FileIO:
    """Return storage whose outputs may be closed before their files are there, if the store has it; else the same."""
    return file_io.writing_behind() if isinstance(file_io, Batching) else file_io


_CHANGES = (
    "write_new", "open_output", "publish", "replace", "change_if_unchanged", "delete", "delete_many",
    "remove_empty_directory", "abort_uploads", "writing_behind",
)  # fmt: skip


def read_only(file_io: FileIO, why: str) -> FileIO:
    """Return the same storage, which refuses every change with InvalidOptionError. `why`: who may not change it."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise InvalidOptionError(why)

    reader = copy(file_io)
    # Attributes of the object shadow the methods of its class; it stays an object of that class, whose reads are fast.
    vars(reader).update(dict.fromkeys(_CHANGES, refuse))
    for name in ("undurable", "gathered"):  # these return other storage, which would take changes
        if hasattr(reader, name):
            vars(reader)[name] = lambda *_, **__: reader
    return reader


def forget_gathered(file_io: FileIO, paths: Iterable[str]) -> None:
    """Drop what was gathered or prefetched of some files: the next read asks the store."""
    if isinstance(file_io, Batching):
        file_io.forget_gathered(paths)


# -- Calls that many stores make of others ---------------------------------------------------------


class OneByOne:
    """Base class of a FileIO: many files are deleted and listed one by one, and the time is the stamp of a new file."""

    facts = StoreFacts()

    def delete_many(self: FileIO, paths: Iterable[str]) -> None:
        """Delete one file after another."""
        failure: LsmError | None = None
        for path in paths:
            try:
                self.delete(path)
            except LsmError as error:
                # One file that cannot be deleted must not keep the others.
                failure = failure or error
        if failure is not None:
            raise failure

    def list_files(self: FileIO, directory: str) -> Iterator[FileStatus]:
        """List one directory after another."""
        for status in self.list(directory):
            if status.is_directory:
                yield from self.list_files(status.path)
            else:
                yield status

    def now_millis(self: FileIO) -> int:
        """Return the stamp of a file made for it."""
        path = f".clock.{SystemIds().new_id()}.tmp"
        self.write_new(path, b"")
        try:
            return self.status(path).modified_millis
        finally:
            behind(self, partial(_delete_quietly, self, path))


def _delete_quietly(file_io: FileIO, path: str) -> None:
    with suppress(LsmError):  # the file is temporary: the removal of orphans finds it
        file_io.delete_many([path])


# -- Prefetched files: the next read of a file takes its bytes, once -------------------------------
#
# A prefetched file that is not read must not stand for a later content: its caller forgets it,
# and so do a change of the file and time.

FILES_MAX = 512
"""Files that are under way or wait to be read; the oldest is forgotten for another. More than all threads of a
scan wait for, with what comes next: what is forgotten is fetched again, each file in a round of its own."""
AGE_MAX_MILLIS = 30_000
"""How long a file waits to be read: what has waited longer is fetched again."""


class Prefetched:
    """Reads under way, by path. Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reads: OrderedDict[str, tuple[int, Future[bytes]]] = OrderedDict()

    def holds(self, path: str) -> bool:
        """Whether a file is under way, or here and not too old."""
        with self._lock:
            return path in self._reads and self._is_young(self._reads[path][0])

    def add(self, path: str, read: "Future[bytes]") -> None:
        """Hold a read until it is taken."""
        with self._lock:
            self._reads[path] = (self._clock.now_millis(), read)
            self._reads.move_to_end(path)
            evicted = [
                self._reads.popitem(last=False)[1] for _ in range(len(self._reads) - FILES_MAX)
            ]
        for _, future in evicted:
            future.cancel()

    def take(self, path: str) -> "Future[bytes] | None":
        """Remove and return the read of a file; None if it was not prefetched lately."""
        with self._lock:
            began, read = self._reads.pop(path, (None, None))
        if read is None or began is None or not self._is_young(began):
            return None
        return None if read.cancelled() else read

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the reads of some files."""
        with self._lock:
            entries = [self._reads.pop(path, None) for path in paths]
        for entry in entries:
            if entry is not None:
                entry[1].cancel()

    def _is_young(self, began_millis: int) -> bool:
        return 0 <= self._clock.now_millis() - began_millis <= AGE_MAX_MILLIS


_PIECE = 8 << 20


def read_pieces(file_io: FileIO, path: str, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file, a few MiB at a time."""
    for offset in range(0, size, _PIECE):
        yield file_io.read(path, offset, _PIECE)


def texts_in(pieces: Iterable[bytes], texts: Iterable[bytes]) -> set[bytes]:
    """Return the texts that stand in the bytes of a file, also where one goes from piece to piece."""
    unmatched, matched = set(texts), set[bytes]()
    longest = max(map(len, unmatched), default=0)
    end = b""
    for piece in pieces:
        window = end + piece
        matched |= {text for text in unmatched if text in window}
        unmatched -= matched
        # The rest is not read once all are found.
        if not unmatched:
            break
        end = window[-longest:]
    return matched
