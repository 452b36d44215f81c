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
    """Prefetch LATEST of a remote table: the newest snapshot will be read soon.

    It is advice, and checked when it is used: it may be older than the question.
    """
    with _lock:
        is_known = (file_io, paths.snapshot_directory) in _known
    if file_io.facts.is_far and not is_known:
        file_io.prefetch(paths.snapshot_hint(LATEST))


def likely_documents(file_io: FileIO, paths: TablePaths) -> list[str]:
    """Return hints and snapshot files that are likely to exist, by the known newest snapshot or LATEST."""
    with _lock:
        known_newest = _known.get((file_io, paths.snapshot_directory))
    latest = paths.snapshot_hint(LATEST)
    newest = hinted_id(file_io, latest) if known_newest is None else known_newest.snapshot.id
    if newest is None:
        return []
    ids = range(max(newest - _LIKELY, 0) + 1, newest + 1)
    return [paths.snapshot_hint(EARLIEST), latest, *map(paths.snapshot_file, ids)]


def newest_lately(file_io: FileIO, paths: TablePaths) -> Snapshot | None:
    """Return the newest snapshot of a second ago, if this process knows it. The caller has to verify it."""
    with _lock:
        known_newest = _known.get((file_io, paths.snapshot_directory))
    is_fresh = known_newest and _clock.monotonic_millis() - known_newest.at_millis < _FRESH_MILLIS
    return known_newest.snapshot if known_newest and is_fresh else None


class NewestSnapshot:
    """The newest known snapshot of one table or branch, shared by all handles of the process.

    Nothing is remembered on a local store.
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
                seen_millis = _clock.monotonic_millis() if at_millis is None else at_millis
                _known[self._key] = _Known(snapshot=snapshot, at_millis=seen_millis)
            else:
                _known.pop(self._key, None)

    def forget(self) -> None:
        """Forget the snapshot: snapshots are being deleted."""
        if self._file_io.facts.is_far:
            with _lock:
                _known.pop(self._key, None)

    def of_writer(self) -> Snapshot | None:
        """Return a base for a writer, which learns after its create whether the base was the newest.

        The newest snapshot of a second ago is not verified again.
        """
        with _lock:
            known_newest = _known.get(self._key)
        if known_newest is None:
            return None
        now = _clock.monotonic_millis()
        if now - known_newest.at_millis < _FRESH_MILLIS:
            return known_newest.snapshot
        if self._find(known_newest.snapshot.id + 1) is not None:
            return None
        self.remember(known_newest.snapshot, now)
        return known_newest.snapshot

    def look(self) -> Snapshot | None:
        """Return the newest if it is the known one or a successor; None: the caller searches."""
        with _lock:
            known_newest = _known.get(self._key)
        return (
            None
            if known_newest is None
            else self._look(known_newest.snapshot, known_newest.snapshot, known_newest.at_millis)
        )

    def _look(
        self, newest: Snapshot | None, proof: Snapshot, since_millis: int | None
    ) -> Snapshot | None:
        """Climb from a snapshot, which was made on `proof` or is it, and was the newest at a time."""
        for _ in range(_CLIMBED):
            if newest is None:
                break
            began = _clock.monotonic_millis()
            newer, below = self._successor_and(proof.id, newest.id + 1, since_millis)
            if newer is None:
                if not same_state(below, proof):
                    return None
                self.remember(newest, began)
                return newest
            proof, newest = newest, self._climbed(newer, newest)
        return None

    def _successor_and(
        self, proof: int, successor: int, since_millis: int | None
    ) -> tuple[Snapshot | None, Snapshot | None]:
        """Return a successor; without one also the snapshot below, read after that."""
        newer = below = None
        is_concurrent = _is_young(since_millis)
        if is_concurrent:
            newer, below = together(
                self._file_io, lambda: self._find(successor), lambda: self._find(proof)
            )
        else:
            newer = self._find(successor)
        if newer is None and not (is_concurrent and _is_young(since_millis)):
            below = self._find(proof)
        return newer, below

    def look_from(
        self, hint: int, state: str | None, earliest: Callable[[], int | None]
    ) -> Snapshot | None:
        """Return the newest if it is where LATEST points to, or was made on that; None: look in order.

        `state`: the delta manifest list of what LATEST was written for, which counted then. What it does not
        name has to have its base, or to be the oldest.
        """
        began = _clock.monotonic_millis()
        proof = hint - 1 if state is None else hint
        ids = [hint, hint + 1, *({proof} - {hint})]
        reads = (partial(self._find, number) for number in ids)
        snapshots = dict(zip(ids, together(self._file_io, *reads), strict=True))
        if _clock.monotonic_millis() - began > _ROUND_MILLIS:
            snapshots[proof] = self._find(proof)
        hinted, newer = snapshots[hint], snapshots[hint + 1]
        if hinted is None or rollback_target(hinted) is not None:
            return None
        if hinted.delta_manifest_list != state:
            below = snapshots[proof] if state is None else self._find(hint - 1)
            is_above = below is not None and is_built_on(hinted, below)
            if not is_above and not _is_oldest(hinted, earliest()):
                return None
        if newer is not None:
            return self._look(self._climbed(newer, hinted), hinted, None)
        self.remember(hinted, began)
        return hinted

    @staticmethod
    def _climbed(newer: Snapshot, older: Snapshot) -> Snapshot | None:
        may_be = follows(newer, older) and rollback_target(newer) is None
        return newer if may_be else None


def _is_oldest(snapshot: Snapshot, earliest: int | None) -> bool:
    """Whether a snapshot counts though its base has expired; EARLIEST was read after it."""
    if earliest is None or earliest > snapshot.id:
        return False
    return earliest == snapshot.id or named_base(snapshot) is None


def _is_young(since_millis: int | None) -> bool:
    return since_millis is not None and _clock.monotonic_millis() - since_millis <= _YOUNG_MILLIS
