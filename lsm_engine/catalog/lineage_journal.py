"""Journals of lineage facts that wait for the catalog, one fact per line.

A journal is "<millis>-<count>-<id>.open" while a process appends to it, and ".jsonl" once a process has
closed it to read it (io/journal_file.py). A line is `<crc32> <millis> <kind> <fact as JSON>`. A torn last
line was never acknowledged. Earlier versions wrote one fact per file,
"<millis>-<count>-<id>.<kind>.json".
"""

import itertools
import logging
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from lsm_engine.base.errors import CorruptFileError, LsmError, NotFoundError
from lsm_engine.base.record import record
from lsm_engine.catalog.facts import (
    CommitFacts,
    ExpiryFacts,
    Fact,
    RemovalFacts,
    RollbackFacts,
    TagDeletion,
    TagFacts,
)
from lsm_engine.codec.checksum import checksum_of
from lsm_engine.codec.messages import decode_message, encode_message
from lsm_engine.io.clock import SystemClock, SystemIds
from lsm_engine.io.file_io import FileIO
from lsm_engine.io.journal_file import CLOSED, JournalFile, closed_journals

log = logging.getLogger(__name__)

_KINDS: dict[str, type[Any]] = {
    "commit": CommitFacts,
    "tag": TagFacts,
    "tag-deletion": TagDeletion,
    "expiry": ExpiryFacts,
    "rollback": RollbackFacts,
    "removal": RemovalFacts,
}
_KIND_OF = {of: name for name, of in _KINDS.items()}
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
        return []


def _facts_of_file(place: FileIO, name: str) -> list[WaitingFact]:
    data = place.read(name)
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
