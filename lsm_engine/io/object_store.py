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
the bucket.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any

import obstore

from lsm_engine.base.errors import (
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from lsm_engine.base.record import record
from lsm_engine.io.clock import Clock
from lsm_engine.io.file_io import FileIO, FileStatus, StoreFacts, check_path
from lsm_engine.io.in_flight import at_once, begin
from lsm_engine.io.kept_documents import KeptDocuments
from lsm_engine.io.lock_file import Hold, LockFiles
from lsm_engine.io.object_answers import Answer, answer_of, to_error
from lsm_engine.io.object_calls import (
    delete_objects,
    entries_of,
    part_of,
    put_object,
    read_start,
    read_tagged,
    status_of,
)
from lsm_engine.io.object_clients import Clients, s3_address, s3_shown
from lsm_engine.io.object_gathered import Gathered
from lsm_engine.io.object_input import WHOLE_BYTES, ObjectInput
from lsm_engine.io.object_output import PART_BYTES, ObjectOutput
from lsm_engine.io.object_requests import FAILURES, Outcome, Requests
from lsm_engine.io.one_by_one import OneByOne
from lsm_engine.io.prefetched import Prefetched
from lsm_engine.io.publish_probe import (
    Probed,
    ProbedWarehouse,
    is_marked,
    require_one_winner,
)
from lsm_engine.io.remote_file_io import RemoteFileIO
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import NO_OPTIONS, S3, StorageOptions
from lsm_engine.io.together import settle
from lsm_engine.meta.unfinished_upload import UnfinishedUpload

_DELETED_AT_ONCE = 1000
_LISTED_AT_ONCE = 1000
_COALESCED_BYTES = 512 << 10
_PARTS_UNDER_WAY = 2


_S3 = frozenset({"s3", "s3a", "s3n"})
_GOOGLE = frozenset({"gs", "gcs"})
_RULE = "give the bucket a lifecycle rule that aborts incomplete uploads"


class UploadsInParts(RemoteFileIO):
    """The operations of an object store on uploads in parts."""

    _requests: Requests

    def unfinished_uploads(self, directory: str) -> Sequence[UnfinishedUpload]:
        """Return uploads below a directory that are not completed, from pages of 1,000.

        Raises UnsupportedError on Google's store and without boto3, StorageError where a policy lacks
        s3:ListBucketMultipartUploads.
        """
        if self.location.scheme in _GOOGLE:
            raise UnsupportedError(f"uploads are not listed on this store: {_RULE}")
        if self.location.scheme not in _S3:
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


class ObjectFileIO(UploadsInParts):
    """Files below a location. Any thread may use it."""

    facts = StoreFacts(lists_are_consistent=True, has_directories=False, is_far=True)

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

    def read_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], *, size: int | None = None
    ) -> Sequence[Any]:
        """Read ranges at once; small gaps between them are read along."""
        key = self._key(path)
        self._written.await_file(path)
        nonempty = [(start, count) for start, count in ranges if count > 0]
        if not nonempty:
            self.status(path)
            return [b""] * len(ranges)
        buffers = iter(
            self._requests.send(
                "GET",
                path,
                lambda client: obstore.get_ranges(
                    client,
                    key,
                    starts=[start for start, _ in nonempty],
                    lengths=[count for _, count in nonempty],
                    coalesce=_COALESCED_BYTES,
                ),
            )
        )
        return [next(buffers) if count > 0 else b"" for _, count in ranges]

    def open_input(self, path: str, *, size: int | None = None) -> ObjectInput:
        """Open a file. A small file is fetched whole, a large one by its reads."""
        key = self._key(path)
        self._written.await_file(path)
        ahead = self._prefetched.take(path)
        if ahead is not None:
            data: Any = ahead.result()
            return ObjectInput(lambda *_: b"", len(data), data)
        if size is None:
            size = self.status(path).size
        if size <= WHOLE_BYTES:
            data = self._requests.send("GET", path, lambda client: obstore.get(client, key).bytes())
            return ObjectInput(lambda *_: b"", len(data), data)
        return ObjectInput(
            lambda start, count: self._range(path, key, start, start + count),
            size,
            fetch_many=partial(self.read_ranges, path, size=size),
        )

    def prefetch(self, path: str) -> None:
        """Fetch a file concurrently. The next read of the whole file returns that, or raises its error."""
        if not self._prefetched.holds(path):
            self._prefetched.add(path, begin(self._direct.read, path))

    def forget_prefetched(self, paths: Iterable[str]) -> None:
        """Drop the prefetched bytes of some files."""
        self._prefetched.forget(paths)

    def forget_gathered(self, paths: Iterable[str]) -> None:
        """Drop the batched documents of some files."""
        self._forget(*paths)

    def exists(self, path: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self.status(path)
        except NotFoundError:
            return False
        return True

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

    def write_many(self, files: Mapping[str, bytes]) -> None:
        """Write files concurrently. After an error the written ones are deleted."""
        for path in files:
            check_path(path)
        try:
            for _ in at_once(lambda path: self.write_new(path, files[path]), files):
                pass
        except LsmError:
            self.delete_many(files)
            raise

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

    def replace_if_unchanged(self, path: str, data: bytes, *, expected: bytes) -> bool:
        """Replace below a lock file, by a PUT under the tag of what was read."""
        with changing(self._direct, self._requests, path, self._forget) as name:
            return name.replace(data, expected)

    def delete_if_unchanged(self, path: str, *, expected: bytes) -> bool:
        """Delete below a lock file."""
        with changing(self._direct, self._requests, path, self._forget) as name:
            return name.delete(expected)

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

    def sync_directory(self, directory: str) -> None:
        """Do nothing: an acknowledged deletion is durable."""
        check_path(directory)

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

    def replace(self, data: bytes, expected: bytes) -> bool:
        """Return whether this replaced the content `expected`."""
        version = self._version()
        if version is None or version.data != expected:
            return False

        def act(client: Any) -> None:
            self._hold.require_time()
            try:
                put_object(client, self._key, data, version.mode)
            except FAILURES as cause:
                if answer_of(cause) is not Answer.UNSUPPORTED:
                    raise
                put_object(
                    client, self._key, data
                )  # the store has no such condition: the lock alone decides

        return self._requests.change("PUT", self._path, act, lambda: self._outcome(data, expected))

    def delete(self, expected: bytes) -> bool:
        """Return whether this deleted the object with the content `expected`."""
        version = self._version()
        if version is None or version.data != expected:
            return False

        def act(client: Any) -> None:
            self._hold.require_time()
            obstore.delete(client, self._key)

        return self._requests.change(
            "DELETE", self._path, act, lambda: self._outcome(None, expected)
        )

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


def look_for_proof(requests: Requests, probed: Callable[[], Probed]) -> None:
    """Start a look for the marker of a warehouse, once; `probed` opens the warehouse."""
    clients, warehouse = requests.clients, requests.location.warehouse
    with _proving:
        if warehouse not in clients.proven and warehouse not in clients.looked_for:
            clients.looked_for[warehouse] = begin(_look, (clients, warehouse, probed))


def _look(arguments: tuple[Clients, str, Callable[[], Probed]]) -> None:
    clients, warehouse, probed = arguments
    with suppress(LsmError):  # the next create raises it
        if is_marked(probed()):
            clients.proven.add(warehouse)


def require_proof(requests: Requests, probed: Callable[[], Probed]) -> None:
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
