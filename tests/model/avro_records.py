"""Avro object containers as lists of dictionaries: the container unwrapped here, records by fastavro."""

import io
import json
import zlib
from typing import Any

import fastavro
from backports import zstd

MAGIC = b"Obj\x01"


def avro_records(data: bytes) -> list[dict[str, Any]]:
    """Every record of a container; asserts that nothing is cut off."""
    source = io.BytesIO(data)
    assert source.read(4) == MAGIC, data[:4]
    header = dict(_map(source))
    schema = fastavro.parse_schema(json.loads(header["avro.schema"]))
    codec = header.get("avro.codec", b"null").decode()
    sync = source.read(16)
    records = []
    while source.tell() < len(data):
        count, size = _long(source), _long(source)
        block = io.BytesIO(_decompressed(codec, source.read(size)))
        records += [fastavro.schemaless_reader(block, schema) for _ in range(count)]
        assert not block.read(1), "bytes after the last record of a block"
        assert source.read(16) == sync, "a block does not end in the marker"
    return [record["record"] if set(record) == {"record"} else record for record in records]


def _decompressed(codec: str, data: bytes) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate":
            return zlib.decompress(data, -15)
        case "zstandard":
            return zstd.decompress(data)
    raise AssertionError(codec)


def _map(source: io.BytesIO) -> list[tuple[str, bytes]]:
    pairs = []
    while count := _long(source):
        assert count > 0, "sized map blocks are not written by any client"
        for _ in range(count):
            key = source.read(_long(source)).decode()
            pairs.append((key, source.read(_long(source))))
    return pairs


def _long(source: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = source.read(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1)
