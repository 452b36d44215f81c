"""A disk that fails (EIO): a typed error with path and remedy, nothing lost, and later operations work.

CI fails some of the calls of each operation. Every call:

    python -m pytest tests/unit/table/test_failing_disks.py -m sweep -q
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.planning.tags import is_lock
from lsm_engine.storage import local
from tests.unit.table.refused_operations import CHANGES, EXPIRED, READS, create_table

DISK_CALLS = (
    "open", "link", "replace", "unlink", "mkdir", "rmdir", "scandir", "stat", "lstat", "fstat", "fsync", "write",
    "read", "pread", "pwrite", "ftruncate",
)  # fmt: skip
IN_STEPS = (
    "delete a tag", "delete a branch", "rename a branch", "rescale", "rollback", "expire", "remove orphans",
)  # fmt: skip
"""What has several visible steps, or cleans up after its only one: done again they go on where they were stopped."""
EXTENTS = pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)


class FailingOs:
    """The module `os` over a disk: call number `at` fails, or with `lasts` every call from it on."""

    def __init__(self, at: int = 0, *, lasts: bool = False) -> None:
        self.calls: list[str] = []
        self._numbers = count(1)
        self._at, self._lasts = at, lasts

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return self._failing(name, function) if name in DISK_CALLS else function

    def _failing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            number = next(self._numbers)
            self.calls.append(name)
            if number == self._at or (self._lasts and 0 < self._at <= number):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return function(*args, **named)

        return call


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(create_table(tmp_path_factory.mktemp("disk")).location)


@pytest.fixture
def disk(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Disk":
    return Disk(template, tmp_path, monkeypatch)


class Disk:
    """Copies of one table, each to be changed once while the disk fails."""

    def __init__(self, template: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._template, self._directory, self._monkeypatch = template, directory, monkeypatch
        self._numbers = count()

    def copy(self) -> str:
        location = self._directory / str(next(self._numbers))
        shutil.copytree(self._template, location)
        return str(location)

    def acts(self, location: str, name: str, system: FailingOs) -> lsm.LsmError | None:
        """Do an operation over a disk that fails; return the error that it ends with."""
        table = lsm.open_table(location)
        with self._monkeypatch.context() as patch:
            patch.setattr(local, "os", system)
            try:
                {**READS, **CHANGES}[name](table)
            except lsm.LsmError as error:
                return error
        return None

    def places(self, name: str, extent: str) -> Iterator[tuple[int, bool]]:
        """The calls to fail at, of those of an undisturbed run, once and from then on."""
        system = FailingOs()
        error = self.acts(self.copy(), name, system)
        assert error is None
        calls = len(system.calls)
        assert calls > 0
        numbers = range(1, calls + 1)
        if extent == "sample":
            decisive = [at for at in numbers if system.calls[at - 1] in ("link", "replace")]
            numbers = sorted({calls // 2, calls, *decisive[-2:]} - {0})
            yield 1, True
        for at in numbers:
            yield at, False
            # In the sample a disk that goes on failing is tried from the first call on, and where a file gets its name.
            if extent != "sample" or at in decisive[-1:]:
                yield at, True


def state(location: str) -> dict[str, Any]:
    """What readers see."""
    table = lsm.open_table(location)
    return {
        "snapshots": table.snapshot_ids(),
        "rows": sorted(map(repr, table.to_arrow().to_pylist())),
        "tags": [name for name in table.tags.names() if not is_lock(name)],
        "branches": table.branches.names(),
        "columns": table.schema.names,
        "consumers": [repr(consumer) for consumer in table.consumers.list()],
    }


def is_explained(error: lsm.LsmError) -> bool:
    """Whether an error names a path and says what to do, or what is not known or finished."""
    if isinstance(error, lsm.CommitUnknownError):
        return any(
            way in error.message
            for way in ("before trying again", "again to finish", "which finishes it")
        )
    return (
        isinstance(error, lsm.StorageError) and "path" in error.facts and "retry" in error.message
    )


@pytest.mark.parametrize("name", READS)
@EXTENTS
def test_a_read_that_fails_is_explained_and_works_later(disk: Disk, name: str, extent: str) -> None:
    location = disk.copy()
    for at, lasts in disk.places(name, extent):
        error = disk.acts(location, name, FailingOs(at, lasts=lasts))
        assert error is None or is_explained(error), (at, lasts, error)
    READS[name](lsm.open_table(location))


@pytest.mark.parametrize("name", CHANGES)
@EXTENTS
def test_a_change_that_fails_changes_nothing_and_works_later(
    disk: Disk, name: str, extent: str
) -> None:
    before = state(disk.copy())
    for at, lasts in disk.places(name, extent):
        location = disk.copy()
        system = FailingOs(at, lasts=lasts)
        error = disk.acts(location, name, system)
        place = (name, at, system.calls[at - 1], lasts, error)
        assert error is None or is_explained(error), place
        table = lsm.open_table(location)
        problems = table.maintenance.verify(deep=True).problems
        # What verification says of a rollback that was stopped is the way to finish it.
        assert name == "rollback" or problems == (), place
        ways = ("roll back to 2 again", "remove_orphan_files")
        assert all(any(way in text for way in ways) for text in problems), (place, problems)
        if isinstance(error, lsm.StorageError) and name not in IN_STEPS:
            assert state(location) == before, place
        _goes_on(location, name, place)


def _goes_on(location: str, name: str, place: object) -> None:
    # Refused where it was done already, though the disk did not confirm it.
    with suppress(lsm.AlreadyExistsError, lsm.NotFoundError, lsm.InvalidInputError):
        CHANGES[name](lsm.open_table(location))
    table = lsm.open_table(location)
    table.upsert([{"k": 8, "v": "later"}])
    table.maintenance.expire(**EXPIRED)
    table = lsm.open_table(location)
    assert table.maintenance.verify(deep=True).problems == (), place
    assert "later" in table.to_arrow()["v"].to_pylist(), place


def test_a_column_that_cannot_be_read_is_named(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow reads the columns of large files itself."""

    class Unreadable:
        closed = False

        def __init__(self, path: str) -> None:
            self._file = open(path, "rb")  # noqa: SIM115
            self.close, self.seek, self.tell = self._file.close, self._file.seek, self._file.tell

        def read(self, size: int = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def size(self) -> int:
            return os.fstat(self._file.fileno()).st_size

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def writable(self) -> bool:
            return False

    monkeypatch.setattr(local, "_READ_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(
        local.pa, "OSFile", lambda path, _mode: pa.PythonFile(Unreadable(path), mode="r")
    )
    with pytest.raises(lsm.StorageError, match="disk failed") as failure:
        lsm.open_table(str(template)).to_arrow()
    assert "data-" in str(failure.value)
