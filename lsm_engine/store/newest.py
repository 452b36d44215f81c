"""The newest snapshot on a far store: of what this process knows, one round finds out whether it is that still.

A reader near by looks at one file after the other, in an order that decides (docs/commit-protocol.md).
From afar each look costs a round, so they are sent at once, and an answer counts only if all came within
a second: what could deceive it, an expiry that moves EARLIEST, reads every root and deletes two snapshots
between two of these requests, takes longer. Otherwise the caller looks in order.
"""

import threading
from collections.abc import Callable

from cachetools import LRUCache

from lsm_engine.base.record import record
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import EARLIEST, LATEST, TablePaths
from lsm_engine.io.together import together
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import follows, is_built_on, named_base, rollback_target
from lsm_engine.plan.ownership import same_state

_AT_ONCE_MILLIS = 1_000
_FRESH_MILLIS = 1_000
_CLIMBED = 20  # snapshots newer than what is known that are looked for one by one
_LIKELY = 10  # snapshots below the newest that maintenance asks for before it has listed them
_TABLES = 4_096  # whose newest snapshot a process remembers

_known: "LRUCache[tuple[FileIO, str], _Known]" = LRUCache(_TABLES)
_lock = threading.Lock()
_clock = SystemClock()


@record
class _Known:
    snapshot: Snapshot
    at_millis: int


def expect_newest(file_io: FileIO, paths: TablePaths) -> None:
    """Have LATEST fetched beside: the newest snapshot of a far table will be asked for soon.

    It is advice, and checked when it is used: it may be older than the question.
    """
    with _lock:
        is_known = (file_io, paths.snapshot_directory) in _known
    if file_io.facts.is_far and not is_known:
        file_io.prefetch(paths.snapshot_hint(LATEST))


def likely_documents(file_io: FileIO, paths: TablePaths) -> list[str]:
    """Return hints and snapshot files that are likely there, by what this process knows of a far table."""
    with _lock:
        found = _known.get((file_io, paths.snapshot_directory))
    if found is None:
        return []
    newest = found.snapshot.id
    ids = range(max(newest - _LIKELY, 0) + 1, newest + 1)
    return [*map(paths.snapshot_hint, (EARLIEST, LATEST)), *map(paths.snapshot_file, ids)]


class NewestSnapshot:
    """What this process knows of the newest snapshot of one table or branch, all handles together.

    On a store that is near nothing is kept.
    """

    def __init__(
        self, file_io: FileIO, directory: str, find: Callable[[int], Snapshot | None]
    ) -> None:
        """`directory`: of the snapshots; `find` reads one by its id."""
        self._file_io = file_io
        self._key = (file_io, directory)
        self._find = find

    def remember(self, snapshot: Snapshot) -> None:
        """Keep a snapshot that is known to count, and to be the newest."""
        if not self._file_io.facts.is_far:
            return
        with _lock:
            if rollback_target(snapshot) is None:
                _known[self._key] = _Known(snapshot=snapshot, at_millis=_clock.now_millis())
            else:
                _known.pop(self._key, None)

    def forget(self) -> None:
        """Keep nothing: snapshots go."""
        if self._file_io.facts.is_far:
            with _lock:
                _known.pop(self._key, None)

    def known(self) -> Snapshot | None:
        """Return what was the newest when somebody looked last."""
        with _lock:
            found = _known.get(self._key)
        return None if found is None else found.snapshot

    def of_writer(self) -> Snapshot | None:
        """Return what a writer may build on, who finds out after the create whether it is the newest.

        What was the newest a second ago is not looked for again.
        """
        with _lock:
            found = _known.get(self._key)
        if found is None:
            return None
        if 0 <= _clock.now_millis() - found.at_millis < _FRESH_MILLIS:
            return found.snapshot
        if self._find(found.snapshot.id + 1) is not None:
            return None
        self.remember(found.snapshot)
        return found.snapshot

    def look(self) -> Snapshot | None:
        """Return the newest if it is what is known, or was made on that; None: look in order."""
        known = self.known()
        return self._look(known, known)

    def _look(self, newest: Snapshot | None, proof: Snapshot | None) -> Snapshot | None:
        """Climb from a snapshot, which was made on `proof` or is it."""
        for _ in range(_CLIMBED):
            if newest is None or proof is None:
                return None
            newer, there = self._at_once(newest.id + 1, proof.id)
            if not same_state(there, proof):
                return None
            if newer is None:
                self.remember(newest)
                return newest
            newest, proof = self._climbed(newer, newest), newest
        return None

    def look_from(self, hint: int, earliest: Callable[[], int | None]) -> Snapshot | None:
        """Return the newest if it is where LATEST points to, or was made on that; None: look in order."""
        there, newer, below = self._at_once(hint, hint + 1, hint - 1)
        if there is None or rollback_target(there) is not None:
            return None
        if below is None or not is_built_on(there, below):
            oldest = earliest()
            if oldest is None or oldest > there.id or (oldest < there.id and named_base(there)):
                return None
        self.remember(there)
        return there if newer is None else self._look(self._climbed(newer, there), there)

    @staticmethod
    def _climbed(newer: Snapshot, older: Snapshot) -> Snapshot | None:
        may_be = follows(newer, older) and rollback_target(newer) is None
        return newer if may_be else None

    def _at_once(self, *ids: int) -> list[Snapshot | None]:
        """Return the snapshots of some ids, of none if it took so long that their order matters."""
        started = _clock.now_millis()
        found = together(
            self._file_io, *(lambda number=number: self._find(number) for number in ids)
        )
        took = _clock.now_millis() - started
        return found if 0 <= took <= _AT_ONCE_MILLIS else [None] * len(ids)
