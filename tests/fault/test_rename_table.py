"""A table is renamed while a writer is stopped before one of its calls of the operating system.

CI stops at some of them; all:

    python -m pytest tests/fault/test_rename_table.py -m sweep -q
"""

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.storage import local
from lsm_engine.storage.paths import BEING_DROPPED

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False)])
STOPS = ("open", "link", "unlink", "replace", "mkdir", "lstat", "scandir")


class StoppedSystem:
    """The module `os` as `lsm_engine.storage.local` sees it: before call `stop` another process acts."""

    def __init__(self, stop: int, act: Any) -> None:
        self._stop = stop
        self._act = act
        self._writer = threading.current_thread()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        if name not in STOPS:
            return function

        def stopped(*args: Any, **keywords: Any) -> Any:
            if threading.current_thread() is self._writer:
                self.calls.append(name)
                if len(self.calls) == self._stop:
                    self._act()
            return function(*args, **keywords)

        return stopped


def renamed_beside(directory: Path, stop: int, options: dict[str, str]) -> tuple[Any, list[str]]:
    """Append a row, the table renamed before call `stop`; return what came of it, and the calls."""
    url, warehouse = f"sqlite:///{directory}/c.db", directory / "lake"

    def rename() -> None:
        patch.undo()
        with lsm.open_catalog(url, warehouse=str(warehouse)) as other:
            other.rename_table("a.b", "a.c")

    with lsm.open_catalog(url, warehouse=str(warehouse)) as catalog:
        table = catalog.create_table("a.b", SCHEMA, options=options)
        table.append([{"k": 1}])
        system = StoppedSystem(stop, rename)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "os", system)
            try:
                outcome: Any = table.append([{"k": 2}])
            except lsm.LsmError as error:
                outcome = error
        if stop > len(system.calls):
            return None, system.calls
        renamed = catalog.table("a.c")
        is_there = {"k": 2} in renamed.to_arrow().to_pylist()
        if isinstance(outcome, lsm.LsmError):
            is_unknown = isinstance(outcome, lsm.CommitUnknownError)
            assert is_unknown or not is_there, f"committed, and {outcome!r}"
        else:
            assert is_there, "acknowledged, and not there"
        assert not (warehouse / "a.db" / "b").exists(), "the old directory is back"
        renamed.append([{"k": 3}])
        assert renamed.verify(deep=True).is_clean
    return outcome, system.calls


@pytest.mark.parametrize(
    "extent", ["sample", pytest.param("all", marks=[pytest.mark.sweep, pytest.mark.slow])]
)
@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "-1", "commit.fsync": "false"}])
def test_a_commit_beside_a_rename_of_its_table_is_reported_as_it_is(
    tmp_path: Path, extent: str, options: dict[str, str]
) -> None:
    """The writer is told that it committed, that it did not, or that it may have; the old name stays free."""
    _, calls = renamed_beside(tmp_path / "alone", 1 << 30, options)
    stops = set(range(1, len(calls) + 1))
    if extent == "sample":
        near = [stop for stop, call in enumerate(calls, 1) if call in ("link", "replace")]
        stops = {*range(1, len(calls) + 1, 7), *near, *(stop + 1 for stop in near)}
    for stop in sorted(stops):
        try:
            renamed_beside(tmp_path / str(stop), stop, options)
        except AssertionError as wrong:
            raise AssertionError(f"before call {stop}, {calls[stop - 1]}: {wrong}") from wrong


def test_a_drop_beside_a_rename_leaves_no_sign_that_bars_the_new_name(tmp_path: Path) -> None:
    """The sign of a drop moves along with the directory; the table of the new name can be dropped and made again."""
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")
    ) as catalog:
        catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"})
        (tmp_path / "lake" / "a.db" / "b" / f"{BEING_DROPPED}-1").touch()
        catalog.rename_table("a.b", "a.c")
        catalog.drop_table("a.c")
        assert catalog.create_table("a.c", SCHEMA, options={"bucket": "-1"}).scan().count() == 0


def test_two_renames_at_once_leave_the_name_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rename that ended before the directory moved takes the table; this one says so, and makes no name."""
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")
    ) as catalog:
        catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"}).append([{"k": 1}])
        names = catalog._names
        rename = names.rename_table

        def overtaken(*arguments: Any) -> Any:
            monkeypatch.undo()
            catalog.rename_table("a.b", "a.c")
            return rename(*arguments)

        monkeypatch.setattr(names, "rename_table", overtaken)
        with pytest.raises(lsm.NotFoundError):
            catalog.rename_table("a.b", "a.d")
        assert list(catalog) == ["a.c"]
        assert catalog["a.c"].to_arrow().to_pylist() == [{"k": 1}]


def test_a_rename_whose_transaction_fails_puts_the_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")
    ) as catalog:
        catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"}).append([{"k": 1}])
        names = catalog._names

        def failing(work: Any) -> Any:
            def work_without_end(connection: Any) -> Any:
                work(connection)
                raise lsm.StorageError("the disk of the catalog is full")

            return write(work_without_end)

        write = names.database.write
        with monkeypatch.context() as patch:
            patch.setattr(names.database, "write", failing)
            with pytest.raises(lsm.StorageError):
                catalog.rename_table("a.b", "a.c")
        assert catalog["a.b"].to_arrow().to_pylist() == [{"k": 1}]
