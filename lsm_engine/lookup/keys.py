"""Keys as users give them, as columns or as values of one row."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.format.binary_row import encode_row, header_bytes
from lsm_engine.format.data_file import EMPTY_ROW
from lsm_engine.kernels.buckets import bucket_of, murmur32
from lsm_engine.table.incoming import conformed, open_rows, values_array
from lsm_engine.types.table_schema import PADDED_KEYS, TableSchema
from lsm_engine.types.types import BINARY, DataField, Root, ScalarType, type_text

# -- Convert keys from users to the key columns of a table; errors name the column -----------------


def keys_by_name(keys: Any, names: Sequence[str]) -> Any:
    """Return keys as rows: a dictionary is one key, and plain values are keys of a single column.

    `names`: the columns of a key. Any other input is returned unchanged, for `open_rows`.
    """
    # A dictionary is one key, and a list of them is many.
    if isinstance(keys, Mapping):
        return [keys]
    # Several columns need names, which plain values lack.
    if len(names) != 1:
        return keys
    name = names[0]
    # Text is a key by itself and no sequence of letters.
    if isinstance(keys, int | float | str | bytes | Decimal | date):
        keys = [keys]
    if isinstance(keys, tuple | range | AbstractSet):
        keys = list(keys)
    if isinstance(keys, list):
        is_rows = not keys or isinstance(keys[0], Mapping)
        return keys if is_rows else pa.table({name: values_array(name, keys)})
    if isinstance(keys, np.ndarray):
        return pa.table({name: keys})
    if isinstance(keys, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(keys.type):
        return pa.table({name: keys})
    is_series = hasattr(keys, "to_frame") and not hasattr(keys, "columns")
    return keys.to_frame(name=name) if is_series else keys


def require_key(schema: TableSchema) -> None:
    """Raise InvalidInputError for a table without a primary key."""
    if not schema.has_primary_key:
        raise InvalidInputError(
            "the table has no primary key, so there is nothing to look up by; use scan(where=...)",
            kind=ErrorKind.INVALID_KEY,
        )


def require_dictionary(schema: TableSchema, key: object) -> None:
    """Raise InvalidInputError for a single key that is no mapping."""
    if not isinstance(key, Mapping):
        example = ", ".join(f"{name!r}: ..." for name in schema.primary_keys)
        raise InvalidInputError(
            f"get takes a key as a dictionary: {{{example}}}; lookup(keys) takes several",
            kind=ErrorKind.INVALID_KEY,
            given=type(key).__name__,
        )


def keys_of(schema: TableSchema, keys: Any, *, with_partitions: bool = False) -> pa.RecordBatch:
    """Return key columns of any Arrow data or list of dictionaries, as the table stores them.

    Plain values are keys if the key is one column. `with_partitions`: also return the partition columns that are
    not part of the primary key.

    Raises InvalidInputError, naming the column, for keys that are missing, null or of another type.
    """
    require_key(schema)
    names = dict.fromkeys(
        (*schema.primary_keys, *(schema.partition_keys if with_partitions else ()))
    )
    only_keys = replace(schema, fields=schema.select_read(names), options=PADDED_KEYS)
    key_schema = only_keys.arrow
    # An empty list has no columns that Arrow could infer.
    if isinstance(keys, list) and not keys:
        return pa.RecordBatch.from_pylist([], schema=key_schema)
    batches = [piece.rows for piece in conformed(_without_values(keys, schema, names), only_keys)]
    columns = [
        pa.concat_arrays([batch.column(index) for batch in batches])
        if batches
        else pa.array([], field.type)
        for index, field in enumerate(key_schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=key_schema)


def _without_values(
    keys: Any, schema: TableSchema, key_names: Iterable[str]
) -> pa.RecordBatchReader:
    """Return a stream of keys without the table's other columns, which are ignored."""
    reader = open_rows(keys_by_name(keys, tuple(key_names)))
    other_names = set(schema.names) - set(key_names)
    names = [name for name in reader.schema.names if name not in other_names]
    fields = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(fields, (batch.select(names) for batch in reader))


# -- Encode one key of Python values to its partition, bucket and bytes, without Arrow columns -----
#
# Only for types whose values need no conversion (whole numbers, text, binary, booleans); other
# keys are encoded as Arrow tables.

_WIDTHS = {Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.BIGINT: 8}
_FORMATS = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
_CACHED_PARTITIONS = 4096


def encodes_directly(schema: TableSchema) -> bool:
    """Whether keys of a table can be encoded one by one."""
    return all(
        isinstance(field.type, ScalarType)
        and (
            field.type.root in _WIDTHS or field.type.root in (Root.STRING, Root.BYTES, Root.BOOLEAN)
        )
        for field in schema.select(schema.primary_keys)
    )


class KeyEncoder:
    """Encodes single keys of one table."""

    def __init__(self, schema: TableSchema) -> None:
        self.names = schema.primary_keys
        self._partition_fields = schema.select(schema.partition_keys)
        self._bucket_fields = schema.select(schema.bucket_keys)
        trimmed = schema.select(schema.trimmed_primary_keys)
        self._fits = [(field, _fits(field)) for field in schema.select(self.names)]
        self._ordered = [
            (field.name, _ordered(field, is_last=index == len(trimmed) - 1))
            for index, field in enumerate(trimmed)
        ]
        self._partitions: dict[tuple[object, ...], bytes] = {}
        self._only = _whole_number(schema)

    def encoded(self, key: Mapping[str, Any]) -> bytes:
        """Return the key's memcomparable bytes; InvalidInputError, naming the column, if it does not fit."""
        # One whole number is the most frequent key, so it skips the general checks.
        if self._only is not None and len(key) == 1:
            name, pack, half = self._only
            value = key.get(name)
            if type(value) is int and -half <= value < half:
                return pack(value + half)
        self._check(key)
        if len(self._ordered) == 1:
            name, encode = self._ordered[0]
            return encode(key[name])
        return b"".join([encode(key[name]) for name, encode in self._ordered])

    def _check(self, key: Mapping[str, Any]) -> None:
        if len(key) != len(self._fits) or any(name not in key for name in self.names):
            raise InvalidInputError(
                f"a key has exactly the columns {', '.join(self.names)}",
                kind=ErrorKind.INVALID_KEY,
                given=list(key),
            )
        for field, fits in self._fits:
            if not fits(key[field.name]):
                raise InvalidInputError(
                    f"column {field.name!r} takes {type_text(field.type)}, not {key[field.name]!r}",
                    kind=ErrorKind.INVALID_KEY,
                    column=field.name,
                )

    def partition(self, key: Mapping[str, Any]) -> bytes:
        """Return the partition as a stored row."""
        if not self._partition_fields:
            return EMPTY_ROW
        values = tuple(key[field.name] for field in self._partition_fields)
        stored = self._partitions.get(values)
        if stored is None:
            stored = encode_row(values, [field.type for field in self._partition_fields])
            # The cache is emptied as a whole, which is simpler than an order of use.
            if len(self._partitions) >= _CACHED_PARTITIONS:
                self._partitions.clear()
            self._partitions[values] = stored
        return stored

    def bucket(self, key: Mapping[str, Any], total: int) -> int:
        """Return the bucket among `total`."""
        # With one bucket the hash decides nothing.
        if total == 1:
            return 0
        row = _binary_row([(field, key[field.name]) for field in self._bucket_fields])
        hashes = murmur32(np.frombuffer(row, np.uint8), np.array([0, len(row)], np.int64))
        return int(bucket_of(hashes, total)[0])


def _root(field: DataField) -> Root:
    assert isinstance(field.type, ScalarType)
    return field.type.root


def _fits(field: DataField) -> Callable[[object], bool]:
    root = _root(field)
    kind = {Root.STRING: str, Root.BYTES: bytes, Root.BOOLEAN: bool}.get(root)
    if kind is not None:
        return lambda value: isinstance(value, kind)
    half = 1 << (8 * _WIDTHS[root] - 1)
    return lambda value: (
        isinstance(value, int) and -half <= value < half and not isinstance(value, bool)
    )


def _whole_number(schema: TableSchema) -> tuple[str, Callable[[int], bytes], int] | None:
    """Return name, packer and half the range of a key that is one whole number; None for other keys."""
    key = schema.select(schema.primary_keys)
    # Other keys need a separator or a length.
    if len(key) != 1 or _root(key[0]) not in _WIDTHS:
        return None
    width = _WIDTHS[_root(key[0])]
    return key[0].name, struct.Struct(_FORMATS[width]).pack, 1 << (8 * width - 1)


def _ordered(field: DataField, *, is_last: bool) -> Callable[[Any], bytes]:
    root = _root(field)
    if root is Root.BOOLEAN:
        return lambda value: b"\x01" if value else b"\x00"
    if root in _WIDTHS:
        pack = struct.Struct(_FORMATS[_WIDTHS[root]]).pack
        half = 1 << (8 * _WIDTHS[root] - 1)
        return lambda value: pack(value + half)
    raw: Callable[[Any], bytes] = bytes if root in BINARY else str.encode
    # The last column needs no end mark.
    if is_last:
        return raw
    return lambda value: (
        raw(value).replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"
    )


def _binary_row(values: Sequence[tuple[DataField, Any]]) -> bytes:
    """Return a row as buckets hash it (format section 6)."""
    fixed = bytearray(header_bytes(len(values)) + 8 * len(values))
    behind = b""
    slot = header_bytes(len(values))
    for field, value in values:
        root = _root(field)
        if root in _WIDTHS:
            width = _WIDTHS[root]
            fixed[slot : slot + width] = value.to_bytes(width, "little", signed=True)
        elif root is Root.BOOLEAN:
            fixed[slot] = value
        else:
            piece = value if isinstance(value, bytes) else value.encode()
            if len(piece) <= 7:
                fixed[slot : slot + len(piece)] = piece
                fixed[slot + 7] = 0x80 | len(piece)
            else:
                place = len(fixed) + len(behind)
                fixed[slot : slot + 8] = struct.pack("<II", len(piece), place)
                behind += piece + bytes(-len(piece) % 8)
        slot += 8
    return bytes(fixed) + behind
