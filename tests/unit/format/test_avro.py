"""Avro: any schema that tables use, against fastavro; and files that lie, within bounds."""

import io
import json
import resource
import zlib
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import CorruptFileError, LsmError, UnsupportedError
from lsm_engine.format.avro.container import read_container
from lsm_engine.format.avro.decoder import decode_table
from tests.kernel_forms import FORMS, in_form
from tests.unit.format.avro_cases import (
    arrow_value,
    by_fastavro,
    container,
    encode_container,
    long,
    records,
    snappy,
    text,
    values_of,
)


@st.composite
def files(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    schema = draw(records(0, [0]))
    return schema, draw(st.lists(values_of(schema), max_size=5))


@given(files(), st.sampled_from(["null", "deflate"]), st.sampled_from([1, 16_000]))
def test_what_fastavro_writes(file: tuple[Any, list[Any]], codec: str, interval: int) -> None:
    schema, rows = file
    data = by_fastavro(schema, rows, codec, interval)
    table = decode_table(data, file_name="x", flat=False)
    table.validate(full=True)
    assert table.to_pylist() == [arrow_value(row, schema) for row in rows]


@given(files(), st.booleans())
def test_records_in_a_union(file: tuple[Any, list[Any]], null_first: bool) -> None:
    schema, rows = file
    union = ["null", schema] if null_first else [schema, "null"]
    table = decode_table(by_fastavro(union, [*rows, None], "null", 1), file_name="x", flat=False)
    nothing = dict.fromkeys(table.column_names)
    assert table.to_pylist() == [*(arrow_value(row, schema) for row in rows), nothing]


@given(files(), st.sampled_from(["null", "deflate", "zstandard"]))
def test_what_we_write(file: tuple[Any, list[Any]], codec: str) -> None:
    schema, rows = file
    data = encode_container(schema, rows, codec=codec)
    assert data == encode_container(schema, rows, codec=codec)
    assert list(fastavro.reader(io.BytesIO(data))) == list(
        fastavro.reader(io.BytesIO(by_fastavro(schema, rows, codec, 16_000)))
    )
    assert read_container(data, file_name="x").row_count == len(rows)
    table = decode_table(data, file_name="x", flat=False)
    assert table.to_pylist() == [arrow_value(row, schema) for row in rows]


@given(files(), st.data())
def test_some_columns_are_all_columns_without_the_others(
    file: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    schema, rows = file
    stored = encode_container(schema, rows)
    whole = decode_table(stored, file_name="x")
    names = data.draw(st.lists(st.sampled_from(whole.column_names), min_size=1, unique=True))
    chosen = [name for name in whole.column_names if name in names]
    assert decode_table(stored, file_name="x", columns=names).equals(whole.select(chosen))


def test_nested_records_are_flat_columns() -> None:
    inner = {"type": "record", "name": "i", "fields": [{"name": "b", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "o",
        "fields": [{"name": "a", "type": ["null", inner]}, {"name": "c", "type": "i"}],
    }
    rows = [{"a": {"b": 1}, "c": {"b": 2}}, {"a": None, "c": {"b": 3}}]
    table = decode_table(encode_container(schema, rows), file_name="x")
    assert table.to_pydict() == {"a.b": [1, None], "c.b": [2, 3]}


LOGICAL = [
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "no-such-thing"}, pa.int64()),
]


@pytest.mark.parametrize(("kind", "expected"), LOGICAL, ids=range(len(LOGICAL)))
def test_logical_types(kind: Any, expected: pa.DataType) -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": kind}]})
    table = decode_table(container(schema.encode(), [(1, long(7))]), file_name="x")
    assert table.column("f").type == expected
    width = "int32" if expected.bit_width == 32 else "int64"
    assert table.column("f").cast(width).to_pylist() == [7]


@pytest.mark.parametrize(
    ("precision", "unscaled"), [(5, -12345), (20, 10**19), (38, -(10**37)), (3, 0), (4, 128)]
)
def test_decimals(precision: int, unscaled: int) -> None:
    length = max(1, (unscaled.bit_length() + 8) // 8)
    stored = unscaled.to_bytes(length, "big", signed=True)
    logical = {"logicalType": "decimal", "precision": precision, "scale": 2}
    fields = [
        {"name": "b", "type": ["null", {"type": "bytes", **logical}]},
        {"name": "f", "type": {"type": "fixed", "name": "x", "size": length, **logical}},
    ]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    row = long(1) + text(stored) + stored
    table = decode_table(container(schema, [(2, row + long(0) + stored)]), file_name="x")
    value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -2))
    assert table.to_pydict() == {"b": [value, None], "f": [value, value]}


ONE_INT = b'{"type":"record","name":"r","fields":[{"name":"f","type":"int"}]}'


def of(kind: str) -> bytes:
    return b'{"type":"record","name":"r","fields":[{"name":"f","type":' + kind.encode() + b"}]}"


def test_snappy_and_streamed_zstandard_are_read() -> None:
    data = b"".join(long(n % 64) for n in range(5000))
    stream = zstd.ZstdCompressor()
    streamed = stream.compress(data) + stream.flush()
    assert zstd.get_frame_info(streamed).decompressed_size is None
    for codec, stored in ((b"snappy", snappy(data)), (b"zstandard", streamed)):
        table = decode_table(container(ONE_INT, [(5000, stored)], codec=codec), file_name="x")
        assert table.column("f").to_pylist() == [n % 64 for n in range(5000)]


def test_blocks_of_lists_with_sizes() -> None:
    items = long(-2) + long(2) + long(5) + long(6) + long(1) + long(7) + long(0)
    data = container(of('{"type":"array","items":"long"}'), [(2, items + long(0))])
    assert decode_table(data, file_name="x").to_pydict() == {"f": [[5, 6, 7], []]}


def test_more_items_than_guessed() -> None:
    items = long(20_000) + b"\x02" * 20_000 + long(0)
    data = container(of('{"type":"array","items":"int"}'), [(1, items), (1, items)])
    assert decode_table(data, file_name="x").column("f").to_pylist() == [[1] * 20_000] * 2


CORRUPT = {
    "nothing": b"",
    "other magic": b"PAR1" + bytes(40),
    "header ends": b"Obj\x01" + long(1),
    "header counts": b"Obj\x01" + long(2**40),
    "negative name": b"Obj\x01" + long(1) + long(-5),
    "endless number": b"Obj\x01" + b"\xff" * 20,
    "no schema": container(b"{", []),
    "deep json": container(b"[" * 100_000, []),
    "schema is no type": container(b"3", []),
    "fields": container(b'{"type":"record","name":"r","fields":[3]}', []),
    "twice": container(of('"int"}, {"name":"f", "type":"int"'), []),
    "no name": container(b'{"type":"record","fields":[]}', []),
    "sync": container(ONE_INT, [(1, long(1))])[:-1] + b"\xff",
    "block ends": container(ONE_INT, [(1, long(1))])[:-17],
    "negative block": container(ONE_INT, [(-1, b"")]),
    "too few bytes": container(ONE_INT, [(2, long(1))]),
    "too many bytes": container(ONE_INT, [(1, long(1) * 2)]),
    "too many records": container(ONE_INT, [(2**40, b"\0" * 8)]),
    "more records than bytes": container(ONE_INT, [(9, b"\0" * 8)]),
    "int of 33 bits": container(ONE_INT, [(1, long(2**31))]),
    "long of 71 bits": container(of('"long"'), [(1, b"\xff" * 11)]),
    "negative string": container(of('"string"'), [(1, long(-1))]),
    "long string": container(of('"string"'), [(1, long(2**60))]),
    "no utf-8": container(of('"string"'), [(1, text(b"\xff"))]),
    "boolean": container(of('"boolean"'), [(1, b"\2")]),
    "double ends": container(of('"double"'), [(1, b"\2")]),
    "fixed ends": container(of('{"type":"fixed","name":"x","size":3}'), [(1, b"\2")]),
    "branch": container(of('["null","int"]'), [(1, long(2))]),
    "negative branch": container(of('["null","int"]'), [(1, long(-1))]),
    "many items": container(of('{"type":"array","items":"int"}'), [(1, long(2**62))]),
    "items of min long": container(of('{"type":"array","items":"int"}'), [(1, long(-(2**63)) * 2)]),
    "endless list": container(of('{"type":"array","items":"int"}'), [(1, long(1) + long(1))]),
    "zstd": container(ONE_INT, [(1, b"no frame")], codec=b"zstandard"),
    "deflate": container(ONE_INT, [(1, b"\xff")], codec=b"deflate"),
    "deflate ends": container(ONE_INT, [(1, zlib.compress(b"x" * 99)[2:8])], codec=b"deflate"),
    "snappy": container(ONE_INT, [(1, b"\x05")], codec=b"snappy"),
    "snappy checksum": container(ONE_INT, [(1, snappy(b"\0")[:-1] + b"\0")], codec=b"snappy"),
    "decimal": container(
        of('{"type":"bytes","logicalType":"decimal","precision":2}'), [(1, text(b"\x7f"))]
    ),
    "wide decimal": container(
        of('{"type":"bytes","logicalType":"decimal","precision":2}'), [(1, text(bytes(17)))]
    ),
    "no decimal": container(
        of('{"type":"bytes","logicalType":"decimal","precision":2}'), [(1, text(b""))]
    ),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
def test_files_that_lie_are_named(data: bytes) -> None:
    with pytest.raises(CorruptFileError):
        decode_table(data, file_name="x")


UNSUPPORTED = {
    "codec": container(ONE_INT, [], codec=b"xz"),
    "no record": container(b'"int"', []),
    "union": container(of('["int","string"]'), []),
    "wide union": container(of('["null","int","string"]'), []),
    "null": container(of('"null"'), []),
    "enum": container(of('{"type":"enum","name":"e","symbols":["a"]}'), []),
    "recursive": container(of('["null","r"]'), []),
    "empty record": container(of('{"type":"record","name":"e","fields":[]}'), []),
    "empty fixed": container(of('{"type":"fixed","name":"e","size":0}'), []),
    "unknown": container(of('"nothing"'), []),
    "deep": container(of('{"type":"array","items":' * 40 + '"int"' + "}" * 40), []),
    "digits": container(of('{"type":"bytes","logicalType":"decimal","precision":77}'), []),
}


@pytest.mark.parametrize("data", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_avro_that_no_table_uses_is_refused(data: bytes) -> None:
    with pytest.raises(UnsupportedError, match="x"):
        decode_table(data, file_name="x")


def test_lists_nested_too_deeply() -> None:
    kind = '{"type":"array","items":' * 9 + '"int"' + "}" * 9
    with pytest.raises(CorruptFileError, match="deeply"):
        decode_table(container(of(kind), [(1, long(1) * 20)]), file_name="x")


def test_a_schema_that_doubles_with_every_name() -> None:
    kind = '{"type":"record","name":"n0","fields":[{"name":"f","type":"int"}]}'
    for level in range(1, 16):
        kind = (
            f'{{"type":"record","name":"n{level}","fields":[{{"name":"a","type":{kind}}},'
            f'{{"name":"b","type":"n{level - 1}"}}]}}'
        )
    with pytest.raises(UnsupportedError, match="columns"):
        decode_table(container(of(kind), []), file_name="x")


def bomb(codec: bytes, size: int) -> bytes:
    zeros = bytes(size)
    match codec:
        case b"zstandard":
            return zstd.compress(zeros, 19)
        case b"snappy":
            return snappy(zeros)
        case _:
            deflater = zlib.compressobj(9, wbits=-15)
            return deflater.compress(zeros) + deflater.flush()


@pytest.mark.parametrize("codec", [b"zstandard", b"deflate", b"snappy"])
@pytest.mark.parametrize("kind", ['"int"', '{"type":"array","items":"int"}'])
def test_bombs_do_not_go_off(codec: bytes, kind: str) -> None:
    data = container(of(kind), [(1000, bomb(codec, 200 << 20))], codec=codec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptFileError, match="unfolds"):
        decode_table(data, file_name="x")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 256 << 10, "KiB"


def test_lists_do_not_go_off_either() -> None:
    items = long(4_000_000) + bytes(4_000_000) + long(0)
    stored = zstd.compress(items)
    kind = '{"type":"array","items":["null","string"]}'
    with pytest.raises(CorruptFileError, match="list items"):
        decode_table(container(of(kind), [(1, stored)], codec=b"zstandard"), file_name="x")


def test_many_small_bombs_do_not_go_off_either() -> None:
    small = bomb(b"zstandard", 15 << 20)
    many = [(1000, small)] * 40
    with pytest.raises(CorruptFileError):
        decode_table(container(ONE_INT, many, codec=b"zstandard"), file_name="x")


def test_a_frame_that_lies_about_its_size() -> None:
    frame = bytearray(zstd.compress(bytes(100_000)))
    sized = zstd.get_frame_info(bytes(frame)).decompressed_size
    assert sized == 100_000
    at = bytes(frame).index(sized.to_bytes(4, "little"))
    frame[at : at + 4] = (2**32 - 1).to_bytes(4, "little")
    data = container(ONE_INT, [(100_000, bytes(frame))], codec=b"zstandard")
    with pytest.raises(CorruptFileError, match=r"unfolds|decompress"):
        decode_table(data, file_name="x")


@given(files(), st.data())
def test_flipped_bytes_are_named_or_read(file: tuple[Any, list[Any]], data: st.DataObject) -> None:
    stored = bytearray(encode_container(*file, codec="null"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(stored) - 1))
        stored[place] = data.draw(st.integers(0, 255))
    try:
        decode_table(bytes(stored), file_name="x").validate(full=True)
    except LsmError:
        return


@given(files(), st.data())
def test_both_forms_of_the_loop_agree_on_what_is_damaged(
    file: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    schema, rows = file
    whole = by_fastavro(schema, rows, "null", 16_000)
    start = len(by_fastavro(schema, [], "null", 16_000))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        if len(whole) > start:
            damaged[data.draw(st.integers(start, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    answers = []
    for form in FORMS:
        with in_form(form):
            try:
                answers.append(
                    str(decode_table(bytes(damaged), file_name="x", flat=False).to_pylist())
                )
            except CorruptFileError as error:
                answers.append(str(error))
    assert answers[0] == answers[1]


def test_snappy_is_not_written() -> None:
    with pytest.raises(UnsupportedError, match="snappy"):
        encode_container(json.loads(ONE_INT), [{"f": 1}], codec="snappy")


def test_keys_of_maps_are_never_null() -> None:
    """Entries whose keys might be null were written to Parquet from beside memory: the process died."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [{"m": {}}, {"m": {"b": 3}}])
    (maps,) = decode_table(sink.getvalue(), file_name="f").column("m").chunks
    assert maps.values.type == pa.struct(
        [pa.field("key", pa.string(), nullable=False), ("value", pa.int32())]
    )
    assert maps.to_pylist() == [[], [("b", 3)]]
