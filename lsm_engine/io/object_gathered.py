"""What an object store held at one moment: directories of small documents, listed and read at once.

For maintenance, which asks for dozens of them one after the other, each time a round.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from lsm_engine.base.errors import NotFoundError
from lsm_engine.io.file_io import FileStatus
from lsm_engine.io.in_flight import begin, begin_all
from lsm_engine.io.kept_documents import KeptDocuments

_DOCUMENTS_MAX = 50_000


class Gathered:
    """Listings, and the documents in them. What is written or deleted since must be forgotten here."""

    def __init__(
        self,
        list_directory: Callable[[str], list[FileStatus]],
        read: Callable[[str], bytes],
        kept: KeptDocuments,
        directories: Sequence[str],
        paths: Iterable[str],
        *,
        below: str | None = None,
    ) -> None:
        """Returns after one round, or two where a directory `below` another one was not expected.

        `paths`: documents that may be there, read together with the listings unless they are `kept`.
        """
        self._kept, self._fetch = kept, read
        self._statuses: dict[str, FileStatus] = {}
        self._lists: dict[str, list[FileStatus]] = {directory: [] for directory in directories}
        likely = {directories[0], *kept.directories()}.intersection(directories)
        first = begin_all(list_directory, directories if below is None else likely)
        parent = None if below is None else begin(list_directory, below)
        self._reads = begin_all(read, (path for path in paths if not kept.holds(path)))
        self._take(first)
        if parent is not None:
            there = {one.path for one in parent.result() if one.is_directory}
            there.intersection_update(directories)
            kept.keep_directories(there)
            self._take(begin_all(list_directory, there.difference(first)))

    def _take(self, listings: Mapping[str, "Future[list[FileStatus]]"]) -> None:
        """Keep listings, and begin to read the documents in them."""
        for directory, listed in listings.items():
            self._lists[directory] = listed.result()
            for one in self._lists[directory]:
                self._statuses[one.path] = one
                if not one.is_directory and len(self._statuses) <= _DOCUMENTS_MAX:
                    self._expect(one)

    def _expect(self, one: FileStatus) -> None:
        # What was not there when it was asked for may have been made before the listing.
        if one.path in self._reads and self._reads[one.path].exception() is None:
            return
        content = self._kept.find(one.path, one.tag)
        if content is None:
            self._reads[one.path] = begin(self._fetch, one.path)
        else:
            self._reads[one.path] = Future()
            self._reads[one.path].set_result(content)

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
