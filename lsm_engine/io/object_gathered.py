"""What an object store held at one moment: directories of small documents, listed and read at once.

For maintenance, which asks for dozens of them one after the other, each time a round.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future

from lsm_engine.base.errors import NotFoundError
from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.in_flight import begin

_DOCUMENTS_MAX = 50_000


class Gathered:
    """Listings, and the documents in them. What is written or deleted since must be forgotten here."""

    def __init__(
        self,
        list_directory: Callable[[str], list[FileStatus]],
        read: Callable[[str], bytes],
        directories: Iterable[str],
        paths: Iterable[str],
    ) -> None:
        """Returns after one round; `paths`: documents that may be there, read together with the listings."""
        listings = {directory: begin(list_directory, directory) for directory in directories}
        self._reads: dict[str, Future[bytes]] = {path: begin(read, path) for path in paths}
        self._lists = {directory: listed.result() for directory, listed in listings.items()}
        self._statuses = {one.path: one for listed in self._lists.values() for one in listed}
        documents = [path for path, one in self._statuses.items() if not one.is_directory]
        for path in documents[:_DOCUMENTS_MAX]:
            # What was not there when it was asked for may have been made before the listing.
            if path not in self._reads or self._reads[path].exception() is not None:
                self._reads[path] = begin(read, path)

    def list(self, directory: str) -> list[FileStatus] | None:
        """Return what was listed, if that directory was."""
        return self._lists.get(directory)

    def read(self, path: str) -> "Future[bytes] | None":
        """Return what was read; NotFoundError for a file that the listing of its directory lacks."""
        self._require(path)
        return self._reads.get(path)

    def status(self, path: str) -> FileStatus | None:
        """Return what was listed; errors as of `read`."""
        self._require(path)
        return self._statuses.get(path)

    def forget(self, paths: Iterable[str]) -> None:
        """Keep nothing of some files: they are changed."""
        for path in paths:
            self._lists.pop(path.rpartition("/")[0], None)
            self._statuses.pop(path, None)
            self._reads.pop(path, None)

    def _require(self, path: str) -> None:
        known = path in self._statuses or path in self._reads
        if not known and path.rpartition("/")[0] in self._lists:
            raise NotFoundError("no such file", path=path)
