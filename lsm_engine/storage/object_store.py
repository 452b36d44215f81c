"""FileIO over an object store: S3 and compatible ones, Azure Blob storage, Google Cloud Storage.

Object stores have no directories, renames or links. `publish` is a conditional PUT. A file with a unique
name is a plain PUT, which may be repeated. The errors and retries of all calls are in object_requests.

A name that changes on condition of its content does so below a lock file, and by a PUT under the tag of what was read.
Stores keep that condition (If-Match) less reliably than that of a create, and the library has no DELETE on
condition: so the lock decides. The tag is a second guard against a holder that was stopped for minutes.

That the store of a warehouse keeps conditional creates is found out before this process creates the first file. The
marker of an earlier probe is looked for while the data files of a commit are under way.

A data file of a commit is sent while the next one is made, and the metadata with it; `sync`, which every commit calls
for what it names, waits for all of them and raises what failed.

Uploads in parts that were begun on S3 and never completed are listed and aborted by boto3. obstore has no call for them,
and what it signs is the path of an object alone, so that a listing of uploads, which is asked for by a query, cannot be
signed by it either. Azure forgets blocks that were not committed after a week by itself; Google's are left to a rule of
the bucket."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from threading import Barrier
from typing import Any

import obstore
from cachetools import LRUCache

from lsm_engine.base.errors import (
    CommitUnknownError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.base.version import VERSION
from lsm_engine.format.unfinished_upload import UnfinishedUpload
from lsm_engine.storage.bulk import OneByOne, Prefetched, settle
from lsm_engine.storage.clock import Clock
from lsm_engine.storage.executor import at_once, begin, begin_all
from lsm_engine.storage.file_io import (
    Batching,
    FileIO,
    FileStatus,
    StoreFacts,
    UploadsInParts,
    check_path,
)
from lsm_engine.storage.location import StorageLocation
from lsm_engine.storage.locks import Hold, LockFiles
from lsm_engine.storage.object_input import WHOLE_BYTES, ObjectInput
from lsm_engine.storage.object_requests import (
    FAILURES,
    PART_BYTES,
    Answer,
    Clients,
    ObjectOutput,
    Outcome,
    Requests,
    answer_of,
    delete_objects,
    entries_of,
    part_of,
    put_object,
    read_start,
    read_tagged,
    s3_address,
    s3_shown,
    status_of,
    to_error,
)
from lsm_engine.storage.options import GCS, NO_OPTIONS, S3, StorageOptions
from lsm_engine.storage.remote import RemoteFileIO

# -- Cache of small documents of object stores, with the tag (ETag) of their content ---------------
#
# A listing has the tags of its entries. A document whose tag is the cached one is not read
# again. Two contents never share a tag: it is a hash of the content, or new with each write.

KEPT_BYTES = 16 << 20
_DOCUMENT_BYTES = 64 << 10
_TABLES = 4_096  # whose directories a process remembers
_BYTES_BESIDES = 500  # the memory of an entry without its content


def _size_of(document: tuple[str, bytes]) -> int:
    return _BYTES_BESIDES + len(document[1])


_cached: "LRUCache[tuple[FileIO, str], tuple[str, bytes]]" = LRUCache(
    KEPT_BYTES, getsizeof=_size_of
)
_directories: "LRUCache[FileIO, frozenset[str]]" = LRUCache(_TABLES)
_lock = threading.Lock()


class KeptDocuments:
    """The cached documents of one storage, shared by all handles of the process. Any thread may use it."""

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io

    def keep(self, path: str, tag: str | None, content: bytes) -> None:
        """Cache a document; one without a tag, or a large one, is not cached."""
        with _lock:
            if tag is None or len(content) > _DOCUMENT_BYTES:
                _cached.pop((self._file_io, path), None)
            else:
                _cached[self._file_io, path] = tag, content

    def holds(self, path: str) -> bool:
        """Whether some content of a document is cached."""
        with _lock:
            return (self._file_io, path) in _cached

    def find(self, path: str, tag: str | None) -> bytes | None:
        """Return the content with this tag, if it is cached."""
        with _lock:
            cached_tag, content = _cached.get((self._file_io, path), (None, b""))
        return content if cached_tag is not None and cached_tag == tag else None

    def keep_directories(self, directories: Iterable[str]) -> None:
        """Remember the existing directories: the next round lists them right away."""
        with _lock:
            _directories[self._file_io] = frozenset(directories)

    def directories(self) -> frozenset[str]:
        """Return the directories that existed in the last round."""
        with _lock:
            return _directories.get(self._file_io, frozenset())


def forget_documents() -> None:
    """Clear the cache, as in a new process."""
    with _lock:
        _cached.clear()
        _directories.clear()


# -- A batched snapshot of an object store ---------------------------------------------------------
#
# Directories of small documents, listed and read concurrently.
#
# It is for maintenance, which reads dozens of documents one after the other, each by a round
# trip.

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
        likely = {*directories[:1], *documents.directories()}.intersection(directories)
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


# -- Probe of conditional creates ------------------------------------------------------------------
#
# Some servers ignore the condition, others look first and write then: on both, commits are lost
# without an error. So the first write of a process to a warehouse looks for a marker, and,
# without one of this endpoint, lets many create one name at once, in several rounds: two
# creates one after the other would not find the second kind.

MARKER = ".lsm-conditional-create"
ROUNDS = 8
WRITERS = 16
_START_SECONDS = 60


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
        """Run calls in threads that start together."""
        ready = list(acts)
        start = Barrier(len(ready))

        def act(task: Callable[[], bool | None]) -> bool | None:
            start.wait(timeout=_START_SECONDS)
            return task()

        return list(at_once(act, ready, width=len(ready)))


def require_one_winner(store: ProbedWarehouse, probe_id: str) -> None:
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


def is_marked(store: ProbedWarehouse) -> bool:
    """Whether an earlier probe found this endpoint to keep the condition."""
    try:
        marker = json.loads(store.read(MARKER))
    except (NotFoundError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("endpoint") == store.endpoint


def _run_round(store: ProbedWarehouse, name: str) -> None:
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


# -- FileIO over an object store -------------------------------------------------------------------

_DELETED_AT_ONCE = 1000
_LISTED_AT_ONCE = 1000
_COALESCED_BYTES = 512 << 10
_PARTS_UNDER_WAY = 2


_RULE = "give the bucket a lifecycle rule that aborts incomplete uploads"


class ListedUploads(RemoteFileIO, UploadsInParts):
    """The uploads in parts of an object store, by boto3."""

    _requests: Requests

    def unfinished_uploads(self, directory: str) -> Sequence[UnfinishedUpload]:
        """Return uploads below a directory that are not completed, from pages of 1,000.

        Raises UnsupportedError on Google's store and without boto3, StorageError where a policy lacks
        s3:ListBucketMultipartUploads.
        """
        if self.location.scheme in GCS.schemes:
            raise UnsupportedError(f"uploads are not listed on this store: {_RULE}")
        if self.location.scheme not in S3.schemes:
            return ()
        start = self.location.at(check_path(directory)) if directory else self.location.prefix
        prefix = f"{start}/" if start else ""
        client = _client(self.location, self.options, self._requests.clients.endpoint)

        def pages() -> list[Any]:
            paginator = client.get_paginator("list_multipart_uploads")
            return list(paginator.paginate(Bucket=self.location.authority, Prefix=prefix))

        above = f"{self.location.prefix}/" if self.location.prefix else ""
        return [
            UnfinishedUpload(
                path=upload["Key"].removeprefix(above),
                upload_id=upload["UploadId"],
                begun_millis=int(upload["Initiated"].timestamp() * 1000),
            )
            for page in _answered(pages, self.location, "list uploads")
            for upload in page.get("Uploads", ())
        ]

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Abort uploads and delete their parts. An upload that has ended meanwhile is no error."""
        listed = list(uploads)
        if not listed:
            return
        client = _client(self.location, self.options, self._requests.clients.endpoint)

        def abort(upload: UnfinishedUpload) -> None:
            key = self.location.at(check_path(upload.path))
            _answered(
                lambda: client.abort_multipart_upload(
                    Bucket=self.location.authority, Key=key, UploadId=upload.upload_id
                ),
                self.location,
                "abort upload",
            )

        for _ in at_once(abort, listed):
            pass


def _client(location: StorageLocation, options: StorageOptions, address: str) -> Any:
    """Return boto3's client of the store at `address`."""
    try:
        boto3, configuration = import_module("boto3"), import_module("botocore.config")
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            f"uploads are listed by boto3: pip install 'lsm-assets[aws]', or {_RULE}"
        ) from cause
    settings = options.settings(S3)
    if s3_shown(settings) != address:
        raise InvalidOptionError(
            "the environment names another store than when this was opened; open it again",
            location=location.text,
        )
    endpoint, is_path_style = s3_address(settings)
    config = configuration.Config(
        s3={"addressing_style": "path" if is_path_style else "virtual"},
        retries={"mode": "standard", "total_max_attempts": 8},
        connect_timeout=5,
    )

    def make() -> Any:
        session = boto3.Session(
            aws_access_key_id=settings.get("access_key"),
            aws_secret_access_key=settings.get("secret_key"),
            aws_session_token=settings.get("session_token"),
            region_name=settings.get("region"),
            profile_name=settings.get("profile"),
        )
        return session.client("s3", endpoint_url=endpoint or None, config=config)

    return _answered(make, location, "configure")


def _answered(act: Any, location: StorageLocation, doing: str) -> Any:
    """Return the result of a call of boto3. Only code and class of its errors are shown: texts may hold secrets."""
    exceptions = import_module("botocore.exceptions")
    try:
        return act()
    except exceptions.ClientError as cause:
        code = str(cause.response.get("Error", {}).get("Code", ""))
        if code == "NoSuchUpload":
            return None
        raise StorageError(
            "the store refuses this: grant s3:ListBucketMultipartUploads on the bucket and "
            "s3:AbortMultipartUpload on its objects",
            store=location.text, request=doing, code=code,
        ) from None  # fmt: skip
    except exceptions.BotoCoreError as cause:
        raise StorageError(
            "boto3 found no way to ask the store; check region and credentials",
            store=location.text, request=doing, code=type(cause).__name__,
        ) from None  # fmt: skip


_BYTES_UNDER_WAY = 64 << 20
_REMEMBERED = 100_000
_REMEMBERED_MILLIS = 600_000
"""How long a written file is trusted to exist: orphan removal spares files for a day at least."""


class WrittenFiles:
    """Files that this process writes or has written, by path. Any thread may use it."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[None]] = {}
        self._bytes = 0
        self._at: OrderedDict[str, int] = OrderedDict()
        self._clock = clock

    def begin(self, write: Callable[[str, bytes], None], path: str, data: bytes) -> None:
        """Begin to write a file; waits while too many bytes are under way."""

        def act(data: bytes) -> None:
            try:
                write(path, data)
            finally:
                with self._lock:
                    self._bytes -= len(data)

        with self._lock:
            self._bytes += len(data)
            waits = [] if self._bytes <= _BYTES_UNDER_WAY else list(self._under_way.values())
        wait(waits)
        begun = begin(act, data)
        with self._lock:
            self._under_way[path] = begun

    def remember(self, path: str) -> None:
        """Remember that a file was written now."""
        with self._lock:
            self._at[path] = self._clock.now_millis()
            while len(self._at) > _REMEMBERED:
                self._at.popitem(last=False)

    def forget(self, paths: Iterable[str]) -> None:
        """Wait for the writes of files that will be deleted, whatever their outcome."""
        for path in paths:
            with self._lock:
                self._at.pop(path, None)
                begun = self._under_way.pop(path, None)
            if begun is not None:
                wait([begun])

    def await_file(self, path: str) -> None:
        """Wait for the write of a file that will be read; raises the error of the write."""
        begun = self._under_way.get(path)
        if begun is not None:
            begun.result()

    def await_all(self) -> None:
        """Wait for all writes. A use of the file raises the error of its write."""
        with self._lock:
            begun = list(self._under_way.values())
        wait(begun)

    def unknown(self, paths: Iterable[str]) -> list[str]:
        """Wait for writes of files, and return the files whose existence has to be checked.

        Raises the first error of these writes.
        """
        unconfirmed = []
        failure: LsmError | None = None
        for path in paths:
            with self._lock:
                begun = self._under_way.pop(path, None)
            if begun is not None:
                try:
                    begun.result()
                except LsmError as error:
                    failure = failure or error
            with self._lock:
                written_millis = self._at.get(path)
            if (
                written_millis is None
                or not 0 <= self._clock.now_millis() - written_millis < _REMEMBERED_MILLIS
            ):
                unconfirmed.append(path)
        if failure is not None:
            raise failure
        return unconfirmed


class FilesUnderWay:
    """The prefetched files and the pending writes of a store."""

    def __init__(self, clock: Clock) -> None:
        self.prefetched = Prefetched(clock)
        self.written = WrittenFiles(clock)


def open_store(location: StorageLocation, options: StorageOptions = NO_OPTIONS) -> "ObjectFileIO":
    """Return storage at a location in a bucket or container."""
    return ObjectFileIO(location, options)


class ObjectFileIO(ListedUploads, Batching):
    """Files below a location. Any thread may use it."""

    facts = StoreFacts(lists_are_consistent=True, has_directories=False, is_remote=True)

    def __init__(
        self,
        location: StorageLocation,
        options: StorageOptions = NO_OPTIONS,
        *,
        requests: Requests | None = None,
        files: FilesUnderWay | None = None,
        gathered: Gathered | None = None,
        writes_behind: bool = False,
    ) -> None:
        self._requests = Requests(location, options) if requests is None else requests
        super().__init__(location, options, self._requests.environment)
        files = FilesUnderWay(self._requests.clock) if files is None else files
        self._prefetched, self._written = files.prefetched, files.written
        self._gathered = gathered
        self._writes_behind = writes_behind
        self._like = partial(ObjectFileIO, location, options, requests=self._requests, files=files)

    def writing_behind(self) -> "ObjectFileIO":
        """Return this storage with write-behind: closing the output of a small file does not wait."""
        look_for_proof(self._requests, self._probed)
        return self._like(writes_behind=True)

    def gathered(
        self, directories: Sequence[str], paths: Iterable[str] = (), *, below: str | None = None
    ) -> "ObjectFileIO":
        """Return this storage with a batched snapshot of some directories of small documents."""
        documents = self._documents
        snapshot = Gathered(
            self.list, self._read_document, documents, directories, paths, below=below
        )
        return self._like(gathered=snapshot)

    def _fetch(self, path: str) -> bytes:
        return self._direct.read(path)

    def _read_document(self, path: str) -> bytes:
        key = self._key(path)
        data, tag = self._requests.send("GET", path, lambda client: read_tagged(client, key))
        self._documents.keep(path, tag, data)
        return data

    @property
    def _documents(self) -> KeptDocuments:
        return KeptDocuments(self._direct)

    # Reading.

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`, by one request."""
        key = self._key(path)
        self._written.await_file(path)
        gathered = None if self._gathered is None else self._gathered.read(path)
        ahead = gathered or self._prefetched.take(path)
        if ahead is not None:
            return part_of(ahead.result(), offset, length)
        if offset:
            end = None if length is None else offset + length
            return bytes(self._range(path, key, offset, end))
        return self._requests.send("GET", path, lambda client: read_start(client, key, length))

    def _range(self, path: str, key: str, start: int, end: int | None) -> Any:
        """Return the bytes from `start` to `end`; fewer where the file ends."""
        if end is not None and end <= start:
            return b""
        byte_range = {"offset": start} if end is None else (start, end)

        def get(client: Any) -> Any:
            try:
                return obstore.get(client, key, options={"range": byte_range}).bytes()
            except FAILURES as cause:
                if answer_of(cause) is Answer.OUT_OF_RANGE:
                    return b""
                raise

        return self._requests.send("GET", path, get)

    def _ranges(self, path: str, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Any]:
        """Return some ranges of a file, none of them empty, concurrently; small gaps between them are read along."""

        def get(client: Any) -> Sequence[Any]:
            starts, lengths = zip(*ranges, strict=True)
            ranges_read: Sequence[Any] = obstore.get_ranges(
                client, key, starts=starts, lengths=lengths, coalesce=_COALESCED_BYTES
            )
            return ranges_read

        return self._requests.send("GET", path, get)

    def open_input(self, path: str, *, size: int | None = None) -> ObjectInput:
        """Open a file. A small file is fetched whole, a large one by its reads."""
        key = self._key(path)
        self._written.await_file(path)
        ahead = self._prefetched.take(path)
        if ahead is not None:
            return ObjectInput.whole(ahead.result())
        if size is None:
            size = self.status(path).size
        if size <= WHOLE_BYTES:
            data = self._requests.send("GET", path, lambda client: obstore.get(client, key).bytes())
            return ObjectInput.whole(data)
        return ObjectInput(
            lambda start, count: self._range(path, key, start, start + count),
            size,
            fetch_many=partial(self._ranges, path, key),
        )

    def forget_gathered(self, paths: Iterable[str]) -> None:
        """Drop the batched documents of some files."""
        self._forget(*paths)

    def status(self, path: str) -> FileStatus:
        """Return size and time."""
        key = self._key(path)
        self._written.await_file(path)
        if self._gathered is not None and (gathered := self._gathered.status(path)) is not None:
            return gathered
        meta = self._requests.send("HEAD", path, lambda client: obstore.head(client, key))
        return status_of(path, meta)

    def list(self, directory: str) -> list[FileStatus]:
        """Return objects and common prefixes below a directory, by name."""
        if self._gathered is not None and (gathered := self._gathered.list(directory)) is not None:
            return gathered
        key = self._listed(directory)
        listing = self._requests.send(
            "LIST", directory, lambda client: obstore.list_with_delimiter(client, key or None)
        )
        return entries_of(listing, key, self._path)

    def list_files(self, directory: str) -> Iterator[FileStatus]:
        """Yield every object below a directory, from pages that follow each other."""
        key = self._listed(directory)
        last: str | None = None
        pages: Any = None

        def page(client: Any) -> Any:
            nonlocal pages
            if pages is None:  # after a failure the listing goes on behind the last key
                pages = obstore.list(client, key or None, offset=last, chunk_size=_LISTED_AT_ONCE)
            try:
                return next(pages, None)
            except FAILURES:
                pages = None
                raise

        while (entries := self._requests.send("LIST", directory, page)) is not None:
            for entry in entries:
                if entry["path"] != key:
                    yield status_of(self._path(entry["path"]), entry)
            last = max((entry["path"] for entry in entries), default=last)

    # Writing.

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file. A lost answer is retried: no other writer uses the name."""
        self._requests.send("PUT", path, partial(put_object, key=self._key(path), data=data))
        self._was_changed(path)

    def open_output(self, path: str) -> ObjectOutput:
        """Start a new file: one PUT, or an upload in parts from 8 MB on."""
        key = self._key(path)

        def upload(parts: Iterator[bytes], size: Callable[[], int]) -> None:
            try:
                obstore.put(
                    self._requests.clients.patient,
                    key,
                    parts,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=_PARTS_UNDER_WAY,
                )
            except FAILURES as cause:
                # The reply to the last request may be lost, and a repeated one finds no upload.
                if not self._is_complete(path, size()):
                    store = self.location.text
                    raise to_error(path, cause, doing="upload", store=store) from None
            self._was_changed(path)

        write = partial(self.write_new, path)
        behind = partial(self._written.begin, self.write_new, path)
        return ObjectOutput(behind if self._writes_behind else write, upload)

    def _is_complete(self, path: str, size: int) -> bool:
        with suppress(LsmError):
            return self.status(path).size == size
        return False

    def publish(self, path: str, data: bytes) -> bool:
        """Create a file by a conditional PUT, on a store that applies the condition."""
        check_path(path)
        require_proof(self._requests, self._probed)
        return self.create_unproven(path, data)

    def create_unproven(self, path: str, data: bytes) -> bool:
        """Create a file by a conditional PUT without a check of the store: for the probe."""
        key = self._key(path)
        self._forget(path)

        def act(client: Any) -> None:
            self._documents.keep(path, put_object(client, key, data, mode="create"), data)

        return self._requests.create(path, act, partial(self.exists, path))

    def _probed(self) -> ProbedWarehouse:
        above = self._requests.for_location(self.location.above(self.location.warehouse))
        file_io = ObjectFileIO(above.location, self.options, requests=above)
        return ProbedWarehouse(file_io, file_io.create_unproven, self._requests.clients.endpoint)

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        """Overwrite. `may_skip`: give it up where the store throttles writes to one name."""
        key = self._key(path)
        tag = self._requests.send(
            "PUT", path, lambda client: put_object(client, key, data, note=note), waits=not may_skip
        )
        self._documents.keep(path, tag, data)
        self._was_changed(path)

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        """Change a file below a lock file, its content by a PUT under the tag of what was read."""
        with changing(self._direct, self._requests, path, self._forget) as name:
            return name.change(data, expected)

    @property
    def _direct(self) -> "ObjectFileIO":
        return ObjectFileIO(self.location, self.options, requests=self._requests)

    def delete(self, path: str) -> bool:
        """Remove one file. Several concurrent callers may all get True."""
        if not self.exists(path):
            return False
        self.delete_many([path])
        return True

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete files in batches; missing ones are no error."""
        settle()
        checked = [check_path(path) for path in paths]
        self._written.forget(checked)
        self._forget(*checked)
        keys = map(self.location.at, checked)
        while batch := list(islice(keys, _DELETED_AT_ONCE)):
            self._delete_batch(batch)

    def _delete_batch(self, keys: Sequence[str]) -> None:
        path = self._path(keys[0])
        try:
            self._requests.send("DELETE", path, lambda client: delete_objects(client, keys))
        except LsmError:
            if len(keys) == 1:
                raise
            # The store has no batches, or one object cannot be deleted: single requests find it.
            for _ in at_once(lambda key: self._delete_batch([key]), keys):
                pass

    def remove_empty_directory(self, directory: str) -> bool:
        """Do nothing: a directory exists as long as it holds a file."""
        check_path(directory)
        return True

    def sync(self, paths: Iterable[str]) -> None:
        """Check concurrently that files exist. Files that this process has just written are known to."""
        unconfirmed = self._written.unknown([check_path(path) for path in paths])
        for _ in at_once(self.status, unconfirmed):
            pass

    now_millis = OneByOne.now_millis

    def _was_changed(self, path: str) -> None:
        self._written.remember(path)
        self._forget(path)

    def _forget(self, *paths: str) -> None:
        self._prefetched.forget(paths)
        if self._gathered is not None:
            self._gathered.forget(paths)

    # Names.

    def _listed(self, directory: str) -> str:
        settle()
        self._written.await_all()
        return self._key(directory) if directory else self.location.prefix

    def _key(self, path: str) -> str:
        return self.location.at(check_path(path))

    def _path(self, key: str) -> str:
        prefix = self.location.prefix
        return key[len(prefix) + 1 :] if prefix else key


@record
class Version:
    """A version of an object: its content, and the store's names of the version."""

    data: bytes
    mode: dict[str, str]


@contextmanager
def changing(
    file_io: FileIO, requests: Requests, path: str, forget: Callable[[str], None]
) -> "Iterator[ObjectName]":
    """Hold the lock of an object for a conditional change; `forget` drops what was read of it before."""
    locks = LockFiles(
        file_io=file_io, create=file_io.publish, clock=requests.clock, ids=requests.ids
    )
    with locks.hold_lock(check_path(path)) as hold:
        try:
            yield ObjectName(requests, path, hold)
        finally:
            forget(path)


class ObjectName:
    """One object for conditional changes, while its lock is held."""

    def __init__(self, requests: Requests, path: str, hold: Hold) -> None:
        self._requests = requests
        self._path = path
        self._key = requests.location.at(path)
        self._hold = hold

    def change(self, data: bytes | None, expected: bytes) -> bool:
        """Return whether this replaced the content `expected`, or deleted the object (`data` None)."""
        version = self._version()
        if version is None or version.data != expected:
            return False

        def act(client: Any) -> None:
            self._hold.require_time()
            if data is None:
                obstore.delete(client, self._key)
                return
            try:
                put_object(client, self._key, data, version.mode)
            except FAILURES as cause:
                if answer_of(cause) is not Answer.UNSUPPORTED:
                    raise
                # The store has no such condition: the lock alone decides.
                put_object(client, self._key, data)

        doing = "DELETE" if data is None else "PUT"
        return self._requests.change(doing, self._path, act, lambda: self._outcome(data, expected))

    def _outcome(self, data: bytes | None, expected: bytes) -> Outcome:
        """Return the outcome of a change by the current content: only the holder of the lock changes it."""
        version = self._version()
        content = None if version is None else version.data
        if content == expected:
            return Outcome.UNCHANGED
        # A creator of the file does not wait for the lock.
        return Outcome.DONE if content == data or data is None else Outcome.LOST

    def _version(self) -> Version | None:
        """Return the current version of the object; None if it does not exist."""
        try:
            return self._requests.send("GET", self._path, self._read)
        except NotFoundError:
            return None

    def _read(self, client: Any) -> Version:
        answer = obstore.get(client, self._key)
        # A store numbers versions, or tags them, or both.
        names = ("e_tag", "version")
        mode = {name: str(answer.meta[name]) for name in names if answer.meta.get(name)}
        return Version(data=bytes(answer.bytes()), mode=mode)


_proving = threading.Lock()


def look_for_proof(requests: Requests, probed: Callable[[], ProbedWarehouse]) -> None:
    """Start a look for the marker of a warehouse, once; `probed` opens the warehouse."""
    clients, warehouse = requests.clients, requests.location.warehouse
    with _proving:
        if warehouse not in clients.proven and warehouse not in clients.looked_for:
            clients.looked_for[warehouse] = begin(_look, (clients, warehouse, probed))


def _look(arguments: tuple[Clients, str, Callable[[], ProbedWarehouse]]) -> None:
    clients, warehouse, probed = arguments
    with suppress(LsmError):  # the next create raises it
        if is_marked(probed()):
            clients.proven.add(warehouse)


def require_proof(requests: Requests, probed: Callable[[], ProbedWarehouse]) -> None:
    """Return once a warehouse is known to apply conditional creates; raises as `require_one_winner`."""
    clients, warehouse = requests.clients, requests.location.warehouse
    if warehouse in clients.proven:
        return
    looked = clients.looked_for.get(warehouse)
    if looked is not None:
        wait([looked])
    with _proving:
        if warehouse not in clients.proven:
            require_one_winner(probed(), requests.ids.new_id())
            clients.proven.add(warehouse)
