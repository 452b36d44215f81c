"""Lineage that the catalog did not take at once: kept as files, recorded when the catalog is well.

A commit must not wait for a catalog that is locked, nor fail with one that is full, damaged or gone. So
each fact gets a short attempt; what is not recorded becomes a file "<millis>-<count>-<id>.<kind>.json" in
the directory "<catalog>.lineage-outbox", beside the catalog's file or, where that cannot be written to,
in the warehouse. Later writes, every question to the lineage, and a rebuild record the files, oldest
first, and delete them. All recording may be repeated, so a file that two processes record, or that
outlives its recording, does no harm.
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import exc

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError, StorageError
from lsm_engine.base.record import record
from lsm_engine.catalog.facts import (
    CommitFacts,
    ExpiryFacts,
    LineageError,
    RemovalFacts,
    RollbackFacts,
    TagDeletion,
    TagFacts,
)
from lsm_engine.catalog.lineage import Lineage
from lsm_engine.codec.messages import decode_message, encode_message
from lsm_engine.io.clock import SystemClock, SystemIds
from lsm_engine.io.file_io import FileIO, FileStatus

log = logging.getLogger(__name__)

Fact = CommitFacts | TagFacts | TagDeletion | ExpiryFacts | RollbackFacts | RemovalFacts
_KINDS: dict[str, type[Any]] = {
    "commit": CommitFacts,
    "tag": TagFacts,
    "tag-deletion": TagDeletion,
    "expiry": ExpiryFacts,
    "rollback": RollbackFacts,
    "removal": RemovalFacts,
}
_SUFFIX = ".json"
_REFUSED = ".refused"
_DRAINED_PER_WRITE = 4
"""Kept facts that a write takes along at most: a commit does not wait for a long outbox."""

_count = itertools.count()


@record
class _Kept:
    """A file of the outbox."""

    place: FileIO
    name: str

    @property
    def kind(self) -> type[Any] | None:
        """The class of the fact in it; None: a later version wrote it."""
        return _KINDS.get(self.name.removesuffix(_SUFFIX).rpartition(".")[2])


class Outbox:
    """Records facts now or later. `hurried` waits briefly for the database, `patient` long.

    Without `places`, as for a catalog in memory, what cannot be recorded now is a LineageError.
    """

    def __init__(self, hurried: Lineage, patient: Lineage, places: Sequence[FileIO]) -> None:
        self._hurried = hurried
        self._patient = patient
        self._places = tuple(places)

    @property
    def places(self) -> tuple[FileIO, ...]:
        """Where facts wait."""
        return self._places

    def deliver(self, fact: Fact) -> None:
        """Record a fact after those that wait, or keep it with them; LineageError: neither."""
        try:
            if not self._drained(self._hurried, at_most=_DRAINED_PER_WRITE):
                self._keep(fact, None)
                return
            _record(self._hurried, fact)
        except LineageError as error:
            if _is_about_the_fact(error):
                raise
            self._keep(fact, error)

    def drain(self, *, patiently: bool = False) -> None:
        """Record all that waits, as far as the catalog takes it; what it does not take goes on waiting."""
        try:
            self._drained(self._patient if patiently else self._hurried)
        except LineageError as error:
            log.warning("lineage goes on waiting: %s", _reason(error))

    def _drained(self, lineage: Lineage, at_most: int | None = None) -> bool:
        """Record what waits, oldest first; whether nothing is left."""
        waiting = self._waiting()
        for kept in itertools.islice(waiting, at_most):
            try:
                _record(lineage, _fact(kept))
            except NotFoundError:
                continue  # another process was faster
            except LineageError as error:
                if not _is_about_the_fact(error):
                    raise
                _set_aside(kept, error)
            except CorruptFileError as error:
                _set_aside(kept, error)
            else:
                _take_away(kept)
        return next(waiting, None) is None

    def _waiting(self) -> Iterator[_Kept]:
        found = [
            _Kept(place=place, name=status.name)
            for place in self._places
            for status in _listed(place)
            if status.name.endswith(_SUFFIX)
        ]
        return iter(sorted(found, key=lambda kept: kept.name))

    def _keep(self, fact: Fact, cause: LineageError | None) -> None:
        now = SystemClock().now_millis()
        if isinstance(fact, RollbackFacts):
            fact = replace(fact, at_millis=now)  # what is committed until it is recorded stays
        kind = next(name for name, of in _KINDS.items() if isinstance(fact, of))
        name = f"{now:015d}-{next(_count):09d}-{SystemIds().new_id()}.{kind}{_SUFFIX}"
        failure: Exception | None = cause
        for place in self._places:
            try:
                place.publish(name, encode_message(fact))
            except (LsmError, UnicodeEncodeError) as error:
                failure = error
            else:
                log.warning("lineage of %s waits in %s: %s", fact.table, place, _reason(cause))
                return
        raise LineageError(
            "lineage was neither recorded nor kept; the table itself is in order; rebuild the "
            "lineage later",
            table=fact.table.text,
        ) from failure


def _listed(place: FileIO) -> list[FileStatus]:
    try:
        return place.list("")
    except LsmError as error:
        log.warning("lineage that may wait in %s cannot be listed: %s", place, error)
        return []


def _fact(kept: _Kept) -> Fact:
    kind = kept.kind
    if kind is None:
        raise CorruptFileError("a later version keeps this kind of lineage", file=kept.name)
    fact: Fact = decode_message(kept.place.read(kept.name), kind)
    return fact


def _record(lineage: Lineage, fact: Fact) -> None:
    match fact:
        case CommitFacts():
            lineage.record_commit(fact)
        case TagFacts():
            lineage.record_tag(fact)
        case TagDeletion():
            lineage.record_tag_deletion(fact.table, fact.tag_name)
        case ExpiryFacts():
            lineage.record_expiry(fact.table, fact.snapshot_ids, fact.removed_files)
        case RollbackFacts():
            lineage.record_rollback(fact.table, fact.to_snapshot_id, until_millis=fact.at_millis)
        case RemovalFacts():
            lineage.record_removal(fact)


def _is_about_the_fact(error: LineageError) -> bool:
    """Whether the database is well and would never take this fact."""
    cause = error.__cause__
    if not isinstance(cause, StorageError | CorruptFileError | OSError):
        return True
    refusal = cause.__cause__
    of_values = isinstance(refusal, exc.DataError | exc.IntegrityError)
    return of_values or (
        isinstance(refusal, exc.StatementError) and not isinstance(refusal, exc.DBAPIError)
    )


def _reason(error: LsmError | None) -> object:
    return "others wait before it" if error is None else error.__cause__ or error


def _take_away(kept: _Kept) -> None:
    try:
        kept.place.delete(kept.name)
    except LsmError as error:
        log.warning("lineage is recorded, its file stays: %s", error)


def _set_aside(kept: _Kept, error: LsmError) -> None:
    """Give a file that never can be recorded another name, so that the others go on."""
    log.error("lineage in %s of %s is set aside: %s", kept.name, kept.place, _reason(error))
    try:
        kept.place.publish(kept.name + _REFUSED, kept.place.read(kept.name))
        kept.place.delete(kept.name)
    except LsmError as failure:
        log.warning("lineage could not be set aside: %s", failure)
