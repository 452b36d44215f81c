"""Sort lookup files both ways: Java opens ours, we open Java's, and the bytes are the same."""

from itertools import pairwise

import pyarrow as pa
import pytest

from lsm_engine.lookup.sorted_stores import write_sorted
from lsm_engine.lookup.store import StoredValue, StoreSettings, encode_keys, encode_values
from lsm_engine.options.modes import LookupFileType
from tests.interop.sort_files import (
    SHAPES,
    WRITTEN,
    in_key_order,
    layout_of,
    rows_of,
    stored,
    table_of,
)
from tests.unit.lookup.test_java_sort_files import check_opened

pytestmark = [pytest.mark.interop, pytest.mark.slow]
ROWS = 300


def settings_of(name):
    _, block_bytes, compression, fpp = SHAPES[name]
    return StoreSettings(
        file_type=LookupFileType.SORT, value=StoredValue.ROW, bloom_fpp=fpp, hash_load_factor=0.75,
        block_size=block_bytes, compressed=compression != "none", decoded_blocks_bytes=1 << 20,
    )  # fmt: skip


def hexes(pieces):
    data, offsets = pieces
    return [data[a:b].tobytes().hex() for a, b in pairwise(offsets)]


@pytest.mark.parametrize("name", SHAPES)
def test_java_opens_ours(name, java, tmp_path):
    """Every key that is there is found with its bytes, every other key is not."""
    table = table_of(tmp_path, name)
    keys, layout = SHAPES[name][0], layout_of(table.schema)
    rows = rows_of(ROWS)
    there = in_key_order(rows.slice(0, ROWS // 2), keys)
    file = tmp_path / "ours.sst"
    with file.open("wb") as sink:
        batches = iter(pa.Table.from_batches([stored(there)]).to_batches(max_chunksize=40))
        write_sorted(sink, batches, layout, settings_of(name), data_file="x")
    everything = pa.concat_tables([there, rows.slice(ROWS // 2)]).combine_chunks()
    answers = java.sort_read(
        table.location, everything.select(keys), file, compression=SHAPES[name][2]
    )
    batch = stored(everything)
    assert [one["key"] for one in answers] == hexes(encode_keys(batch, layout))
    values = hexes(encode_values(batch, layout))
    for number, (answer, value) in enumerate(zip(answers, values, strict=True)):
        if number < there.num_rows:
            assert answer["value"] == value
            assert answer["again"] == value[:-18]  # the row, less sequence number and kind
        else:
            assert answer["value"] is None


@pytest.mark.parametrize("name", SHAPES)
def test_we_open_javas(name, java, tmp_path, rewrite):
    table = table_of(tmp_path, name)
    keys, block_bytes, compression, fpp = SHAPES[name]
    rows = in_key_order(rows_of(ROWS // 2), keys)
    file = tmp_path / "java.sst"
    count = java.sort_write(
        table.location, rows, file, block_bytes=block_bytes, compression=compression, fpp=fpp
    )
    assert count == ROWS // 2
    check_opened(file, table.schema, name)
    kept = WRITTEN / f"{name}.sst"
    if rewrite:
        WRITTEN.mkdir(exist_ok=True)
        kept.write_bytes(file.read_bytes())
    if compression == "none":  # zstd may be of another version, with other bytes
        assert kept.read_bytes() == file.read_bytes()
    ours = tmp_path / "ours.sst"
    with ours.open("wb") as sink:
        write_sorted(
            sink, iter([stored(rows)]), layout_of(table.schema), settings_of(name), data_file="x"
        )
    if compression == "none":
        assert ours.read_bytes() == file.read_bytes()
