"""Snapshots: the newest, the oldest, one by number; and the one atomic call that makes a commit visible.

The files are the truth, but not every file is a snapshot: a writer that was stopped may land on an id
that expiry has passed (docs/commit-protocol.md). LATEST is advice that is checked before it is followed,
as it may be stale, torn or missing. A snapshot whose base is there counts; where the base has expired,
EARLIEST decides, read after the file. Nothing is cached: after a rollback the next commit uses an id again.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from lsm_engine.base.errors import (
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    LsmError,
    NotFoundError,
)
from lsm_engine.codec.documents import decode_snapshot, encode_snapshot
from lsm_engine.codec.json_object import READ_MAX
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.paths import LATEST, TablePaths
from lsm_engine.io.together import behind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import (
    believed,
    follows,
    is_built_on,
    is_cut_off,
    is_target_below,
    linked_run,
    named_base,
    newest_run,
    rollback_target,
    without_ghosts,
)
from lsm_engine.plan.ownership import same_state
from lsm_engine.plan.rollback_seal import leads_to, takes_first
from lsm_engine.store.claims import unclaimed
from lsm_engine.store.newest import NewestSnapshot
from lsm_engine.store.publishing import deleted, published, replaced
from lsm_engine.store.snapshot_files import (
    decoded_snapshot,
    found_snapshot,
    ids_of,
    require_base,
)
from lsm_engine.store.snapshot_hints import GAPS_LOOKED_UP, Expect, SnapshotHints

_RACES = 10  # times that a reader follows a moving table before it gives up
_ANOTHER = "a snapshot file holds another snapshot; restore it"
_CLIMBED = 20  # snapshots newer than LATEST that are looked for one by one, before a listing


class SnapshotStore(SnapshotHints):
    """The snapshots of one table or branch (SnapshotManager)."""

    def __init__(
        self,
        file_io: FileIO,
        paths: TablePaths,
        expect: Expect | None = None,
        of_table: Callable[[Snapshot | None], None] = lambda _: None,
    ) -> None:
        """`of_table` raises if the newest snapshot, or that there is none, shows another table (store/identity)."""
        super().__init__(file_io, paths, expect)
        self.require_table = of_table
        self._newest = NewestSnapshot(file_io, paths.snapshot_directory, self.find)

    # Which there are.

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
                newest = self._beside(top) or top
                return [number for number in counted if number <= newest.id] or [newest.id]
            counted = counted[:-1]
        return counted

    # Contents.

    def latest(self, *, reads_state: bool = False) -> Snapshot | None:
        """Return the newest snapshot, or None before the first commit; `reads_state`: its files are read next.

        LATEST and three files, or a listing where it is not exact; from afar one round (store/newest).
        CorruptFileError: LATEST names a newer one, whose file is missing. NotFoundError: see `of_table`.
        """
        newest = self._latest(reads_state=reads_state)
        self.require_table(newest)
        return newest

    def _latest(self, *, reads_state: bool) -> Snapshot | None:
        if self._file_io.facts.is_far and (newest := self._newest.look()) is not None:
            return newest
        for attempt in range(_RACES):
            first = attempt == 0
            hint, state = self._noted_hint(LATEST, expected=first, reads_state=reads_state)
            if self._file_io.facts.is_far and hint is not None:
                newest = self._newest.look_from(hint, state, self.earliest_hint)
                if newest is not None:
                    return newest
            hinted = None if hint is None else self.find(hint)
            newest = None if hinted is None else self._climbed(hinted)
            newest = self._beside(newest) if newest and self._is_on_line(newest) else None
            if newest is not None:
                return newest
            earliest = self.earliest_hint()
            ids = self.ids()
            if not ids:
                if hint or earliest:  # which a drop may leave
                    self.require_table(None)
                self.require_reached(0, earliest if hint is None else hint)
                return None
            top = self.find(ids[-1])
            newest = None if top is None else self._climbed(top)
            again = self.earliest_hint()
            if newest is not None and (again in (None, earliest) or again <= newest.id):
                newest = self._beside(newest)
                if newest is not None:
                    self.require_reached(newest.id, hint)
                    return newest
        raise self._vanishing()

    def latest_of_writer(self, is_own: Callable[[Snapshot], bool]) -> Snapshot | None:
        """Return the newest, or from afar what was it a moment ago, if `is_own`: publishing finds out."""
        remembered = self._newest.of_writer() if self._file_io.facts.is_far else None
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

    def _beside(self, newest: Snapshot) -> Snapshot | None:
        """Return the newest snapshot of a table whose top is this one: beside a seal another one.

        That is the seal's target, or what has been made on it since. Until the target is there again,
        which only a tag kept, the seal changes nothing. None where somebody must look again.
        """
        target = rollback_target(newest)
        if target is None:
            return newest
        first = self.find(target + 1)
        target_snapshot = self.find(target)  # after `first`
        if target_snapshot is None or not leads_to(newest, target_snapshot):
            return self.find(newest.id - 1)
        if first is None or takes_first(newest, first) or not follows(first, target_snapshot):
            return target_snapshot
        return self._climbed(first)

    def rollback_under_way(self) -> int | None:
        """Return the id that a rollback returns to which is not done, or died; None without one."""
        top = self.find(max(self.listed_ids(), default=0))
        return None if top is None else rollback_target(top)

    def _vanishing(self) -> NotFoundError:
        return NotFoundError(
            "the newest snapshot keeps vanishing; is somebody rolling the table back?",
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
        for path, data in self._file_io.read_many(paths, length=READ_MAX):
            document = data and unclaimed(self._file_io, self._paths, path, data)
            yield (
                decoded_snapshot(document, path, paths[path], if_another=_ANOTHER)
                if document is not None
                else None
            )

    def find_now(self, snapshot_id: int) -> Snapshot | None:
        """Return what `find` does, past what was gathered."""
        self._file_io.forget_gathered([self._paths.snapshot_file(snapshot_id)])
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

        Those come first that an expiry has passed and not deleted, ghosts are left out. A listing is asked twice:
        the answers have to agree on the ids between the ends, where nothing comes or goes. Gaps and both ends are
        then looked up one by one. StorageError: a hint names a snapshot that is there and the listing is empty.
        CorruptFileError: as `latest`.
        """
        live = self.stable_listing_with_ghosts()[0]
        self.require_reached(max((snapshot.id for snapshot in live), default=0), self._hint(LATEST))
        return live

    def stable_listing_with_ghosts(
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
        live = without_ghosts(snapshots, earliest=self.earliest_hint(), latest=self._hint(LATEST))
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

    # Making and taking them.

    def forget_newest(self) -> None:
        """Have the newest snapshot read again: its file may have changed."""
        self._newest.forget()

    def publish(self, snapshot: Snapshot) -> bool:
        """Create a snapshot file; False if somebody else has its id, and nothing changed.

        It counts once `table/commit/fence.confirm` has looked; until then no hint names it. Raises
        CommitUnknownError if the storage did not answer: look with `find` before anything is deleted.
        """
        path = self._paths.snapshot_file(snapshot.id)
        return self._file_io.publish(path, encode_snapshot(snapshot))

    def publish_only(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible and leave the hints alone; a lost answer is looked up."""
        path = self._paths.snapshot_file(snapshot.id)
        return published(self._file_io, path, encode_snapshot(snapshot))

    def announce_behind(self, snapshot: Snapshot) -> None:
        """Point LATEST at a snapshot that counts and is no table's first; from afar nobody waits for it."""
        self._newest.remember(snapshot)
        behind(self._file_io, lambda: self.announce(snapshot))

    def announce(self, snapshot: Snapshot, *, is_first: bool = False) -> None:
        """Point LATEST at a snapshot that counts, and EARLIEST if it is the table's first.

        Looks once more after writing: of two writers the slower one would else leave its smaller
        id. Whoever writes last sees what landed before. EARLIEST is made, and never overwritten.
        """
        try:
            if is_first:
                self.make_earliest(snapshot.id)
            for _ in range(_RACES):
                self.hint_newest(snapshot)
                if not self._is_there(snapshot):
                    self.forget_latest()  # it may name a ghost
                elif self._file_io.facts.is_far or not self.exists(snapshot.id + 1):
                    return  # from afar who reads an older one climbs, which costs less
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
        now = self.earliest_hint()
        if now is not None and now >= snapshot_id and (now <= newest_id or self.exists(now)):
            return
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
        """Set EARLIEST to the oldest snapshot where it is beyond the newest: who moved it gave up."""
        now = self.earliest_hint()
        ids = self.ids()  # after it, as both only grow
        if ids and now is not None and now > ids[-1]:
            self.hint_earliest(ids[0])

    def delete_state(self, snapshot: Snapshot) -> bool:
        """Delete a snapshot's file unless its id is another's by now; False if it was not there."""
        return self._is_there(snapshot) and self.delete(snapshot.id)

    def delete_unchanged(self, snapshot: Snapshot) -> bool:
        """Delete a snapshot's file if it still is what was read; False, and no change, otherwise."""
        path = self._paths.snapshot_file(snapshot.id)
        content = self._content_of(path)
        if content is None or decode_snapshot(content, file_name=path) != snapshot:
            return False
        self._newest.forget()
        return deleted(self._file_io, path, expected=content)

    def give_back(self, snapshot: Snapshot, require: Callable[[], None]) -> bool:
        """Create a snapshot's file, or replace that of the same commit; False if another commit has its id.

        `require` is called before each change, and after what it replaces was read; it raises where that may not be.
        """
        path, data = self._paths.snapshot_file(snapshot.id), encode_snapshot(snapshot)
        for _ in range(_RACES):
            content = self._content_of(path)
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
        path = self._paths.snapshot_file(old.id)
        content = self._content_of(path)
        if content is None or decode_snapshot(content, file_name=path) != old:
            return False
        return replaced(self._file_io, path, encode_snapshot(new), expected=content)

    def _content_of(self, path: str) -> bytes | None:
        self._file_io.forget_gathered([path])
        try:
            return self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None

    def delete_there(self, snapshot_id: int) -> None:
        """Delete a snapshot file that is known to be there."""
        self._newest.forget()
        self._file_io.delete_many([self._paths.snapshot_file(snapshot_id)])

    def delete(self, snapshot_id: int) -> bool:
        """Delete one snapshot file and nothing that it names; False if it was not there."""
        self._newest.forget()
        return self._file_io.delete(self._paths.snapshot_file(snapshot_id))
