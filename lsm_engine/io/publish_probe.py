"""Whether a store keeps its promise: of those who create one name at once, one wins.

Some servers ignore the condition, others look first and write then: on both, commits are lost without
an error. So the first write of a process to a warehouse looks for a marker, and, without one of this
endpoint, lets many create one name at once, in several rounds: two creates one after the other would not
find the second kind.
"""

import json
from collections.abc import Callable, Iterable
from threading import Barrier
from typing import Protocol

from lsm_engine.base.errors import CommitUnknownError, NotFoundError, UnsupportedError
from lsm_engine.base.version import VERSION
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.in_flight import at_once

MARKER = ".lsm-conditional-create"
ROUNDS = 8
WRITERS = 16
_START_SECONDS = 60


class Probed(Protocol):
    """What the probe asks of a store; names are relative to the warehouse."""

    endpoint: str

    def create(self, name: str, data: bytes) -> bool:
        """Create a name if it is absent."""
        ...

    def read(self, name: str) -> bytes:
        """Return the bytes of a name."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a name."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete names."""
        ...

    def all_at_once(self, acts: Iterable[Callable[[], bool | None]]) -> list[bool | None]:
        """Carry out acts at the same time."""
        ...


class ProbedWarehouse:
    """A warehouse, for the probe. `create` is the conditional create that is in question."""

    def __init__(
        self, file_io: FileIO, create: Callable[[str, bytes], bool], endpoint: str
    ) -> None:
        self.endpoint = endpoint
        self.create = create
        self.read = file_io.read
        self.put = file_io.replace
        self.delete = file_io.delete_many

    def all_at_once(self, acts: Iterable[Callable[[], bool | None]]) -> list[bool | None]:
        """Carry out acts in threads that start together."""
        ready = list(acts)
        start = Barrier(len(ready))

        def act(task: Callable[[], bool | None]) -> bool | None:
            start.wait(timeout=_START_SECONDS)
            return task()

        return list(at_once(act, ready, width=len(ready)))


def require_one_winner(store: Probed, probe_id: str) -> None:
    """Return if a store has been found to keep the condition, now or earlier; else UnsupportedError.

    `probe_id`: makes the names of this probe its own.
    """
    if is_marked(store):
        return
    names = [f"{MARKER}-{probe_id}-{number}" for number in range(ROUNDS)]
    try:
        for name in names:
            _run_round(store, name)
    finally:
        store.delete(names)
    facts = {"endpoint": store.endpoint, "rounds": ROUNDS, "writers": WRITERS, "version": VERSION}
    store.put(MARKER, json.dumps(facts).encode())


def is_marked(store: Probed) -> bool:
    """Whether an earlier probe found this endpoint to keep the condition."""
    try:
        marker = json.loads(store.read(MARKER))
    except (NotFoundError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("endpoint") == store.endpoint


def _run_round(store: Probed, name: str) -> None:
    def attempt(number: int) -> Callable[[], bool | None]:
        def act() -> bool | None:
            try:
                return store.create(name, b"%d" % number)
            except CommitUnknownError:
                return None

        return act

    answers = store.all_at_once(attempt(number) for number in range(WRITERS))
    winners = {number for number, won in enumerate(answers) if won}
    possible = winners or {number for number, won in enumerate(answers) if won is None}
    try:
        content = store.read(name)
    except NotFoundError:
        content = b""
    if len(winners) > 1 or content not in {b"%d" % number for number in possible}:
        raise UnsupportedError(
            "this store does not keep conditional creates (If-None-Match): several writers of one "
            "name were all acknowledged, or none was; commits on it would be lost, so that nothing "
            "is written; use a store that has them",
            endpoint=store.endpoint,
            writers=WRITERS,
            acknowledged=len(winners),
        )
