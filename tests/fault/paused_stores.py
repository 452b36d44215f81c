"""Stores in memory whose every call is announced before it takes place: a local-like one and an object store.

    disk = MemoryDisk()
    table_of_ours = disk.opened(ours, on_call=announce)

The object store is the engine's own adapter over a double of the client library. What the adapter sends at
once, or behind, is sent one after the other, so that schedules repeat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace
from typing import Any, NoReturn, Protocol, Self

import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from lsm_engine.api.table import Table
from lsm_engine.ddl.create import create_table
from lsm_engine.metadata import snapshots
from lsm_engine.storage import executor
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_requests import Requests
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import NO_OPTIONS
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.model.world import components, reopen

READS = frozenset({"read", "open_input", "exists", "status", "get", "get_ranges", "head"})
LISTINGS = frozenset({"list"})
DIRECTORIES = frozenset({"remove_empty_directory", "move"})
PIECES = frozenset({"write", "abort"})  # of a file that nobody sees before it is closed


@dataclass(frozen=True)
class StorageCall:
    """One call, before it takes place. `paths`: relative to the table; of a sync, the first."""

    verb: str
    paths: tuple[str, ...]


Announce = Callable[[StorageCall], None]
TABLE = "db.t"


@dataclass
class Footprint:
    """What some calls read, listed, changed, and moved or removed with all below."""

    reads: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    waits_for_disk: bool = False

    def add(self, call: StorageCall) -> None:
        """Take in one more call."""
        if call.verb in READS:
            self.reads.update(call.paths)
        elif call.verb in LISTINGS:
            self.listed.update(call.paths)
        elif call.verb == "sync":
            self.waits_for_disk = True
        elif call.verb in DIRECTORIES:
            self.directories.update(call.paths)
        else:
            self.changes.update(call.paths)

    def include(self, other: Footprint) -> None:
        """Take in all calls of another one."""
        self.reads |= other.reads
        self.listed |= other.listed
        self.changes |= other.changes
        self.directories |= other.directories
        self.waits_for_disk |= other.waits_for_disk

    def meets(self, call: StorageCall) -> bool:
        """Whether the order of this call and of the ones that were taken in can matter."""
        touched = self.reads | self.listed | self.changes | self.directories
        if call.verb in DIRECTORIES:
            return any(_are_in_line(path, place) for path in touched for place in call.paths)
        if any(_are_in_line(path, place) for path in call.paths for place in self.directories):
            return True
        if call.verb in READS:
            return not self.changes.isdisjoint(call.paths)
        if call.verb in LISTINGS:
            return any(_is_below(path, call.paths[0]) for path in self.changes)
        if call.verb == "sync":  # which looks for files whose names are not announced
            return bool(self.changes)
        return (
            (self.waits_for_disk and "delete" in call.verb)
            or not (self.reads | self.changes).isdisjoint(call.paths)
            or any(_is_below(path, directory) for directory in self.listed for path in call.paths)
        )


def _are_in_line(path: str, other: str) -> bool:
    return _is_below(path, other) or _is_below(other, path)


def _is_below(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(directory + "/")


@dataclass(frozen=True)
class Actor:
    """A process: its number gives it ids and a monotonic clock of its own."""

    number: int
    millis: int
    local_time: tuple[int, int, int, int, int, int, int]


class HurriedClock(ManualClock):
    """A clock on which waits take twenty times as long: `commit.timeout` is over after few of them."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor.millis)
        self._local_time = actor.local_time

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        return self._local_time

    def sleep_millis(self, millis: int) -> None:
        super().sleep_millis(20 * millis)


@dataclass(frozen=True)
class Process:
    """What an operation is done with: a table, which is opened first, or the catalog that it is in."""

    open_table: Callable[[], Table]
    catalog: Callable[[], Any]
    announcing: Callable[[], AbstractContextManager[None]] = nullcontext


class Disk(Protocol):
    """Files of tables, by names. `clock` stamps what is written."""

    clock: ManualClock

    def create(self, actor: Actor, schema: pa.Schema, **settings: Any) -> None:
        """Create the table."""
        ...

    def clone(self) -> Self:
        """Return the same files again, to be changed by others."""
        ...

    def state(self) -> Hashable:
        """Return what two disks have in common that nobody can tell apart; None: not known."""
        ...

    def become(self, other: Self) -> None:
        """Take the files of another disk in place of the own ones."""
        ...

    def process(self, actor: Actor, on_call: Announce | None = None) -> Process:
        """Return a process of its own, whose calls are announced."""
        ...

    def opened(self, actor: Actor, name: str = TABLE) -> Table:
        """Open a table, as a process of its own does."""
        ...

    def names(self, actor: Actor) -> list[str]:
        """Return the names of the tables."""
        ...

    def facts(self, actor: Actor) -> dict[str, Any]:
        """Return what can be seen beside the tables."""
        ...

    def files(self, name: str = TABLE) -> dict[str, bytes]:
        """Return the bytes of every file of a table."""
        ...

    def contents(self) -> dict[str, bytes]:
        """Return the bytes of every file."""
        ...


class OneTable(ABC):
    """A disk with one table at its root, and no catalog."""

    @abstractmethod
    def file_io(self, actor: Actor, on_call: Announce | None = None) -> FileIO:
        """Return the storage of one process."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """Return the bytes of every file."""

    def create(self, actor: Actor, schema: pa.Schema, **settings: Any) -> None:
        create_table(
            self.file_io(actor), schema, comment=None, clock=HurriedClock(actor), **settings
        )

    def process(self, actor: Actor, on_call: Announce | None = None) -> Process:
        return Process(lambda: self._open(actor, on_call), _no_catalog)

    def opened(self, actor: Actor, name: str = TABLE) -> Table:
        del name
        return self._open(actor, None)

    def _open(self, actor: Actor, on_call: Announce | None) -> Table:
        storage = self.file_io(actor, on_call)
        ids = NumberedIds(first=1_000_000 * actor.number)
        return reopen(components(storage, HurriedClock(actor), ids))

    def names(self, actor: Actor) -> list[str]:
        del actor
        return [TABLE]

    def facts(self, actor: Actor) -> dict[str, Any]:
        del actor
        return {}

    def files(self, name: str = TABLE) -> dict[str, bytes]:
        del name
        return self.contents()


def _no_catalog() -> NoReturn:
    raise AssertionError("a table alone has no catalog")


class MemoryDisk(OneTable):
    """A store with directories, near, whose listings may be old: MemoryFileIO."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.storage = MemoryFileIO(clock)

    def clone(self) -> MemoryDisk:
        copy = MemoryDisk(ManualClock(self.clock.millis))
        copy.storage._files = dict(self.storage._files)
        copy.storage._directories = dict(self.storage._directories)
        return copy

    def state(self) -> Hashable:
        return frozenset(self.storage._files.items()), frozenset(self.storage._directories)

    def become(self, other: MemoryDisk) -> None:
        for own, others in (
            (self.storage._files, other.storage._files),
            (self.storage._directories, other.storage._directories),
        ):
            own.clear()
            own.update(others)

    def file_io(self, actor: Actor, on_call: Announce | None = None) -> FileIO:
        del actor
        if on_call is None:
            return self.storage

        def announce(call: Call) -> None:
            if call.verb not in PIECES:
                on_call(StorageCall(call.verb, (call.path,)))

        return RecordingFileIO(self.storage, on_call=announce)

    def contents(self) -> dict[str, bytes]:
        return {path: data for path, (data, _) in self.storage._files.items()}


# --- an object store ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredObject:
    """One object: its bytes, the tag of this content, when it was written, and its metadata."""

    data: bytes
    tag: str
    millis: int
    attributes: dict[str, str]

    def meta(self, key: str) -> dict[str, Any]:
        stamp = datetime.fromtimestamp(self.millis / 1000, tz=UTC)
        return {
            "path": key,
            "size": len(self.data),
            "last_modified": stamp,
            "e_tag": self.tag,
            "version": None,
        }


class Answer:
    """What a GET answers."""

    def __init__(self, key: str, stored: StoredObject, data: bytes) -> None:
        self.meta = stored.meta(key)
        self.attributes = stored.attributes
        self._data = data

    def bytes(self) -> bytes:
        return self._data

    def stream(self, min_chunk_size: int = 0) -> Iterator[bytes]:
        del min_chunk_size
        yield self._data


class ObjectDisk(OneTable):
    """A store without directories and renames, far, with conditional writes: ObjectFileIO over a double."""

    _actors = count(1)

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.objects: dict[str, StoredObject] = {}
        self.version = 0

    def clone(self) -> ObjectDisk:
        copy = ObjectDisk(ManualClock(self.clock.millis))
        copy.objects, copy.version = dict(self.objects), self.version
        return copy

    def state(self) -> Hashable:
        objects = frozenset((key, each.tag, each.data) for key, each in self.objects.items())
        return objects, self.version

    def become(self, other: ObjectDisk) -> None:
        self.objects, self.version = dict(other.objects), other.version

    def file_io(self, actor: Actor, on_call: Announce | None = None) -> FileIO:
        # What a process knows of a store is kept by location: no two of them share it.
        location = parse_location(f"memory://process-{next(self._actors)}/lake/db.db/t")
        ids = NumberedIds(first=1_000_000 * actor.number + 500_000)
        requests = Requests(location, NO_OPTIONS, clock=HurriedClock(actor), ids=ids)
        client = ObjectClient(self, location.prefix + "/", on_call)
        clients: Any = SimpleNamespace(
            once=client,
            patient=client,
            endpoint="memory",
            has_answered=True,
            proven={location.warehouse},
            looked_for={},
            renew=lambda *_: None,
        )
        requests._clients = clients
        return ObjectFileIO(location, NO_OPTIONS, requests=requests)

    def contents(self) -> dict[str, bytes]:
        return {key: stored.data for key, stored in self.objects.items()}


class ObjectClient:
    """The requests of one process to a double of an object store."""

    def __init__(self, disk: ObjectDisk, prefix: str, on_call: Announce | None) -> None:
        self._disk = disk
        self._prefix = prefix
        self._on_call = on_call

    def _announced(self, verb: str, *keys: str) -> tuple[str, ...]:
        paths = tuple(f"{key}/".removeprefix(self._prefix).rstrip("/") for key in keys)
        if self._on_call is not None:
            self._on_call(StorageCall(verb, paths))
        return paths

    def _stored(self, path: str) -> StoredObject:
        if path not in self._disk.objects:
            raise FileNotFoundError(f"Object at location {path} not found")
        return self._disk.objects[path]

    def get(self, key: str, *, options: Any = None) -> Answer:
        (path,) = self._announced("get", key)
        stored = self._stored(path)
        data = stored.data
        if options:
            span = options["range"]
            data = data[span["offset"] :] if isinstance(span, dict) else data[span[0] : span[1]]
        return Answer(key, stored, data)

    def get_ranges(
        self, key: str, *, starts: Sequence[int], lengths: Sequence[int], coalesce: int
    ) -> list[bytes]:
        del coalesce
        (path,) = self._announced("get_ranges", key)
        data = self._stored(path).data
        return [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def head(self, key: str) -> dict[str, Any]:
        (path,) = self._announced("head", key)
        return self._stored(path).meta(key)

    def list(self, key: str | None, *, offset: Any = None, chunk_size: int) -> Iterator[list[Any]]:
        del offset, chunk_size
        (path,) = self._announced("list", key or "")
        entries = [
            stored.meta(self._prefix + place)
            for place, stored in sorted(self._disk.objects.items())
            if _is_below(place, path)
        ]
        return iter([entries] if entries else [])

    def list_with_delimiter(self, key: str | None) -> dict[str, Any]:
        (path,) = self._announced("list", key or "")
        below = f"{path}/" if path else ""
        objects, prefixes = [], set()
        for place, stored in sorted(self._disk.objects.items()):
            if place.startswith(below):
                head, slash, _ = place.removeprefix(below).partition("/")
                if slash:
                    prefixes.add(self._prefix + below + head)
                else:
                    objects.append(stored.meta(self._prefix + place))
        return {"objects": objects, "common_prefixes": sorted(prefixes)}

    def put(self, key: str, data: Any, *, mode: Any = "overwrite", **settings: Any) -> Any:
        (path,) = self._announced("put", key)
        stored = self._disk.objects.get(path)
        if mode == "create" and stored is not None:
            raise AlreadyExistsError(f"Object at location {path} already exists")
        if isinstance(mode, dict) and (stored is None or stored.tag != mode.get("e_tag")):
            raise PreconditionError(f"Object at location {path} has another tag")
        content = (
            bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        )
        self._disk.version += 1
        tag = str(self._disk.version)
        self._disk.objects[path] = StoredObject(
            content, tag, self._disk.clock.millis, dict(settings.get("attributes") or {})
        )
        return {"e_tag": tag, "version": None}

    def delete(self, keys: str | Sequence[str]) -> None:
        paths = self._announced("delete", *([keys] if isinstance(keys, str) else keys))
        for path in paths:
            self._disk.objects.pop(path, None)


class OneAfterTheOther:
    """In place of a pool: what is submitted is done at once."""

    def submit(self, act: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(act(*arguments))
        except BaseException as error:  # noqa: BLE001 -- as those of a pool do
            future.set_exception(error)
        return future


class MonotonicClock:
    """Goes on by a millisecond with each look, and by a minute where a process is stopped."""

    def __init__(self) -> None:
        self._millis = 0

    def monotonic_millis(self) -> int:
        self._millis += 1
        return self._millis

    def pause(self) -> None:
        self._millis += 60_000


monotonic = MonotonicClock()


@contextmanager
def object_doubles() -> Iterator[None]:
    """Let the engine's adapter ask doubles, one request after the other."""
    pool = OneAfterTheOther()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("get", "get_ranges", "head", "list", "list_with_delimiter", "put", "delete"):
            patch.setattr(obstore, name, _asked(name, getattr(obstore, name)))
        patch.setattr(executor, "_pool", lambda _: pool)
        patch.setattr(snapshots, "_clock", monotonic)
        yield


def _asked(name: str, library: Callable[..., Any]) -> Callable[..., Any]:
    def ask(client: Any, *arguments: Any, **named: Any) -> Any:
        if not isinstance(client, ObjectClient):
            return library(client, *arguments, **named)
        named.pop("use_multipart", None)
        return getattr(client, name)(*arguments, **named)

    return ask
