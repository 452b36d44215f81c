"""What goes wrong while a row group is encoded by its thread is told to whoever writes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsm_engine as lsm
from lsm_engine.io import data_file_writer
from lsm_engine.io.local import LocalFileIO

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


@pytest.mark.parametrize("failing", [0, 1, 5])
def test_an_error_in_any_row_group_is_raised_and_nothing_is_left(table, monkeypatch, failing):
    table.upsert(ROWS.slice(0, 1))
    before = data_files(table)
    write, groups = data_file_writer._OpenFile.write_row_group, []

    def broken(opened, rows):
        groups.append(rows.num_rows)
        if len(groups) == failing + 1:
            raise OSError(28, "No space left on device")
        write(opened, rows)

    monkeypatch.setattr(data_file_writer._OpenFile, "write_row_group", broken)
    with pytest.raises(OSError, match="No space left"):
        table.upsert(ROWS)
    assert len(groups) == failing + 1
    assert data_files(table) == before
    monkeypatch.undo()
    table.upsert(ROWS)
    assert table.scan().to_arrow().sort_by("k").to_pydict() == ROWS.to_pydict()


def test_groups_are_in_order_whatever_the_threads_do(table):
    table.upsert(ROWS)
    (path,) = data_files(table)
    keys = pq.read_table(f"{table.location}/{path}")["k"]
    assert keys.to_pylist() == list(range(20_000))
