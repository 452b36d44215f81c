"""What an ORC footer holds and PyArrow does not expose: rows per stripe, CHAR columns, time ranges.

The footer is a protobuf message behind the postscript, whose length is the file's last byte; unless the
postscript names no compression it is compressed in chunks of a 3-byte header each.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from backports import zstd

from lsm_engine.base.record import record

_TAIL_BYTES = 16 << 10
_FOOTER_BYTES_MAX = 64 << 20
_CHUNK_BYTES_MAX = 8 << 20
_CHAR = 17
_NONE = 0


@record
class OrcFooter:
    """The facts of one file. Times are milliseconds since 1970, None where the footer has none."""

    stripe_rows: tuple[int, ...]
    char_columns: tuple[str, ...]  # at the top; the others are not looked for
    least_millis: int | None
    greatest_millis: int | None


def read_orc_footer(source: Any) -> OrcFooter:
    """Return the footer of a seekable file; raises ValueError where it is none."""
    size = source.seek(0, 2)
    size = source.tell() if size is None else size
    tail = _last(source, size, _TAIL_BYTES)
    if not tail or tail[-1] + 1 > len(tail):
        raise ValueError("no postscript")
    post_length = tail[-1]
    post = dict(_members(tail[-1 - post_length : -1]))
    length = post.get(1, 0)
    if not isinstance(length, int) or not 0 < length <= min(_FOOTER_BYTES_MAX, size):
        raise ValueError("a footer of impossible length")
    if length + post_length + 1 > len(tail):
        tail = _last(source, size, length + post_length + 1)
    stored = tail[-1 - post_length - length : -1 - post_length]
    return _footer(_unpacked(stored, post.get(2, 0), post.get(3, 256 << 10)))


def _last(source: Any, size: int, count: int) -> bytes:
    source.seek(max(size - count, 0))
    return bytes(source.read(min(count, size)))


def _footer(data: bytes) -> OrcFooter:
    stripes: list[int] = []
    types: list[tuple[int, list[int], list[str]]] = []
    millis: list[int] = []
    for number, value in _members(data):
        if number == 3:
            stripes.append(int(dict(_members(value)).get(5, 0)))
        elif number == 4:
            types.append(_type(value))
        elif number == 7:
            millis += _times(value)
    chars: list[str] = []
    if types:
        _, children, names = types[0]
        if len(children) != len(names) or any(child >= len(types) for child in children):
            raise ValueError("a structure of other members than names")
        chars = [
            name
            for child, name in zip(children, names, strict=True)
            if types[child][0] == _CHAR
        ]  # fmt: skip
    return OrcFooter(
        stripe_rows=tuple(stripes),
        char_columns=tuple(chars),
        least_millis=min(millis, default=None),
        greatest_millis=max(millis, default=None),
    )


def _type(data: bytes) -> tuple[int, list[int], list[str]]:
    """Return kind, positions of the children, and their names."""
    kind, children, names = 0, [], []
    for number, value in _members(data):
        if number == 1:
            kind = value
        elif number == 2:
            children += [value] if isinstance(value, int) else list(_varints(value))
        elif number == 3:
            names.append(value.decode("utf-8"))
    return kind, children, names


def _times(statistics: bytes) -> list[int]:
    """Return the bounds in UTC if the statistics are a timestamp's."""
    timestamps = dict(_members(statistics)).get(9)
    if timestamps is None:
        return []
    members = dict(_members(timestamps))
    return [
        (members[field] >> 1) ^ -(members[field] & 1)
        for utc, local in ((3, 1), (4, 2))
        for field in ([utc] if utc in members else [local] if local in members else [])
    ]


def _members(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: numbers as int, all else as bytes."""
    if not isinstance(data, bytes):
        raise ValueError("a number where a message belongs")
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        if tag == 0:
            raise ValueError("a field without a number")
        size = 0
        match tag & 7:
            case 0:
                value, offset = _varint(data, offset)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, offset = _varint(data, offset)
            case 5:  # zstd
                size = 4
            case _:
                raise ValueError("a field of no known kind")
        if size > len(data) - offset:
            raise ValueError("a field goes beyond its message")
        yield tag >> 3, data[offset : offset + size]
        offset += size


def _varints(data: bytes) -> Iterator[int]:
    offset = 0
    while offset < len(data):
        value, offset = _varint(data, offset)
        yield value


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[offset] & 0x7F) << shift  # an IndexError means that it ends early
        offset += 1
        if data[offset - 1] < 0x80:
            return value, offset
    raise ValueError("a number does not end")


def _unpacked(stored: bytes, codec: Any, chunk_bytes: Any) -> bytes:
    if codec == _NONE:
        return stored
    if not isinstance(chunk_bytes, int) or not 0 < chunk_bytes <= _CHUNK_BYTES_MAX:
        raise ValueError("compression chunks of impossible length")
    parts, offset, size = [], 0, 0
    while offset < len(stored):
        header = int.from_bytes(stored[offset : offset + 3], "little")
        offset += 3
        chunk = stored[offset : offset + (header >> 1)]
        offset += header >> 1
        parts.append(chunk if header & 1 else _decompressed(chunk, codec, chunk_bytes))
        size += len(parts[-1])
        if size > _FOOTER_BYTES_MAX:
            raise ValueError("a footer that unfolds into far too much")
    return b"".join(parts)


def _decompressed(chunk: bytes, codec: Any, limit: int) -> bytes:
    match codec:
        case 1:  # zlib
            return zlib.decompressobj(-15).decompress(chunk, limit)
        case 2:  # snappy
            size, _ = _varint(chunk, 0)
            if size > limit:
                raise ValueError("a chunk is too large")
            return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size, asbytes=True))
        case 4:  # lz4
            # PyArrow fills what is asked for: beyond the content, memory as it happens to be.
            size = _lz4_content_bytes(chunk, limit)
            return bytes(
                pa.Codec("lz4_raw").decompress(chunk, decompressed_size=size, asbytes=True)
            )
        case 5:  # zstd
            try:
                return bytes(zstd.ZstdDecompressor().decompress(chunk, max_length=limit))
            except zstd.ZstdError as cause:
                raise ValueError("a chunk does not decompress") from cause
        case _:
            raise NotImplementedError("a compression that is not known")


def _lz4_content_bytes(block: bytes, limit: int) -> int:
    """Return the length of what an LZ4 block, which does not record it, decompresses to.

    Source: the LZ4 block format, sequences of literals and matches.
    """
    size, offset = 0, 0
    while offset < len(block):
        token = block[offset]
        literals, offset = _lz4_length(block, offset + 1, token >> 4)
        offset += literals
        size += literals
        if offset < len(block):  # the last sequence has no match
            match, offset = _lz4_length(block, offset + 2, token & 15)
            size += match + 4
        if size > limit:
            raise ValueError("a chunk is too large")
    return size


def _lz4_length(block: bytes, offset: int, length: int) -> tuple[int, int]:
    """Return a length of which the token gives the first 4 bits, and what follows it."""
    if length < 15:
        return length, offset
    while block[offset] == 255:  # an IndexError means that it ends early
        length, offset = length + 255, offset + 1
    return length + block[offset], offset + 1
