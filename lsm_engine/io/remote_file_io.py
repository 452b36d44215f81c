"""What the FileIOs over a network share: the identity of the store, and reading many files at once."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from lsm_engine.base.errors import NotFoundError
from lsm_engine.io.in_flight import at_once
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import NO_OPTIONS, StorageOptions, environment_mark

_READ_AT_ONCE = 16


class RemoteFileIO:
    """A value: equal by location, options and the environment it was made in, which may name a store, too.

    Pickles without secrets, environment and connections: all are found anew where it is unpickled.
    """

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
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`."""

    def read_many(
        self, paths: Iterable[str], length: int | None = None
    ) -> Iterator[tuple[str, bytes | None]]:
        """Yield files in the order asked, some of them read ahead."""

        def read(path: str) -> tuple[str, bytes | None]:
            try:
                return path, self.read(path, length=length)
            except NotFoundError:
                return path, None

        return at_once(read, paths, width=_READ_AT_ONCE)
