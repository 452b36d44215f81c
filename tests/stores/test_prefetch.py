"""Files of a far store are fetched together, before they are read one after another."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import CorruptFileError, NotFoundError
from lsm_engine.metadata import manifests
from lsm_engine.storage.bulk import AGE_MAX_MILLIS, FILES_MAX
from lsm_engine.storage.location import parse_location
from lsm_engine.storage.object_requests import Requests
from lsm_engine.storage.object_store import ObjectFileIO
from lsm_engine.storage.options import NO_OPTIONS
from lsm_engine.table.components import LocalExecutor
from tests.stores.small_tables import forget_all

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def storage():
    return ObjectFileIO(parse_location("memory://prefetch/db.db/t"))


class Watched:
    """How often each path was read, and how many reads were under way at once."""

    def __init__(self, monkeypatch, millis=0):
        self.counts = Counter()
        self.most = self._now = 0
        self._lock = threading.Lock()
        start, ranged = ObjectFileIO.read, ObjectFileIO._range

        def read(storage, path, offset=0, length=None):
            ahead = storage._prefetched.holds(path)
            return (
                start(storage, path, offset, length)
                if ahead
                else self.timed(millis, path, lambda: start(storage, path, offset, length))
            )

        monkeypatch.setattr(ObjectFileIO, "read", read)
        monkeypatch.setattr(
            ObjectFileIO, "_range",
            lambda storage, path, *more: self.timed(millis, path, lambda: ranged(storage, path, *more)),
        )  # fmt: skip

    def timed(self, millis, path, act):
        with self._lock:
            self.counts[path.rpartition("/")[2]] += 1
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            time.sleep(millis / 1000)
            return act()
        finally:
            with self._lock:
                self._now -= 1


def test_what_was_fetched_ahead_is_handed_out_once(storage, monkeypatch):
    storage.write_new("a", b"0123456789")
    watched = Watched(monkeypatch)
    storage.prefetch("a")
    storage.prefetch("a")
    assert storage.read("a", length=4) == b"0123"
    assert storage.read("a") == b"0123456789"
    storage.prefetch("a")
    with storage.open_input("a") as source:
        assert (source.size(), source.read()) == (10, b"0123456789")
    assert watched.counts == {"a": 3}


def test_a_missing_file_is_missed_by_who_reads_it(storage):
    storage.prefetch("none")
    with pytest.raises(NotFoundError, match="none"):
        storage.read("none")


def test_files_that_nobody_reads_are_forgotten(storage):
    for number in range(FILES_MAX + 9):
        storage.write_new(f"f{number}", b"x")
        storage.prefetch(f"f{number}")
    assert sum(storage._prefetched.holds(f"f{n}") for n in range(FILES_MAX + 9)) == FILES_MAX
    assert storage.read("f0") == b"x"


class Clock:
    millis = 1_700_000_000_000

    def now_millis(self):
        return self.millis


@pytest.mark.parametrize("passed", [AGE_MAX_MILLIS + 1, -1], ids=["old", "clock set back"])
def test_a_file_that_waited_long_is_fetched_again(passed):
    clock = Clock()
    location = parse_location("memory://prefetch/db.db/aged")
    requests = Requests(location, NO_OPTIONS, clock=clock)
    storage = ObjectFileIO(location, requests=requests)
    storage.write_new("a", b"old")
    for later, read in ((0, b"old"), (passed, b"new")):
        storage.replace("a", b"old")
        storage.prefetch("a")
        assert storage._prefetched.holds("a")
        ObjectFileIO(location).replace("a", b"new")  # by another process
        time.sleep(0.2)
        clock.millis += later
        assert storage._prefetched.holds("a") is (later == 0)
        assert storage.read("a") in (read, b"new")
        if later:
            storage.prefetch("a")
            clock.millis += later
            with storage.open_input("a") as source:
                assert source.read() == b"new"


@pytest.mark.parametrize("act", ["delete", "delete_many", "replace", "write_new", "forget"])
def test_a_file_that_changes_is_not_read_as_it_was_fetched(storage, act):
    storage.write_new("a", b"old")
    storage.prefetch("a")
    if act == "forget":
        ObjectFileIO(storage.location).replace("a", b"new")
        storage.forget_prefetched(["a", "none"])
    elif act == "delete_many":
        storage.delete_many(["a"])
    else:
        getattr(storage, act)("a", *([b"new"] if act != "delete" else []))
    assert not storage._prefetched.holds("a")
    if act.startswith("delete"):
        with pytest.raises(NotFoundError):
            storage.read("a")
    else:
        assert storage.read("a") == b"new"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_that_is_left_forgets_what_it_has_fetched(monkeypatch, threads):
    monkeypatch.setattr("lsm_engine.read.scan.LocalExecutor", lambda: LocalExecutor(threads))
    with lsm.open_catalog("sqlite://", warehouse=f"memory://prefetch/left{threads}") as catalog:
        columns = COLUMNS.append(pa.field("p", pa.int64(), nullable=False))
        options = {"bucket": "1", "write-only": "true"}
        table = catalog.create_table(
            "a.t", columns, primary_key=["id", "p"], partitioned_by=["p"], options=options
        )
        table.upsert([{"id": n, "p": n, "v": n} for n in range(40)])
        storage = table.session.file_io
        paths = [
            table.session.data_path(e) for e in table.session.live_entries(table.latest_snapshot())
        ]
        rows = table.scan().to_batches()
        next(rows)
        assert any(map(storage._prefetched.holds, paths))
        rows.close()
        assert not any(map(storage._prefetched.holds, paths))
        for path in paths:  # damaged, or deleted, since
            ObjectFileIO(storage.location).delete(path)
        with pytest.raises(NotFoundError):
            table.to_arrow()


def test_manifests_that_nobody_came_for_are_forgotten(monkeypatch):
    monkeypatch.setattr(manifests, "SMALL_BYTES", 0)  # each is decoded when it is asked for
    with lsm.open_catalog("sqlite://", warehouse="memory://prefetch/plans") as catalog:
        options = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "500"}
        table = catalog.create_table("a.t", COLUMNS, primary_key="id", options=options)
        for number in range(12):
            table.upsert([{"id": number, "v": number}])
        session = catalog.table("a.t").session
        forget_all()
        metas = session.manifest_metas(session.snapshots.latest())
        paths = [session.paths.manifest(meta.file_name) for meta in metas]
        ahead = session.manifests.ahead(metas)
        session.manifests.read(next(ahead))
        assert any(map(session.file_io._prefetched.holds, paths))
        ahead.close()
        assert not any(map(session.file_io._prefetched.holds, paths))


def test_manifests_and_small_files_are_read_together(monkeypatch):
    with lsm.open_catalog("sqlite://", warehouse="memory://prefetch/lake") as catalog:
        options = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "500"}
        table = catalog.create_table("a.t", COLUMNS, primary_key="id", options=options)
        for number in range(24):
            table.upsert([{"id": number, "v": number}])
        again = catalog.table("a.t")
        forget_all()
        watched = Watched(monkeypatch, millis=20)
        decoded = []
        together = manifests.decode_small_manifests
        monkeypatch.setattr(
            manifests,
            "decode_small_manifests",
            lambda files: decoded.append(files) or together(files),
        )
        assert again.to_arrow().num_rows == 24
        assert [len(files) for files in decoded] == [24]
        metas = again.session.manifest_metas(again.latest_snapshot())
        assert {watched.counts[meta.file_name] for meta in metas} == {1}
        assert len(metas) == 24
        assert watched.most >= 16, watched.most


@pytest.mark.parametrize("damage", [b"", b"Obj\x01 of nobody"])
def test_of_manifests_that_are_decoded_together_the_damaged_one_is_named(damage):
    where = f"memory://prefetch/damaged-{len(damage)}"
    with lsm.open_catalog("sqlite://", warehouse=where) as catalog:
        options = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "500"}
        table = catalog.create_table("a.t", COLUMNS, primary_key="id", options=options)
        for number in range(4):
            table.upsert([{"id": number, "v": number}])
        session = catalog.table("a.t").session
        path = session.paths.manifest(session.manifest_metas(table.latest_snapshot())[2].file_name)
        session.file_io.replace(path, damage)
        forget_all()
        with pytest.raises(CorruptFileError) as raised:
            table.to_arrow()
        assert path in str(raised.value)
