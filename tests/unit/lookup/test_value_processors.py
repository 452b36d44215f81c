"""What lookup files keep of rows: everything, nothing, positions, or both; by each kind of file."""

import numpy as np
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.cache.disk import DiskCache
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.kernels.gather import gather
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.lookup.lookup import TableQuery
from lsm_engine.lookup.store import StoredValue
from lsm_engine.storage.clock import SystemClock
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from tests.unit.lookup.stores import KINDS, with_options

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
POSITION = "_POSITION"


@pytest.fixture
def table(tmp_path):
    catalog = lsm.open_catalog(f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "wh"))
    table = catalog.create_table(
        "d.t", SCHEMA, primary_key=["k"],
        options={"write-only": "true", "file.block-size": "4 kb", "commit.fsync": "false"},
    )  # fmt: skip
    table.upsert(rows_of(range(0, 3000, 3), 1))
    table.compact(full=True)
    table.upsert(rows_of(range(0, 600, 2), 2))
    table.delete(rows_of(range(0, 60, 6)).select(["k"]))
    return table


def rows_of(numbers, value=0):
    numbers = list(numbers)
    return pa.table({"k": [f"key-{n:05d}" for n in numbers], "v": [value * n for n in numbers]})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", list(StoredValue))
def test_each_value_of_each_kind(kind, value, table, tmp_path):
    cache = DiskCache(SystemClock(), str(tmp_path / "cache"))
    session = with_options(table.session, lookup__local_file_type=kind)
    with TableQuery(session, cache, value=value) as query:
        (partition,) = query._view.loaded.values()
        (levels,) = partition.buckets.values()
        asked = pa.array([f"key-{n:05d}" for n in range(3200)])
        fields = table.schema.select(["k"])
        batch, _ = KeyBatch.from_columns([asked], [field.type for field in fields])
        hits = levels.find(batch)
        there = set(range(0, 3000, 3)) | set(range(0, 600, 2))
        assert (hits.store >= 0).tolist() == [n in there for n in range(3200)]
        for number, (store, file) in enumerate(zip(hits.stores, hits.files, strict=True)):
            some = np.flatnonzero(hits.store == number)
            check_store(store, file, hits.handle[some], some, value, table)


def check_store(store, file, handles, keys, value, table):
    in_file = table.session.context().data_file(EMPTY_ROW, 0, file.file_name)
    stored = pa.parquet.read_table(f"{table.location}/{in_file}")
    places = {key: at for at, key in enumerate(stored["_KEY_k"].to_pylist())}
    wanted = [places[f"key-{n:05d}"] for n in keys.tolist()]
    if value in (StoredValue.POSITION, StoredValue.POSITION_AND_ROW) or hasattr(store, "keys"):
        assert store.positions(handles).tolist() == wanted
    if value in (StoredValue.ROW, StoredValue.POSITION_AND_ROW):
        names = ["k", "v", SEQUENCE_NUMBER, VALUE_KIND]
        fetched = store.fetch(handles, names)
        found = gather(fetched.sources, fetched.run, fetched.row)
        rows = stored.take(pa.array(wanted)).select(names)
        assert found.to_pydict() == rows.to_pydict()
    if value is StoredValue.NOTHING:
        assert store.fetch(handles, []).sources[0].num_columns == 0
