"""Lookup files: damage is noticed and repaired, half a file never stays, errors name what is wrong."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.cache.disk import DiskCache
from lsm_engine.lookup.view import ViewMaker
from lsm_engine.storage.clock import SystemClock
from tests.unit.lookup.stores import KINDS, assert_lookups_equal_scan, query_of
from tests.unit.table.history_tables import Story


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t", pa.schema([("k", pa.string()), ("v", pa.int64()), ("s", pa.string())]),
        primary_key=["k"], options={"write-only": "true"},
    )  # fmt: skip
    for start in (0, 300):
        numbers = range(start, start + 600)
        keys = [f"key-{n:04}" + "x" * (n % 9) for n in numbers]
        table.upsert(
            pa.table({"k": keys, "v": list(numbers), "s": [f"{n}" * (n % 5) for n in numbers]})
        )
    return table


def files_of(tmp_path, kind):
    return sorted((tmp_path / f"cache-{kind}").rglob("*.lookup"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_damage_is_noticed_and_the_file_built_anew(table, kind, compression, tmp_path):
    """Bits flipped, ends cut, files swapped: never a wrong row, and the next answer is right."""
    rng = np.random.default_rng(7)
    options = {"lookup__cache_spill_compression": compression, "cache_page_size": "700"}
    with query_of(table, kind, tmp_path, **options) as query:
        assert_lookups_equal_scan(query, table)
        for case in range(12):
            paths = files_of(tmp_path, kind)
            path = paths[case % len(paths)]
            os.chmod(path, 0o600)
            data = bytearray(path.read_bytes())
            if case % 4 == 3:
                data = bytearray(paths[(case + 1) % len(paths)].read_bytes())
            else:
                data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            query._cache.metrics()
            # In place, as a failing disk would: what is mapped changes too.
            with path.open("r+b") as file:
                file.write(bytes(data)[: path.stat().st_size])
            query._maker.blocks._blocks.clear()
            query._maker.blocks.byte_count = 0
            assert_lookups_equal_scan(query, table)
            assert query.get({"k": "key-0001x"}) == {"k": "key-0001x", "v": 1, "s": "1"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_removed_while_in_use_does_no_harm(table, kind, tmp_path):
    with query_of(table, kind, tmp_path) as query:
        assert_lookups_equal_scan(query, table)
        for path in files_of(tmp_path, kind):
            path.unlink()
        assert_lookups_equal_scan(query, table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_corrupt_data_file_is_the_error_and_leaves_nothing(table, kind, tmp_path):
    for path in Path(table.location).rglob("data-*.parquet"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(bytes(data))
    with query_of(table, kind, tmp_path) as query:
        with pytest.raises(lsm.CorruptFileError, match="data-"):
            query.lookup([{"k": "key-0301xxx"}])
        assert len(files_of(tmp_path, kind)) < 2  # the other file may be whole where we read it


def test_files_go_when_compaction_drops_their_data_files(table, tmp_path):
    with query_of(table, "columnar", tmp_path) as query:
        query.lookup([{"k": "key-0301xxx"}])
        assert len(files_of(tmp_path, "columnar")) >= 1
        table.compact(full=True)
        query.refresh()
        assert not files_of(tmp_path, "columnar")
        assert_lookups_equal_scan(query, table)
        assert len(files_of(tmp_path, "columnar")) == 1


def test_expired_data_files_send_the_query_to_the_newest_snapshot(table, tmp_path):
    with query_of(table, "columnar", tmp_path) as query:
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
        assert query.lookup([{"k": "key-0001x"}]).column("v").to_pylist() == [1]


def test_a_snapshot_that_expires_while_a_query_moves_to_it_is_followed(
    table, tmp_path, monkeypatch
):
    made = ViewMaker.view

    def overtaken(maker, snapshot, before):
        monkeypatch.setattr(ViewMaker, "view", made)
        table.compact(full=True)
        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
        with pytest.raises(lsm.NotFoundError):
            table.session.live_entries(snapshot)
        return made(maker, snapshot, before)

    with query_of(table, "columnar", tmp_path) as query:
        table.upsert([{"k": "key-0001x", "v": 2, "s": "2"}])
        monkeypatch.setattr(ViewMaker, "view", overtaken)
        assert query.refresh()
        assert query.snapshot == table.latest_snapshot()
        assert query.lookup([{"k": "key-0001x"}]).column("v").to_pylist() == [2]


def test_metadata_that_is_gone_while_its_snapshot_is_not_is_the_error(table, tmp_path):
    with query_of(table, "columnar", tmp_path) as query:
        before = query.snapshot
        table.upsert([{"k": "key-0001x", "v": 2, "s": "2"}])
        for path in Path(table.location, "manifest").iterdir():
            path.unlink()
        with pytest.raises(lsm.NotFoundError, match="manifest-list"):
            query.refresh()
        assert query.snapshot == before


@pytest.mark.parametrize("trouble", ["link", "open to others", "a file"])
def test_a_directory_that_is_not_ours_is_refused_by_name(table, trouble, tmp_path):
    root = tmp_path / "cache-columnar"
    if trouble == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "elsewhere")
    elif trouble == "a file":
        root.write_text("")
    else:
        root.mkdir()
        root.chmod(0o777)
    query = query_of(table, "columnar", tmp_path)
    with pytest.raises(lsm.LsmError, match="cache-columnar"):
        query.lookup([{"k": "a"}, {"k": "key-0301xxx"}])


def test_a_full_disk_is_an_error_that_names_the_file(table, tmp_path, monkeypatch):
    with query_of(table, "columnar", tmp_path) as query:

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("lsm_engine.lookup.columnar_store.checksum_of", full)
        with pytest.raises(lsm.StorageError, match="disk is full"):
            query.lookup([{"k": "key-0301xxx"}])
        monkeypatch.undo()
        assert not files_of(tmp_path, "columnar")
        assert_lookups_equal_scan(query, table)


def test_what_a_dead_process_left_is_swept(tmp_path):
    root = tmp_path / "cache"
    left = root / "process-dead"
    left.mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    (left / "1.lookup").write_bytes(b"x")
    (left / "lock").write_bytes(b"")
    alive: DiskCache[bytes] = DiskCache(SystemClock(), str(root))
    other: DiskCache[bytes] = DiskCache(SystemClock(), str(root))
    limits = lsm_limits()
    for cache in (alive, other):
        cache.get(
            "o", "n", limits, lambda sink: sink.write(b"abc"), lambda data, _: data.to_pybytes()
        )
    assert not left.exists()
    assert len(list(root.rglob("*.lookup"))) == 2
    alive.close()
    other.close()
    assert not list(root.rglob("*.lookup"))
    shutil.rmtree(root)


def lsm_limits(max_bytes=None, retention_millis=3_600_000):
    from lsm_engine.cache.disk import CacheLimits

    return CacheLimits(max_bytes=max_bytes, retention_millis=retention_millis)


def test_tables_whose_ids_come_again_keep_their_files_apart():
    one, other = Story(), Story()
    one.put(k1="a")
    other.put(k1="b")
    assert one.files() == other.files()
    for story, value in ((one, "a"), (other, "b"), (one, "a")):
        assert story.table.lookup([{"id": 1}])["v"].to_pylist() == [value]
