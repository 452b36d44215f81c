"""Locks between processes: of directories on one machine, and of names on stores without locks."""

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, runtime_checkable

from lsm_engine.base.errors import CommitUnknownError, LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.storage.clock import Clock, IdSource, SystemClock
from lsm_engine.storage.file_io import FileIO

# -- Locks of directories among the processes of one machine (flock) -------------------------------
#
# They make no file, and go with their process.
#
# Writers queue by `directory_lock`; correctness does not depend on it. Conditional changes of names depend on
# `exclusive`.

_POLL_MILLIS = 2
_MOST_PATIENCES = 20
"""How often the patience may restart: the holder may be stopped while others publish without the lock."""
PATIENCE_MILLIS = 10_000
"""How long `exclusive` waits for a holder that changes nothing in the directory."""


def opened_directory(real: str) -> int:
    """Return a descriptor of a directory; the caller closes it."""
    return os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def lock(descriptor: int, directory: int, clock: Clock, *, patience_millis: int) -> bool:
    """Wait for a lock; False where, for longer than the patience, nothing in `directory` changed.

    Where it changes, the wait takes 20 times the patience at most. Raises OSError where the file system has
    no such locks. Polls, as a holder may be stopped for hours.
    """
    polls = max(1, patience_millis // _POLL_MILLIS)
    polls_left, modified = polls, -1
    for _ in range(_MOST_PATIENCES * polls):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Polled, as a blocking call could not end by its patience.
            clock.sleep_millis(_POLL_MILLIS)
        else:
            return True
        before, modified = modified, os.fstat(directory).st_mtime_ns
        polls_left = polls_left - 1 if modified == before or before < 0 else polls
        if not polls_left:
            break
    return False


def unlock(descriptor: int) -> None:
    """Release a lock; harmless if none is held."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def exclusive(real: str, path: str) -> Iterator[int]:
    """Hold the lock of a directory, and yield its descriptor; names below it go by that (`dir_fd`).

    Raises FileNotFoundError if there is no such directory, and StorageError that names `path`, with nothing changed,
    where the lock is not to be had.
    """
    clock = SystemClock()
    # A writer that takes back its own snapshot has the lock already, and would wait for itself.
    own_descriptor = _held_by_this_thread(real)
    if own_descriptor is not None:
        yield own_descriptor
        return
    while True:
        descriptor = opened_directory(real)
        try:
            if not _locked(descriptor, path, clock):
                raise StorageError(
                    f"{_holder(descriptor)} holds the lock of this file's directory and does not go on; nothing was "
                    "changed; let it go on or end it, then retry",
                    path=path,
                    directory=real,
                )
            try:
                # Another directory may have taken the name during the wait.
                if os.path.samestat(os.fstat(descriptor), os.stat(real)):
                    yield descriptor
                    return
            finally:
                unlock(descriptor)  # a process that was forked meanwhile shares the descriptor
        finally:
            os.close(descriptor)


def _locked(descriptor: int, path: str, clock: Clock) -> bool:
    try:
        return lock(descriptor, descriptor, clock, patience_millis=PATIENCE_MILLIS)
    except OSError as cause:
        raise StorageError(
            "the file system has no locks (flock), without which a name cannot be changed safely; nothing was "
            "changed; keep the table on a file system that has them",
            path=path,
        ) from cause


def _holder(descriptor: int) -> str:
    """Return the process that holds a lock, as far as the system knows."""
    inode = str(os.fstat(descriptor).st_ino)
    with suppress(OSError, IndexError), open("/proc/locks") as locks:
        for line in locks:
            words = line.split()
            # Such as 12: FLOCK ADVISORY WRITE 4711 fd:01:393 0 EOF, with the process and the inode.
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
                return f"process {words[4]}"
    return "another process"


@runtime_checkable
class OnThisMachine(Protocol):
    """Storage whose files have names for the operating system."""

    def real_path(self, path: str) -> str:
        """Return where a file lies, links followed."""
        ...


@contextmanager
def directory_lock(
    file_io: FileIO, directory: str, clock: Clock, *, patience_millis: int
) -> Iterator[bool]:
    """Hold a directory's lock (flock); False where, for longer than the patience, nothing in it changed.

    Where it changes, who waits does so for 20 times the patience at most.

    Those who wait stand in line: the first of them holds the lock of the directory above until it has this
    one, so that who has just let go of it, and is running still, is not the next one too.

    Does nothing where the file system has no such locks, or no directory.
    """
    if not isinstance(file_io, OnThisMachine):
        yield True
        return
    with ExitStack() as stack:
        try:
            real = file_io.real_path(directory)
            own, line = _open(real, stack), _open(os.path.dirname(real), stack)
        except (OSError, LsmError):
            # The lock only spares lost races; a create decides without it.
            yield True
            return
        try:
            is_ours = lock(line, own, clock, patience_millis=patience_millis) and lock(
                own, own, clock, patience_millis=patience_millis
            )
        except OSError:
            # The file system has no locks, so that no other process holds one; nor does this thread.
            unlock(line)
            yield True
            return
        unlock(line)
        if not is_ours:
            yield False
            return
        _turns.descriptors = (*_held_descriptors(), own)
        try:
            yield True
        finally:
            _turns.descriptors = tuple(number for number in _held_descriptors() if number != own)


_turns = threading.local()
"""The directories whose locks `directory_lock` holds for this thread."""


def _held_descriptors() -> tuple[int, ...]:
    descriptors: tuple[int, ...] = getattr(_turns, "descriptors", ())
    return descriptors


def _held_by_this_thread(real: str) -> int | None:
    """Return the descriptor by which this thread holds a directory's lock; None if it does not."""
    for descriptor in _held_descriptors():
        if os.path.samestat(os.fstat(descriptor), os.stat(real)):
            return descriptor
    return None


def _open(real: str, stack: ExitStack) -> int:
    descriptor = opened_directory(real)
    stack.callback(os.close, descriptor)
    return descriptor


# -- A lock of one name on a store without locks ---------------------------------------------------
#
# A file that one of any number of processes creates.
#
# Its holder acts for half a minute, and never later. A lock of five minutes is one of a process
# that died: it is not deleted, as several might do that, but succeeded, by a file that is named
# after its holder and that one process creates. What remains is a holder that is stopped for
# minutes between its look at the clock and its request.

HELD_MILLIS = 30_000
"""After it asked for its lock a holder acts so long, and never later."""
ABANDONED_MILLIS = 300_000
"""A lock of this age, by the clock of the store, has no holder: longer than any request of that takes."""
LONGEST_WAIT_MILLIS = 60_000
"""How long an attempt waits for several holders, one after the other."""
_LOCK_POLL_MILLIS = 20


@record
class Holder:
    """The holder of a lock: a unique id, and the process for messages."""

    holder_id: str
    host: str = ""
    process: int = 0

    def encoded(self) -> bytes:
        """Return the content of the lock."""
        facts = {"id": self.holder_id, "host": self.host, "process": self.process}
        return json.dumps(facts).encode()


@record
class Hold:
    """A lock that is hold_lock."""

    path: str
    began_millis: int
    clock: Clock

    def require_time(self) -> None:
        """Raise StorageError if the time of a holder is over: another may have the lock."""
        if not self.is_in_time():
            raise StorageError(
                f"the file was not changed within {HELD_MILLIS // 1000} seconds; try again",
                path=self.path,
            )

    def is_in_time(self) -> bool:
        """Whether the lock still counts."""
        return 0 <= self.clock.now_millis() - self.began_millis <= HELD_MILLIS


@record
class LockFiles:
    """The locks of the names on one store, by its calls: `create` creates a file if it is absent."""

    file_io: FileIO
    create: Callable[[str, bytes], bool]
    clock: Clock
    ids: IdSource

    @contextmanager
    def hold_lock(self, path: str) -> Iterator[Hold]:
        """Hold the lock of a name.

        Raises StorageError that names the holder, with nothing changed, where it is not to be had.
        """
        own = Holder(holder_id=self.ids.new_id(), host=socket.gethostname(), process=os.getpid())
        hold, locks = self._acquire(path, own)
        try:
            yield hold
        finally:
            if hold.is_in_time():
                # The first lock is deleted first: a late successor checks that it still exists.
                self._delete_quietly(locks[:1])
                self._delete_quietly(locks[1:])

    def _acquire(self, path: str, own: Holder) -> tuple[Hold, list[str]]:
        first = _lock_of(path)
        waited_millis, since_millis, waited_for = 0, 0, ""
        while True:
            hold = self._hold(path)
            if self._is_created(first, own):
                return hold, [first]
            locks, holders = self._chain(first)
            if not holders:
                continue  # released meanwhile
            if holders[-1].holder_id != waited_for:
                waited_for, since_millis = holders[-1].holder_id, waited_millis
            is_over = waited_millis - since_millis >= PATIENCE_MILLIS
            if not is_over and waited_millis < LONGEST_WAIT_MILLIS:
                millis = _LOCK_POLL_MILLIS + int(self.ids.fraction() * min(waited_millis, 200))
                self.clock.sleep_millis(millis)
                waited_millis += millis
            elif not self._is_abandoned(locks[-1]):
                raise _not_to_be_had(path, locks[-1], holders[-1])
            else:
                hold = self._hold(path)
                locks.append(_successor(first, holders[-1]))
                if self._is_created(locks[-1], own):
                    if self._holder(first) == holders[0]:
                        return hold, locks
                    self._delete_quietly(locks[-1:])

    def _hold(self, path: str) -> Hold:
        return Hold(path=path, began_millis=self.clock.now_millis(), clock=self.clock)

    def _chain(self, first: str) -> tuple[list[str], list[Holder]]:
        """Return the first lock and its successors, each with its holder."""
        locks: list[str] = []
        holders: list[Holder] = []
        lock = first
        while (holder := self._holder(lock)) is not None:
            locks.append(lock)
            holders.append(holder)
            lock = _successor(first, holder)
        return locks, holders

    def _holder(self, lock: str) -> Holder | None:
        try:
            facts = json.loads(self.file_io.read(lock))
            return Holder(
                holder_id=str(facts["id"]), host=str(facts["host"]), process=int(facts["process"])
            )
        except NotFoundError:
            # The holder has released it.
            return None
        except (ValueError, TypeError, KeyError) as cause:
            raise StorageError("a lock file holds something else; delete it", path=lock) from cause

    def _is_created(self, lock: str, own: Holder) -> bool:
        try:
            return self.create(lock, own.encoded())
        except CommitUnknownError:  # the id in the lock shows whose it is
            return self._holder(lock) == own

    def _is_abandoned(self, lock: str) -> bool:
        try:
            status = self.file_io.status(lock)
        except NotFoundError:
            # Released since: the next attempt may take it.
            return False
        return self.file_io.now_millis() - status.modified_millis >= ABANDONED_MILLIS

    def _delete_quietly(self, locks: list[str]) -> None:
        with suppress(LsmError):  # a lock that remains has successors once it is abandoned
            self.file_io.delete_many(locks)


def _lock_of(path: str) -> str:
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.lock"


def _successor(first: str, holder: Holder) -> str:
    return f"{first}.{holder.holder_id}"


def _not_to_be_had(path: str, lock: str, holder: Holder) -> StorageError:
    return StorageError(
        f"process {holder.process} on {holder.host} is changing this file and does not come to an end; nothing was "
        f"changed; end it, or let it go on, and try again; if it is dead, in {ABANDONED_MILLIS // 60_000} minutes",
        path=path,
        lock=lock,
    )
