"""One query, many threads, a writer beside them, and less disk than what they ask for needs."""

import os
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.cache.disk import DiskCache
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.storage.clock import SystemClock
from tests.unit.lookup.stores import with_options

KEYS = 4_000
THREADS = 16
SCHEMA = pa.schema([("k", pa.int64()), ("version", pa.int64()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        "d.t", SCHEMA, primary_key=["k"],
        options={"bucket": "8", "commit.fsync": "false", "write-buffer-size": "64 mb"},
    )  # fmt: skip


def rows_of(version):
    """Every key but each seventh, at a version."""
    numbers = np.arange(KEYS)
    numbers = numbers[numbers % 7 != 0]
    texts = [f"{n}-{version}" * 4 for n in numbers]
    return pa.table({"k": numbers, "version": np.full(len(numbers), version), "text": texts})


def check(found, keys, oldest, newest):
    """Whole rows of a version that was there while the question was asked, and no others."""
    versions = found["version"].to_pylist()
    for key, version, text, is_found in zip(
        keys, versions, found["text"].to_pylist(), found["_found"].to_pylist(), strict=True
    ):
        assert is_found == (key % 7 != 0)
        if is_found:
            assert oldest <= version <= newest
            assert text == f"{key}-{version}" * 4
    seen = {version for version in versions if version is not None}
    assert len(seen) == 1, f"one snapshot at a time, not {seen}"


class Race:
    """Threads that look keys up while one writes, compacts, expires and refreshes."""

    def __init__(self, table, root, seconds, kind):
        self.table = table
        self.root = root
        self.seconds = seconds
        self.cache = DiskCache(SystemClock(), str(root))
        self.most = 0
        self.newest = 0
        self.lookups = 0
        self.failed = []
        with TableQuery(with_options(table.session, lookup__local_file_type=kind), self.cache) as q:
            q.lookup([{"k": 1}])
            q.lookup([{"k": k} for k in range(200)])
            largest = max(entry.size for entry in self.cache.entries())
        self.limit = 2 * largest  # of eight buckets' files
        session = with_options(
            table.session,
            lookup__local_file_type=kind,
            lookup__cache_max_disk_size=str(self.limit),
        )
        self.query = TableQuery(session, self.cache)

    def run(self):
        self.until = time.monotonic() + self.seconds
        readers = [
            threading.Thread(target=self.guarded, args=(self.read, n)) for n in range(THREADS)
        ]
        writer = threading.Thread(target=self.guarded, args=(self.write, 0))
        for thread in [*readers, writer]:
            thread.start()
        for thread in [*readers, writer]:
            thread.join()
        self.query.refresh()
        live = self.table.session.live_entries(self.table.latest_snapshot())
        names = [entry.file.file_name for entry in live]
        held = [entry.name for entry in self.cache.entries()]
        assert [one for one in held if not any(name in one for name in names)] == []
        self.query.close()
        left = self.cache.metrics()
        self.cache.close()
        assert self.failed == []
        return left

    def guarded(self, work, number):
        try:
            while time.monotonic() < self.until and not self.failed:
                work(number)
        except BaseException as error:  # noqa: BLE001 -- told by the test
            self.failed.append(error)

    def read(self, number):
        rng = np.random.default_rng(number * 1000 + self.lookups)
        keys = rng.integers(0, KEYS, 40).tolist()
        oldest = self.seen()
        found = self.query.lookup([{"k": key} for key in keys])
        check(found, keys, oldest, self.newest)
        one = self.query.get({"k": keys[0]})
        assert (one is None) == (keys[0] % 7 == 0)
        assert one is None or oldest <= one["version"] <= self.newest
        self.lookups += 1
        with self.cache._lock:  # files that are being built count as well
            sizes = [one.size for one in self.cache._growing]
            sizes += [one.size for one in self.cache._entries.values()]
        # Of each moment's files the largest may be too many; later versions have longer texts.
        self.most = max(self.most, sum(sizes) - max(sizes, default=0))

    def seen(self):
        snapshot = self.query.snapshot
        return int((snapshot.properties or {"version": "0"})["version"])

    def write(self, _):
        version = self.newest + 1
        self.newest = version  # before it lands: readers may see it any time from now on
        self.table.upsert(rows_of(version), properties={"version": str(version)})
        self.query.refresh()
        if version % 3 == 0:
            self.table.compact(full=True, properties={"version": str(version)})
            self.query.refresh()
            self.table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")


def raced(table, tmp_path, seconds, kind):
    table.upsert(rows_of(0), properties={"version": "0"})
    race = Race(table, tmp_path / "cache", seconds, kind)
    left = race.run()
    assert race.lookups > THREADS
    assert race.newest >= seconds // 10
    assert race.most <= race.limit
    assert left.evictions["size"] > 0
    assert left.file_count == left.byte_count == 0
    root = tmp_path / "cache"
    assert [name for name in os.listdir(root) if name != "lock"] == []


@pytest.mark.parametrize("kind", ["columnar", "sort"])
def test_sixteen_threads_and_a_writer(kind, table, tmp_path):
    raced(table, tmp_path, 4.0, kind)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["columnar", "sort", "hash"])
def test_sixteen_threads_and_a_writer_for_a_minute(kind, table, tmp_path):
    raced(table, tmp_path, 60.0, kind)


def test_a_query_made_for_a_snapshot_stays_there(table, tmp_path):
    table.upsert(rows_of(1))
    first = table.latest_snapshot()
    table.upsert(rows_of(2))
    cache = DiskCache(SystemClock(), str(tmp_path / "cache"))
    with TableQuery(table.session, cache, snapshot=first) as query:
        assert query.refresh() is False
        assert query.get({"k": 1})["version"] == 1
    with TableQuery(table.session, cache) as query:
        assert query.get({"k": 1})["version"] == 2
        table.upsert(rows_of(3))
        assert query.get({"k": 1})["version"] == 2
        assert query.refresh() is True
        assert query.refresh() is False
        assert query.get({"k": 1})["version"] == 3
        told = query.cache_metrics
        assert (told.file_count, told.byte_count) == (
            cache.metrics().file_count,
            cache.metrics().byte_count,
        )
        assert told.misses >= 3
