"""Write-behind of lineage: a commit stores facts in a file, and the catalog records them in batches.

A commit must not wait for a catalog that is busy or locked, nor fail with one that is full, damaged or
missing. So each fact is appended to a journal on disk (`lineage_journal`), in the directory
"<catalog>.lineage-outbox" beside the catalog's file or, where that cannot be written to, in the
warehouse. A second later a thread records the waiting facts, oldest first, and deletes the files; so do
queries of the lineage, a rebuild, the closing of the catalog and the end of the process. Each of them also
records journals of other processes and of killed ones. Recording is idempotent, so a file that two
processes record, or that remains after its recording, does no harm."""

import atexit
import itertools
import logging
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock, Timer
from typing import Any

from sqlalchemy import exc

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.catalog.lineage.facts import (
    CommitFacts,
    ExpiryFacts,
    Fact,
    LineageError,
    RemovalFacts,
    RollbackFacts,
    TagDeletion,
    TagFacts,
)
from lsm_engine.catalog.lineage.lineage import Lineage
from lsm_engine.format.checksum import checksum_of
from lsm_engine.format.messages import decode_message, encode_message
from lsm_engine.storage.clock import SystemClock, SystemIds
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.journal_file import CLOSED, JournalFile, closed_journals

# -- Journals of lineage facts that wait for the catalog, one fact per line ------------------------
#
# A journal is "<millis>-<count>-<id>.open" while a process appends to it, and ".jsonl" once a
# process has closed it to read it (storage/journal_file.py). A line is `<crc32> <millis> <kind>
# <fact as JSON>`. A torn last line was never acknowledged. Earlier versions wrote one fact per
# file, "<millis>-<count>-<id>.<kind>.json".

log = logging.getLogger(__name__)

_KINDS: dict[str, type[Any]] = {
    "commit": CommitFacts,
    "tag": TagFacts,
    "tag-deletion": TagDeletion,
    "expiry": ExpiryFacts,
    "rollback": RollbackFacts,
    "removal": RemovalFacts,
}
_KIND_OF = {fact_type: name for name, fact_type in _KINDS.items()}
_ALONE = ".json"
_REFUSED = ".refused"
_DAMAGED = "damaged"
_REMEMBERED = 1_000  # facts of a file, so that a long wait does not cost memory

_count = itertools.count()


@record
class WaitingFact:
    """The place of a waiting fact: bytes of a file of the outbox. Ordered by time."""

    millis: int
    place: FileIO
    name: str
    line: int
    offset: int
    length: int
    kind: str

    def read(self) -> Fact:
        """Return the fact; CorruptFileError: it is damaged, or of a later version."""
        kind = _KINDS.get(self.kind)
        if kind is None:
            raise CorruptFileError(
                "a later version keeps this kind of lineage, or it is damaged", file=self.name
            )
        fact: Fact = decode_message(self.text(), kind)
        return fact

    def text(self) -> bytes:
        """Return the stored text of the fact."""
        return self.place.read(self.name, self.offset, self.length)

    def set_aside(self) -> None:
        """Copy a fact that can never be recorded into a file that is not read."""
        name = f"{self.name}.{self.offset}.{self.kind}{_REFUSED}"
        self.place.publish(name, self.text())


class Journal:
    """The facts of this process, appended to one file at a time; durable when `append` returns."""

    def __init__(self, places: Sequence[FileIO]) -> None:
        self._places = tuple(places)
        self._lock = Lock()
        self._file: JournalFile | None = None
        self._stem = ""
        self._size = 0
        self.remembered: dict[str, dict[int, Fact]] = {}
        """Facts by the name of their file, once closed, and their line's offset: some of the newest."""

    def append(self, fact: Fact, millis: int) -> None:
        """Store a fact; raises the LsmError of the last place if no place takes it."""
        kind = _KIND_OF[type(fact)]
        text = b"%015d %b %b" % (millis, kind.encode(), encode_message(fact))
        line = b"%08x %b\n" % (checksum_of(text), text)
        with self._lock:
            while not self._appended(line):
                self._let_go()
            of_file = self.remembered.setdefault(self._stem + CLOSED, {})
            if len(of_file) < _REMEMBERED:
                of_file[self._size] = fact
            self._size += len(line)

    def close(self) -> None:
        """Close the file; the next fact starts another one."""
        with self._lock:
            self._let_go()

    def close_in_child(self) -> None:
        """Close a file of the parent process; its locks may be held for ever here."""
        self._let_go()

    def _appended(self, line: bytes) -> bool:
        if self._file is not None:
            try:
                return self._file.append(line)
            except LsmError as error:
                log.warning("the outbox of the lineage takes no more: %s", error)
                self._let_go()
        # Another file may work where the last one failed, for example after a full disk.
        millis = SystemClock().now_millis()
        failure: LsmError | None = None
        for place in self._places:
            self._stem = f"{millis:015d}-{next(_count):09d}-{SystemIds().new_id()}"
            self._size = 0
            try:
                self._file = JournalFile(place, self._stem)
                return self._file.append(line)
            except LsmError as error:
                failure = error
                self._let_go()
        assert failure is not None
        raise failure

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Waiting:
    """The waiting facts of an outbox. Each closed file is read once: it does not change."""

    def __init__(self, places: Sequence[FileIO], remembered: dict[str, dict[int, Fact]]) -> None:
        self._places = tuple(places)
        self._remembered = remembered
        self._known: dict[tuple[FileIO, str], list[WaitingFact]] = {}

    def facts(self) -> list[WaitingFact]:
        """Close all journals; return the waiting facts, oldest first."""
        earlier, self._known = self._known, {}
        for place in self._places:
            for name in _names(place):
                key = (place, name)
                try:
                    self._known[key] = (
                        earlier[key] if key in earlier else _facts_of_file(place, name)
                    )
                except NotFoundError:
                    continue  # another process has recorded and deleted it
        for name in [
            file_name
            for file_name in self._remembered
            if file_name not in {n for _, n in self._known}
        ]:
            self._remembered.pop(name, None)
        facts = itertools.chain.from_iterable(self._known.values())
        # Facts of several processes are merged by time.
        return sorted(facts, key=lambda fact: (fact.millis, fact.name, fact.offset))

    def read(self, waiting: WaitingFact) -> Fact:
        """Return a fact; NotFoundError: it was recorded meanwhile, CorruptFileError: never can be."""
        own = self._remembered.get(waiting.name, {}).get(waiting.line)
        return waiting.read() if own is None else own

    def delete_all_but(self, remaining: Sequence[WaitingFact]) -> None:
        """Delete the files that were read, but for those of the `remaining` facts."""
        needed = {(fact.place, fact.name) for fact in remaining}
        for place, name in [key for key in self._known if key not in needed]:
            del self._known[(place, name)]
            self._remembered.pop(name, None)
            try:
                place.delete(name)
            except LsmError as error:
                log.warning("lineage is recorded, its file stays: %s", error)


def _names(place: FileIO) -> list[str]:
    try:
        names = [status.name for status in place.list("")]
        return closed_journals(place, names) + [name for name in names if name.endswith(_ALONE)]
    except LsmError as error:
        log.warning("lineage that may wait in %s cannot be listed: %s", place, error)
        # A place that cannot be listed must not hide the facts of other places.
        return []


def _facts_of_file(place: FileIO, name: str) -> list[WaitingFact]:
    data = place.read(name)
    # A closed journal holds one fact per line, and other files hold a single one.
    if name.endswith(CLOSED):
        return list(_lines(place, name, data))
    kind = name.removesuffix(_ALONE).rpartition(".")[2]
    digits = name.partition("-")[0]
    millis = int(digits) if digits.isdigit() else 0
    return [
        WaitingFact(
            millis=millis, place=place, name=name, line=0, offset=0, length=len(data), kind=kind
        )
    ]


def _lines(place: FileIO, name: str, data: bytes) -> Iterator[WaitingFact]:
    offset, millis = 0, 0
    for line in data.split(b"\n")[:-1]:  # bytes after the last newline were never acknowledged
        checksum, _, text = line.partition(b" ")
        before, kind = 0, _DAMAGED
        if checksum == b"%08x" % checksum_of(text):
            stamp, word, fact = text.split(b" ", 2)
            before, kind, millis = len(line) - len(fact), word.decode(), int(stamp)
        yield WaitingFact(
            millis=millis,
            place=place,
            name=name,
            line=offset,
            offset=offset + before,
            length=len(line) - before,
            kind=kind,
        )
        offset += len(line) + 1


# -- Write-behind of lineage -----------------------------------------------------------------------

LINGER_SECONDS = 1.0
"""How long facts are batched before they are recorded."""
_REST_SECONDS_MAX = 60.0
"""The longest pause after successive failures; the first pause is LINGER_SECONDS."""
_FACTS_PER_TRANSACTION = 256
_LARGE = 1_000
"""A commit of so many files and manifests is recorded directly: its text would cost more."""
_DRAIN_SECONDS = 10.0
_EXIT_SECONDS = 2.0

_outboxes: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


class Outbox:
    """Stores facts and records them after the commits. Threads may share one; a forked child starts a new one.

    `hurried` waits briefly for the database, `background` longer, as nobody waits for it, `patient`
    longest. `is_near`: the database is a file on this machine, so that a commit may ask it. Without
    `places`, as for a catalog in memory, facts are recorded at once, and what cannot be recorded is a
    LineageError.
    """

    def __init__(
        self,
        *,
        hurried: Lineage,
        background: Lineage,
        patient: Lineage,
        places: Sequence[FileIO],
        is_near: bool = True,
    ) -> None:
        self._hurried = hurried
        self._background = background
        self._patient = patient
        self._places = tuple(places)
        self._is_near = is_near
        self._begin()
        _outboxes.add(self)

    def _begin(self) -> None:
        self._journal = Journal(self._places)
        self._waiting = Waiting(self._places, self._journal.remembered)
        self._recording = Lock()
        self._scheduling = Lock()
        self._timer: Timer | None = None
        self._has_more = False  # kept by this process and not recorded yet
        self._failures = 0  # attempts in a row that the catalog did not take
        self._rests_until_millis = 0

    @property
    def places(self) -> tuple[FileIO, ...]:
        """Where facts wait."""
        return self._places

    def deliver(self, fact: Fact) -> None:
        """Store a fact, to be recorded soon; LineageError: it was neither stored nor recorded."""
        if isinstance(fact, RollbackFacts) and fact.at_millis is None:
            # Snapshots committed after the rollback must be retained.
            fact = replace(fact, at_millis=SystemClock().now_millis())
        if not self._places:
            self._record_now(fact)
            return
        if self._is_near and _is_large(fact) and self._is_recorded(fact):
            return
        try:
            self._journal.append(fact, SystemClock().now_millis())
        except (LsmError, UnicodeEncodeError) as error:
            log.warning("lineage of %s cannot wait in a file: %s", fact.table, error)
            self._record_now(fact)
        else:
            self._has_more = True
            self._schedule()

    def drain(self, *, patiently: bool = False) -> None:
        """Record the waiting facts. Facts that the catalog does not take remain.

        While the catalog fails, this does not wait for another thread that records; otherwise it waits for
        a bounded time.
        """
        if not patiently:
            if not self._recording.acquire(timeout=0 if self._failures else _DRAIN_SECONDS):
                # Another thread records, and the facts stay in their files until it ends.
                return
            self._recording.release()
        try:
            self._record_waiting(self._patient if patiently else self._hurried)
        except LineageError as error:
            log.warning("lineage goes on waiting: %s", _reason(error))

    def close(self) -> None:
        """Record the facts of this process, as `drain` does, and close its file."""
        with self._scheduling:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._has_more and not self._failures:
            self.drain()
        self._journal.close()

    # ---- at once --------------------------------------------------------------------------------

    def _is_recorded(self, fact: Fact) -> bool:
        """Record a fact after the waiting ones, and return whether the catalog took it."""
        try:
            self._record_waiting(self._hurried)
            self._record_now(fact)
        except LineageError as error:
            # The fact itself is refused, and no other attempt would help.
            if _is_about_the_fact(error):
                raise
            return False
        return True

    def _record_now(self, fact: Fact) -> None:
        """Record one fact, unless the catalog has failed a moment ago."""
        if SystemClock().now_millis() < self._rests_until_millis:
            raise LineageError(
                "lineage was not recorded, as the catalog failed a moment ago; the table itself is in "
                "order; rebuild the lineage later",
                table=fact.table.text,
            )
        try:
            self._hurried.record(fact)
        except LineageError as error:
            if not _is_about_the_fact(error):
                self._has_failed()
            raise
        self._failures = 0

    def _has_failed(self) -> float:
        """Count a failure; return the seconds to pause."""
        pause_seconds = min(_REST_SECONDS_MAX, LINGER_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._rests_until_millis = SystemClock().now_millis() + int(pause_seconds * 1000)
        return pause_seconds

    # ---- behind the commit ----------------------------------------------------------------------

    def _schedule(self, seconds: float | None = None) -> None:
        with self._scheduling:
            if self._timer is None:
                self._timer = Timer(LINGER_SECONDS if seconds is None else seconds, self._run)
                self._timer.name = "lsm-lineage"
                self._timer.daemon = True
                self._timer.start()

    def _run(self) -> None:
        """Record the waiting facts. No other run is scheduled meanwhile: runs would only queue."""
        pause_seconds = LINGER_SECONDS
        try:
            self._record_waiting(self._background)
        except LineageError as error:
            pause_seconds = self._has_failed()
            log.warning("lineage goes on waiting, for %.0f s: %s", pause_seconds, _reason(error))
        except Exception:  # in a thread of its own the error would be lost
            log.exception("recording lineage failed")
        with self._scheduling:
            self._timer = None
            goes_on = self._has_more
        # Facts that arrived meanwhile need another run.
        if goes_on:
            self._schedule(pause_seconds)

    def _record_waiting(self, lineage: Lineage) -> None:
        """Record the waiting facts, oldest first; LineageError: the catalog did not take them."""
        with self._recording:
            self._has_more = False  # later facts are scheduled anew
            # The journal is closed so that its facts are listed as well.
            self._journal.close()
            done: set[WaitingFact] = set()
            remaining = self._waiting.facts()
            try:
                while remaining:
                    remaining = self._record_some(lineage, done)
            except LineageError:
                self._has_more = True
                raise
            self._failures = 0

    def _record_some(self, lineage: Lineage, done: set[WaitingFact]) -> list[WaitingFact]:
        """Record the oldest waiting facts; return the others.

        Facts are listed under the write lock, so facts that another process has recorded are no longer listed.
        """
        batch: list[WaitingFact] = []
        remaining: list[WaitingFact] = []

        def load() -> list[Fact]:
            waiting = [entry for entry in self._waiting.facts() if entry not in done]
            batch[:] = waiting[:_FACTS_PER_TRANSACTION]
            remaining[:] = waiting[_FACTS_PER_TRANSACTION:]
            return [fact for entry in batch if (fact := self._read(entry)) is not None]

        try:
            lineage.record_loaded(load)
        except LineageError as error:
            # One bad fact fails the whole batch, so each is recorded alone.
            if not _is_about_the_fact(error):
                raise
            self._record_one_by_one(lineage, batch)
        done.update(batch)
        # Files are deleted only after the transaction has ended.
        self._waiting.delete_all_but(remaining)
        return remaining

    def _record_one_by_one(self, lineage: Lineage, batch: Sequence[WaitingFact]) -> None:
        for waiting in batch:
            fact = self._read(waiting)
            if fact is None:
                # Another process has recorded the fact, or it was set aside.
                continue
            try:
                lineage.record(fact)
            except LineageError as error:
                if not _is_about_the_fact(error):
                    raise
                _set_aside(waiting, error)

    def _read(self, waiting: WaitingFact) -> Fact | None:
        try:
            return self._waiting.read(waiting)
        except NotFoundError:
            return None  # another process has recorded it
        except CorruptFileError as error:
            _set_aside(waiting, error)
            return None

    # ---- processes ------------------------------------------------------------------------------

    def begin_in_child(self) -> None:
        """Start anew after a fork: the parent records its own facts."""
        self._journal.close_in_child()
        self._begin()

    def record_at_exit(self) -> None:
        """Record the facts of this process if that is quick; other processes find the files."""
        if self._has_more and not self._failures and self._recording.acquire(timeout=_EXIT_SECONDS):
            self._recording.release()
            self.drain()


def _begin_in_child() -> None:
    for outbox in list(_outboxes):
        outbox.begin_in_child()


def _record_at_exit() -> None:
    for outbox in list(_outboxes):
        outbox.record_at_exit()


os.register_at_fork(after_in_child=_begin_in_child)
atexit.register(_record_at_exit)


def _is_large(fact: Fact) -> bool:
    if not isinstance(fact, CommitFacts):
        return False
    manifests = sum(len(listed.manifests) for listed in fact.manifest_lists)
    return len(fact.entries) + len(fact.changelog_entries) + manifests >= _LARGE


def _is_about_the_fact(error: LineageError) -> bool:
    """Whether the database works but would never take this fact."""
    cause = error.__cause__
    # A StorageError wraps the error of the database, which shows the reason.
    if not isinstance(cause, StorageError | CorruptFileError | OSError):
        return cause is not None
    refusal = cause.__cause__
    of_values = isinstance(refusal, exc.DataError | exc.IntegrityError)
    return of_values or (
        isinstance(refusal, exc.StatementError) and not isinstance(refusal, exc.DBAPIError)
    )


def _reason(error: LineageError) -> object:
    return error.__cause__ or error


def _set_aside(waiting: WaitingFact, error: LsmError) -> None:
    """Copy a fact that can never be recorded to a file of its own, so that the others are recorded."""
    reason = _reason(error) if isinstance(error, LineageError) else error
    log.error("lineage in %s of %s is set aside: %s", waiting.name, waiting.place, reason)
    try:
        waiting.set_aside()
    except LsmError as failure:
        log.warning("lineage could not be set aside: %s", failure)
