"""A batched snapshot of an object store: directories of small documents, listed and read concurrently.

It is for maintenance, which reads dozens of documents one after the other, each by a round trip.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from lsm_engine.base.errors import NotFoundError
from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.in_flight import begin, begin_all
from lsm_engine.io.kept_documents import KeptDocuments

_DOCUMENTS_MAX = 50_000


class Gathered:
    """Listings, and the documents in them. A later write or deletion must be forgotten here."""

    def __init__(
        self,
        list_directory: Callable[[str], list[FileStatus]],
        read: Callable[[str], bytes],
        documents: KeptDocuments,
        directories: Sequence[str],
        paths: Iterable[str],
        *,
        below: str | None = None,
    ) -> None:
        """Returns after one round, or two where a directory `below` another one was not expected.

        `paths`: documents that may be there, read together with the listings unless they are in `documents`.
        """
        self._kept, self._fetch = documents, read
        self._statuses: dict[str, FileStatus] = {}
        self._lists: dict[str, list[FileStatus]] = {directory: [] for directory in directories}
        likely = {directories[0], *documents.directories()}.intersection(directories)
        first = begin_all(list_directory, directories if below is None else likely)
        parent = None if below is None else begin(list_directory, below)
        self._reads = begin_all(read, (path for path in paths if not documents.holds(path)))
        self._take(first)
        if parent is not None:
            existing = {status.path for status in parent.result() if status.is_directory}
            existing.intersection_update(directories)
            documents.keep_directories(existing)
            self._take(begin_all(list_directory, existing.difference(first)))

    def _take(self, listings: Mapping[str, "Future[list[FileStatus]]"]) -> None:
        """Keep listings, and begin to read the documents in them."""
        for directory, listed in listings.items():
            self._lists[directory] = listed.result()
            for status in self._lists[directory]:
                self._statuses[status.path] = status
                if not status.is_directory and len(self._statuses) <= _DOCUMENTS_MAX:
                    self._expect(status)

    def _expect(self, status: FileStatus) -> None:
        # A document that did not exist at its read may have been created before the listing.
        if status.path in self._reads and self._reads[status.path].exception() is None:
            return
        content = self._kept.find(status.path, status.tag)
        if content is None:
            self._reads[status.path] = begin(self._fetch, status.path)
        else:
            self._reads[status.path] = Future()
            self._reads[status.path].set_result(content)

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
        """Drop some files: they have changed."""
        for path in paths:
            self._lists.pop(path.rpartition("/")[0], None)
            self._statuses.pop(path, None)
            self._reads.pop(path, None)

    def _require(self, path: str) -> None:
        is_listed = path in self._statuses or path in self._reads
        if not is_listed and path.rpartition("/")[0] in self._lists:
            raise NotFoundError("no such file", path=path)
