"""Data files that are too large to be fetched whole: columns come together, footers are kept by the process."""

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import NotFoundError
from lsm_engine.data_files import reader
from lsm_engine.storage.checksum import parquet_footer
from lsm_engine.storage.object_input import _HELD_BYTES, TAIL_BYTES, WHOLE_BYTES, ObjectInput
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.stores.meters import LogicalMeter

ROWS = 60_000
NAMES = [f"c{number}" for number in range(6)]


def values():
    random = np.random.default_rng(1)
    return pa.table(
        {"k": pa.array(np.arange(ROWS)), **{name: pa.array(random.random(ROWS)) for name in NAMES}}
    )


@pytest.fixture
def table(tmp_path):
    url, warehouse = (
        f"sqlite:///{tmp_path}/c.db",
        f"memory://{tmp_path.name.replace('_', '-')}/lake",
    )
    with lsm.open_catalog(url, warehouse=warehouse) as catalog:
        made = catalog.create_table(
            "a.t", values().schema, primary_key=["k"],
            options={"bucket": "1", "file.block-size": "1 MB"},
        )  # fmt: skip
    made.upsert(values())
    made.compact(full=True)
    (split,) = made.scan().splits()
    (file,) = split.files
    assert file.file_size > WHOLE_BYTES
    reader._cached.clear()
    return made


def test_requests_and_rounds(table, monkeypatch):
    meter = LogicalMeter(monkeypatch)
    # The newest snapshot, by two requests, at once or not; the footer; all row groups.
    assert cost(meter, lambda: table.to_arrow()) <= (4, 4)
    assert cost(meter, lambda: table.to_arrow()) <= (3, 3)
    assert cost(meter, lambda: table.to_arrow(columns=["k", "c3"])) <= (3, 3)
    query = table.query()
    assert cost(meter, lambda: query.lookup(values().slice(5, 1).select(["k"]))) == (1, 1)
    assert cost(meter, lambda: query.lookup(values().slice(9, 1).select(["k"]))) == (0, 0)


def cost(meter, act):
    requests, rounds, _ = meter.measure(act)
    return requests, rounds


def test_rows_are_those_of_the_file(table):
    wanted = values()
    assert table.to_arrow().sort_by("k").to_pydict() == wanted.to_pydict()
    some = table.to_arrow(columns=["c3", "k"]).sort_by("k")
    assert some.to_pydict() == wanted.select(["c3", "k"]).to_pydict()
    assert (
        table.to_arrow(where="k = 41234")["c5"].to_pylist() == wanted["c5"][41234:41235].to_pylist()
    )
    found = table.lookup(wanted.slice(300, 2).select(["k"]))
    assert found["c1"].to_pylist() == wanted["c1"][300:302].to_pylist()


def test_a_deep_check_reads_footers_anew(table):
    assert table.to_arrow().num_rows == ROWS
    assert len(reader._cached) == 1
    (split,) = table.scan().splits()
    file_io = table.session.file_io
    (path,) = [one.path for one in file_io.list_files("") if split.files[0].file_name in one.path]
    data = bytearray(file_io.read(path))
    data[-30] ^= 1  # of the footer
    file_io.replace(path, bytes(data))
    assert not table.verify(deep=True).is_clean
    assert table.to_arrow().num_rows == ROWS  # its pages are sound, and its footer is known


def test_footers_are_bounded_and_of_far_stores_alone(table, monkeypatch):
    assert table.to_arrow().num_rows == ROWS
    ((key, footer),) = reader._cached.items()
    assert key[0] == table.session.file_io
    assert reader._cached.currsize == 8 * footer.serialized_size
    small = reader.LRUCache(1, getsizeof=reader._size_of)
    monkeypatch.setattr(reader, "_cached", small)
    assert table.to_arrow().num_rows == ROWS  # it is too large to be kept
    assert not small
    near = MemoryFileIO()
    data = table.session.file_io.read(
        next(one.path for one in table.session.file_io.list_files("bucket-0"))
    )
    near.write_new("f.parquet", data)
    with near.open_input("f.parquet") as source:
        found = reader.kept_footer(near, source, None, file_name="f.parquet")
        assert found.equals(parquet_footer(source, None, file_name="f.parquet"))
    assert not small


def test_ranges_of_a_stored_file_are_read_together(table):
    file_io = table.session.file_io
    data = np.random.default_rng(3).bytes(2 << 20)
    file_io.write_new("ranges", data)
    ranges = [(0, 4), (100, 50), (1_000_000, 300_000), (7, 1), (512, 256)]
    with file_io.open_input("ranges", size=len(data)) as source:
        source.hold_ranges(ranges)
        for start, count in ranges:
            source.seek(start)
            assert source.read(count) == data[start : start + count]
    with (
        pytest.raises(NotFoundError),
        file_io.open_input("none", size=len(data)) as source,
    ):
        source.hold_ranges(ranges)


class Fetched:
    """A file of numbered bytes, and what was fetched of it."""

    def __init__(self, size):
        self.data = np.arange(size, dtype=np.uint8).tobytes()
        self.one, self.many = [], []

    def input(self):
        return ObjectInput(self._one, len(self.data), fetch_many=self._many)

    def _one(self, start, count):
        self.one.append((start, count))
        return self.data[start : start + count]

    def _many(self, ranges):
        self.many.append(list(ranges))
        return [self.data[start : start + count] for start, count in ranges]


def test_held_ranges_are_fetched_once_and_replaced():
    file = Fetched(4 << 20)
    source = file.input()
    assert file.one == []  # nothing before something is read
    source.seek(-8, 2)
    assert source.read() == file.data[-8:]
    assert file.one == [(len(file.data) - TAIL_BYTES, TAIL_BYTES)]
    source.hold_ranges([(100, 50), (1 << 20, 300_000), (len(file.data) - 10, 10)])
    assert file.many == [[(100, 50), (1 << 20, 300_000)]]  # the end is known
    for start, count in ((100, 50), (110, 3), (1 << 20, 300_000), ((1 << 20) + 5, 9)):
        source.seek(start)
        assert source.read(count) == file.data[start : start + count]
    assert len(file.one) == 1
    source.hold_ranges([(0, 10)])
    source.seek(1 << 20)
    assert source.read(300_000) == file.data[1 << 20 :][:300_000]
    assert file.one[1:] == [(1 << 20, 300_000)]  # let go of


def test_no_more_is_held_than_a_bound():
    file = Fetched(100)
    half = _HELD_BYTES // 2 + 1
    file.input().hold_ranges([(0, half), (half, half), (2 * half, 1)])
    assert file.many == [[(0, half)]]
    plain = ObjectInput(file._one, 100)
    plain.hold_ranges([(0, 10)])
    assert plain.read(10) == file.data[:10]
