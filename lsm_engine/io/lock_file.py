"""A lock of one name on a store without locks: a file that one of any number of processes creates.

Its holder acts for half a minute, and never later. A lock of five minutes is one of a process that died: it is not
deleted, as several might do that, but succeeded, by a file that is named after its holder and that one process creates.
What remains is a holder that is stopped for minutes between its look at the clock and its request.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lsm_engine.base.errors import CommitUnknownError, LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.io.clock import Clock, IdSource
from lsm_engine.io.file_io import FileIO

HELD_MILLIS = 30_000
"""After it asked for its lock a holder acts so long, and never later."""
ABANDONED_MILLIS = 300_000
"""A lock of this age, by the clock of the store, has no holder: longer than any request of that takes."""
PATIENCE_MILLIS = 10_000
"""How long an attempt waits for one holder."""
LONGEST_WAIT_MILLIS = 60_000
"""How long an attempt waits for several holders, one after the other."""
_POLL_MILLIS = 20


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
        """Whether the holder may still act."""
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
                millis = _POLL_MILLIS + int(self.ids.fraction() * min(waited_millis, 200))
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
