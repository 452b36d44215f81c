"""A sync of Iceberg metadata that another process overtakes, at each of its storage calls."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.iceberg.manifest import read_records
from lsm_engine.table import iceberg
from lsm_engine.table.session import TableSession
from tests.engines.iceberg_readers import face, in_order, metadata_folder
from tests.fault.recording_file_io import Call, RecordingFileIO

EXACT = {"iceberg-compatibility.enabled": "true"}
VERSION_2 = EXACT | {"metadata.iceberg.format-version": "2"}
BOTH = pytest.mark.parametrize("options", [EXACT, VERSION_2], ids=["version 3", "version 2"])
"""Deleted rows in Puffin files, and in position delete files."""
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
FORGOTTEN = 7_777_777_777
MANY = range(1000, 1400)
"""Keys of a file that a compaction of few rows leaves as it is, so that rows of it are deleted."""
STRIDE = int(os.environ.get("LSM_ICEBERG_STRIDE", "8"))


def rows(*keys: int, value: int = 0) -> pa.Table:
    return pa.table({"k": keys, "v": [value] * len(keys)}, SCHEMA)


def opened(lake: Path, name: str = "shop.orders") -> lsm.Table:
    return lsm.open_catalog(str(lake)).table(name)


def behind(
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str] = EXACT,
    more_keys: Sequence[int] = (),
) -> lsm.Table:
    """A table with rows, a tag and a branch, whose newest commit its metadata does not show."""
    table = lsm.open_catalog(str(lake)).create_table("shop.orders", SCHEMA, "k", options=options)
    table.upsert(rows(1, 2, FORGOTTEN, *more_keys))
    table.tags.create("first")
    table.branches.create("work", tag="first")
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "follow", lambda *_, **__: None)
        table.upsert(rows(2, 3, value=1))
    return table


class Stop:
    """Has something happen before one call of a sync, but for those while it holds the lock of the catalog's database."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.number = number
        self.act = act
        self.calls = 0
        self.is_locked = False

    def before_call(self, _: Call) -> None:
        self.calls += not self.is_locked
        if self.calls == self.number and not self.is_locked:
            self.act()

    def notify(self, session: TableSession, store: iceberg.IcebergStore | None) -> None:
        self.is_locked = True
        NOTIFY(session, store)
        self.is_locked = False


NOTIFY = iceberg.notify


def overtaken(
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[], object],
    *,
    branch: str = "",
    options: dict[str, str] = EXACT,
    more_keys: Sequence[int] = (),
) -> Iterator[int]:
    """Sync as often as a sync has storage calls, something else happening before one of them; yield its number.

    `branch`: as after a commit to it. `options` and `more_keys`: of the table.
    """
    for number in count(1, STRIDE):
        shutil.rmtree(lake, ignore_errors=True)
        table = behind(lake, monkeypatch, options, more_keys)
        session = (table.branch(branch) if branch else table).session
        stop = Stop(number, act)
        file_io = RecordingFileIO(session.file_io, on_call=stop.before_call)
        components = replace(session.components, file_io=file_io)
        with monkeypatch.context() as patch:
            patch.setattr(iceberg, "notify", stop.notify)
            iceberg.follow(
                TableSession(session.name, components, session.schema, branch=branch),
                with_branches=True,
            )
        if stop.calls < number:
            return
        yield number


def assert_in_step(table: lsm.Table) -> None:
    assert table.inspect.iceberg().lag == 0
    shown = face(table).scan().to_arrow().select(table.schema.names).cast(table.schema.arrow)
    assert in_order(shown) == in_order(table.to_arrow())


def deletes_files(table: lsm.Table) -> set[str]:
    """The files of deleted rows that the newest snapshot names, each of which is there."""
    store = iceberg.open_store(table.session)
    metadata = store.current()
    files = {
        entry["data_file"]["file_path"]
        for row in store.records(metadata.current["manifest-list"])
        if row["content"] == 1
        for entry in store.records(row["manifest_path"])
    }
    assert all(Path(file).exists() for file in files)
    return files


@BOTH
@pytest.mark.parametrize("act", ["upsert", "compact", "sync", "delete", "roll back"])
def test_a_sync_beside_another_writer_shows_the_deleted_rows_of_now(
    tmp_path, monkeypatch, options, act
):
    """The other one deletes rows of the same data files, and writes its own files of them."""
    lake = tmp_path / "lake"

    def change() -> None:
        table = opened(lake)
        if act == "upsert":
            table.upsert(rows(1, 3, value=2))
        elif act == "compact":
            table.compact(full=True)
        elif act == "delete":
            table.delete([{"k": 1}])
        elif act == "roll back":
            table.rollback_to(2)
        else:
            table.maintenance.sync_iceberg()

    for number in overtaken(lake, monkeypatch, change, options=options, more_keys=MANY):
        table = opened(lake)
        assert_in_step(table)
        table.upsert(rows(2, value=3))
        assert_in_step(table)
        suffix = ".puffin" if options is EXACT else ".parquet"
        assert all(file.endswith(suffix) for file in deletes_files(table)), number


@BOTH
def test_a_commit_beside_a_sync_of_another_process_shows_its_deleted_rows(
    tmp_path, monkeypatch, options
):
    """A whole commit with its compaction and its metadata, overtaken at each storage call by a sync that began before."""
    lake = tmp_path / "lake"
    for number in count(1, STRIDE):
        shutil.rmtree(lake, ignore_errors=True)
        session = behind(lake, monkeypatch, options, MANY).session
        stop = Stop(number, lambda: opened(lake).maintenance.sync_iceberg())
        file_io = RecordingFileIO(session.file_io, on_call=stop.before_call)
        components = replace(session.components, file_io=file_io)
        with monkeypatch.context() as patch:
            patch.setattr(iceberg, "notify", stop.notify)
            writer = lsm.Table(TableSession(session.name, components, session.schema))
            writer.upsert(rows(1, 2, value=5))
        table = opened(lake)
        assert_in_step(table)
        assert deletes_files(table), number
        if stop.calls < number:
            break


@BOTH
def test_a_sync_beside_a_new_table_of_the_same_name_shows_the_new_one(
    tmp_path, monkeypatch, options
):
    lake = tmp_path / "lake"

    def replace_table() -> None:
        with lsm.open_catalog(str(lake)) as catalog:
            uuids.append(str(face(catalog.table("shop.orders")).metadata.table_uuid))
            catalog.drop_table("shop.orders")
            new = catalog.create_table("shop.orders", SCHEMA, "k", options=options)
            new.upsert(rows(8))

    uuids: list[str] = []
    for _ in overtaken(lake, monkeypatch, replace_table, options=options):
        table = opened(lake)
        assert_in_step(table)
        assert str(face(table).metadata.table_uuid) != uuids[-1]
        table.upsert(rows(9))
        assert_in_step(table)


@BOTH
def test_a_sync_beside_a_forgotten_key_names_it_nowhere(tmp_path, monkeypatch, options):
    lake = tmp_path / "lake"

    def forget() -> None:
        storage, exact = "metadata.iceberg.storage", "iceberg-compatibility.enabled"
        opened(lake).alter(lsm.RemoveOption(exact), lsm.SetOption(storage, "disabled"))
        opened(lake).maintenance.forget(
            [{"k": FORGOTTEN}], dry_run=False, rewrite_tags=True, rewrite_branches=True
        )
        opened(lake).alter(lsm.SetOption(storage, "table-location"), lsm.SetOption(exact, "true"))

    for number in overtaken(lake, monkeypatch, forget, options=options):
        table = opened(lake)
        assert_in_step(table)
        for path in metadata_folder(table).glob("*.avro"):
            text = repr(read_records(path.read_bytes(), str(path)))
            assert repr(FORGOTTEN.to_bytes(8, "little")) not in text, number


@BOTH
@pytest.mark.parametrize("change", ["columns", "place"])
def test_a_sync_of_a_branch_beside_an_alter_shows_the_columns_and_the_place_of_now(
    tmp_path, monkeypatch, change, options
):
    lake = tmp_path / "lake"

    def alter() -> None:
        if change != "place":
            opened(lake).alter(lsm.RenameColumn("v", "w"), lsm.AddColumn("x", "INT"))
        if change != "columns":
            opened(lake).alter(lsm.SetOption("metadata.iceberg.storage", "hadoop-catalog"))

    for number in overtaken(lake, monkeypatch, alter, branch="work", options=options):
        table = opened(lake)
        assert_in_step(table)
        shown = face(table)
        branch = shown.snapshot_by_name("work")
        if branch is None:
            assert "columns differ" in table.inspect.iceberg().branches_left_out["work"]
        else:
            keys = shown.scan(snapshot_id=branch.snapshot_id).to_arrow()["k"].to_pylist()
            assert sorted(keys) == [1, 2, FORGOTTEN], number
        if change != "columns":
            assert not (Path(table.location) / "metadata").exists(), number


def test_a_commit_to_a_branch_beside_the_switch_to_iceberg_metadata_is_shown(tmp_path):
    """The branch was opened before: its commit looks at the options of now."""
    lake = tmp_path / "lake"

    def switch_on() -> None:
        opened(lake).alter(lsm.SetOption("metadata.iceberg.storage", "table-location"))

    for number in count(1, STRIDE):
        shutil.rmtree(lake, ignore_errors=True)
        table = lsm.open_catalog(str(lake)).create_table("shop.orders", SCHEMA)
        table.append(rows(1, 2))
        table.tags.create("first")
        table.branches.create("work", tag="first")
        session = table.branch("work").session
        stop = Stop(number, switch_on)
        file_io = RecordingFileIO(session.file_io, on_call=stop.before_call)
        components = replace(session.components, file_io=file_io)
        lsm.Table(TableSession(session.name, components, session.schema, branch="work")).append(
            rows(3)
        )
        if stop.calls < number:
            break
        table = opened(lake)
        assert_in_step(table)
        branch = face(table).snapshot_by_name("work")
        assert branch is not None, number
        keys = face(table).scan(snapshot_id=branch.snapshot_id).to_arrow()["k"].to_pylist()
        assert sorted(keys) == [1, 2, 3], number
