"""A catalog and its warehouse on a local disk, whose calls and transactions are announced before they take place."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.api.catalog import Catalog
from lsm_engine.api.table import Table
from lsm_engine.catalog.names import TableName
from lsm_engine.catalog.sql_catalog import SqlCatalog
from lsm_engine.storage.local import LocalFileIO
from lsm_engine.table.components import LocalExecutor
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.paused_stores import TABLE, Actor, Announce, HurriedClock, Process, StorageCall

CALLS = (
    *("read", "open_input", "exists", "status", "list", "write_new", "open_output", "publish"),
    *("replace", "change_if_unchanged", "delete", "remove_empty_directory"),
    "sync",
)
TRANSACTIONS = {
    **dict.fromkeys(("load_table", "list_tables", "load_database", "list_databases"), "read"),
    **dict.fromkeys(("register_table", "drop_table", "create_database"), "replace"),
}
"""Of the catalog: what each does to the names."""
_LAKE = re.compile(r"^.*/lake-[^/]+/")
_hook: list[Announce | None] = [None]


class LakeDisk:
    """A directory with a catalog and tables; it is deleted with this object."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.directory = tempfile.mkdtemp(prefix="lake-", dir=_memory())
        self._end = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)

    def create(self, actor: Actor, schema: pa.Schema, **settings: Any) -> None:
        with self._catalog(actor) as catalog:
            catalog.create_table(TABLE, schema, **settings)

    def clone(self) -> LakeDisk:
        copy = LakeDisk(ManualClock(self.clock.millis))
        shutil.copytree(self.directory, copy.directory, dirs_exist_ok=True)
        return copy

    def state(self) -> None:
        return None  # the catalog's file is not compared

    def become(self, other: LakeDisk) -> NoReturn:
        raise AssertionError("a lake has no state")

    def process(self, actor: Actor, on_call: Announce | None = None) -> Process:
        catalogs = {self: self._catalog(actor)}  # with the disk, whose files go with it
        return Process(lambda: catalogs[self][TABLE], lambda: catalogs[self], _announcing(on_call))

    def names(self, actor: Actor) -> list[str]:
        with self._catalog(actor) as catalog:
            return catalog.list_tables()

    def opened(self, actor: Actor, name: str = TABLE) -> Table:
        return self._catalog(actor)[name]

    def facts(self, actor: Actor) -> dict[str, Any]:
        """Return which directories of tables have no name, and which names have no table."""
        with self._catalog(actor) as catalog:
            return {"unknown": tuple(catalog.unknown_tables()), "names": tuple(catalog)}

    def files(self, name: str = TABLE) -> dict[str, bytes]:
        return _files(Path(self.directory) / "lake" / f"{name.replace('.', '.db/')}")

    def contents(self) -> dict[str, bytes]:
        return _files(Path(self.directory) / "lake")

    def _catalog(self, actor: Actor) -> Catalog:
        return lsm.open_catalog(
            f"sqlite:///{self.directory}/catalog.db",
            warehouse=f"{self.directory}/lake",
            executor=LocalExecutor(threads=1),
            clock=HurriedClock(actor),
            ids=NumberedIds(first=1_000_000 * actor.number),
        )


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@contextmanager
def _announcing_to(announce: Announce | None) -> Iterator[None]:
    _hook[0], before = announce, _hook[0]
    try:
        yield
    finally:
        _hook[0] = before


def _announcing(announce: Announce | None) -> Callable[[], Any]:
    return lambda: _announcing_to(announce)


@contextmanager
def lake_doubles() -> Iterator[None]:
    """Announce each call of a local disk, each move of a directory and each transaction on names."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(LocalFileIO, name, _announced(name, getattr(LocalFileIO, name), _place))
        for name, verb in TRANSACTIONS.items():
            inner = getattr(SqlCatalog, name)
            patch.setattr(SqlCatalog, name, _announced(verb, inner, lambda *_: ("names",)))
        # The directory moves within the transaction.
        patch.setattr(
            SqlCatalog, "rename_table", _announced("move", SqlCatalog.rename_table, _renamed)
        )
        yield


def _renamed(names: SqlCatalog, old: TableName, new: TableName, *_: object) -> tuple[str, ...]:
    return "names", *(_in_lake(names.table_location(name)) for name in (old, new))


def _place(file_io: LocalFileIO, path: Any = "", *_: Any) -> tuple[str, ...]:
    return (_in_lake(f"{file_io.root}/{path if isinstance(path, str) else ''}".rstrip("/")),)


def _in_lake(path: str) -> str:
    """Return a path below the directory of its lake: two lakes have the same ones."""
    return _LAKE.sub("", path)


def _announced(
    verb: str, inner: Callable[..., Any], place: Callable[..., tuple[str, ...]]
) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        announce, _hook[0] = _hook[0], None  # a call that is made of others counts once
        try:
            if announce is not None:
                announce(StorageCall(verb, place(*arguments)))
            return inner(*arguments, **named)
        finally:
            _hook[0] = announce

    return call
