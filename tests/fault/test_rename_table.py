"""A table is renamed while a writer is stopped before one of its calls of the operating system.

CI stops at some of them; all:

    python -m pytest tests/fault/test_rename_table.py -m sweep -q
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.storage import local, warehouse
from lsm_engine.storage.paths import BEING_DROPPED, BEING_RENAMED

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


def test_a_table_takes_the_name_of_a_dropped_one_and_a_refused_rename_leaves_no_sign(
    tmp_path: Path,
) -> None:
    with lsm.open_catalog(tmp_path) as catalog:
        for name in ("shop.orders", "shop.sales"):
            catalog.create_table(name, {"id": "BIGINT"}, "id").upsert([{"id": 1}])
        stray = tmp_path / "shop.db" / "taken" / "file"
        stray.parent.mkdir()
        stray.touch()
        with pytest.raises(lsm.AlreadyExistsError, match="move it away"):
            catalog.rename_table("shop.sales", "shop.taken")
        assert not (tmp_path / "shop.db" / "sales" / BEING_RENAMED).exists()
        catalog.drop_table("shop.orders")
        assert catalog.rename_table("shop.sales", "shop.orders").count() == 1
        assert catalog.list_tables("shop") == ["orders"]


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


class Dies(BaseException):
    """In the place of the end of a transaction, before which the process dies."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[lsm.Catalog]:
    with lsm.open_catalog(
        f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "lake")
    ) as catalog:
        yield catalog


def dying_before_the_end_of(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next transaction of a catalog's names die once its work is done."""
    write = names.database.write

    def dying(work: Any) -> Any:
        def work_without_end(connection: Any) -> Any:
            work(connection)
            raise Dies

        return write(work_without_end)

    monkeypatch.setattr(names.database, "write", dying)


@pytest.fixture
def cut_off(catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch) -> lsm.Catalog:
    """A catalog in which a rename died after it had moved the files."""
    catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"}).append([{"k": 1}])
    with monkeypatch.context() as patch:
        dying_before_the_end_of(catalog._names, patch)
        with pytest.raises(Dies):
            catalog.rename_table("a.b", "a.c")
    return catalog


def require_renamed(catalog: lsm.Catalog) -> None:
    assert list(catalog) == ["a.c"]
    assert catalog["a.c"].to_arrow().to_pylist() == [{"k": 1}]
    assert catalog.lineage.snapshots("a.c").num_rows == 1
    assert not list(Path(catalog.warehouse).glob("*/*/.lsm-*"))


@pytest.mark.parametrize("name", ["a.b", "a.c"])
def test_a_rename_that_died_is_named_by_who_opens_the_table(
    cut_off: lsm.Catalog, name: str
) -> None:
    with pytest.raises(lsm.NotFoundError, match=r"rename of a\.b to a\.c was cut off"):
        cut_off.table(name)


@pytest.mark.parametrize(
    "finish",
    [
        lambda catalog: catalog.rename_table("a.b", "a.c"),
        lambda catalog: catalog.register_table("a.c"),
        lambda catalog: catalog.register_found_tables(),
    ],
    ids=["renamed again", "registered", "registered as what is there"],
)
def test_a_rename_that_died_is_finished(
    cut_off: lsm.Catalog, finish: Callable[[lsm.Catalog], object]
) -> None:
    finish(cut_off)
    require_renamed(cut_off)


def test_a_directory_without_the_sign_of_a_rename_is_not_taken_for_the_table(
    cut_off: lsm.Catalog,
) -> None:
    """Somebody else's files lie at the new place."""
    (Path(cut_off.warehouse) / "a.db" / "c" / BEING_RENAMED).unlink()
    with pytest.raises(lsm.AlreadyExistsError):
        cut_off.rename_table("a.b", "a.c")
    assert list(cut_off) == ["a.b"]


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """The directory of a table of another warehouse."""
    with lsm.open_catalog(f"sqlite:///{tmp_path}/o.db", warehouse=str(tmp_path / "other")) as other:
        other.create_table("a.b", SCHEMA, options={"bucket": "-1"}).append([{"k": 1}])
    return str(tmp_path / "other" / "a.db" / "b")


def test_of_two_adoptions_of_a_directory_one_gets_it(
    catalog: lsm.Catalog, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other left a name without files: a directory that was gone counted as moved."""
    register = catalog._names.register_table

    def overtaken(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.undo()
        catalog.adopt_table(elsewhere, "a.first")
        return register(*arguments, **settings)

    monkeypatch.setattr(catalog._names, "register_table", overtaken)
    with pytest.raises(lsm.NotFoundError):
        catalog.adopt_table(elsewhere, "a.second")
    assert list(catalog) == ["a.first"]
    assert catalog["a.first"].to_arrow().to_pylist() == [{"k": 1}]


def test_an_adoption_beside_a_registration_of_what_is_found_leaves_the_name_its_files(
    catalog: lsm.Catalog, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was there before its name: who named it first lost the files, as the adoption moved them back."""
    write = catalog._names.database.write

    def outrun(work: Any) -> Any:
        monkeypatch.undo()
        assert catalog.register_found_tables() == []
        return write(work)

    monkeypatch.setattr(catalog._names.database, "write", outrun)
    catalog.adopt_table(elsewhere, "a.b")
    assert catalog["a.b"].to_arrow().to_pylist() == [{"k": 1}]


def test_a_drop_whose_table_was_renamed_and_made_again_keeps_a_third_one_out(
    catalog: lsm.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename took the sign of the drop along, so that a table was made while the drop deleted its directory."""
    catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"}).append([{"k": 1}])
    forget, clear = catalog._names.drop_table, warehouse._clear_table

    def renamed_and_made(*arguments: Any, **settings: Any) -> bool:
        monkeypatch.setattr(catalog._names, "drop_table", forget)
        catalog.rename_table("a.b", "a.c")
        catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"})
        return forget(*arguments, **settings)

    def made_again(file_io: Any) -> None:
        with pytest.raises(lsm.AlreadyExistsError):
            catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"})
        clear(file_io)

    monkeypatch.setattr(catalog._names, "drop_table", renamed_and_made)
    monkeypatch.setattr(warehouse, "_clear_table", made_again)
    catalog.drop_table("a.b")
    assert list(catalog) == ["a.c"]
    assert catalog["a.c"].to_arrow().to_pylist() == [{"k": 1}]
    monkeypatch.undo()
    assert catalog.create_table("a.b", SCHEMA, options={"bucket": "-1"}).scan().count() == 0
