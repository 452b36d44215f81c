"""Requests to an object store, their retries, and their failures as errors.

A request that was not applied (409, 429, 503, no connection) is always sent again. A request that may have
been applied is sent again only if it is idempotent; a conditional create is not.
Waits double from 50 ms, with full jitter, to 20 s, for two minutes in all; for five seconds where the store has
never answered this process, as its address is likely to be wrong then.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from obstore.exceptions import BaseError

from lsm_engine.base.errors import CommitUnknownError, LsmError
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.object_answers import Answer, answer_of, facts_of, to_error
from lsm_engine.io.object_clients import Clients, shared
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import StorageOptions, environment_mark

T = TypeVar("T")

FAILURES = (BaseError, OSError, ValueError, NotImplementedError)
"""Exceptions of the library."""
_FIRST_WAIT_MILLIS = 50
_LONGEST_WAIT_MILLIS = 20_000
_IN_ALL_MILLIS = 120_000
_FIRST_ANSWER_MILLIS = 5_000


class Requests:
    """The requests of one FileIO. Any thread may use it."""

    def __init__(
        self,
        location: StorageLocation,
        options: StorageOptions,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.location = location
        self.options = options
        self.environment = environment_mark(location.scheme)
        self._clients: Clients | None = None
        self.clock: Clock = SystemClock() if clock is None else clock
        self.ids: IdSource = SystemIds() if ids is None else ids

    @property
    def clients(self) -> Clients:
        """The clients of this process, the same ones from the first use on."""
        shared.require_own_process(self.location)
        if self._clients is None:
            self._clients = shared.client_of(self.location, self.options, self.environment)
        return self._clients

    def for_location(self, location: StorageLocation) -> "Requests":
        """Return requests to another location of the same bucket, by the same clients."""
        requests = Requests(location, self.options, clock=self.clock, ids=self.ids)
        requests.environment, requests._clients = self.environment, self.clients
        return requests

    def send(self, verb: str, path: str, act: Callable[[Any], T], *, waits: bool = True) -> T:
        """Return the result of an idempotent request; `act` gets the client. Failures become LsmErrors.

        `waits` false: a throttled store is not waited for.
        """
        waiting = _Waiting(self)
        while True:
            client = self.clients.once
            try:
                result = act(client)
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer in _AGAIN and waits and waiting.goes_on():
                    continue
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                raise to_error(path, cause, doing=verb, store=self.location.text) from None
            self.clients.has_answered = True
            return result

    def create(self, path: str, act: Callable[[Any], object], is_there: Callable[[], bool]) -> bool:
        """Return whether a conditional create won; False: the name is taken.

        `is_there` decides after a conflict that does not state its cause. Raises CommitUnknownError
        where the answer was lost, and where the name is taken after an attempt with an unclear end.
        """
        waiting = _Waiting(self)
        while True:
            client = self.clients.once
            try:
                act(client)
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer is Answer.CONFLICT and is_there():
                    answer = Answer.TAKEN
                if answer is Answer.TAKEN and not waiting.has_waited:
                    return False
                if answer in (Answer.UNKNOWN, Answer.TAKEN):
                    raise self._unknown(path, "created") from None
                if answer in (Answer.NOT_APPLIED, Answer.CONFLICT) and waiting.goes_on():
                    continue
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                raise to_error(path, cause, doing="PUT", store=self.location.text) from None
            return True

    def change(
        self, verb: str, path: str, act: Callable[[Any], object], look: Callable[[], "Outcome"]
    ) -> bool:
        """Return whether a request on condition was carried out. `verb`: PUT or DELETE, for errors.

        `act` may raise an LsmError instead of sending the request. `look` determines the outcome if the answer does not.
        Raises CommitUnknownError where a look does not show it either, StorageError where nothing was changed.
        """
        waiting = _Waiting(self)
        is_unclear = False
        while True:
            client = self.clients.once
            try:
                act(client)
            except LsmError as cause:
                if is_unclear:
                    raise self._unknown(path, "changed") from cause
                raise
            except FAILURES as cause:
                answer = self._answer(cause)
                if answer is Answer.REFUSED and waiting.may_renew():
                    self.clients.renew(self.location, self.options, client)
                    continue
                is_unclear = is_unclear or answer is Answer.UNKNOWN
                if answer in _CONDITION_FAILED and not waiting.has_waited:
                    return False
                outcome = self._outcome(path, answer, look)
                if outcome is not Outcome.UNCHANGED and not (
                    outcome is Outcome.LOST and is_unclear
                ):
                    return outcome is Outcome.DONE
                if outcome is Outcome.UNCHANGED and answer in _AGAIN and waiting.goes_on():
                    continue
                if is_unclear:
                    raise self._unknown(path, "changed") from None
                raise to_error(path, cause, doing=verb, store=self.location.text) from None
            else:
                return True

    def _outcome(self, path: str, answer: Answer, look: Callable[[], "Outcome"]) -> "Outcome":
        """Return the outcome of a conditional request. A refusal needs no look."""
        if answer not in _CONDITION_FAILED and answer is not Answer.UNKNOWN:
            return Outcome.UNCHANGED
        try:
            return look()
        except LsmError as cause:
            raise self._unknown(path, "changed") from cause

    def _unknown(self, path: str, done: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"the store did not report whether the file was {done}; look before trying again",
            path=path,
            store=self.location.text,
        )

    def _answer(self, cause: Exception) -> Answer:
        """Return the answer of a failure. A failure with a status proves that the store answers."""
        if facts_of(cause)[0] is not None:
            self.clients.has_answered = True
        return answer_of(cause)


class Outcome(Enum):
    """The outcome of a conditional request, by a look."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """The expected content is still there: the request was not applied, or not yet."""
    LOST = "lost"
    """Another content is there, or none."""


_CONDITION_FAILED = frozenset({Answer.TAKEN, Answer.MISSING})
_AGAIN = frozenset({Answer.NOT_APPLIED, Answer.CONFLICT, Answer.UNKNOWN})


class _Waiting:
    """The retries of one request."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._clock = requests.clock
        self._ids = requests.ids
        self._started_millis: int | None = None
        self._longest = _FIRST_WAIT_MILLIS
        self._renewed = False
        self.has_waited = False

    def goes_on(self) -> bool:
        """Wait, and return whether to try again."""
        now = self._clock.now_millis()
        if self._started_millis is None:
            self._started_millis = now
        in_all = _IN_ALL_MILLIS if self._requests.clients.has_answered else _FIRST_ANSWER_MILLIS
        millis_left = in_all - (now - self._started_millis)
        if millis_left <= 0:
            return False
        self._clock.sleep_millis(min(1 + int(self._ids.fraction() * self._longest), millis_left))
        self._longest = min(2 * self._longest, _LONGEST_WAIT_MILLIS)
        self.has_waited = True
        return True

    def may_renew(self) -> bool:
        """Return whether credentials may be renewed: once per request."""
        first, self._renewed = not self._renewed, True
        return first
