"""Data files in Avro: read a few blocks at a time, written block by block."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.format.avro.container import (
    NAMESPACE,
    Block,
    ContainerEncoder,
    Limits,
    read_container,
)
from lsm_engine.format.avro.decoder import AvroRecords
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.selection import take
from lsm_engine.options import core_options

# -- Arrow tables → Avro records: the schema of a data file, and its rows in blocks ----------------
#
# Every known reader takes a plain record at the top. The logical types of timestamps are those
# that the format's own writers use, with the zones the wrong way round; readers do not expect them
# (format section 7). Rows pass through Python objects here: Avro is for interchange, not for
# speed.

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Mapping[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
}


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """Return the Avro schema of a table of these columns.

    Raises UnsupportedError, naming the column, for timestamps of more than six digits and for names
    that Avro does not allow.
    """
    return _record("record", schema)


class AvroRows:
    """Turns tables of one schema into a header and blocks; see `ContainerEncoder.file` for codecs."""

    def __init__(self, schema: pa.Schema, *, codec: str, level: int | None) -> None:
        self._encoder = ContainerEncoder(avro_schema(schema))
        self._codec = codec
        self._level = level
        self._stored = pa.schema([field.with_type(_storage_type(field.type)) for field in schema])
        self._values = [_values(field.type) for field in schema]
        self.header = self._encoder.file((), codec=codec, level=level)

    def blocks(self, rows: pa.Table) -> bytes:
        """Return rows as blocks to stand anywhere behind the header."""
        names = self._stored.names
        columns = [
            _listed(column, field.type, values)
            for column, field, values in zip(rows.columns, self._stored, self._values, strict=True)
        ]
        records = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        encoded = map(self._encoder.record, records)
        file_bytes = self._encoder.file(encoded, codec=self._codec, level=self._level)
        return file_bytes[len(self.header) :]


def _listed(column: pa.ChunkedArray, storage_type: pa.DataType, values: Any) -> Sequence[Any]:
    chunks = [
        chunk if chunk.type == storage_type else chunk.view(storage_type) for chunk in column.chunks
    ]  # fmt: skip
    listed = pa.chunked_array(chunks, type=storage_type).to_pylist()
    return listed if values is None else [values(value) for value in listed]


# The schema.


def _record(name: str, fields: Sequence[pa.Field] | pa.Schema) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"{NAMESPACE}.{name}",
        "fields": [_field(field, name) for field in fields],
    }


def _field(field: pa.Field, parent: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise UnsupportedError(
            f"column {field.name!r} cannot be stored in avro, whose names are of letters, digits "
            "and underscores; rename it or choose another file.format",
            kind=ErrorKind.UNSUPPORTED_FORMAT,
            column=field.name,
        )
    kind = _optional(field, f"{parent}_{field.name}", field.name)
    member = {"name": field.name, "type": kind}
    return member | {"default": None} if field.nullable else member


def _optional(field: pa.Field, path: str, column: str) -> Any:
    kind = _type(field.type, path, column)
    return ["null", kind] if field.nullable else kind


def _type(value: pa.DataType, path: str, column: str) -> Any:
    if value in _PLAIN:
        return _PLAIN[value]
    if pa.types.is_decimal(value):
        return {
            "type": "bytes", "logicalType": "decimal",
            "precision": value.precision, "scale": value.scale,
        }  # fmt: skip
    if pa.types.is_timestamp(value) and value.unit in ("ms", "us"):
        # Paimon uses Avro's two names the other way round, so the zone decides as it does there.
        word = "timestamp-millis" if value.unit == "ms" else "timestamp-micros"
        return {"type": "long", "logicalType": word if value.tz is None else f"local-{word}"}
    if pa.types.is_map(value):
        item = _optional(value.item_field, f"{path}_value", column)
        # Avro's own maps have text keys only, so any other map is an array of pairs.
        if pa.types.is_string(value.key_type):
            return {"type": "map", "values": item}
        return {"type": "array", "items": _record(path, [value.key_field, value.item_field])}
    if pa.types.is_list(value):
        return {"type": "array", "items": _optional(value.value_field, path, column)}
    if pa.types.is_struct(value):
        return _record(path, list(value))
    raise UnsupportedError(
        f"column {column!r} of type {value} cannot be stored in avro; choose another file.format",
        kind=ErrorKind.UNSUPPORTED_FORMAT,
        column=column,
        type=str(value),
    )


# The values: times as their numbers, so that no year is out of a calendar's range.


def _storage_type(value: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(value):
        return pa.int64()
    if pa.types.is_date32(value) or pa.types.is_time32(value):
        return pa.int32()
    if pa.types.is_map(value):
        return pa.map_(
            value.key_field.with_type(_storage_type(value.key_type)),
            value.item_field.with_type(_storage_type(value.item_type)),
        )
    if pa.types.is_list(value):
        return pa.list_(value.value_field.with_type(_storage_type(value.value_type)))
    if pa.types.is_struct(value):
        return pa.struct([field.with_type(_storage_type(field.type)) for field in value])
    return value


def _values(value: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes a Python value Avro's; None: it is already. Only maps differ."""
    if pa.types.is_map(value):
        key = _values(value.key_type) or _same
        item = _values(value.item_type) or _same
        if pa.types.is_string(value.key_type):
            return lambda pairs: pairs if pairs is None else {k: item(v) for k, v in pairs}
        return lambda pairs: (
            pairs if pairs is None else [{"key": key(k), "value": item(v)} for k, v in pairs]
        )
    if pa.types.is_list(value):
        element = _values(value.value_type)
        # Elements that are Avro's already need no call per value.
        if element is not None:
            return lambda items: (
                items if items is None else [element(element_value) for element_value in items]
            )
    if pa.types.is_struct(value):
        members = {field.name: _values(field.type) for field in value}
        differing = {name: member for name, member in members.items() if member is not None}
        if differing:
            return lambda row: (
                row if row is None else row | {name: f(row[name]) for name, f in differing.items()}
            )
    return None


def _same(value: Any) -> Any:
    return value


# -- Data files in Avro: read a few blocks at a time, written block by block -----------------------

DATA_LIMITS = Limits(
    block_bytes=256 << 20,
    total_bytes=1 << 30,
    total_bytes_per_stored_byte=0,
    rows=1 << 40,  # the manifest entry holds the count, and each takes a byte of a block
    items=64 << 10,
    item_bytes=1,
)
"""What is read at once is a group of blocks, so these bound a group and not the file."""
# A group ends at the first limit, so neither wide nor narrow rows fill the memory.
_GROUP_ROWS = 65_536
_GROUP_STORED_BYTES = 2 << 20
_WINDOW = 64 << 10
_CODECS = {"zstd": "zstandard", "gzip": "deflate", "none": "null"}


def check_avro(schema: pa.Schema, compression: str) -> None:
    """Raise UnsupportedError for columns, or a compression, that Avro files cannot have."""
    if compression not in _CODECS:
        raise UnsupportedError(
            f"avro files are not written with {compression}; choose one of "
            f"{', '.join(_CODECS)}, for all levels or for those that are written as avro",
            kind=ErrorKind.UNSUPPORTED_OPTION,
            option=core_options.FILE_COMPRESSION.key,
            value=compression,
        )
    avro_schema(schema)


class AvroOutput:
    """One Avro file being written."""

    def __init__(
        self, sink: Any, schema: pa.Schema, *, compression: str, compression_level: int | None
    ) -> None:
        self._sink = sink
        self._rows = AvroRows(schema, codec=_CODECS[compression], level=compression_level)
        self._sink.write(self._rows.header)

    def append(self, rows: pa.Table) -> None:
        """Write rows of exactly the file's schema as blocks."""
        self._sink.write(self._rows.blocks(rows))

    def close(self) -> None:
        """An Avro file has no footer; the sink stays open."""

    def abandon(self) -> None:
        """Nothing is buffered here."""


class AvroFile:
    """One Avro file being read. A row group is a stretch of blocks; nothing bounds its columns."""

    def __init__(self, source: Any, path: str) -> None:
        container = read_container(_FileBytes(source), file_name=path, limits=DATA_LIMITS)
        self._records = AvroRecords(container, flat=False)
        self.schema: pa.Schema = self._records.schema
        self._groups = _grouped(container.blocks)
        self.group_rows = tuple(sum(b.row_count for b in group) for group in self._groups)

    def keep_dictionaries(self) -> None:
        """There are none to be had (StoredFile)."""

    def read_group(self, group: int, names: Sequence[str]) -> pa.Table:
        """Return columns of one group of blocks."""
        return self._records.decode(names, self._groups[group])

    def read_rows(self, group: int, names: Sequence[str], rows: Longs) -> pa.Table:
        """Return columns of some rows of one group (StoredFile)."""
        return take(self.read_group(group, names), rows)

    def bounds(self, _: str) -> None:
        """Avro keeps no statistics."""
        return


def _grouped(blocks: Sequence[Block]) -> list[list[Block]]:
    """Return blocks in stretches: not so many rows or bytes that memory would be felt."""
    groups: list[list[Block]] = []
    rows = size = 0
    for block in blocks:
        if block.row_count == 0:
            # An empty block has nothing to decode, and would only add a batch without rows.
            continue
        if not groups or rows >= _GROUP_ROWS or size >= _GROUP_STORED_BYTES:
            groups.append([])
            rows = size = 0
        groups[-1].append(block)
        rows += block.row_count
        size += block.size
    return groups


class _FileBytes:
    """A file as bytes that are fetched when asked for; small spans come out of a window."""

    def __init__(self, source: Any) -> None:
        self._source = source
        source.seek(0, 2)
        self._size = int(source.tell())
        self._start = 0
        self._window = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, span: slice, /) -> bytes:
        start, stop, _ = span.indices(self._size)
        if stop - start > _WINDOW:
            # A large span is read by itself and does not replace the window of headers.
            return self._fetched(start, stop - start)
        if start < self._start or stop > self._start + len(self._window):
            self._window = self._fetched(start, min(_WINDOW, self._size - start))
            self._start = start
        return self._window[start - self._start : stop - self._start]

    def _fetched(self, start: int, size: int) -> bytes:
        self._source.seek(start)
        return bytes(self._source.read(size))
