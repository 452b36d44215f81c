"""Sort lookup files that Java Paimon 0.9.0 wrote open here, and hold what was put into them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_engine.kernels.gather import gather
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.types.table_schema import TableSchema
from tests.interop.sort_files import (
    SHAPES,
    WRITTEN,
    in_key_order,
    layout_of,
    opened,
    rows_of,
    stored,
    table_of,
)

COUNT = 150


@pytest.mark.parametrize("name", SHAPES)
def test_javas_files_open_here(name, tmp_path):
    check_opened(WRITTEN / f"{name}.sst", table_of(tmp_path, name).schema, name)


def check_opened(file: Path, schema: TableSchema, name: str) -> None:
    """All rows are found, whole, and no other key is."""
    store = opened(file, schema)
    keys = SHAPES[name][0]
    rows = rows_of(2 * COUNT)
    fields = schema.select(schema.trimmed_primary_keys)
    shuffled = rows.take(pa.array(np.random.default_rng(1).permutation(2 * COUNT)))
    columns = [shuffled.column(f.name).combine_chunks() for f in fields]
    batch, places = KeyBatch.from_columns(columns, [f.type for f in fields])
    handles = store.find(batch, np.arange(len(batch), dtype=np.int64)).last
    numbers = [one.as_py() for one in shuffled.take(pa.array(places)).column("day")]
    there = {one.as_py() for one in rows.slice(0, COUNT).column("day")}
    assert [handle >= 0 for handle in handles.tolist()] == [number in there for number in numbers]
    hit = handles >= 0
    fetched = store.fetch(handles[hit], layout_of(schema).stored_names)
    found = gather(fetched.sources, fetched.run, fetched.row)
    written = pa.Table.from_batches([stored(in_key_order(rows.slice(0, COUNT), keys))])
    assert found.to_pylist() == written.select(found.schema.names).to_pylist()
