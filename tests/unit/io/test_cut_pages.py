"""Rows cut out of the pages of a column: those that PyArrow takes of the decoded column."""

import decimal
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.io.parquet_pages import PageReader
from lsm_engine.io.parquet_stats import leaf_positions
from tests.kernel_forms import FORMS, in_form

COUNT = 3_000
RANDOM = np.random.default_rng(11)
NUMBERS = RANDOM.integers(-(10**9), 10**9, COUNT)
GONE = RANDOM.random(COUNT) < 0.3
IN_STRETCHES = np.arange(COUNT) % 700 < 300


def few_and_many(values, **how):
    """A column without nulls, with some, with stretches of them, and with nothing else."""
    for mask in (None, GONE, IN_STRETCHES, np.ones(COUNT, np.bool_)):
        yield pa.array(values, mask=mask, **how)


TEXTS = np.array(["x" * (one % 23) + str(one) for one in NUMBERS], object)
FEW = np.array([f"few {one % 5}" for one in NUMBERS], object)
DECIMALS = [decimal.Decimal(int(one)).scaleb(-2) for one in NUMBERS]
TIMES = pa.array(NUMBERS).cast(pa.timestamp("us"))
FIXED = np.array([int(one).to_bytes(7, "little", signed=True) for one in NUMBERS], object)
COLUMNS = {
    f"{name}{at}": column
    for name, made in {
        "int": few_and_many(NUMBERS),
        "short": few_and_many((NUMBERS % 100).astype(np.int16), type=pa.int16()),
        "double": few_and_many(np.where(NUMBERS % 7 == 0, math.nan, NUMBERS / 3)),
        "float": few_and_many((NUMBERS / 3).astype(np.float32)),
        "bool": few_and_many(NUMBERS % 3 == 0),
        "text": few_and_many(TEXTS),
        "few": few_and_many(FEW),
        "decimal": few_and_many(DECIMALS, type=pa.decimal128(25, 2)),
        "fixed": few_and_many(FIXED, type=pa.binary(7)),
        "day": few_and_many(np.array(NUMBERS % 20_000, np.int32)),
    }.items()
    for at, column in enumerate(made)
}
TABLE = (
    pa.table(COLUMNS).append_column("at", TIMES).append_column("ns", TIMES.cast("timestamp[ns]"))
)
CHOICES = {
    "one": [1_234],
    "first and last": [0, COUNT - 1],
    "one in fifty": sorted(RANDOM.choice(COUNT, COUNT // 50, replace=False).tolist()),
    "neighbours": list(range(700, 1_100)),
    "all": list(range(COUNT)),
}
WRITERS = {
    "as ours": {
        "use_dictionary": ["few0", "few1", "few2"],
        "compression": "zstd",
        "write_page_checksum": True,
    },
    "dictionaries": {"use_dictionary": True, "compression": "snappy"},
    "dictionaries given up": {"use_dictionary": True, "dictionary_pagesize_limit": 2_000},
    "second version": {"use_dictionary": True, "data_page_version": "2.0", "compression": "gzip"},
    "second, plain": {"use_dictionary": False, "data_page_version": "2.0", "compression": "none"},
    "INT96": {"use_deprecated_int96_timestamps": True, "use_dictionary": False},
}


def stored(**how):
    sink = pa.BufferOutputStream()
    pq.write_table(
        TABLE, sink, store_schema=False, max_rows_per_page=400, write_batch_size=100, **how
    )
    return sink.getvalue()


def cut(file, rows, *, verify_checksums=True):
    source = pa.BufferReader(file)
    metadata = pq.read_metadata(pa.BufferReader(file))
    reader = PageReader(source, metadata, verify_checksums=verify_checksums)
    assert reader.can_cut
    leaves = leaf_positions(pq.read_schema(pa.BufferReader(file)))
    made = reader.rows(0, leaves, np.array(rows, np.int64))
    return None if made is None else pq.read_table(pa.BufferReader(made))


@pytest.mark.parametrize("rows", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("how", WRITERS.values(), ids=WRITERS)
def test_rows_are_those_of_the_whole_column(how, rows):
    file = stored(**how)
    whole = pq.read_table(pa.BufferReader(file)).take(rows)
    for form in FORMS if len(rows) < COUNT else ["compiled"]:
        with in_form(form):
            found = cut(file, rows)
        # Booleans of the second version are stored in runs, which are left to PyArrow.
        left_out = set(whole.column_names) - set(found.column_names)
        assert left_out <= {name for name in whole.column_names if name.startswith("bool")}
        assert not left_out or how.get("data_page_version") == "2.0"
        for name in found.column_names:
            assert found[name].type == whole[name].type
            assert str(found[name].to_pylist()) == str(whole[name].to_pylist()), name


def test_encodings_that_are_not_taken_apart_are_left_to_pyarrow():
    sink = pa.BufferOutputStream()
    table = TABLE.select(["int0", "text0", "double0"])
    encodings = {
        "int0": "DELTA_BINARY_PACKED",
        "text0": "DELTA_BYTE_ARRAY",
        "double0": "BYTE_STREAM_SPLIT",
    }
    pq.write_table(table, sink, store_schema=False, use_dictionary=False, column_encoding=encodings)
    assert cut(sink.getvalue(), [5, 77]) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "how", [WRITERS["as ours"], WRITERS["second version"]], ids=["first", "second"]
)
def test_damaged_bytes_raise_or_are_left_to_pyarrow(how, form):
    """No damage of pages or their headers ends the process, and none that a checksum covers is an answer."""
    file = stored(**how).to_pybytes()
    rows = CHOICES["one in fifty"]
    whole = pq.read_table(pa.BufferReader(file)).take(rows)
    end = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    with in_form(form):
        for at in RANDOM.integers(4, end, 60 if form == "compiled" else 8).tolist():
            damaged = bytearray(file)
            damaged[at] ^= 1 << int(RANDOM.integers(8))
            try:
                found = cut(bytes(damaged), rows)
            except (ValueError, OSError):
                continue
            if how.get("write_page_checksum"):
                for name in found.column_names:
                    assert str(found[name].to_pylist()) == str(whole[name].to_pylist()), name
