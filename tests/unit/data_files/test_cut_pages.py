"""Rows cut out of the pages of a column: those that PyArrow takes of the decoded column."""

import decimal
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_engine.data_files.parquet import leaf_positions
from lsm_engine.data_files.parquet_output import long_field, read_footer, stored_footer
from lsm_engine.data_files.parquet_pages import PageReader
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
        "text": few_and_many(TEXTS, type=pa.string()),
        "few": few_and_many(FEW, type=pa.string()),
        "decimal": few_and_many(DECIMALS, type=pa.decimal128(25, 2)),
        "small": few_and_many(DECIMALS, type=pa.decimal128(13, 2)),
        "smaller": few_and_many([one % 10_000 for one in DECIMALS], type=pa.decimal128(8, 2)),
        "bytes": few_and_many([text.encode() for text in TEXTS], type=pa.binary()),
        "fixed": few_and_many(FIXED, type=pa.binary(7)),
        "day": few_and_many(np.array(NUMBERS % 20_000, np.int32)),
    }.items()
    for at, column in enumerate(made)
}
OTHERS = {
    "tiny": pa.array((NUMBERS % 100).astype(np.int8)),
    "unsigned": pa.array((NUMBERS % 200).astype(np.uint8)),
    "wide": pa.array(DECIMALS, pa.decimal256(50, 2)),
    "date": pa.array(NUMBERS % 20_000).cast(pa.int32()).cast(pa.date32()),
    "hour": pa.array(NUMBERS % 86_400_000_000).cast(pa.time64("us")),
    "minute": pa.array(NUMBERS % 86_400_000).cast(pa.int32()).cast(pa.time32("ms")),
    "at": TIMES,
    "zone": TIMES.cast(pa.timestamp("us", "UTC")),
    "ns": TIMES.cast("timestamp[ns]"),
}
TABLE = pa.table(COLUMNS | OTHERS)
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
    "second version": {"use_dictionary": True, "data_page_version": "2.0", "compression": "zstd"},
    "gzip": {"use_dictionary": False, "compression": "gzip"},
    "INT96": {"use_deprecated_int96_timestamps": True, "use_dictionary": False},
    "dictionaries of INT96": {"use_deprecated_int96_timestamps": True, "use_dictionary": True},
    "decimals as numbers": {"store_decimal_as_integer": True, "use_dictionary": ["small0"]},
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
    schema = pq.read_schema(pa.BufferReader(file))
    reader = PageReader(source, metadata, schema, verify_checksums=verify_checksums)
    assert reader.can_cut
    found = pa.table(reader.rows(0, leaf_positions(schema), np.array(rows, np.int64)))
    found.validate(full=True)
    return found


@pytest.mark.parametrize("rows", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("how", WRITERS.values(), ids=WRITERS)
def test_rows_are_those_of_the_whole_column(how, rows):
    file = stored(**how)
    whole = pq.read_table(pa.BufferReader(file)).take(rows)
    for form in FORMS if len(rows) < COUNT else ["compiled"]:
        with in_form(form):
            found = cut(file, rows)
        is_left = how.get("data_page_version") == "2.0" or how.get("compression") == "gzip"
        assert set(found.column_names) == set([] if is_left else whole.column_names)
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
    assert not cut(sink.getvalue(), [5, 77]).column_names


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "how", [WRITERS["as ours"], WRITERS["dictionaries"]], ids=["as ours", "dictionaries"]
)
def test_damaged_bytes_raise_or_are_left_to_pyarrow(how, form):
    """No damage of pages or their headers ends the process, and none that a checksum covers is an answer."""
    file = stored(**how).to_pybytes()
    whole = pq.read_table(pa.BufferReader(file))
    end = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    with in_form(form):
        for at in RANDOM.integers(4, end, 60 if form == "compiled" else 8).tolist():
            damaged = bytearray(file)
            damaged[at] ^= 1 << int(RANDOM.integers(8))
            rows = CHOICES[("one in fifty", "neighbours")[at % 2]]
            try:
                found = cut(bytes(damaged), rows)
            except (ValueError, OSError, IndexError):
                continue
            if how.get("write_page_checksum"):
                for name in found.column_names:
                    wanted = whole[name].take(rows)
                    assert str(found[name].to_pylist()) == str(wanted.to_pylist()), name


def one_column(**how):
    sink = pa.BufferOutputStream()
    table = pa.table({"text": TABLE["text1"]})
    pq.write_table(table, sink, store_schema=False, use_dictionary=False, max_rows_per_page=400,
                   write_batch_size=100, **how)  # fmt: skip
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("more", [-1, 1, 300])
def test_a_page_of_another_size_than_its_header_states_is_no_answer(codec, more):
    file = bytearray(one_column(compression=codec))
    start = pq.read_metadata(pa.BufferReader(bytes(file))).row_group(0).column(0).data_page_offset
    assert (
        file[start : start + 3] == b"\x15\x00\x15"
    )  # the type, then the size: two bytes of 7 bits
    stated = (file[start + 3] & 127 | file[start + 4] << 7) + 2 * more
    file[start + 3 : start + 5] = bytes([stated & 127 | 128, stated >> 7])
    if codec == "none":
        assert not cut(bytes(file), [5, 77]).column_names
        return
    with pytest.raises((ValueError, OSError)):
        cut(bytes(file), [5, 77])


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_text_of_the_last_column_stays_until_it_is_copied(codec):
    """The first rows of two pages, whose memory was free again while their texts were copied."""
    sink = pa.BufferOutputStream()
    field = pa.field("text", pa.string(), nullable=False)
    texts = pa.array([f"customer number {at}" for at in range(COUNT)])
    table = pa.table([texts], pa.schema([field]))
    pq.write_table(table, sink, compression=codec, use_dictionary=False, max_rows_per_page=400,
                   write_batch_size=100, store_schema=False)  # fmt: skip
    assert cut(sink.getvalue(), [0, 400])["text"].to_pylist() == [
        "customer number 0",
        "customer number 400",
    ]


def test_a_column_of_fewer_values_than_its_row_group_is_left_to_pyarrow():
    file = one_column(compression="none")
    stored = int.from_bytes(file[-8:-4], "little")
    footer = read_footer(file[-8 - stored : -8])
    facts = footer[4].content[1][0][1].content[1][0][3].content
    facts[5] = long_field(COUNT - 400)  # the number of values
    made = stored_footer(footer)
    short = file[: -8 - stored] + made + len(made).to_bytes(4, "little") + b"PAR1"
    assert not cut(short, [5, COUNT - 1]).column_names
