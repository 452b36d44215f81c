"""The LookupStore protocol: one data file as a local file that keys are looked up in."""

import os
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.cache.disk import Accesses
from lsm_engine.data_files.reader import POSITION
from lsm_engine.format.arrow_buffers import gather_pieces, offsets_of, read_only
from lsm_engine.format.lookup_file import (
    decode_compacted,
    encode_compacted,
    put_varints,
    take_varints,
    varint_sizes,
)
from lsm_engine.kernels.arrow_views import Bytes, Longs, fixed_values, one_array
from lsm_engine.kernels.compiled import compiled
from lsm_engine.lookup.key_batch import KeyBatch
from lsm_engine.options.modes import LookupFileType
from lsm_engine.types.arrow_types import arrow_schema
from lsm_engine.types.table_schema import SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from lsm_engine.types.types import DataType


class StoredValue(Enum):
    """The content of a lookup file besides the keys."""

    ROW = "row"
    """The whole row, with sequence number and row kind."""
    NOTHING = "nothing"
    """Only whether the key is there."""
    POSITION = "position"
    """Where the row stands in the data file."""
    POSITION_AND_ROW = "position-and-row"


@record
class StoreSettings:
    """How lookup files are made. `bloom_fpp` None: without a bloom filter."""

    file_type: LookupFileType
    value: StoredValue
    bloom_fpp: float | None
    hash_load_factor: float
    block_size: int
    compressed: bool
    decoded_blocks_bytes: int


@record
class Fetched:
    """Rows, not yet copied: row i is row `row[i]` (int32) of `sources[run[i]]` (uint16)."""

    sources: tuple[pa.RecordBatch, ...]
    run: npt.NDArray[np.uint16]
    row: npt.NDArray[np.int32]


@record
class Handles:
    """The result of a search for keys. `last` is its name for the newest row, -1 if absent.

    Where a data file holds a key more than once, the rows from `first` to `last` are its versions,
    oldest first; otherwise both are the same.
    """

    first: Longs
    last: Longs


class LookupStore(Protocol):
    """One data file's rows by key (LookupStoreReader). Immutable; threads may share it.

    A store that finds its file damaged raises CorruptFileError with the fact file=path.
    """

    path: str
    accesses: Accesses

    def find(self, batch: KeyBatch, pending: Longs) -> Handles:
        """Look up the keys of a batch that `pending` numbers, in ascending order."""
        ...

    def fetch(self, handles: Longs, names: Sequence[str]) -> Fetched:
        """Return columns of rows by handle, each of which `find` gave."""
        ...

    def positions(self, handles: Longs) -> Longs:
        """Return where rows stand in the data file."""
        ...

    def check(self) -> None:
        """Raise CorruptFileError if the file was changed behind our back."""
        ...


class MappedFile:
    """A lookup file that is mapped into memory, as it was when that was done."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = self._now()

    def check(self) -> None:
        """Raise CorruptFileError if the file was changed; one that was removed remains mapped."""
        now = self._now()
        if now and now != self._stamp:
            raise CorruptFileError("a lookup file was changed; it is built anew", file=self._path)

    def _now(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns


# -- Stored rows of a lookup file ------------------------------------------------------------------
#
# Which columns, and their bytes in sort and hash files.
#
# A value is the compacted row of all columns, then the sequence number (8 bytes, little-endian)
# and the row kind (1 byte); with positions, the position (8 bytes) stands before the sequence
# number. Positions alone are a varint; with nothing to keep, values are empty.

_SYSTEM = (
    pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
    pa.field(VALUE_KIND, pa.int8(), nullable=False),
)
_POSITION_FIELD = pa.field(POSITION, pa.int64(), nullable=False)


@record
class RowLayout:
    """The columns of a store's rows. `value_names`: the table's columns kept, then system ones."""

    key_names: tuple[str, ...]
    key_types: tuple[DataType, ...]
    column_names: tuple[str, ...]
    column_types: tuple[DataType, ...]
    value: StoredValue
    schema: pa.Schema

    @staticmethod
    def from_schema(schema: TableSchema, value: StoredValue) -> "RowLayout":
        """Return how rows of a table are kept."""
        keys = schema.select(schema.trimmed_primary_keys)
        rows = value in (StoredValue.ROW, StoredValue.POSITION_AND_ROW)
        fields = schema.fields if rows else ()
        system = [*_SYSTEM] if rows else []
        if value in (StoredValue.POSITION, StoredValue.POSITION_AND_ROW):
            system.append(_POSITION_FIELD)
        return RowLayout(
            key_names=schema.trimmed_primary_keys,
            key_types=tuple(field.type for field in keys),
            column_names=tuple(field.name for field in fields),
            column_types=tuple(field.type for field in fields),
            value=value,
            schema=pa.schema([*arrow_schema(fields), *system]),
        )

    @property
    def with_positions(self) -> bool:
        """Whether a row's place in the data file is kept."""
        return POSITION in self.schema.names

    @property
    def value_names(self) -> tuple[str, ...]:
        """The columns to read beside the keys."""
        keys = set(self.key_names)
        return tuple(name for name in self.schema.names if name not in keys)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The columns of a row as the store gives it."""
        return tuple(self.schema.names)


def encode_keys(batch: pa.RecordBatch | pa.Table, layout: RowLayout) -> tuple[Bytes, Longs]:
    """Return the keys of rows as lookup files hold them."""
    columns = [batch.column(name) for name in layout.key_names]
    return encode_compacted(columns, layout.key_types, row_count=batch.num_rows)


def encode_values(batch: pa.RecordBatch | pa.Table, layout: RowLayout) -> tuple[Bytes, Longs]:
    """Return the values of rows as lookup files hold them."""
    count = batch.num_rows
    match layout.value:
        case StoredValue.NOTHING:
            return np.zeros(0, np.uint8), np.zeros(count + 1, np.int64)
        case StoredValue.POSITION:
            numbers = np.array(_longs(batch, POSITION))
            offsets = offsets_of(varint_sizes(numbers))
            data = np.zeros(int(offsets[-1]), np.uint8)
            put_varints(data, offsets[:-1].copy(), numbers, np.ones(count, np.bool_))
            return data, offsets
        case StoredValue.ROW | StoredValue.POSITION_AND_ROW:
            return _with_tails(batch, layout)


def _with_tails(batch: pa.RecordBatch | pa.Table, layout: RowLayout) -> tuple[Bytes, Longs]:
    columns = [batch.column(name) for name in layout.column_names]
    rows, offsets = encode_compacted(columns, layout.column_types, row_count=batch.num_rows)
    kinds = fixed_values(one_array(batch.column(VALUE_KIND)), np.uint8)
    numbers = [np.array(_longs(batch, SEQUENCE_NUMBER))]
    if layout.with_positions:
        numbers.insert(0, np.array(_longs(batch, POSITION)))
    tails = np.concatenate(
        [
            *(column.astype("<i8").view(np.uint8).reshape(-1, 8) for column in numbers),
            kinds[:, None],
        ],
        axis=1,
    )
    width = tails.shape[1]
    longer = offsets + np.arange(len(offsets), dtype=np.int64) * width
    data = np.empty(int(longer[-1]), np.uint8)
    _interleave(read_only(rows), offsets, np.ascontiguousarray(tails), longer, data)
    return data, longer


def _longs(batch: pa.RecordBatch | pa.Table, name: str) -> Longs:
    values: Longs = fixed_values(one_array(batch.column(name)), np.int64)
    return values


def decode_values(
    data: Bytes, starts: Longs, ends: Longs, layout: RowLayout, *, file_name: str
) -> pa.RecordBatch:
    """Return rows whose values lie in `data`. Raises CorruptFileError for what is no such value."""
    count = len(starts)
    if layout.value is StoredValue.NOTHING:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    if layout.value is StoredValue.POSITION:
        numbers, cursors = np.zeros(count, np.int64), starts.copy()
        present = np.ones(count, np.bool_)
        if not take_varints(read_only(data), cursors, ends, present, numbers):
            raise _corrupt(file_name)
        return pa.RecordBatch.from_arrays([pa.array(numbers)], schema=layout.schema)
    width = 17 if layout.with_positions else 9
    if count and int((ends - starts).min()) < width:
        raise _corrupt(file_name)
    body = ends - width
    tails, _ = gather_pieces(data, body, np.full(count, width, np.int64))
    octets = tails.reshape(count, width)
    columns = decode_compacted(data, starts, body, layout.column_types, file_name=file_name)
    longs = np.ascontiguousarray(octets[:, : width - 1]).view("<i8").reshape(count, -1)
    columns.append(pa.array(np.ascontiguousarray(longs[:, -1])))
    columns.append(pa.array(np.ascontiguousarray(octets[:, -1]).view(np.int8)))
    if layout.with_positions:
        columns.append(pa.array(np.ascontiguousarray(longs[:, 0])))
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


def concatenated(pieces: Sequence[tuple[Bytes, Longs]]) -> tuple[Bytes, Longs]:
    """Return pieces of rows, each with its offsets, as one."""
    begins = np.cumsum([0, *(int(offsets[-1]) for _, offsets in pieces)])
    data = np.concatenate([data[: int(offsets[-1])] for data, offsets in pieces] or [_EMPTY])
    offsets = [
        piece_offsets[:-1] + begin
        for (_, piece_offsets), begin in zip(pieces, begins, strict=False)
    ]
    return data, np.concatenate([*offsets, begins[-1:]]).astype(np.int64)


_EMPTY: Bytes = np.zeros(0, np.uint8)


def _corrupt(file_name: str) -> CorruptFileError:
    return CorruptFileError(
        "a value of a lookup file is torn; the file is built anew", file=file_name
    )


@compiled
def _interleave(rows: Bytes, offsets: Longs, tails: Bytes, longer: Longs, data: Bytes) -> None:
    for row in range(len(offsets) - 1):
        to = longer[row]
        for offset in range(offsets[row], offsets[row + 1]):
            data[to] = rows[offset]
            to += 1
        for offset in range(tails.shape[1]):
            data[to] = tails[row, offset]
            to += 1
