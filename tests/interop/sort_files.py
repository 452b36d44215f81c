"""Rows whose keys and values have every width and edge that a sort lookup file holds."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.data_files.reader import POSITION
from lsm_engine.lookup.sorted_stores import BlockCache, SortStore
from lsm_engine.lookup.store import RowLayout, StoredValue
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from tests.interop.our_tables import create

WRITTEN = Path(__file__).parent.parent / "fixtures" / "lookup-java-0.9.0"
"""Sort files that Java wrote: tests/interop/test_sort_files writes them anew with `--rewrite`."""
SHAPES = {
    "numbers": (("n", "big"), 1 << 10, "zstd", 0.05),
    "texts": (("s", "n"), 512, "zstd", 0.05),
    "one-text": (("s",), 4096, "none", None),
    "decimals": (("d", "w"), 512, "zstd", 0.01),
    "times": (("at", "day"), 512, "none", 0.05),
    "mixed": (("day", "s", "n"), 256, "zstd", None),
}
"""Per name: the key columns, the block size, the compression, the bloom filter's rate.

Java cannot compare keys of bytes.
"""
_COLUMNS = pa.schema(
    [
        ("n", pa.int32()),
        ("big", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(9, 2)),
        ("w", pa.decimal128(30, 4)),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("b", pa.binary()),
        ("f", pa.float64()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.timestamp("ms")),
    ]
)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 -- a TIMESTAMP has no zone


def rows_of(count: int) -> pa.Table:
    """Distinct rows; beside the keys every fifth value is null."""
    rows = [
        {
            "n": (number - 70) * 7_000_003 % (1 << 31) - (1 << 30),
            "big": (-1) ** number * number**5,
            "s": "é" * (number % 4) + f"{number * 7919 % 1000:x}" * (number % 60) + str(number),
            "d": Decimal(number * 37 - 500) / 100,
            "w": Decimal((-1) ** number * 12345678901234567890 * (number + 1)) / 10000,
            "at": _EPOCH + dt.timedelta(microseconds=(number - 5) * 86_399_999_983),
            "day": dt.date(1969, 12, 20) + dt.timedelta(days=number),
            "b": bytes([number % 256]) * (number % 200) + number.to_bytes(2, "big"),
            "f": number / 3 if number % 5 else None,
            "flag": number % 2 == 0 if number % 5 else None,
            "tiny": number % 128 - 64 if number % 5 else None,
            "short": _EPOCH + dt.timedelta(milliseconds=number) if number % 5 else None,
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=_COLUMNS)


def table_of(directory: Path, name: str) -> lsm.Table:
    """A table of ours with the key columns of a shape; Java opens it for its types."""
    keys = SHAPES[name][0]
    return create(directory, _COLUMNS, primary_key=keys, options={"bucket": "1"}, name="db.t")


def in_key_order(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Rows as a data file has them."""
    return rows.sort_by([(key, "ascending") for key in keys])


def stored(rows: pa.Table) -> pa.RecordBatch:
    """Rows numbered from 0, all inserted."""
    count = rows.num_rows
    numbers = pa.array(np.arange(count, dtype=np.int64))
    whole = rows.append_column(SEQUENCE_NUMBER, numbers)
    whole = whole.append_column(VALUE_KIND, pa.array(np.zeros(count, np.int8)))
    (batch,) = whole.combine_chunks().to_batches()
    return batch


def layout_of(schema: TableSchema) -> RowLayout:
    """What sort files keep of rows."""
    layout = RowLayout.from_schema(schema, StoredValue.ROW)
    assert POSITION not in layout.stored_names
    return layout


def opened(file: Path, schema: TableSchema) -> SortStore:
    """Our reader of a sort file."""
    data = pa.py_buffer(file.read_bytes())
    return SortStore(data, str(file), layout_of(schema), BlockCache(1 << 20))
