"""Files of a far store are fetched together, before they are read one after another."""

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import NotFoundError
from lsm_engine.io.object_store import ObjectFileIO
from lsm_engine.io.prefetched import FILES_MAX
from lsm_engine.io.storage_location import parse_location

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


def test_manifests_and_small_files_are_read_together(monkeypatch):
    with lsm.open_catalog("sqlite://", warehouse="memory://prefetch/lake") as catalog:
        options = {"bucket": "1", "write-only": "true", "manifest.merge-min-count": "500"}
        table = catalog.create_table("a.t", COLUMNS, primary_key="id", options=options)
        for number in range(24):
            table.upsert([{"id": number, "v": number}])
        again = catalog.table("a.t")
        watched = Watched(monkeypatch, millis=20)
        assert again.to_arrow().num_rows == 24
        metas = again.session.manifest_metas(again.latest_snapshot())
        assert {watched.counts[meta.file_name] for meta in metas} == {1}
        assert len(metas) == 24
        assert watched.most >= 16, watched.most
