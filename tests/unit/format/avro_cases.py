"""Avro schemas and records for them, and files as fastavro and by hand."""

import io
import zlib
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from lsm_engine.format.avro.container import ContainerEncoder

SYNC = bytes(range(16))


def long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    parts = []
    while rest >= 0x80:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*parts, rest])


def text(value: bytes) -> bytes:
    return long(len(value)) + value


def container(schema: bytes, blocks: list[tuple[int, bytes]], *, codec: bytes = b"null") -> bytes:
    """An Avro file of blocks that are taken as they are."""
    header = b"Obj\x01" + long(2) + text(b"avro.schema") + text(schema)
    header += text(b"avro.codec") + text(codec) + long(0) + SYNC
    return header + b"".join(long(n) + text(data) + SYNC for n, data in blocks)


def encode_container(schema: Any, records: Iterable[Any], *, codec: str = "zstandard") -> bytes:
    """An Avro file as the engine writes it."""
    encoder = ContainerEncoder(schema)
    return encoder.file(map(encoder.record, records), codec=codec)


def by_fastavro(schema: Any, records: list[Any], codec: str, interval: int) -> bytes:
    target = io.BytesIO()
    fastavro.writer(target, schema, records, codec=codec, sync_interval=interval, sync_marker=SYNC)
    return target.getvalue()


def snappy(data: bytes) -> bytes:
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


plain_types = st.sampled_from(["int", "long", "float", "double", "boolean", "bytes", "string"])
_VALUES = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "bytes": st.binary(max_size=10),
    "string": st.text(max_size=6),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0, counter: list[int] | None = None) -> Any:
    """A schema without a union at its top."""
    counter = counter if counter is not None else [0]
    choice = draw(st.integers(0, 9 if depth < 3 else 5))
    if choice <= 5:
        return draw(plain_types)
    inner = schemas(depth=depth + 1, counter=counter) | nullable(depth + 1, counter)
    if choice == 6:
        return {"type": "array", "items": draw(inner)}
    if choice == 7:
        return {"type": "map", "values": draw(inner)}
    return draw(records(depth, counter))


@st.composite
def nullable(draw: st.DrawFn, depth: int, counter: list[int]) -> Any:
    inner = draw(schemas(depth=depth, counter=counter))
    return ["null", inner] if draw(st.booleans()) else [inner, "null"]


@st.composite
def records(draw: st.DrawFn, depth: int, counter: list[int]) -> Any:
    counter[0] += 1
    name = f"r{counter[0]}"
    inner = schemas(depth=depth + 1, counter=counter) | nullable(depth + 1, counter)
    kinds = draw(st.lists(inner, min_size=1, max_size=4))
    fields = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Values as an Arrow table gives them back."""
    if isinstance(schema, list):
        inner = next(branch for branch in schema if branch != "null")
        return st.none() | values_of(inner)
    if isinstance(schema, str):
        return _VALUES[schema]
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    if schema["type"] == "map":
        return st.dictionaries(st.sampled_from("xyz"), values_of(schema["values"]), max_size=3)
    return st.fixed_dictionaries({f["name"]: values_of(f["type"]) for f in schema["fields"]})


def arrow_value(value: Any, schema: Any) -> Any:
    """Maps come out of Arrow as lists of pairs."""
    if value is None or isinstance(schema, str):
        return value
    if isinstance(schema, list):
        return arrow_value(value, next(branch for branch in schema if branch != "null"))
    if schema["type"] == "array":
        return [arrow_value(item, schema["items"]) for item in value]
    if schema["type"] == "map":
        return [(key, arrow_value(item, schema["values"])) for key, item in value.items()]
    return {f["name"]: arrow_value(value[f["name"]], f["type"]) for f in schema["fields"]}
