"""Reading ahead: the rows and order of reading one part after another, in bounded memory, and no thread left."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lsm_engine as lsm
from lsm_engine.read import merge
from lsm_engine.read.prefetch import read_ahead
from lsm_engine.table.components import LocalExecutor

BATCH_BYTES = 8 * 1024


def batch(number):
    return pa.record_batch({"n": pa.array(np.full(1024, number))})


class Parts:
    """Parts of `length` batches each, which count what has been read and not yet taken."""

    def __init__(self, count, length, *, fails_in=None):
        self.taken = 0
        self.made = 0
        self.most_ahead = 0
        self.asked_for = 0
        self.closed = 0
        self._lock = threading.Lock()
        self._count, self._length, self._fails_in = count, length, fails_in

    def __iter__(self):
        for part in range(self._count):
            self.asked_for += 1
            yield lambda part=part: self._read(part)

    def _read(self, part):
        try:
            for number in range(self._length):
                if self._fails_in == part and number == 1:
                    raise lsm.NotFoundError("gone", file=f"part {part}")
                with self._lock:
                    self.made += 1
                    self.most_ahead = max(self.most_ahead, self.made - self.taken)
                yield batch(part * self._length + number)
        finally:
            with self._lock:
                self.closed += 1

    def take(self, batches):
        for one in batches:
            with self._lock:
                self.taken += 1
            yield one["n"][0].as_py()


def no_reader_left():
    return not [one for one in threading.enumerate() if one.name.startswith("lsm-read")]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_parts_come_in_order(threads, count):
    parts = Parts(count, 3)
    assert list(parts.take(read_ahead(parts, threads=threads))) == list(range(3 * count))
    assert parts.closed == count
    assert no_reader_left()


def test_a_slow_taker_is_not_overrun():
    parts = Parts(6, 200)
    taking = parts.take(read_ahead(parts, threads=2, most_bytes=20 * BATCH_BYTES))
    assert next(taking) == 0
    until = time.monotonic() + 60
    while parts.made < 1 + 20 and time.monotonic() < until:  # the threads go as far as they may
        time.sleep(0.001)
    assert parts.asked_for == 2
    assert list(taking) == list(range(1, 1200))
    assert 10 <= parts.most_ahead <= 20 + 1  # ten each, and one that was taken and not yet counted


def test_an_error_comes_in_its_place():
    parts = Parts(5, 3, fails_in=2)
    seen = []
    with pytest.raises(lsm.NotFoundError, match="gone"):
        seen.extend(iter(parts.take(read_ahead(parts, threads=3))))
    assert no_reader_left()
    parts = Parts(5, 3, fails_in=2)
    taking = parts.take(read_ahead(parts, threads=3))
    assert [next(taking) for _ in range(7)] == list(range(7))
    with pytest.raises(lsm.NotFoundError, match="gone"):
        next(taking)


def test_who_stops_early_leaves_no_thread_and_no_open_part():
    parts = Parts(6, 200)
    batches = read_ahead(parts, threads=3, most_bytes=6 * BATCH_BYTES)
    next(batches)
    batches.close()
    assert no_reader_left()
    assert parts.closed == 3
    assert parts.asked_for == 3


def test_an_error_keeps_no_rows_once_it_is_dropped():
    held = []

    def part():
        rows = np.zeros(1024)
        held.append(weakref.ref(rows))
        yield batch(0)
        raise lsm.NotFoundError("gone", rows=len(rows))

    gc.disable()  # which would free them some time
    try:
        with pytest.raises(lsm.NotFoundError) as raised:
            list(read_ahead([part] * 2, threads=2))
        assert any(one() is not None for one in held)  # whichever part's thread came first
        del raised
        assert [one() is None for one in held] == [True] * 2
    finally:
        gc.enable()


def test_an_interrupt_while_a_thread_is_sent_is_the_error(monkeypatch):
    submit, begun, go_on = ThreadPoolExecutor.submit, threading.Event(), threading.Event()

    def part():
        begun.set()
        assert go_on.wait(60)
        yield batch(0)

    def interrupted(pool, work):
        submit(pool, work)
        assert begun.wait(60)
        threading.Timer(0.05, go_on.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(read_ahead([part] * 2, threads=2))
    assert no_reader_left()


HALF_TAKEN = """
import time
import numpy as np
import pyarrow as pa
from lsm_engine.read.prefetch import read_ahead

made = []

def part():
    for _ in range(100):
        made.append(1)
        yield pa.record_batch({"n": np.zeros(1024)})

batches = read_ahead([part] * 3, threads=2, most_bytes=20 * 8192)
next(batches)
while len(made) < 1 + 20:  # until no thread may read on
    time.sleep(0.001)
print("done")
"""


def test_an_interpreter_ends_while_rows_are_half_taken():
    # It waits for the threads of pools before it drops what the program still holds.
    ended = subprocess.run(
        [sys.executable, "-c", HALF_TAKEN], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


COUNT = 400_000


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    return catalog.create_table(
        "d.t",
        pa.schema([("id", pa.int64()), ("v", pa.int64())]),
        primary_key=["id"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_file_cut_into_parts_gives_each_row_once(table, file_format, monkeypatch):
    table.alter(lsm.SetOption(key="file.format", value=file_format))
    ids = np.arange(COUNT)
    table.upsert(pa.table({"id": ids, "v": ids}))
    table.compact(full=True)
    table.upsert(pa.table({"id": ids[::1000], "v": -ids[::1000]}))
    monkeypatch.setattr("lsm_engine.read.scan._PART_BYTES", 1)
    monkeypatch.setattr(LocalExecutor, "__init__", lambda self: setattr(self, "threads", 3))
    (split,) = table.scan().splits()
    parts = [part for file in split.files for part in merge.file_parts(file, 1)]
    assert sum(map(len, parts)) == COUNT + COUNT // 1000
    assert (len(parts) > len(split.files)) == (file_format != "avro")
    rows = table.scan().to_arrow().sort_by("id")
    assert rows["id"].to_numpy().tolist() == ids.tolist()
    assert rows["v"].to_numpy().tolist() == np.where(ids % 1000, ids, -ids).tolist()
    few = (
        table.scan(where=(pc.field("id") >= 300_000) & (pc.field("id") < 300_010))
        .to_arrow()
        .sort_by("id")
    )
    assert few["id"].to_pylist() == list(range(300_000, 300_010))
