"""Clients of stores that all tables of a process share: one per bucket or cluster, options and environment.

Who has used a client keeps it when the environment changes. A client of a process that has forked since does not work,
and would wait for ever: that is found out before a request.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from lsm_engine.io.in_flight import OwnProcess
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import StorageOptions, require_environment

Client = TypeVar("Client")


class SharedClients(Generic[Client]):
    """Clients that `make` makes on first use, those of the newest environment kept."""

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
