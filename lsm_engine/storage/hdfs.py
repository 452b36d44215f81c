"""FileIO over HDFS: a store with directories. Every call is a request to the NameNode.

`publish` renames a finished temporary file without overwriting: the NameNode gives the name to one of any
number of writers. Creating the name itself has one winner too, but readers would see the file before its
bytes. Temporary files are `.<name>.<id>.tmp` in the directory of their target, as on a disk."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hdfs_native import Client, WriteOptions

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.storage.bulk import OneByOne, Prefetched
from lsm_engine.storage.clock import SystemClock, SystemIds
from lsm_engine.storage.executor import at_once
from lsm_engine.storage.file_io import FileStatus, StoreFacts, check_path
from lsm_engine.storage.location import StorageLocation
from lsm_engine.storage.locks import Hold, LockFiles
from lsm_engine.storage.object_input import WHOLE_BYTES, ObjectInput
from lsm_engine.storage.options import (
    HDFS,
    HDFS_CONFIGURATION,
    NO_OPTIONS,
    StorageOptions,
    environment_mark,
)
from lsm_engine.storage.remote import RemoteFileIO, SharedClients

# -- Clients of HDFS, made by hdfs-native from a location and storage options ----------------------
#
# And its failures as errors.
#
# The library speaks the protocol itself: no Java. It reads core-site.xml and hdfs-site.xml of
# the directory that the option `hadoop-conf-dir` or HADOOP_CONF_DIR names, moves to the active
# NameNode, and logs in as HADOOP_USER_NAME or by Kerberos.

FAILURES = (OSError, RuntimeError, ValueError)
"""Exceptions of the library."""

# The library has no class for most answers: it shows the Java class of the NameNode's.
_ANSWER = re.compile(
    r'RPCError\("(?:[A-Za-z0-9_$]+\.)*([A-Za-z0-9_$]+)", "(.*?)(?:\\n|"\)|$)', re.S
)
_REMEDIES = {
    "ParentNotDirectoryException": "a file is where a directory should be; move it away",
    "InvalidPathException": "HDFS has no such names: they hold no ':'",
    "AccessControlException": "HDFS refuses this to the user; give it access, or log in as another "
    "(HADOOP_USER_NAME, Kerberos)",
    "SafeModeException": "the NameNode is in safe mode; try again once it has left it",
    "DSQuotaExceededException": "the directory's quota of bytes is used up; free space, then retry",
    "NSQuotaExceededException": "the directory's quota of names is used up; delete some, then retry",
    "StandbyException": "no NameNode is active; try again later",
}


def _client(location: StorageLocation, options: StorageOptions) -> Any:
    settings = options.settings(HDFS)
    configuration = {
        name.removeprefix(HDFS_CONFIGURATION): text
        for name, text in settings.items()
        if name.startswith(HDFS_CONFIGURATION)
    }
    # Without an authority the cluster is that of fs.defaultFS.
    url = f"{location.scheme}://{location.authority}" if location.authority else None
    try:
        return Client(
            url,
            configuration or None,
            settings.get("config_dir"),
            kerberos_principal=settings.get("principal"),
            kerberos_keytab=settings.get("keytab"),
        )
    except FAILURES as cause:
        raise InvalidOptionError(
            f"no client of HDFS can be made: {_reason(cause)}; the location names a NameNode, or a "
            "name service of the configuration (hadoop-conf-dir, HADOOP_CONF_DIR)",
            location=location.text,
        ) from cause


shared = SharedClients(_client)


@contextmanager
def naming_path(path: str, store: str) -> Iterator[None]:
    """Raise exceptions of the library as errors that name the path and the store."""
    try:
        yield
    except LsmError:  # some are errors of Python's kinds, too
        raise
    except FAILURES as cause:
        raise to_error(path, cause, store=store) from cause


def to_error(path: str, cause: Exception, *, store: str) -> LsmError:
    """Return the error to raise, `from cause`."""
    if isinstance(cause, FileNotFoundError) and "is not a file" not in str(cause):
        return NotFoundError("no such file", path=path, store=store)
    if isinstance(cause, FileExistsError):
        return AlreadyExistsError(
            "a file is already there; nothing was changed", path=path, store=store
        )
    name = "AccessControlException" if isinstance(cause, PermissionError) else answer_of(cause)
    if name is None and not isinstance(cause, FileNotFoundError):
        text = f"HDFS cannot be reached, or did not answer ({_reason(cause)}); try again later"
        return StorageError(text, path=path, store=store)
    text = _REMEDIES.get(name or "", f"HDFS refused this: {_reason(cause)}")
    return StorageError(text, path=path, store=store, answer=name)


def answer_of(cause: Exception) -> str | None:
    """Return the class of the NameNode's answer; None without an answer: the outcome is unknown."""
    match = _ANSWER.search(str(cause))
    return None if match is None else match.group(1)


def _reason(cause: Exception) -> str:
    match = _ANSWER.search(str(cause))
    text = str(cause) if match is None else match.group(2)
    return (text.strip() or type(cause).__name__).partition("\n")[0][:300]


# -- FileIO over HDFS ------------------------------------------------------------------------------


def open_store(location: StorageLocation, options: StorageOptions = NO_OPTIONS) -> "HdfsFileIO":
    """Return storage at a directory of a cluster."""
    return HdfsFileIO(location, options)


def move_directory(
    source: StorageLocation, target: StorageLocation, options: StorageOptions
) -> None:
    """Rename a directory on the same cluster; a missing source is no error.

    Raises AlreadyExistsError, with nothing changed, if the target exists.
    """
    client = shared.client_of(target, options, environment_mark(target.scheme))
    with naming_path(target.prefix, target.text):
        client.mkdirs(f"/{target.prefix.rpartition('/')[0]}", create_parent=True)
        with contextlib.suppress(FileNotFoundError):
            client.rename(f"/{source.prefix}", f"/{target.prefix}", overwrite=False)


class HdfsFileIO(RemoteFileIO, OneByOne):
    """Files below a directory. Any thread may use it."""

    facts = StoreFacts(lists_are_consistent=True, has_directories=True, is_remote=True)

    def __init__(self, location: StorageLocation, options: StorageOptions = NO_OPTIONS) -> None:
        super().__init__(location, options)
        self._client_made: Any = None
        self._ids = SystemIds()
        self._prefetched = Prefetched(SystemClock())

    # Reading.

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset`."""
        check_path(path)
        ahead = None if offset else self._prefetched.take(path)
        return self._fetch(path, offset, length) if ahead is None else ahead.result()[:length]

    def _fetch(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        with self._naming(path):
            return _range(self._client.read(self._real(path)), offset, length)

    def open_input(self, path: str, *, size: int | None = None) -> ObjectInput:
        """Open a file; a small one is fetched whole."""
        real = self._real(path)
        ahead = self._prefetched.take(path)
        if ahead is not None:
            return ObjectInput.whole(ahead.result())
        with self._naming(path):
            reader = self._client.read(real)
            length = len(reader)
            data = _range(reader, 0, None) if length <= WHOLE_BYTES else b""

        def fetch(start: int, count: int) -> bytes:
            with self._naming(path):
                return _range(reader, start, count)

        return ObjectInput(fetch, length, data)

    def status(self, path: str) -> FileStatus:
        """Return size, time and kind."""
        real = self._real(path)
        with self._naming(path):
            return _status(path, self._client.get_file_info(real))

    def list(self, directory: str) -> list[FileStatus]:
        """Return the entries by name."""
        real = self._real(directory) if directory else f"/{self.location.prefix}"
        with self._naming(directory):
            try:
                infos = list(self._client.list_status(real))
            except FileNotFoundError:
                return []
        if len(infos) == 1 and infos[0].path == real:
            raise StorageError(
                "a file is where a directory should be; move it away",
                path=directory,
                store=self.location.text,
            )
        names = [(info.path.rpartition("/")[2], info) for info in infos]
        before = f"{directory}/" if directory else ""
        return [
            _status(before + name, info) for name, info in sorted(names, key=lambda pair: pair[0])
        ]

    # Writing.

    def write_new(self, path: str, data: bytes) -> None:
        """Write a new file; a failed attempt leaves nothing behind if it can help it."""
        output = self.open_output(path)
        try:
            output.write(data)
            output.close()
        except LsmError:
            output.abort()
            raise

    def open_output(self, path: str) -> "HdfsOutput":
        """Start a new file."""
        real = self._real(path)
        self._forget(path)
        with self._naming(path):
            writer = self._client.create(real, WriteOptions(overwrite=False, create_parent=True))
        return HdfsOutput(self, path, writer)

    def publish(self, path: str, data: bytes) -> bool:
        """Create `path` atomically by renaming a finished temporary file, unless it exists."""
        temporary = self._temporary(path)
        self._forget(path)
        self.write_new(temporary, data)
        try:
            self._client.rename(self._real(temporary), self._real(path), overwrite=False)
        except FAILURES as cause:
            # After a lost answer the library sends the request again, and its own first request makes the
            # second one fail. Then the temporary file, whose name no other process knows, no longer exists,
            # and the outcome is unknown.
            refused = isinstance(cause, FileExistsError | FileNotFoundError) or answer_of(cause)
            if not (refused and self._is_known_there(temporary)):
                raise self._unknown(path, "renamed") from cause
            self._delete_quietly(temporary)
            if isinstance(cause, FileExistsError):
                return False
            raise to_error(path, cause, store=self.location.text) from cause
        return True

    def _is_known_there(self, path: str) -> bool:
        try:
            return self.exists(path)
        except LsmError:
            return False

    def replace(self, path: str, data: bytes, *, may_skip: bool = False, note: str = "") -> None:
        """Overwrite atomically by renaming a finished temporary file."""
        temporary = self._temporary(path)
        self._forget(path)
        self.write_new(temporary, data)
        try:
            with self._naming(path):
                self._client.rename(self._real(temporary), self._real(path), overwrite=True)
        except LsmError:
            self._delete_quietly(temporary)
            raise

    def change_if_unchanged(self, path: str, data: bytes | None, *, expected: bytes) -> bool:
        """Change a file below a lock file."""
        check_path(path)
        with self._locks.hold_lock(path) as hold:
            if not self._is(path, expected):
                return False
            if data is None:
                self._delete_held(path, hold)
            else:
                self._replace_held(path, data, hold)
            return True

    def _replace_held(self, path: str, data: bytes, hold: Hold) -> None:
        """Replace a file, whose lock is held, by renaming a finished temporary file."""
        temporary = self._temporary(path)
        self.write_new(temporary, data)
        try:
            hold.require_time()
            self._forget(path)
            self._client.rename(self._real(temporary), self._real(path), overwrite=True)
        except FAILURES as cause:
            # Once this has deleted the temporary file a request whose answer was lost cannot rename it any more.
            if self._is_deleted(temporary):
                raise to_error(path, cause, store=self.location.text) from cause
            if not self._is_known_to_hold(path, data):
                raise self._unknown(path, "renamed") from cause
        except LsmError:
            self._delete_quietly(temporary)
            raise

    def _delete_held(self, path: str, hold: Hold) -> None:
        """Delete a file whose lock is held."""
        hold.require_time()
        self._forget(path)
        try:
            self._client.delete(self._real(path), recursive=False)
        except FAILURES as cause:
            if answer_of(cause) is not None:
                raise to_error(path, cause, store=self.location.text) from cause
            raise self._unknown(path, "deleted") from cause

    @property
    def _locks(self) -> LockFiles:
        return LockFiles(file_io=self, create=self.publish, clock=SystemClock(), ids=self._ids)

    def _is(self, path: str, content: bytes) -> bool:
        try:
            return self._fetch(path) == content
        except NotFoundError:
            return False

    def _is_known_to_hold(self, path: str, content: bytes) -> bool:
        try:
            return self._is(path, content)
        except LsmError:
            return False

    def _is_deleted(self, path: str) -> bool:
        """Whether a file was there, and this call has deleted it."""
        try:
            return self.delete(path)
        except LsmError:
            return False

    def _delete_quietly(self, path: str) -> None:
        with contextlib.suppress(LsmError):  # a leftover is an orphan file
            self.delete(path)

    def _unknown(self, path: str, done: str) -> CommitUnknownError:
        return CommitUnknownError(
            f"HDFS did not report whether the file was {done}; look before trying again",
            path=path,
            store=self.location.text,
        )

    def delete(self, path: str) -> bool:
        """Remove one file."""
        try:
            if self.status(path).is_directory:
                raise StorageError(
                    "a directory is where a file should be; move it away",
                    path=path,
                    store=self.location.text,
                )
        except NotFoundError:
            return False
        self._forget(path)
        with self._naming(path):
            return bool(self._client.delete(self._real(path), recursive=False))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove files concurrently."""

        def delete(path: str) -> LsmError | None:
            try:
                self.delete(path)
            except LsmError as error:
                return error
            return None

        failures = [error for error in at_once(delete, paths) if error is not None]
        if failures:
            raise failures[0]

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory if nothing is in it."""
        real = self._real(directory)
        with contextlib.suppress(*FAILURES):
            if self._client.get_file_info(real).isdir:
                return bool(self._client.delete(real, recursive=False))
        return False

    def sync(self, paths: Iterable[str]) -> None:
        """Check that each file exists, concurrently: a closed file is on its DataNodes."""
        for _ in at_once(self.status, [check_path(path) for path in paths]):
            pass

    def now_millis(self) -> int:
        """Return the NameNode's time: the stamp of a directory made for it, as a file would take longer."""
        path = self._temporary("clock")
        real = self._real(path)
        with self._naming(path):
            self._client.mkdirs(real, create_parent=True)
            try:
                return int(self._client.get_file_info(real).modification_time)
            finally:
                self._client.delete(real, recursive=False)

    # Names.

    @property
    def _client(self) -> Any:
        shared.require_own_process(self.location)
        if self._client_made is None:
            self._client_made = shared.client_of(self.location, self.options, self.environment)
        return self._client_made

    def _real(self, path: str) -> str:
        return f"/{self.location.at(check_path(path))}"

    def _temporary(self, path: str) -> str:
        before, slash, name = check_path(path).rpartition("/")
        return f"{before}{slash}.{name}.{self._ids.new_id()}.tmp"

    def _naming(self, path: str) -> contextlib.AbstractContextManager[None]:
        return naming_path(path, self.location.text)

    def _forget(self, path: str) -> None:
        self._prefetched.forget([path])


class HdfsOutput:
    """One file being written."""

    def __init__(self, file_io: HdfsFileIO, path: str, writer: Any) -> None:
        self._file_io = file_io
        self._path = path
        self._writer = writer
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append bytes."""
        if self.closed:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        with self._naming():
            self._writer.write(view)
        self._written += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Nothing to do: packets are sent once they are full."""

    def close(self) -> None:
        """Finish the file."""
        if not self.closed:
            with self._naming():
                self._writer.close()
            self.closed = True

    def abort(self) -> None:
        """Close and remove the file."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(*FAILURES):
            self._writer.close()
        with contextlib.suppress(LsmError):
            self._file_io.delete(self._path)

    def _naming(self) -> contextlib.AbstractContextManager[None]:
        return naming_path(self._path, self._file_io.location.text)


def _range(reader: Any, offset: int, length: int | None) -> bytes:
    """Return bytes of a file; fewer where it ends: the library fails for a range that is not there."""
    size = len(reader)
    start = min(offset, size)
    end = size if length is None else min(start + length, size)
    return bytes(reader.read_range(start, end - start)) if end > start else b""


def _status(path: str, info: Any) -> FileStatus:
    return FileStatus(
        path=path,
        size=info.length,
        modified_millis=info.modification_time,
        is_directory=info.isdir,
    )
