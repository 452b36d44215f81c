"""Data files in ORC: read stripe by stripe, written where every known reader agrees."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
from backports import zstd

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.data_files.columns import FIELD_ID
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take
from lsm_engine.storage.checksum import read_end

# -- ORC footers, as far as PyArrow does not expose them -------------------------------------------
#
# Rows per stripe, CHAR columns, time ranges.
#
# The footer is a protobuf message behind the postscript, whose length is the file's last byte;
# unless the postscript names no compression it is compressed in chunks of a 3-byte header each.

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
    tail = read_end(source, size, _TAIL_BYTES)
    if not tail or tail[-1] + 1 > len(tail):
        raise ValueError("no postscript")
    post_length = tail[-1]
    post = dict(_members(tail[-1 - post_length : -1]))
    length = post.get(1, 0)
    if not isinstance(length, int) or not 0 < length <= min(_FOOTER_BYTES_MAX, size):
        raise ValueError("a footer of impossible length")
    if length + post_length + 1 > len(tail):
        tail = read_end(source, size, length + post_length + 1)
    stored = tail[-1 - post_length - length : -1 - post_length]
    return _footer(_unpacked(stored, post.get(2, 0), post.get(3, 256 << 10)))


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
        # Other types need no correction of zones.
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
    # Ten groups of seven bits hold every number of 64 bits.
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
    # The size comes from the file: a damaged one must not allocate much memory.
    if not isinstance(chunk_bytes, int) or not 0 < chunk_bytes <= _CHUNK_BYTES_MAX:
        raise ValueError("compression chunks of impossible length")
    parts, offset, size = [], 0, 0
    while offset < len(stored):
        header = int.from_bytes(stored[offset : offset + 3], "little")
        offset += 3
        chunk = stored[offset : offset + (header >> 1)]
        offset += header >> 1
        # The lowest bit of a chunk's header marks one that is stored uncompressed.
        parts.append(chunk if header & 1 else _decompressed(chunk, codec, chunk_bytes))
        size += len(parts[-1])
        # The sum of chunks is checked too, as many small ones can be a large footer.
        if size > _FOOTER_BYTES_MAX:
            raise ValueError("a footer that unfolds into far too much")
    return b"".join(parts)


def _decompressed(chunk: bytes, codec: Any, limit: int) -> bytes:
    match codec:
        case 1:  # zlib
            # ORC stores raw deflate data without a header, which is what negative bits mean.
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
                # The callers expect ValueError for damage, whatever the codec is.
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
    # Only 15 announces more bytes; a smaller length is complete.
    if length < 15:
        return length, offset
    while block[offset] == 255:  # an IndexError means that it ends early
        length, offset = length + 255, offset + 1
    return length + block[offset], offset + 1


# -- Data files in ORC -----------------------------------------------------------------------------

_COMPRESSION = {"none": "uncompressed", "gzip": "zlib"}
_STRIPE_BYTES = 16 << 20  # PyArrow's 64 MB would be held by every run of a merge
_BATCH_ROWS = 1024
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
# One millisecond below the limit leaves space for the fraction.
_MILLIS_MAX = (2**63 - 1) // 1_000_000 - 1  # PyArrow reads ORC's times as nanoseconds
_SECONDS_MAX = _MILLIS_MAX // 1000


class OrcOutput:
    """One ORC file being written; PyArrow decides where stripes end."""

    def __init__(
        self, sink: Any, schema: pa.Schema, *, compression: str, stripe_bytes: int
    ) -> None:
        self._gate = WriteGate(sink)
        self._stored = pa.schema([_stored(field) for field in schema])
        self._writer = orc.ORCWriter(
            self._gate,
            batch_size=_BATCH_ROWS,
            compression=_COMPRESSION.get(compression, compression),
            stripe_size=min(stripe_bytes, _STRIPE_BYTES),
        )

    def append(self, rows: pa.Table) -> None:
        """Write rows of exactly the file's schema.

        Raises UnsupportedError, naming column and count, for times that ORC's readers disagree on:
        before 1970 with a part of a second, and beyond what 64 bits of nanoseconds hold.
        """
        for field, column in zip(rows.schema, rows.columns, strict=True):
            if _has_times(field.type):
                _refuse_unsafe(field.name, column)
        for piece in self._pieces(rows):
            columns = [
                _as_stored(column, field.type)
                for field, column in zip(self._stored, piece.columns, strict=True)
            ]
            self._writer.write(pa.Table.from_arrays(columns, schema=self._stored))

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        # PyArrow 26 loses values of structures that do not begin where its own batches do.
        if not any(pa.types.is_nested(field.type) for field in self._stored):
            yield rows
            return
        for first in range(0, rows.num_rows, _BATCH_ROWS):
            yield rows.slice(first, _BATCH_ROWS).combine_chunks()

    def close(self) -> None:
        """Write the last stripe and the footer; the sink stays open."""
        self._writer.close()
        self._gate.shut = True

    def abandon(self) -> None:
        """Forget the file: nothing more reaches the sink, not even when this is collected."""
        self._gate.shut = True
        self._writer.is_open = False


class OrcFile:
    """One ORC file being read; a row group is a stripe, without bounds."""

    def __init__(self, source: Any, path: str) -> None:
        footer = read_orc_footer(source)
        for millis in (footer.least_millis, footer.greatest_millis):
            if millis is not None and abs(millis) > _MILLIS_MAX:
                raise UnsupportedError(
                    "an ORC file holds times outside the years 1678 to 2261, which are not read; "
                    "rewrite it as parquet with the writer it is from",
                    kind=ErrorKind.UNSUPPORTED_FORMAT,
                    file=path,
                    millis=millis,
                )
        source.seek(0)
        self._file = orc.ORCFile(source)
        self.schema: pa.Schema = self._file.schema
        self.group_rows = footer.stripe_rows
        # Blanks at the end of a CHAR are its writer's padding.
        self._padded = frozenset(footer.char_columns)
        if self._file.nstripes != len(footer.stripe_rows):
            raise CorruptFileError("the footer does not list the file's stripes", file=path)

    def keep_dictionaries(self) -> None:
        """There are none to be had (StoredFile)."""

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one stripe."""
        stripe = self._file.read_stripe(group, columns=list(names))
        columns = [
            pc.utf8_rtrim(column, characters=" ") if name in self._padded else column
            for name, column in zip(stripe.schema.names, stripe.columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, names=stripe.schema.names)

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one group (StoredFile)."""
        return take(self.read_group(group, names), rows)

    def bounds(self, _: str) -> None:
        """PyArrow does not expose the statistics of stripes."""
        return


def _as_stored(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    chunks = column.chunks
    if pa.types.is_nested(target):
        # PyArrow 26 writes a slice of a structure as if it were the rows before it: copy them out.
        chunks = [chunk.take(np.arange(len(chunk))) for chunk in chunks]
    if column.type != target:
        chunks = [chunk.view(target) for chunk in chunks]
    return pa.chunked_array(chunks, target)


def _stored(field: pa.Field) -> pa.Field:
    """Return how a column is stored: TIME as INT, field ids as attributes by the format's name."""
    number = (field.metadata or {}).get(FIELD_ID)
    return field.with_type(_stored_type(field.type)).with_metadata(
        None if number is None else {b"paimon.id": number}
    )


def _stored_type(value: pa.DataType) -> pa.DataType:
    if pa.types.is_time32(value):
        return pa.int32()
    if pa.types.is_map(value):
        return pa.map_(_stored(value.key_field), _stored(value.item_field))
    if pa.types.is_list(value):
        return pa.list_(_stored(value.value_field))
    if pa.types.is_struct(value):
        return pa.struct([_stored(field) for field in value])
    return value


# Times.


def _has_times(value: pa.DataType) -> bool:
    return pa.types.is_timestamp(value) or any(
        _has_times(value.field(i).type) for i in range(value.num_fields)
    )


def _refuse_unsafe(name: str, column: pa.ChunkedArray) -> None:
    leaves = [leaf for chunk in column.chunks for leaf in _timestamps(chunk)]
    count = sum(_unsafe_count(leaf) for leaf in leaves)
    if count:
        raise UnsupportedError(
            f"column {name!r} has {counted(count, 'time')} before 1970 with a part of a second, or outside the "
            "years 1678 to 2261; readers of ORC disagree on them: choose another file.format",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            column=name,
            count=count,
        )


def _timestamps(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the timestamps inside an array, none of null parents."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        yield values
    elif pa.types.is_struct(kind):
        for member in values.flatten():
            yield from _timestamps(member)
    elif pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        yield from _timestamps(values.view(pa.list_(pa.field("entries", entries, nullable=False))))
    elif pa.types.is_list(kind):
        yield from _timestamps(values.flatten())


def _unsafe_count(times: pa.Array) -> int:
    unit = _PER_SECOND[times.type.unit]
    numbers = times.view(pa.int64()).drop_null()
    seconds = pc.divide(numbers, unit)  # toward zero
    fraction = pc.not_equal(pc.multiply(seconds, unit), numbers)
    unsafe = pc.or_(
        pc.and_(pc.less(numbers, 0), fraction),
        pc.or_(pc.greater(seconds, _SECONDS_MAX), pc.less(seconds, -_SECONDS_MAX)),
    )
    return int(pc.sum(unsafe).as_py() or 0)


class WriteGate:
    """Passes writes on to a sink until it is `shut`, and then drops them. The sink stays open."""

    closed = False  # what PyArrow asks of a file

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.shut = False

    def write(self, data: Any) -> int:
        """Write, or, when shut, drop the data and return its length."""
        return len(data) if self.shut else int(self._sink.write(data))

    def flush(self) -> None:
        """Flush the sink unless the gate is shut."""
        if not self.shut:
            self._sink.flush()

    def close(self) -> None:
        """The file itself is closed by its owner."""
