"""Rows that a filter keeps, read by their pages: those of a whole read that is filtered afterwards."""

from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.data_files import parquet_pages
from lsm_engine.format.deletion_vector import DeletionVector
from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.unit.data_files.tables import foreign, read_back, rows, schema, write

COUNT = 240
COLUMNS = (
    ("k", "INT NOT NULL"),
    ("x", "DOUBLE"),
    ("text", "STRING"),
    ("few", "STRING"),
    ("flag", "BOOLEAN"),
    ("amount", "DECIMAL(20, 2)"),
    ("at", "TIMESTAMP(6)"),
    ("fine", "TIMESTAMP(9)"),
    ("list", {"type": "ARRAY", "element": "INT"}),
)
OF = schema(*COLUMNS)
LATER = schema(
    ("k", "BIGINT NOT NULL", 0),
    ("added", "INT", 20),
    ("x", "DOUBLE", 1),
    ("words", "STRING", 2),
    ("few", "STRING", 3),
    ("amount", "DECIMAL(22, 2)", 5),
    ("at", "TIMESTAMP(6)", 6),
    ("list", {"type": "ARRAY", "element": "INT"}, 8),
    id_=1,
)


def made_rows(seed):
    random = np.random.default_rng(seed)

    def some(values):
        return [
            None if gone else value
            for value, gone in zip(values, random.random(COUNT) < 0.2, strict=True)
        ]

    whole = random.integers(0, 10**6, COUNT).tolist()
    return rows(
        OF,
        {
            "k": list(range(COUNT)),
            "x": some([float("nan") if one % 5 == 0 else one / 7 for one in whole]),
            "text": some(["t" * (one % 9) + str(one) for one in whole]),
            "few": some([f"few {one % 4}" for one in whole]),
            "flag": some([one % 2 == 0 for one in whole]),
            "amount": pa.array(some(whole), pa.int64())
            .cast(pa.decimal128(21, 2))
            .cast(pa.decimal128(20, 2)),
            "at": pa.array(some(whole), pa.int64()).cast(OF.arrow.field("at").type),
            "fine": pa.array(some(whole), pa.int64()).cast(OF.arrow.field("fine").type),
            "list": some([[one, None] for one in whole]),
        },
    )


ROWS = made_rows(7)
HOW = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]),
        "use_dictionary": st.sampled_from([False, True, ["few"]]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([64, 1 << 20]),
        "write_batch_size": st.integers(1, 9),
        "max_rows_per_page": st.integers(1, 40),
        "row_group_size": st.integers(30, COUNT),
        "store_schema": st.booleans(),
        "write_page_checksum": st.booleans(),
        "write_page_index": st.booleans(),
    }
)
FILTERS = st.one_of(
    st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=6).map(
        lambda keys: (reduce(or_, [pc.field("k") == key for key in keys]), ["k"])
    ),
    st.tuples(st.integers(0, COUNT), st.integers(0, 40)).map(
        lambda ends: ((pc.field("k") >= ends[0]) & (pc.field("k") < sum(ends)), ["k"])
    ),
    st.sampled_from(
        [
            (pc.field("x") > 140_000.0, ["x"]),
            (pc.is_nan(pc.field("x")), ["x"]),
            (pc.field("few") == "few 1", ["few"]),
            ((pc.field("few") == "few 1") & (pc.field("k") < 50), ["few", "k"]),
            (pc.is_null(pc.field("amount")), ["amount"]),
            (pc.field("k") >= 0, ["k"]),
            (pc.scalar(value=True), []),
        ]
    ),
)


@pytest.fixture(autouse=True)
def few_rows_a_page(monkeypatch):
    """Let a page be worth leaving out at a few rows."""
    monkeypatch.setattr(parquet_pages, "_PAGE_ROWS", 8)


def answers(disk, meta, file_schema, read_schema, deleted, where, names):
    """Return the rows by their pages, and those of a whole read."""
    found = []
    for is_matching in (True, False):
        with read_back(disk, meta, file_schema, read_schema) as reader:
            if deleted:
                reader.without(DeletionVector.from_positions(np.array(sorted(deleted), np.int64)))
            groups = range(reader.row_group_count)
            if is_matching:
                some = list(reader.matching(groups, kept_by(where), names))
                found.append(pa.Table.from_batches(some, schema=reader.schema))
            else:
                found.append(reader.read(groups).filter(where))
    return found


def kept_by(where):
    """What positions a filter keeps, as readers are given it."""

    def positions(rows):
        numbered = rows.append_column("_number", pa.array(np.arange(rows.num_rows)))
        return np.sort(numbered.filter(where).column("_number").to_numpy())

    return positions


def same(one, other):
    """Whether tables hold the same rows; NaN is itself."""
    return one.num_rows == other.num_rows and str(one.to_pylist()) == str(other.to_pylist())


@given(
    how=HOW,
    asked=FILTERS,
    deleted=st.sets(st.integers(0, COUNT - 1), max_size=30),
    read_schema=st.sampled_from([OF, LATER]),
)
def test_pages_of_any_writer(how, asked, deleted, read_schema):
    disk, meta = foreign(pa.Table.from_batches([ROWS]), version="2.6", **how)
    by_pages, whole = answers(disk, meta, OF, read_schema, deleted, *asked)
    assert same(by_pages, whole.sort_by("k"))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@given(asked=FILTERS, deleted=st.sets(st.integers(0, COUNT - 1), max_size=30))
def test_every_format_of_ours(file_format, asked, deleted):
    known = [column for column in COLUMNS if column[0] != "fine" or file_format != "avro"]
    of = schema(*known, **{"file.format": file_format})
    disk = MemoryFileIO()
    (meta,) = write(disk, of, ROWS.select(of.key_value_arrow.names))
    by_pages, whole = answers(disk, meta, of, of, deleted, *asked)
    assert same(by_pages, whole.sort_by("k"))


def test_few_pages_are_read_and_decompressed(monkeypatch):
    of = schema(*COLUMNS[:3])
    texts = [f"{at}" * 1_000 for at in range(COUNT)]
    made = rows(of, {"k": list(range(COUNT)), "x": [0.5] * COUNT, "text": texts})
    table, how = (
        pa.Table.from_batches([made]),
        {"max_rows_per_page": 8, "write_batch_size": 8, "write_statistics": False},
    )
    disk, meta = foreign(table, store_schema=False, use_dictionary=False, compression="none", **how)
    pages, read = [], []
    add, read_file = parquet_pages._PendingPages.add, parquet_pages._FileBytes._read

    def added(self, *given):
        pages.extend(given[-1])
        return add(self, *given)

    def counted(self, *given):
        read_file(self, *given)
        read.append(len(self._newest))

    monkeypatch.setattr(parquet_pages._PendingPages, "add", added)
    monkeypatch.setattr(parquet_pages._FileBytes, "_read", counted)
    monkeypatch.setattr(parquet_pages, "_FEW_PAGES_BYTES", 1024)  # so that texts are a large column
    with read_back(disk, meta, of) as reader:
        (batch,) = reader.matching([0], kept_by(pc.field("k") == 77), ["k"])
    assert batch.column("k").to_pylist() == [77]
    assert len(pages) == len(of.key_value_arrow.names) - 1  # of thirty pages each
    assert batch.column("text").to_pylist() == ["77" * 1_000]
    assert 0 < sum(map(len, pages)) <= sum(read) < meta.file_size / 3


def test_a_damaged_page_header_is_no_other_answer():
    of = schema(*COLUMNS[:2])
    table = pa.Table.from_batches([rows(of, {"k": list(range(COUNT)), "x": [7.0] * COUNT})])
    how = {"max_rows_per_page": 8, "use_dictionary": False, "write_page_checksum": True}
    disk, meta = foreign(table, store_schema=False, **how)
    name = f"bucket-0/{meta.file_name}"
    sound = disk.read(name)
    start = pq.read_metadata(pa.BufferReader(sound)).row_group(0).column(1).data_page_offset
    refused = 0
    for at in range(start, start + 24):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            other = MemoryFileIO()
            other.write_new(name, bytes(damaged))
            try:
                with read_back(other, meta, of) as reader:
                    (batch,) = reader.matching([0], kept_by(pc.field("k") == 77), ["k"])
            except CorruptFileError:
                refused += 1
            else:
                assert batch.column("x").to_pylist() == [7.0]
    assert refused > 60
