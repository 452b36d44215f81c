"""Snapshots: the newest, the oldest, one by number; and the one atomic call that makes a commit visible.

The files are the truth, but not every file is a snapshot: a writer that was stopped may land on an id
that expiry has passed (docs/commit-protocol.md). LATEST is advice that is checked before it is followed,
as it may be stale, torn or missing. A snapshot whose base is there counts; where the base has expired,
EARLIEST decides, read after the file. Nothing is cached: after a rollback the next commit uses an id again."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from cachetools import LRUCache

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.format.documents import (
    HINT_BYTES,
    decode_hint,
    decode_snapshot,
    encode_hint,
    encode_snapshot,
)
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.metadata.branches import BranchStore
from lsm_engine.metadata.publishing import (
    deleted,
    listed_numbers,
    published,
    replaced,
    stable_listing,
    unclaimed,
)
from lsm_engine.planning.commit import note_of_files, noted_files, noted_state
from lsm_engine.planning.ownership import same_state
from lsm_engine.planning.rollback import leads_to, replaces_first, takes_first
from lsm_engine.planning.snapshot_chain import (
    believed,
    branch_id,
    follows,
    is_built_on,
    is_cut_off,
    is_target_below,
    linked_run,
    named_base,
    newest_run,
    rollback_target,
    without_orphan_snapshots,
)
from lsm_engine.storage.bulk import (
    behind,
    forget_gathered,
    forget_prefetched,
    prefetch,
    read_many,
    results_of,
)
from lsm_engine.storage.clock import SystemClock
from lsm_engine.storage.file_io import FileIO, FileStatus, Noted
from lsm_engine.storage.paths import EARLIEST, LATEST, SNAPSHOT_PREFIX, TablePaths

# -- Snapshot files and hints ----------------------------------------------------------------------
#
# Snapshot/ and changelog/ alike.


def found_snapshot(
    file_io: FileIO, paths: TablePaths, path: str, snapshot_id: int, *, if_another: str
) -> Snapshot | None:
    """Return the snapshot in a file, or None if there is no file, or none yet (metadata/publishing).

    Raises CorruptFileError, with text `if_another`, where the file holds another snapshot's id.
    """
    try:
        data = unclaimed(file_io, paths, path, file_io.read(path, length=READ_MAX))
    except NotFoundError:
        # Expired or not made yet: the caller decides by other files.
        return None
    if data is None:
        return None
    return decoded_snapshot(data, path, snapshot_id, if_another=if_another)


def decoded_snapshot(data: bytes, path: str, snapshot_id: int, *, if_another: str) -> Snapshot:
    """Return the snapshot that a file's bytes hold; raises as `found_snapshot`."""
    snapshot = decode_snapshot(data, file_name=path)
    if snapshot.id != snapshot_id:
        raise CorruptFileError(if_another, file=path, id=snapshot.id)
    return snapshot


def current_content(file_io: FileIO, path: str) -> bytes | None:
    """Return the bytes of a snapshot's file as they are now, past what a listing gathered; None if it is deleted."""
    forget_gathered(file_io, [path])
    try:
        return file_io.read(path, length=READ_MAX)
    except NotFoundError:
        # Deleted since: the caller's condition does not hold.
        return None


def delete_unchanged(file_io: FileIO, path: str, snapshot: Snapshot) -> bool:
    """Delete a snapshot's file if it still holds the snapshot; False, and no change, otherwise."""
    content = current_content(file_io, path)
    if content is None or decode_snapshot(content, file_name=path) != snapshot:
        return False
    return deleted(file_io, path, expected=content)


def replace_unchanged(file_io: FileIO, path: str, old: Snapshot, new: Snapshot) -> bool:
    """Replace a snapshot's file if it still holds `old`; False, and no change, otherwise."""
    content = current_content(file_io, path)
    if content is None or decode_snapshot(content, file_name=path) != old:
        return False
    return replaced(file_io, path, encode_snapshot(new), expected=content)


def hinted_id(file_io: FileIO, path: str) -> int | None:
    """Return the id in a hint file, unchecked; None if it has none: list the directory then."""
    return hinted(file_io, path)[0]


def hinted(file_io: FileIO, path: str) -> tuple[int | None, str]:
    """Return the id in a hint file, or None, and the note that is kept beside it, or none ("")."""
    try:
        data = file_io.read(path, length=HINT_BYTES)
        return decode_hint(data), data.note if isinstance(data, Noted) else ""
    except LsmError:
        # A hint is advice: without it a listing finds the newest.
        return None, ""


def ids_of(listed: list[FileStatus]) -> list[int]:
    """Return the ids of the snapshot files of a listing, in ascending order."""
    return listed_numbers(listed, SNAPSHOT_PREFIX)


def are_of_one_history(before: list[FileStatus], now: list[FileStatus]) -> bool:
    """Whether two listings have the same ids in between: above, commits add; below, expiry takes."""
    earlier, later = ids_of(before), ids_of(now)
    if not earlier or not later:
        return not earlier and not later
    low, high = max(earlier[0], later[0]), min(earlier[-1], later[-1])
    return low <= high and _between(earlier, low, high) == _between(later, low, high)


def _between(ids: list[int], low: int, high: int) -> list[int]:
    return [number for number in ids if low <= number <= high]


def require_base(snapshot: Snapshot, below: Snapshot | None, path: str) -> None:
    """Raise CorruptFileError if a snapshot was made on another than the one below it.

    No commit may build on it then: the file below is lost, one of the two is another branch's, or LATEST, of a commit
    that was rolled back, names for a moment one that never counted. `path` is that of the file below.
    """
    if named_base(snapshot) is not None and (below is None or not follows(snapshot, below)):
        raise CorruptFileError(
            f"the snapshot is missing that snapshot {snapshot.id} was made on; try again, as a rollback or an expiry "
            "may be under way; if it is lost, restore the file, or roll back to one below",
            file=path,
            snapshot_id=snapshot.id,
        )


# -- Snapshot hints --------------------------------------------------------------------------------
#
# EARLIEST and LATEST of the snapshots of one table or branch, read unchecked; callers that know
# the ids write them.

GAPS_LOOKED_UP = 10_000
"""Missing ids that are asked for one by one."""

Expect = Callable[[Iterable[str]], None]
"""Has manifests and lists of these names fetched beside, unless they are kept already."""
_NO_NOTES = (400, 413, 431, 501)
"""Status of the answer of a store that takes no metadata, or not as much."""


class SnapshotHints:
    """The hint files beside the snapshots, which is their store (metadata/snapshots)."""

    def __init__(self, file_io: FileIO, paths: TablePaths, expect: Expect | None = None) -> None:
        self._file_io = file_io
        self._paths = paths
        self._expect = expect
        self._takes_notes = file_io.facts.is_remote

    def earliest_hint(self) -> int | None:
        """Return the EARLIEST hint, unchecked; None if there is none.

        Expiry moves it before it reads any retained reference: a smaller id is being deleted, or is deleted.
        """
        return self._hint(EARLIEST)

    def latest_hint(self) -> int | None:
        """Return the LATEST hint, unchecked; None if there is none. Only commits that count move it up."""
        return self._hint(LATEST)

    def stray_latest(self, newest_id: int) -> int | None:
        """Return the LATEST hint if it is beyond the newest id and names nothing; else None.

        Of a table without a snapshot (`newest_id` 0) and LATEST the EARLIEST hint.
        """
        stray = self._stray(LATEST, newest_id)
        return self._stray(EARLIEST, 0) if stray is None and not newest_id else stray

    def require_reached(self, newest_id: int, hint: int | None) -> None:
        """Raise CorruptFileError if a hint names a newer snapshot than the newest, and no file of it is there.

        `newest_id`: of those that count, 0 if there is none; `hint`: what LATEST was before they were looked
        for, or EARLIEST of a table that has neither LATEST nor a snapshot. Both only name what has counted,
        and a rollback moves LATEST, durably, before its file goes. What had been committed with that
        snapshot would vanish without a word, and the next commit would make it so for good.
        """
        if hint is None or hint <= newest_id:
            return
        # Asked again, as a rollback moves LATEST before the file goes.
        lost = self.stray_latest(newest_id)
        if lost is not None:
            raise CorruptFileError(
                f"snapshot {lost} is missing, and was the newest: try again, as a rollback may be under way; if "
                "it is lost, restore its file, or go on without its commit: "
                "table.repair_latest_snapshot, or lsm repair TABLE latest",
                file=self._paths.snapshot_file(lost),
                newest_there=newest_id,
            )

    def _stray(self, name: str, newest_id: int) -> int | None:
        hint = self._hint(name)
        if hint is None or hint <= newest_id:
            return None
        # What was gathered at once is of several moments: a commit, or a rollback, may lie between listing and hint.
        hint_file, snapshot_file = self._paths.snapshot_hint(name), self._paths.snapshot_file(hint)
        forget_gathered(self._file_io, [hint_file, snapshot_file])
        hint = self._hint(name)
        if hint is None or hint <= newest_id or self.exists(hint):
            return None
        # The hint is read last: a rollback moves it before the file goes.
        forget_gathered(self._file_io, [hint_file])
        return hint if self._hint(name) == hint else None

    def exists(self, snapshot_id: int) -> bool:
        """Whether there is a snapshot of this id."""
        return snapshot_id > 0 and self._file_io.exists(self._paths.snapshot_file(snapshot_id))

    def _stable_ids(self) -> list[int]:
        directory = self._paths.snapshot_directory
        for _ in range(2):
            ids = ids_of(stable_listing(self._file_io, directory, are_of_one_history))
            if ids:
                break
            hints = (self._hint(LATEST), self._hint(EARLIEST))
            if not any(hint is not None and self.exists(hint) for hint in hints):
                return []
            # The first snapshot, such as that of a branch, may have come since: a second listing has it.
        else:
            # A hint that names an existing file shows that the listing lies.
            raise StorageError(
                "the storage lists no snapshots, and there are some; nothing was deleted",
                directory=directory,
            )
        # A stale listing lacks the newest and oldest ones first.
        while self.exists(ids[-1] + 1):
            ids.append(ids[-1] + 1)
        while self.exists(ids[0] - 1):
            ids.insert(0, ids[0] - 1)
        if ids[-1] - ids[0] < len(ids) + GAPS_LOOKED_UP:
            ids = list(range(ids[0], ids[-1] + 1))
        return ids

    def forget_latest(self) -> None:
        """Delete LATEST: readers and writers list then."""
        self._file_io.delete(self._paths.snapshot_hint(LATEST))

    def hint_latest(self, snapshot_id: int, *, may_skip: bool = True) -> None:
        """Write LATEST, unless the store throttles: without it, or with an old one, others look on.

        A process that then deletes the snapshot that the old one names may not skip it, and waits for the disk.
        """
        self._write_hint(LATEST, snapshot_id, may_skip=may_skip)

    def make_earliest(self, snapshot_id: int) -> None:
        """Create EARLIEST of a table's first snapshot, unless it exists."""
        published(self._file_io, self._paths.snapshot_hint(EARLIEST), encode_hint(snapshot_id))

    def hint_newest(self, snapshot: Snapshot) -> None:
        """Write LATEST as `hint_latest` does, with a note of the files that readers will ask for."""
        note = note_of_files(snapshot) if self._takes_notes else ""
        try:
            self._write_hint(LATEST, snapshot.id, may_skip=True, note=note)
        except LsmError as error:
            # Some stores take no metadata: the hint alone is enough.
            if not note or not _refuses_notes(error):
                raise
            self._takes_notes = False
            self.hint_latest(snapshot.id)

    def hint_earliest(self, snapshot_id: int) -> None:
        """Write EARLIEST, also backwards: for a process that gives ids back under a sign of its own."""
        self._write_hint(EARLIEST, snapshot_id)

    def _write_hint(
        self, hint: str, snapshot_id: int, *, may_skip: bool = False, note: str = ""
    ) -> None:
        path = self._paths.snapshot_hint(hint)
        self._file_io.replace(path, encode_hint(snapshot_id), may_skip=may_skip, note=note)

    def _hint(self, hint: str) -> int | None:
        return self._noted_hint(hint)[0]

    def _noted_hint(
        self, hint: str, *, expected: bool = False, reads_state: bool = False
    ) -> tuple[int | None, str | None]:
        """Return a hint, and which state it was written for, if that is noted (`noted_state`).

        `expected`: one that was fetched a while ago will do. `reads_state`: the files in a note beside it
        are fetched meanwhile.
        """
        path = self._paths.snapshot_hint(hint)
        # A hint that was fetched before the question may be older than an acknowledged commit.
        if not expected:
            forget_prefetched(self._file_io, [path])
        snapshot_id, note = hinted(self._file_io, path)
        if reads_state and self._expect is not None:
            self._expect(noted_files(note))
        return snapshot_id, noted_state(note)


def _refuses_notes(error: LsmError) -> bool:
    """Whether a store takes no metadata, or not as much: without it the request may do; a busy store is left alone."""
    return isinstance(error, UnsupportedError) or error.facts.get("status") in _NO_NOTES


# -- The newest snapshot on a remote store ---------------------------------------------------------
#
# Of what this process knows, one round or two find out whether it is that still.
#
# The order decides (docs/commit-protocol.md): ids are freed upwards, so that a snapshot that is
# found *after* its successor was not there has no successor. An expiry that deletes both
# between two requests that were sent at once could deceive a reader. Requests are sent at once
# only where that reader would see a state that was the newest half a second ago, or, of LATEST,
# where the answers came too fast for the deletions between them. Else the snapshot is read once
# more, after its successor.

_YOUNG_MILLIS = 500
"""So old may knowledge be that is asked for at once: two commits and an expiry come to 12 rounds."""
_ROUND_MILLIS = 100
"""Answers that all came within it have no three deletions between them, which go one after the other."""
_FRESH_MILLIS = 1_000
_CLIMBED = 20  # snapshots newer than what is known that are looked for one by one
_LIKELY = 10  # snapshots below the newest that maintenance asks for before it has listed them
_TABLES = 4_096  # whose newest snapshot a process remembers

_newest_known: "LRUCache[tuple[FileIO, str], _Known]" = LRUCache(_TABLES)
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
        is_known = (file_io, paths.snapshot_directory) in _newest_known
    if file_io.facts.is_remote and not is_known:
        prefetch(file_io, paths.snapshot_hint(LATEST))


def likely_documents(file_io: FileIO, paths: TablePaths) -> list[str]:
    """Return hints and snapshot files that are likely to exist, by the known newest snapshot or LATEST."""
    with _lock:
        known_newest = _newest_known.get((file_io, paths.snapshot_directory))
    latest = paths.snapshot_hint(LATEST)
    newest = hinted_id(file_io, latest) if known_newest is None else known_newest.snapshot.id
    if newest is None:
        return []
    ids = range(max(newest - _LIKELY, 0) + 1, newest + 1)
    return [paths.snapshot_hint(EARLIEST), latest, *map(paths.snapshot_file, ids)]


def newest_lately(file_io: FileIO, paths: TablePaths) -> Snapshot | None:
    """Return the newest snapshot of a second ago, if this process knows it. The caller has to verify it."""
    with _lock:
        known_newest = _newest_known.get((file_io, paths.snapshot_directory))
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
        if not self._file_io.facts.is_remote:
            return
        with _lock:
            # No commit is made on a marker.
            if rollback_target(snapshot) is None:
                seen_millis = _clock.monotonic_millis() if at_millis is None else at_millis
                _newest_known[self._key] = _Known(snapshot=snapshot, at_millis=seen_millis)
            else:
                _newest_known.pop(self._key, None)

    def forget(self) -> None:
        """Forget the snapshot: snapshots are being deleted."""
        if self._file_io.facts.is_remote:
            with _lock:
                _newest_known.pop(self._key, None)

    def of_writer(self) -> Snapshot | None:
        """Return a base for a writer, which learns after its create whether the base was the newest.

        The newest snapshot of a second ago is not verified again.
        """
        with _lock:
            known_newest = _newest_known.get(self._key)
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
            known_newest = _newest_known.get(self._key)
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
                # Read after the successor: with the proof in place no id above it was free.
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
            newer, below = results_of(
                self._file_io, lambda: self._find(successor), lambda: self._find(proof)
            )
        else:
            newer = self._find(successor)
        # Answers that took long may have an expiry between them: the proof is read again, last.
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
        snapshots = dict(zip(ids, results_of(self._file_io, *reads), strict=True))
        # An expiry does not fit into a short round. After a longer one the proof is read again,
        # last.
        if _clock.monotonic_millis() - began > _ROUND_MILLIS:
            snapshots[proof] = self._find(proof)
        hinted, newer = snapshots[hint], snapshots[hint + 1]
        if hinted is None or rollback_target(hinted) is not None:
            return None
        # LATEST has no note of this file, so that its base has to prove that it counts.
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


# -- Snapshots -------------------------------------------------------------------------------------

_RACES = 10  # times that a reader follows a moving table before it gives up
_ANOTHER = "a snapshot file holds another snapshot; restore it"


class SnapshotStore(SnapshotHints):
    """The snapshots of one table or branch (SnapshotManager)."""

    def __init__(
        self,
        file_io: FileIO,
        paths: TablePaths,
        expect: Expect | None = None,
        of_table: Callable[[Snapshot | None], None] = lambda _: None,
    ) -> None:
        """`of_table` raises if the newest snapshot, or that there is none, shows another table (metadata/schemas)."""
        super().__init__(file_io, paths, expect)
        self.require_table = of_table
        self._newest = NewestSnapshot(file_io, paths.snapshot_directory, self.find)

    # Ids.

    def latest_id(self) -> int | None:
        """Return the newest id, or None before the first commit."""
        newest = self.latest()
        return None if newest is None else newest.id

    def earliest_id(self) -> int | None:
        """Return the oldest id, or None before the first commit."""
        hint = self.earliest_hint()
        return hint if hint and self.exists(hint) else min(self.ids(), default=None)

    def ids(self) -> list[int]:
        """Return every id that counts, oldest first, from a listing."""
        for _ in range(_RACES):
            listed = self.listed_ids()
            if not listed:
                return []
            earliest = self.earliest_hint()
            if earliest is None or earliest <= listed[-1]:
                try:
                    return self._live_ids(listed, earliest)
                except CorruptFileError:
                    if self.listed_ids() == listed:
                        raise
                    continue  # an expiry or a rollback has deleted some since
            if (again := self.listed_ids()) and again[-1] < earliest:
                return self._live_ids(again, None)  # no snapshot is as new as the EARLIEST hint
        raise self._vanishing()

    def listed_ids(self) -> list[int]:
        """Return the ids of all snapshot files, oldest first, also of those that do not count."""
        return ids_of(self._file_io.list(self._paths.snapshot_directory))

    def _live_ids(self, listed: list[int], earliest: int | None) -> list[int]:
        counted = [number for number in listed if number >= believed(earliest, listed[-1])]
        # An expiry that was paused may have put EARLIEST above the target of a rollback.
        if listed[0] < counted[0]:
            first, links = self.find(counted[0]), earliest != counted[0]
            if first and self.is_rolled_back_below(first, listed, links=links):
                counted = listed
        span = range(counted[0], counted[-1] + 1)
        if len(counted) < len(span) <= len(counted) + GAPS_LOOKED_UP:  # missed by the listing?
            counted_ids = set(counted)
            counted = [
                snapshot_id
                for snapshot_id in span
                if snapshot_id in counted_ids or self.exists(snapshot_id)
            ]
        return newest_run(self._below_top(counted))

    def is_rolled_back_below(
        self, first: Snapshot, listed: list[int], *, links: bool = True
    ) -> bool:
        """Whether a rollback took the base of a snapshot: `is_target_below`; `links`: with the base of that."""
        top = max((number for number in listed if number < first.id), default=0)
        below, under = self.find(top), self.find(top - 1) if links else None
        return bool(below and is_target_below(first, below, under, latest=self._hint(LATEST)))

    def _below_top(self, counted: list[int]) -> list[int]:
        """Return ids without what is cut off above them, and without what a rollback takes."""
        latest = self._hint(LATEST)
        while len(counted) > 1:
            top, below = self.find(counted[-1]), self.find(counted[-1] - 1)
            if top is not None and not is_cut_off(top, below, latest=latest):
                require_base(top, below, self._paths.snapshot_file(top.id - 1))
                newest = self._newest_beside_marker(top) or top
                return [number for number in counted if number <= newest.id] or [newest.id]
            counted = counted[:-1]
        return counted

    # Contents.

    def latest(self, *, reads_state: bool = False) -> Snapshot | None:
        """Return the newest snapshot, or None before the first commit; `reads_state`: its files are read next.

        LATEST and three files, or a listing where it is not exact; on a remote store one round (metadata/snapshots).
        CorruptFileError: LATEST names a newer one, whose file is missing. NotFoundError: see `of_table`.
        """
        newest = self._latest(reads_state=reads_state)
        self.require_table(newest)
        return newest

    def _latest(self, *, reads_state: bool) -> Snapshot | None:
        if self._file_io.facts.is_remote and (newest := self._newest.look()) is not None:
            return newest
        for attempt in range(_RACES):
            first = attempt == 0
            hint, state = self._noted_hint(LATEST, expected=first, reads_state=reads_state)
            if self._file_io.facts.is_remote and hint is not None:
                newest = self._newest.look_from(hint, state, self.earliest_hint)
                if newest is not None:
                    return newest
            hinted = None if hint is None else self.find(hint)
            newest = None if hinted is None else self._climbed(hinted)
            newest = (
                self._newest_beside_marker(newest) if newest and self._is_on_line(newest) else None
            )
            if newest is not None:
                return newest
            earliest = self.earliest_hint()
            ids = self.ids()
            if not ids:
                if hint or earliest:  # which a drop may leave
                    self.require_table(None)
                # A hint without any snapshot is the only witness of a lost one.
                self.require_reached(0, earliest if hint is None else hint)
                return None
            top = self.find(ids[-1])
            newest = None if top is None else self._climbed(top)
            again = self.earliest_hint()
            if newest is not None and (again in (None, earliest) or again <= newest.id):
                newest = self._newest_beside_marker(newest)
                if newest is not None:
                    self.require_reached(newest.id, hint)
                    return newest
        raise self._vanishing()

    def latest_of_writer(self, is_own: Callable[[Snapshot], bool]) -> Snapshot | None:
        """Return the newest, or on a remote store what was it a moment ago, if `is_own`: publishing finds out."""
        remembered = self._newest.of_writer() if self._file_io.facts.is_remote else None
        if remembered is not None and is_own(remembered):
            return remembered
        newest = self._latest(reads_state=True)
        if newest is not None:
            self.require_table(newest)
        return newest

    def _climbed(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the newest of those that were made on a snapshot; None where a listing must look."""
        for _ in range(_CLIMBED):
            newer = self.find(snapshot.id + 1)
            if newer is None or not follows(newer, snapshot):
                return snapshot
            if not self.exists(snapshot.id):
                return None
            snapshot = newer
        return None

    def _is_on_line(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot counts by its base, or by EARLIEST where the base has expired.

        With the base there no id above it has been free since that was made.
        """
        names_base = named_base(snapshot) is not None
        below = self.find(snapshot.id - 1) if names_base else None
        if below is not None and is_built_on(snapshot, below):
            return True
        earliest = self.earliest_hint()  # read last: has expiry passed what was found?
        return earliest == snapshot.id or bool(
            earliest and earliest < snapshot.id and not names_base
        )

    def _newest_beside_marker(self, newest: Snapshot) -> Snapshot | None:
        """Return the newest snapshot of a table whose top is this one: beside a rollback marker another one.

        That is the marker's target, or what has been made on it since. Until the target is there again,
        which only a tag kept, the marker changes nothing; nor does that of a forced fast-forward until the first
        snapshot is replaced. None: look again.
        """
        target = rollback_target(newest)
        if target is None:
            return newest
        # N+1 before N: if it is absent or goes, N was the newest at that moment (rule 5).
        first = self.find(target + 1)
        target_snapshot = self.find(target)  # after `first`
        if target_snapshot is None or not leads_to(newest, target_snapshot):
            return self.find(newest.id - 1)
        if replaces_first(newest, first):
            return self.find(newest.id - 1)
        if first is None or takes_first(newest, first) or not follows(first, target_snapshot):
            return target_snapshot
        return self._climbed(first)

    def rollback_under_way(self) -> int | None:
        """Return the id that a rollback returns to which is not done, or died; None without one."""
        newest = self.find(max(self.listed_ids(), default=0))
        return None if newest is None else rollback_target(newest)

    def _vanishing(self) -> NotFoundError:
        return NotFoundError(
            "the newest snapshot keeps vanishing; is the table being rolled back?",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            directory=self._paths.snapshot_directory,
        )

    def find(self, snapshot_id: int) -> Snapshot | None:
        """Return what a snapshot file holds, be it passed by expiry, or None; raises CorruptFileError."""
        if snapshot_id <= 0:
            return None
        return found_snapshot(
            self._file_io,
            self._paths,
            self._paths.snapshot_file(snapshot_id),
            snapshot_id,
            if_another=_ANOTHER,
        )

    def find_many(self, ids: Iterable[int]) -> Iterator[Snapshot | None]:
        """Yield what `find` does for each id, a few at a time where that is faster."""
        paths = {self._paths.snapshot_file(number): number for number in ids if number > 0}
        for path, data in read_many(self._file_io, paths, length=READ_MAX):
            document = data and unclaimed(self._file_io, self._paths, path, data)
            yield (
                decoded_snapshot(document, path, paths[path], if_another=_ANOTHER)
                if document is not None
                else None
            )

    def find_now(self, snapshot_id: int) -> Snapshot | None:
        """Return what `find` does, from storage and not from a batched read."""
        forget_gathered(self._file_io, [self._paths.snapshot_file(snapshot_id)])
        return self.find(snapshot_id)

    def find_live(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot that counts, or None; raises CorruptFileError."""
        snapshot = self.find(snapshot_id)
        if snapshot is None:
            return None
        is_passed = snapshot_id < (self.earliest_hint() or 0)  # read after the file
        if not is_passed and self._is_on_line(snapshot):
            return snapshot
        if snapshot_id not in self.ids():
            return None
        if not is_passed and (below := self.find(snapshot_id - 1)) is not None:
            require_base(snapshot, below, self._paths.snapshot_file(below.id))
        return snapshot

    def load(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot. ExpiredError: retention took it. NotFoundError: it never was."""
        snapshot = self.find_live(snapshot_id)
        if snapshot is not None:
            self.require_table(snapshot)
            return snapshot
        earliest = self.earliest_id()
        if earliest is not None and 0 < snapshot_id < earliest:
            text = f"snapshot {snapshot_id} has expired; the oldest is {earliest}, or read a tag"
            raise ExpiredError(text, snapshot_id=snapshot_id, earliest_id=earliest)
        raise NotFoundError(
            f"no snapshot {snapshot_id}; the newest is {self.latest_id()}",
            kind=ErrorKind.NO_SUCH_SNAPSHOT,
            snapshot_id=snapshot_id,
        )

    def all(self) -> list[Snapshot]:
        """Return every snapshot that counts, oldest first, but those that expire meanwhile."""
        snapshots = linked_run(
            [snapshot for snapshot in map(self.find, self.ids()) if snapshot is not None]
        )
        self.require_table(snapshots[-1] if snapshots else None)
        return snapshots

    def stable_listing(self) -> list[Snapshot]:
        """Return every snapshot, oldest first, as maintenance has to know them.

        Those come first that an expiry has passed and not deleted, orphan snapshots are left out. A listing is asked twice:
        the answers have to agree on the ids between the ends, where nothing comes or goes. Gaps and both ends are
        then looked up one by one. StorageError: a hint names a snapshot that is there and the listing is empty.
        CorruptFileError: as `latest`, but for what is left of a branch that is not there.
        """
        live = self.stable_listing_with_orphans()[0]
        try:
            self.require_reached(
                max((snapshot.id for snapshot in live), default=0), self._hint(LATEST)
            )
        except CorruptFileError:
            # A branch whose creation or deletion died is no branch: its hints may outlive its snapshots.
            if self._belongs_to_a_table_or_branch():
                raise
        return live

    def _belongs_to_a_table_or_branch(self) -> bool:
        name = self._paths.branch_name
        main = replace(self._paths, branch_name="")
        return not name or BranchStore(self._file_io, main).exists(name)

    def stable_listing_with_orphans(
        self, find: Callable[[int], Snapshot | None] | None = None
    ) -> tuple[list[Snapshot], list[Snapshot]]:
        """Return what `stable_listing` does, the newest there or not, and files that never counted.

        Both oldest first. `find` reads one in place of this store's, which raises for damaged ones.
        """
        snapshots = [
            snapshot
            for snapshot in map(find or self.find, self._stable_ids())
            if snapshot is not None
        ]
        live = without_orphan_snapshots(
            snapshots, earliest=self.earliest_hint(), latest=self._hint(LATEST)
        )
        live_ids = {snapshot.id for snapshot in live}
        return live, [snapshot for snapshot in snapshots if snapshot.id not in live_ids]

    def newest_first(self, limit: int | None = None) -> Iterator[Snapshot]:
        """Return snapshots backwards from the newest, at most `limit`, until there is none below."""
        newest = self.latest()
        return iter(()) if newest is None else self.down_from(newest, limit)

    def down_from(self, newest: Snapshot, limit: int | None = None) -> Iterator[Snapshot]:
        """Yield a snapshot and those below it, at most `limit`, until there is none."""
        snapshot: Snapshot | None = newest
        for _ in count() if limit is None else range(limit):
            if snapshot is None:
                return
            yield snapshot
            snapshot = self.before(snapshot)

    def before(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the snapshot under another one, None if it has expired."""
        if named_base(snapshot) is None:
            return self.find_live(snapshot.id - 1)
        below = self.find(snapshot.id - 1)
        return below if below is not None and follows(snapshot, below) else None

    # Creating and deleting.

    def forget_newest(self) -> None:
        """Have the newest snapshot read again: its file may have changed."""
        self._newest.forget()

    def publish(self, snapshot: Snapshot) -> bool:
        """Create a snapshot file; False if another one has its id, and nothing changed.

        It counts once `commit/publish.confirm` has looked; until then no hint names it. Raises
        CommitUnknownError if the storage did not answer: look with `find` before anything is deleted.
        """
        path = self._paths.snapshot_file(snapshot.id)
        return self._file_io.publish(path, encode_snapshot(snapshot))

    def publish_only(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible and leave the hints alone; a lost answer is looked up."""
        path = self._paths.snapshot_file(snapshot.id)
        return published(self._file_io, path, encode_snapshot(snapshot))

    def announce_behind(self, snapshot: Snapshot) -> None:
        """Point LATEST at a snapshot that counts and is no table's first; on a remote store nothing waits for it."""
        self._newest.remember(snapshot)
        behind(self._file_io, lambda: self.announce(snapshot))

    def announce(self, snapshot: Snapshot, *, is_first: bool = False) -> None:
        """Point LATEST at a snapshot that counts, and EARLIEST if it is the table's first.

        Looks once more after writing: of two writers the slower one would else leave its smaller
        id. The last writer sees what landed before. EARLIEST is made, and never overwritten.
        """
        try:
            if is_first:
                self.make_earliest(snapshot.id)
            for _ in range(_RACES):
                self.hint_newest(snapshot)
                if not self._is_there(snapshot):
                    self.forget_latest()  # it may name an orphan snapshot
                elif self._file_io.facts.is_remote or not self.exists(snapshot.id + 1):
                    return  # a remote reader of an older one climbs, which costs less
                newest = self.latest()
                if newest is None or same_state(newest, snapshot):
                    return
                snapshot = newest
        except LsmError:
            return  # the snapshot stands; readers check hints, and the next commit repairs this one

    def _is_there(self, snapshot: Snapshot) -> bool:
        return same_state(self.find_now(snapshot.id), snapshot)

    def advance_earliest(
        self, snapshot_id: int, newest_id: int, after: "Callable[[], SnapshotStore] | None" = None
    ) -> None:
        """Move EARLIEST forward, never back: smaller ids are passed.

        `newest_id`: the newest known; an EARLIEST beyond it is garbage, unless it exists. `after`
        returns the store to look into once it has moved, where this one was gathered before.
        Raises StorageError if it cannot be written: then nothing may be deleted.
        """
        for _ in range(_RACES):
            now = self.earliest_hint()
            # Never backwards: an expiry that found the greater one may be deleting below it.
            if now is not None and now >= snapshot_id and (now <= newest_id or self.exists(now)):
                return
            # On a remote store a change on condition costs requests.
            if now is None or self._file_io.facts.is_remote:
                break
            hint, content = self._paths.snapshot_hint(EARLIEST), encode_hint(now)
            try:
                if replaced(self._file_io, hint, encode_hint(snapshot_id), expected=content):
                    return
            except StorageError:
                # A full disk takes no second file: the number is written over the old one, as an expiry frees space.
                break
            forget_gathered(self._file_io, [hint])
        self.hint_earliest(snapshot_id)
        self._mend_late_earliest(snapshot_id, self if after is None else after())

    def lower_earliest(self, snapshot_id: int) -> None:
        """Move EARLIEST back to the target of a rollback, unless another has ended it, and an expiry passed that."""
        self.hint_earliest(snapshot_id)
        self._mend_late_earliest(snapshot_id, self)

    def _mend_late_earliest(self, snapshot_id: int, later: "SnapshotStore") -> None:
        if not later.exists(snapshot_id):  # a faster expiry has passed it, and we moved it back
            self.hint_earliest(max(min(later.ids(), default=snapshot_id), snapshot_id))

    def mend_earliest(self) -> None:
        """Set EARLIEST to the oldest snapshot where it is beyond the newest: the expiry that moved it gave up."""
        now = self.earliest_hint()
        ids = self.ids()  # after it, as both only grow
        if ids and now is not None and now > ids[-1]:
            self.hint_earliest(ids[0])

    @property
    def is_of_branch(self) -> bool:
        """Whether it holds the snapshots of a branch, not those of main."""
        return bool(self._paths.branch_name)

    def delete_state(self, snapshot: Snapshot) -> bool:
        """Delete a snapshot's file in one step with the look whether it is its own; False, and no change, otherwise."""
        return self._change_state(snapshot, None)

    def replace_state(self, old: Snapshot, new: Snapshot) -> bool:
        """Replace a snapshot's file in one step with the look whether it is its own; False, and no change, otherwise."""
        return self._change_state(old, encode_snapshot(new))

    def _change_state(self, snapshot: Snapshot, data: bytes | None) -> bool:
        self._newest.forget()
        path = self._paths.snapshot_file(snapshot.id)
        content = current_content(self._file_io, path)
        document = None if content is None else unclaimed(self._file_io, self._paths, path, content)
        if document is None:
            return False
        stored = decoded_snapshot(document, path, snapshot.id, if_another=_ANOTHER)
        if not _is_same_file(stored, snapshot):
            return False
        if data is None:
            return deleted(self._file_io, path, expected=document)
        return replaced(self._file_io, path, data, expected=document)

    def delete_unchanged(self, snapshot: Snapshot) -> bool:
        """Delete a snapshot's file if it still is what was read; False, and no change, otherwise."""
        self._newest.forget()
        return delete_unchanged(self._file_io, self._paths.snapshot_file(snapshot.id), snapshot)

    def give_back(self, snapshot: Snapshot, require: Callable[[], None]) -> bool:
        """Create a snapshot's file, or replace that of the same commit; False if another commit has its id.

        `require` is called before each change, and after what it replaces was read; it raises where that may not be.
        """
        path, data = self._paths.snapshot_file(snapshot.id), encode_snapshot(snapshot)
        for _ in range(_RACES):
            content = current_content(self._file_io, path)
            require()
            if content is None:
                if published(self._file_io, path, data):
                    return True
                continue  # made since
            if not same_state(decode_snapshot(content, file_name=path), snapshot):
                return False
            if replaced(self._file_io, path, data, expected=content):
                return True
        return False

    def replace_unchanged(self, old: Snapshot, new: Snapshot) -> bool:
        """Replace a snapshot's file if it still is what was read or written; False, and no change, otherwise."""
        return replace_unchanged(self._file_io, self._paths.snapshot_file(old.id), old, new)

    def delete_there(self, snapshot_id: int) -> None:
        """Delete a snapshot file that is known to be there."""
        self._newest.forget()
        self._file_io.delete_many([self._paths.snapshot_file(snapshot_id)])

    def delete(self, snapshot_id: int) -> bool:
        """Delete one snapshot file and nothing that it names; False if it was not there."""
        self._newest.forget()
        return self._file_io.delete(self._paths.snapshot_file(snapshot_id))


# -- Deletion of snapshot files: oldest first, each unless another snapshot has its id by now ------


def delete_states(
    file_io: FileIO,
    store: SnapshotStore,
    snapshots: Sequence[Snapshot],
    *,
    files: Callable[[], object] | None = None,
) -> None:
    """Delete the files of snapshots one after the other, each in one step with a look, or after it where that saves requests.

    On a remote store the look at the next file runs concurrently with a deletion: one round trip lies between
    a look and its deletion. In a branch each is deleted in one step with its look: the branch may be deleted and made
    again of the same tag meanwhile, and begins with a snapshot of the same id. `files` deletes the files that only
    these snapshots name, concurrently with the first look; if it raises, no more files are deleted.
    """
    if not file_io.facts.is_remote or store.is_of_branch:
        if files is not None:
            files()
        for snapshot in snapshots:
            store.delete_state(snapshot)
        return
    looks = [partial(store.find_now, snapshot.id) for snapshot in snapshots]
    first: list[Callable[[], Any]] = [*([] if files is None else [files]), *looks[:1]]
    current = results_of(file_io, *first)[-1] if first else None
    for i, snapshot in enumerate(snapshots):
        acts: list[Callable[[], Snapshot | None]] = [*looks[i + 1 : i + 2]]
        if same_state(current, snapshot):
            acts.insert(0, partial(store.delete_there, snapshot.id))
        current = results_of(file_io, *acts)[-1] if acts else None


def _is_same_file(stored: Snapshot, snapshot: Snapshot) -> bool:
    """Whether a snapshot that is stored is the one that was read, and not the first one of a branch made again."""
    return same_state(stored, snapshot) and branch_id(stored) == branch_id(snapshot)
