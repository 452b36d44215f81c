"""The newest snapshot on a far store: of what this process knows, one round or two find out whether it is
that still.

The order decides (docs/commit-protocol.md): ids are freed upwards, so that a snapshot that is found *after*
its successor was not there has no successor. An expiry that deletes both between two requests that were
sent at once could deceive a reader. Requests are sent at once only where that reader would see a state
that was the newest half a second ago, or, of LATEST, where the answers came too fast for the deletions
between them. Else the snapshot is read once more, after its successor.
"""

import threading
from collections.abc import Callable
from functools import partial

from cachetools import LRUCache

from lsm_engine.base.record import record
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import EARLIEST, LATEST, TablePaths
from lsm_engine.io.together import together
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import follows, is_built_on, named_base, rollback_target
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshot_files import hinted_id

_YOUNG_MILLIS = 500
"""So old may knowledge be that is asked for at once: two commits and an expiry come to 12 rounds."""
_ROUND_MILLIS = 100
"""Answers that all came within it have no three deletions between them, which go one after the other."""
_FRESH_MILLIS = 1_000
_CLIMBED = 20  # snapshots newer than what is known that are looked for one by one
_LIKELY = 10  # snapshots below the newest that maintenance asks for before it has listed them
_TABLES = 4_096  # whose newest snapshot a process remembers

_known: "LRUCache[tuple[FileIO, str], _Known]" = LRUCache(_TABLES)
_lock = threading.Lock()
_clock = SystemClock()


@record
class _Known:
    """A snapshot that was the newest at a time of the monotonic clock."""

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
    """Return hints and snapshot files that are likely there: by what this process knows of a far table, or LATEST."""
    with _lock:
        found = _known.get((file_io, paths.snapshot_directory))
    latest = paths.snapshot_hint(LATEST)
    newest = hinted_id(file_io, latest) if found is None else found.snapshot.id
    if newest is None:
        return []
    ids = range(max(newest - _LIKELY, 0) + 1, newest + 1)
    return [paths.snapshot_hint(EARLIEST), latest, *map(paths.snapshot_file, ids)]


def newest_lately(file_io: FileIO, paths: TablePaths) -> Snapshot | None:
    """Return what was the newest snapshot a second ago, as far as this process knows: it is to be looked at again."""
    with _lock:
        found = _known.get((file_io, paths.snapshot_directory))
    is_fresh = found and _clock.monotonic_millis() - found.at_millis < _FRESH_MILLIS
    return found.snapshot if found and is_fresh else None


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

    def remember(self, snapshot: Snapshot, at_millis: int | None = None) -> None:
        """Keep a snapshot that is known to count, and was the newest at a time; None: now."""
        if not self._file_io.facts.is_far:
            return
        with _lock:
            if rollback_target(snapshot) is None:
                at = _clock.monotonic_millis() if at_millis is None else at_millis
                _known[self._key] = _Known(snapshot=snapshot, at_millis=at)
            else:
                _known.pop(self._key, None)

    def forget(self) -> None:
        """Keep nothing: snapshots go."""
        if self._file_io.facts.is_far:
            with _lock:
                _known.pop(self._key, None)

    def of_writer(self) -> Snapshot | None:
        """Return what a writer may build on, who finds out after the create whether it is the newest.

        What was the newest a second ago is not looked for again.
        """
        with _lock:
            found = _known.get(self._key)
        if found is None:
            return None
        now = _clock.monotonic_millis()
        if now - found.at_millis < _FRESH_MILLIS:
            return found.snapshot
        if self._find(found.snapshot.id + 1) is not None:
            return None
        self.remember(found.snapshot, now)
        return found.snapshot

    def look(self) -> Snapshot | None:
        """Return the newest if it is what is known, or was made on that; None: look in order."""
        with _lock:
            known = _known.get(self._key)
        return (
            None if known is None else self._look(known.snapshot, known.snapshot, known.at_millis)
        )

    def _look(
        self, newest: Snapshot | None, proof: Snapshot, since_millis: int | None
    ) -> Snapshot | None:
        """Climb from a snapshot, which was made on `proof` or is it, and was the newest at a time."""
        for _ in range(_CLIMBED):
            if newest is None:
                break
            began = _clock.monotonic_millis()
            newer, there = self._successor_and(proof.id, newest.id + 1, since_millis)
            if newer is None:
                if not same_state(there, proof):
                    return None
                self.remember(newest, began)
                return newest
            proof, newest = newest, self._climbed(newer, newest)
        return None

    def _successor_and(
        self, proof: int, successor: int, since_millis: int | None
    ) -> tuple[Snapshot | None, Snapshot | None]:
        """Return a successor, and where there is none the snapshot below, as it is after that."""
        newer = there = None
        at_once = _is_young(since_millis)
        if at_once:
            newer, there = together(
                self._file_io, lambda: self._find(successor), lambda: self._find(proof)
            )
        else:
            newer = self._find(successor)
        if newer is None and not (at_once and _is_young(since_millis)):
            there = self._find(proof)
        return newer, there

    def look_from(
        self, hint: int, state: str | None, earliest: Callable[[], int | None]
    ) -> Snapshot | None:
        """Return the newest if it is where LATEST points to, or was made on that; None: look in order.

        `state`: the delta manifest list of what LATEST was written for, which counted then. What it does not
        name has to have its base, or to be the oldest.
        """
        began = _clock.monotonic_millis()
        proof = hint - 1 if state is None else hint
        wanted = [hint, hint + 1, *({proof} - {hint})]
        asked = (partial(self._find, number) for number in wanted)
        found = dict(zip(wanted, together(self._file_io, *asked), strict=True))
        if _clock.monotonic_millis() - began > _ROUND_MILLIS:
            found[proof] = self._find(proof)
        there, newer = found[hint], found[hint + 1]
        if there is None or rollback_target(there) is not None:
            return None
        if there.delta_manifest_list != state:
            below = found[proof] if state is None else self._find(hint - 1)
            is_above = below is not None and is_built_on(there, below)
            if not is_above and not _is_oldest(there, earliest()):
                return None
        if newer is not None:
            return self._look(self._climbed(newer, there), there, None)
        self.remember(there, began)
        return there

    @staticmethod
    def _climbed(newer: Snapshot, older: Snapshot) -> Snapshot | None:
        may_be = follows(newer, older) and rollback_target(newer) is None
        return newer if may_be else None


def _is_oldest(found: Snapshot, earliest: int | None) -> bool:
    """Whether a snapshot counts though its base has expired; EARLIEST was read after it."""
    if earliest is None or earliest > found.id:
        return False
    return earliest == found.id or named_base(found) is None


def _is_young(since_millis: int | None) -> bool:
    return since_millis is not None and _clock.monotonic_millis() - since_millis <= _YOUNG_MILLIS
