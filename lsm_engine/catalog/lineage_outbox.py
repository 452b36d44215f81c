"""Lineage behind the commit: kept in a file at once, recorded by the catalog soon, many facts together.

A commit must not wait for a catalog that is busy or locked, nor fail with one that is full, damaged or
gone. So each fact is appended to a journal on disk (`lineage_journal`), in the directory
"<catalog>.lineage-outbox" beside the catalog's file or, where that cannot be written to, in the
warehouse. A second later a thread records what waits, oldest first, and deletes the files; so does every
question to the lineage, a rebuild, the closing of the catalog and the end of the process. Whoever finds
journals records them, those of other processes and of killed ones, too. All recording may be repeated,
so a file that two processes record, or that outlives its recording, does no harm.
"""

import atexit
import logging
import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock, Timer

from sqlalchemy import exc

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError, StorageError
from lsm_engine.catalog.facts import CommitFacts, Fact, LineageError, RollbackFacts
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.catalog.lineage_journal import Journal, Waiting, WaitingFact
from lsm_engine.io.clock import SystemClock
from lsm_engine.io.file_io import FileIO

log = logging.getLogger(__name__)

LINGER_SECONDS = 1.0
"""How long facts gather before they are recorded together."""
_REST_SECONDS_MAX = 60.0
"""The longest rest after attempts that failed one after the other; the first is LINGER_SECONDS."""
_FACTS_PER_TRANSACTION = 256
_LARGE = 1_000
"""From so many files and manifests on, a commit is recorded by itself at once: as text it costs more."""
_DRAIN_SECONDS = 10.0
_EXIT_SECONDS = 2.0

_outboxes: "weakref.WeakSet[Outbox]" = weakref.WeakSet()


class Outbox:
    """Keeps facts and records them behind the commits. Threads may share one; a forked child begins anew.

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
        """Keep a fact, to be recorded soon; LineageError: it was neither kept nor recorded."""
        if isinstance(fact, RollbackFacts) and fact.at_millis is None:
            # What is committed since stays.
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
        """Record all that waits, as far as the catalog takes it; what it does not take goes on waiting.

        While a catalog fails that another thread tries to record in, nobody waits for that thread, and
        not long where nobody knows yet.
        """
        if not patiently:
            if not self._recording.acquire(timeout=0 if self._failures else _DRAIN_SECONDS):
                return
            self._recording.release()
        try:
            self._record_waiting(self._patient if patiently else self._hurried)
        except LineageError as error:
            log.warning("lineage goes on waiting: %s", _reason(error))

    def close(self) -> None:
        """Record what this process has kept, as `drain` does, and let go of its file."""
        with self._scheduling:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._has_more and not self._failures:
            self.drain()
        self._journal.close()

    # ---- at once --------------------------------------------------------------------------------

    def _is_recorded(self, fact: Fact) -> bool:
        """Record a fact after those that wait; whether the catalog took it."""
        try:
            self._record_waiting(self._hurried)
            self._record_now(fact)
        except LineageError as error:
            if _is_about_the_fact(error):
                raise
            return False
        return True

    def _record_now(self, fact: Fact) -> None:
        """Record one fact; a catalog that has just failed is not waited for again, but left to rest."""
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
        """Count a failure; return the seconds to leave the catalog alone."""
        rest = min(_REST_SECONDS_MAX, LINGER_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._rests_until_millis = SystemClock().now_millis() + int(rest * 1000)
        return rest

    # ---- behind the commit ----------------------------------------------------------------------

    def _schedule(self, seconds: float | None = None) -> None:
        with self._scheduling:
            if self._timer is None:
                self._timer = Timer(LINGER_SECONDS if seconds is None else seconds, self._run)
                self._timer.name = "lsm-lineage"
                self._timer.daemon = True
                self._timer.start()

    def _run(self) -> None:
        """Record what waits. Until it is done no other run is scheduled: they would wait in a row."""
        rest = LINGER_SECONDS
        try:
            self._record_waiting(self._background)
        except LineageError as error:
            rest = self._has_failed()
            log.warning("lineage goes on waiting, for %.0f s: %s", rest, _reason(error))
        except Exception:  # a thread of its own: nobody else would see it
            log.exception("recording lineage failed")
        with self._scheduling:
            self._timer = None
            goes_on = self._has_more
        if goes_on:
            self._schedule(rest)

    def _record_waiting(self, lineage: Lineage) -> None:
        """Record what waits, oldest first; LineageError: the catalog did not take it."""
        with self._recording:
            self._has_more = False  # what is kept from now on is scheduled anew
            self._journal.close()
            done: set[WaitingFact] = set()
            left = self._waiting.facts()
            try:
                while left:
                    left = self._record_some(lineage, done)
            except LineageError:
                self._has_more = True
                raise
            self._failures = 0

    def _record_some(self, lineage: Lineage, done: set[WaitingFact]) -> list[WaitingFact]:
        """Record the oldest facts that wait; return the others.

        They are listed under the write lock: what another process has recorded meanwhile is gone.
        """
        some: list[WaitingFact] = []
        left: list[WaitingFact] = []

        def load() -> list[Fact]:
            waiting = [one for one in self._waiting.facts() if one not in done]
            some[:] = waiting[:_FACTS_PER_TRANSACTION]
            left[:] = waiting[_FACTS_PER_TRANSACTION:]
            return [fact for one in some if (fact := self._read(one)) is not None]

        try:
            lineage.record_loaded(load)
        except LineageError as error:
            if not _is_about_the_fact(error):
                raise
            self._record_one_by_one(lineage, some)
        done.update(some)
        self._waiting.delete_all_but(left)
        return left

    def _record_one_by_one(self, lineage: Lineage, some: Sequence[WaitingFact]) -> None:
        for one in some:
            fact = self._read(one)
            if fact is None:
                continue
            try:
                lineage.record(fact)
            except LineageError as error:
                if not _is_about_the_fact(error):
                    raise
                _set_aside(one, error)

    def _read(self, waiting: WaitingFact) -> Fact | None:
        try:
            return self._waiting.read(waiting)
        except NotFoundError:
            return None  # another process was faster
        except CorruptFileError as error:
            _set_aside(waiting, error)
            return None

    # ---- processes ------------------------------------------------------------------------------

    def begin_in_child(self) -> None:
        """After a fork: what the parent has kept is the parent's."""
        self._journal.close_in_child()
        self._begin()

    def record_at_exit(self) -> None:
        """Record what this process has kept, if that is quick; others find the files."""
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
    """Whether the database is well and would never take this fact."""
    cause = error.__cause__
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
    """Copy a fact that never can be recorded to where it can be looked at, so that the others go on."""
    reason = _reason(error) if isinstance(error, LineageError) else error
    log.error("lineage in %s of %s is set aside: %s", waiting.name, waiting.place, reason)
    try:
        waiting.set_aside()
    except LsmError as failure:
        log.warning("lineage could not be set aside: %s", failure)
