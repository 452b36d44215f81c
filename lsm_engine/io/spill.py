"""Rows that do not fit in memory: private local files, deleted when their owner closes."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lsm_engine.io.local_directories import local_directories, local_directory
from lsm_engine.io.process_directory import SPILL_SUFFIX, clear, sweep_dead, take
from lsm_engine.io.storage_errors import to_storage_error

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

_PREFIX = "lsm-spill-"


def sweep_spills() -> None:
    """Remove the rows that processes which died had spilled to any of the local directories."""
    for directory in dict.fromkeys(local_directories()):
        sweep_dead(directory, _PREFIX)


class SpilledRows:
    """Batches on local disk, read back in the order they were written, any number of times."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._path is None:
            return
        with pa.OSFile(str(self._path), "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader


class SpillArea:
    """A local directory (io/local_directories) of one writer, made on first use, readable by its owner alone.

    Its `lock` is held until it is closed: by that a sweep sees that the writer lives.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._held: int | None = None
        self._count = 0

    def spill(self, batches: Iterable[pa.RecordBatch]) -> SpilledRows:
        """Write batches to a new file; raises StorageError, naming it, when the disk is full."""
        path = self._new_path()
        rows = iter(batches)
        first = next(rows, None)
        if first is None:
            return SpilledRows(None)
        try:
            with (
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_stream(sink, first.schema, options=_OPTIONS) as writer,
            ):
                for batch in chain([first], rows):
                    writer.write_batch(batch)
        except OSError as cause:
            raise to_storage_error(str(path), cause) from cause
        return SpilledRows(path)

    def close(self) -> None:
        """Remove the files; harmless when nothing was spilled or it is closed."""
        if self._directory is None:
            return
        clear(str(self._directory))
        if self._held is not None:
            os.close(self._held)
        self._directory, self._held, self._count = None, None, 0

    def _new_path(self) -> Path:
        if self._directory is None:
            # Mode 0700. It gets the name that a sweep looks for once its lock is held.
            directory = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=local_directory()))
            with contextlib.suppress(OSError):  # a disk without locks: no sweep gets one there
                self._held = take(str(directory / "lock"), fcntl.LOCK_EX)
            self._directory = directory.rename(
                directory.with_name(directory.name.removeprefix("."))
            )
        path = self._directory / f"{self._count}{SPILL_SUFFIX}"
        self._count += 1
        return path
