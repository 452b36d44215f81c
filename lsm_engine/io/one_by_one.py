"""The bulk calls of FileIO, for stores where many calls cost no more than one big one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from lsm_engine.base.errors import LsmError, NotFoundError
from lsm_engine.io.clock import SystemIds
from lsm_engine.io.file_io import FileIO, FileStatus, StoreFacts
from lsm_engine.io.together import behind
from lsm_engine.meta.unfinished_upload import UnfinishedUpload


class OneByOne:
    """Mix it into a FileIO with directories: its bulk calls become plain ones, in the order asked."""

    facts = StoreFacts()

    def read_many(
        self: FileIO, paths: Iterable[str], length: int | None = None
    ) -> Iterator[tuple[str, bytes | None]]:
        """Read each file once it is asked for."""
        for path in paths:
            try:
                data = self.read(path, length=length)
            except NotFoundError:
                yield path, None
            else:
                yield path, data

    def read_ranges(
        self: FileIO, path: str, ranges: Sequence[tuple[int, int]], *, size: int | None = None
    ) -> list[bytes]:
        """Read one range after another."""
        return [self.read(path, offset, length) for offset, length in ranges]

    def write_many(self: FileIO, files: Mapping[str, bytes]) -> None:
        """Write one file after another."""
        written: list[str] = []
        try:
            for path, data in files.items():
                self.write_new(path, data)
                written.append(path)
        except LsmError:
            self.delete_many(written)
            raise

    def delete_many(self: FileIO, paths: Iterable[str]) -> None:
        """Delete one file after another."""
        failure: LsmError | None = None
        for path in paths:
            try:
                self.delete(path)
            except LsmError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def writing_behind(self: FileIO) -> FileIO:
        """Return the same storage: a file is there once it is closed."""
        return self

    def gathered(
        self: FileIO, _: Sequence[str], __: Iterable[str] = (), *, below: str | None = None
    ) -> FileIO:
        """Return the same storage: asking for each file costs nothing."""
        return self

    def forget_gathered(self, _: Iterable[str]) -> None:
        """Do nothing: nothing is gathered."""

    def list_files(self: FileIO, directory: str) -> Iterator[FileStatus]:
        """List one directory after another."""
        for status in self.list(directory):
            if status.is_directory:
                yield from self.list_files(status.path)
            else:
                yield status

    def unfinished_uploads(self: FileIO, _: str) -> Sequence[UnfinishedUpload]:
        """Return none: what is being written is a file."""
        return ()

    def abort_uploads(self: FileIO, _: Iterable[UnfinishedUpload]) -> None:
        """Do nothing: there are none."""

    def sync_directory(self: FileIO, directory: str) -> None:
        """Wait for the disk."""
        self.sync([directory])

    def now_millis(self: FileIO) -> int:
        """Return the stamp of a file made for it."""
        path = f".clock.{SystemIds().new_id()}.tmp"
        self.write_new(path, b"")
        try:
            return self.status(path).modified_millis
        finally:
            behind(self, partial(_delete_quietly, self, path))


def _delete_quietly(file_io: FileIO, path: str) -> None:
    with suppress(LsmError):  # the file is temporary: who removes orphans finds it
        file_io.delete_many([path])
