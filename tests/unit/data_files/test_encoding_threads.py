"""Row groups that several threads encode: in order in the file, and an error told to whoever writes."""

import itertools
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.data_files import writer
from lsm_engine.data_files.parquet_output import ParquetEncoding
from lsm_engine.storage.local import LocalFileIO

OPTIONS = {"bucket": "1", "write-only": "true", "file.block-size": "8 kb"}
ROWS = pa.table(
    {"k": pa.array(range(20_000), pa.int64()), "v": [f"{n * 7919}" for n in range(20_000)]}
)


@pytest.fixture
def table(tmp_path):
    with lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path)) as catalog:
        yield catalog.create_table("default.t", ROWS.schema, primary_key=["k"], options=OPTIONS)


def data_files(table):
    paths = LocalFileIO(table.location).list("bucket-0")
    return [status.path for status in paths if "data-" in status.path]


@pytest.mark.parametrize("failing", [0, 5_000, 19_999])
def test_an_error_in_any_row_group_is_raised_and_nothing_is_left(table, monkeypatch, failing):
    table.upsert(ROWS.slice(0, 1))
    before = data_files(table)
    encode = ParquetEncoding.encode

    def broken(encoding, rows):
        if pc.is_in(rows["k"], pa.array([failing])).combine_chunks().true_count:
            raise OSError(28, "No space left on device")
        return encode(encoding, rows)

    monkeypatch.setattr(ParquetEncoding, "encode", broken)
    with pytest.raises(OSError, match="No space left"):
        table.upsert(ROWS)
    assert data_files(table) == before
    monkeypatch.undo()
    table.upsert(ROWS)
    assert table.scan().to_arrow().sort_by("k").to_pydict() == ROWS.to_pydict()


@pytest.mark.parametrize("slow", [0, 3])
def test_groups_are_in_order_whichever_is_encoded_first(table, monkeypatch, slow):
    encode, calls = ParquetEncoding.encode, itertools.count()

    def uneven(encoding, rows):
        if next(calls) == slow:
            time.sleep(0.1)
        return encode(encoding, rows)

    monkeypatch.setattr(ParquetEncoding, "encode", uneven)
    table.upsert(ROWS)
    (path,) = data_files(table)
    stored = pq.ParquetFile(f"{table.location}/{path}")
    assert stored.num_row_groups > 4
    assert stored.read()["k"].to_pylist() == list(range(20_000))


def test_a_write_is_encoded_in_groups_of_one_size(table, monkeypatch):
    monkeypatch.setattr(writer, "_ROW_GROUP_MIN_ROWS", 15_000)
    table.upsert(ROWS)
    (path,) = data_files(table)
    footer = pq.read_metadata(f"{table.location}/{path}")
    assert [footer.row_group(at).num_rows for at in range(footer.num_row_groups)] == [10_000] * 2


def test_no_more_rows_wait_for_encoders_than_a_group_may_hold(table, monkeypatch):
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 1)
    most, encode = [], writer.DataFileWriter._encode

    def watched(writer, row_count):
        encode(writer, row_count)
        most.append(len(writer._encoded))

    monkeypatch.setattr(writer.DataFileWriter, "_encode", watched)
    table.upsert(ROWS)
    assert set(most) == {1}
    assert table.scan().to_arrow().num_rows == 20_000
