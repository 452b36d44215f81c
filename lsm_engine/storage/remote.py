"""Common parts of the FileIOs over a network: their clients, the identity of the store, and prefetched files."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from lsm_engine.base.errors import NotFoundError
from lsm_engine.storage.bulk import Prefetched
from lsm_engine.storage.executor import OwnProcess, begin
from lsm_engine.storage.file_io import FileStatus, Prefetching
from lsm_engine.storage.location import StorageLocation
from lsm_engine.storage.options import (
    NO_OPTIONS,
    StorageOptions,
    environment_mark,
    require_environment,
)

# -- Clients of stores that all tables of a process share ------------------------------------------
#
# One per bucket or cluster, options and environment.
#
# Who has used a client keeps it when the environment changes. A client of a process that has
# forked since does not work, and would wait for ever: that is found out before a request.

Client = TypeVar("Client")


class SharedClients(Generic[Client]):
    """Clients by location, made by `make` on first use, and again when the environment changes."""

    def __init__(self, make: Callable[[StorageLocation, StorageOptions], Client]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._owner = OwnProcess()
        self._made: dict[tuple[str, str, StorageOptions], tuple[str, Client]] = {}

    def client_of(
        self, location: StorageLocation, options: StorageOptions, environment: str
    ) -> Client:
        """Return the client of a location as an `environment_mark` has it.

        Raises InvalidOptionError if it cannot be made, or not any more, as the environment is another by now;
        StorageError in a process that was forked from one that had made clients.
        """
        key = (location.scheme, location.authority, options)
        with self._lock:
            self._owner.require(location.text)
            mark, client = self._made.get(key, ("", None))
            if client is None or mark != environment:
                require_environment(location.text, location.scheme, environment)
                client = self._make(location, options)
                self._made[key] = environment, client
            return client

    def require_own_process(self, location: StorageLocation) -> None:
        """Raise StorageError in a process that was forked from one that had made clients."""
        self._owner.require(location.text)


# -- Base of remote FileIOs ------------------------------------------------------------------------


class RemoteFileIO(Prefetching):
    """A value: equal by location, options and the environment it was made in, which may name a store, too.

    Pickles without secrets, environment and connections: all are found anew where it is unpickled.
    """

    _prefetched: Prefetched

    def __init__(
        self, location: StorageLocation, options: StorageOptions = NO_OPTIONS, environment: str = ""
    ) -> None:
        self.location = location
        self.options = options
        self.environment = environment or environment_mark(location.scheme)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location.text!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RemoteFileIO)
            and (type(self), self.location, self.options, self.environment)
            == (type(other), other.location, other.options, other.environment)
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.location, self.options, self.environment))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.location, self.options)

    @abstractmethod
    def status(self, path: str) -> FileStatus:
        """Return what the store knows about a file or directory."""

    @abstractmethod
    def _fetch(self, path: str) -> bytes:
        """Return a file's bytes from the store, past what was prefetched."""

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        try:
            return not self.status(path).is_directory
        except NotFoundError:
            return False

    def prefetch(self, path: str) -> None:
        """Fetch a file concurrently. The next read of the whole file returns that, or raises its error."""
        if not self._prefetched.holds(path):
            self._prefetched.add(path, begin(self._fetch, path))

    def forget_prefetched(self, paths: Iterable[str]) -> None:
        """Drop the prefetched bytes of some files."""
        self._prefetched.forget(paths)
