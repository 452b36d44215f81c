"""Rows that do not fit in memory: private local files, deleted when their owner closes."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lsm_engine.io.local_directories import local_directories, local_directory
from lsm_engine.io.storage_errors import to_storage_error

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


_PREFIX = "lsm-spill-"


def sweep_spills() -> None:
    """Remove the rows that processes which died had spilled to any of the local directories."""
    areas = (Path(directory).glob(f"{_PREFIX}*") for directory in local_directories())
    for area in set(chain.from_iterable(areas)):
        pid = area.name.removeprefix(_PREFIX).partition("-")[0]
        if area.is_symlink() or not pid.isdigit() or area.stat().st_uid != os.getuid():
            continue
        if not _is_alive(int(pid)):
            for path in area.glob("*.arrow"):
                path.unlink(missing_ok=True)
            area.rmdir()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
    """A local directory (io/local_directories) of one writer, made on first use, readable by its owner alone."""

    def __init__(self) -> None:
        self._directory: Path | None = None
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
        for number in range(self._count):
            self._directory.joinpath(f"{number}.arrow").unlink(missing_ok=True)
        self._directory.rmdir()
        self._directory, self._count = None, 0

    def _new_path(self) -> Path:
        if self._directory is None:
            made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=local_directory())
            self._directory = Path(made)  # mkdtemp gives it mode 0700
        path = self._directory / f"{self._count}.arrow"
        self._count += 1
        return path
