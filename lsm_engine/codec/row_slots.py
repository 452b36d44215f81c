"""Columns ⇄ the 8-byte slots of BinaryRow: fixed-width values, wide decimals, wide timestamps."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.codec.arrow_buffers import fixed_array
from lsm_engine.kernels.arrow_views import Bools, Bytes, Longs, Words, fixed_values, one_array
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import BINARY, TEXT, TIMESTAMPS, DataType, Root, ScalarType, type_text

_UNSIGNED: dict[Root, npt.DTypeLike] = {
    Root.TINYINT: np.uint8, Root.SMALLINT: np.uint16, Root.INT: np.uint32, Root.DATE: np.uint32,
    Root.TIME: np.uint32, Root.FLOAT: np.uint32, Root.BIGINT: np.uint64, Root.DOUBLE: np.uint64,
}  # fmt: skip
NARROW_DECIMAL_DIGITS = 18
_NANOS_PER_MILLI = 1_000_000
_MILLIS_MAX = (2**63 - 1) // 1000


def is_pieces(kind: ScalarType) -> bool:
    """Whether values are bytes of any length: strings and binary."""
    return kind.root in TEXT or kind.root in BINARY


def is_wide_decimal(kind: ScalarType) -> bool:
    """Whether a decimal does not fit into a slot."""
    return kind.root is Root.DECIMAL and (kind.precision or 0) > NARROW_DECIMAL_DIGITS


def is_wide_timestamp(kind: ScalarType) -> bool:
    """Whether a timestamp is finer than milliseconds and so does not fit into a slot."""
    return kind.root in TIMESTAMPS and (kind.precision or 0) > 3


def is_in_slot(kind: DataType) -> bool:
    """Whether a value of the type always fits into its 8-byte slot."""
    return isinstance(kind, ScalarType) and not (
        is_pieces(kind) or is_wide_decimal(kind) or is_wide_timestamp(kind)
    )


def scalar(kind: DataType) -> ScalarType:
    """Return a type that has a binary form here; nested ones raise UnsupportedError."""
    if not isinstance(kind, ScalarType):
        raise UnsupportedError(
            f"values of type {type_text(kind)} have no row form in this version",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=type_text(kind),
        )
    return kind


def stored_column(column: pa.Array | pa.ChunkedArray, kind: ScalarType) -> pa.Array:
    """Return the column as one array of the type's Arrow type; casts must not lose anything."""
    array = one_array(column)
    target = arrow_type(kind)
    if array.type == target or (is_pieces(kind) and _is_bytes_like(array.type)):
        return array
    try:
        return array.cast(target)
    except pa.ArrowInvalid as cause:
        raise InvalidInputError(
            f"values of Arrow type {array.type} do not fit {type_text(kind)}",
            type=type_text(kind),
        ) from cause


def _is_bytes_like(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def slot_words(array: pa.Array, kind: ScalarType) -> Words:
    """Return the slot of every row of an in-slot column; unspecified where null."""
    words: Words
    if kind.root is Root.BOOLEAN:
        words = fixed_values(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
    elif kind.root is Root.DECIMAL:
        words = np.ascontiguousarray(fixed_values(array, np.uint64, per_row=2)[::2])
    elif kind.root in TIMESTAMPS:
        words = fixed_values(array, np.uint64)
    else:
        words = fixed_values(array, _UNSIGNED[kind.root]).astype(np.uint64, copy=False)
    return words


def slot_column(words: Words, kind: ScalarType, valid: Bools | None) -> pa.Array:
    """Return the column whose slots are `words`: `slot_words` turned round."""
    target = arrow_type(kind)
    if kind.root is Root.BOOLEAN:
        return fixed_array(words.astype(np.uint8), pa.uint8(), valid).cast(target)
    if kind.root is Root.DECIMAL:
        pairs = np.empty((len(words), 2), np.uint64)
        pairs[:, 0] = words
        pairs[:, 1] = (words.view(np.int64) >> 63).view(np.uint64)
        return fixed_array(pairs.reshape(-1), target, valid)
    if kind.root in TIMESTAMPS:
        return fixed_array(words, target, valid)
    return fixed_array(words.astype(_UNSIGNED[kind.root]), target, valid)


def millis_and_nanos(array: pa.Array) -> tuple[Longs, Longs]:
    """Return epoch milliseconds and the nanoseconds within, from a us or ns timestamp column."""
    ticks: Longs = fixed_values(array, np.int64)
    if array.type.unit == "us":
        millis = ticks // 1000
        return millis, (ticks - millis * 1000) * 1000
    millis = ticks // _NANOS_PER_MILLI
    return millis, ticks - millis * _NANOS_PER_MILLI


def timestamp_column(
    millis: Longs, nanos: Longs, kind: ScalarType, valid: Bools | None
) -> pa.Array:
    """Return a us or ns timestamp column; raises UnsupportedError where Arrow cannot hold a value."""
    target = arrow_type(kind)
    per_milli, nanos_per_tick = (1000, 1000) if target.unit == "us" else (_NANOS_PER_MILLI, 1)
    limit = (2**63 - 1) // per_milli - 1
    valid_millis = millis if valid is None else millis[valid]
    if len(valid_millis) and (int(valid_millis.max()) > limit or int(valid_millis.min()) < -limit):
        raise UnsupportedError(
            f"a stored {type_text(kind)} lies outside what Arrow's {target} holds",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=type_text(kind),
        )
    return fixed_array(millis * per_milli + nanos // nanos_per_tick, target, valid)


def big_endian_decimals(array: pa.Array) -> tuple[Words, Longs]:
    """Return decimals as minimal big-endian two's complement bytes, zero filled behind.

    The result has two words (16 bytes) per row, and the byte counts, at least 1 each.
    """
    pairs = fixed_values(array, np.uint64, per_row=2).reshape(-1, 2)
    # High word first, each with its most significant byte first in memory.
    memory = np.ascontiguousarray(pairs[:, ::-1]).byteswap()
    octets = memory.view(np.uint8).reshape(-1, 16)
    sign = np.where(octets[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    differs = octets != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    # The first byte that is kept must show the sign.
    leading = octets[np.arange(len(octets)), first]
    first = np.where((first > 0) & ((leading >= 0x80) != (sign[:, 0] >= 0x80)), first - 1, first)
    columns = np.minimum(first[:, None] + np.arange(16), 16)
    padded = np.concatenate([octets, np.zeros((len(octets), 1), np.uint8)], axis=1)
    shifted = np.ascontiguousarray(np.take_along_axis(padded, columns, axis=1))
    return shifted.view(np.uint64), (16 - first).astype(np.int64)


def decimal_column(
    data: Bytes, starts: Longs, lengths: Longs, kind: pa.DataType, valid: Bools | None
) -> pa.Array:
    """Return decimals from big-endian two's complement pieces of 1 to 16 bytes of `data`.

    The caller has checked bounds. Values of more digits than `kind` has raise pa.ArrowInvalid.
    """
    ends = starts + lengths
    padded = np.concatenate([np.zeros(16, np.uint8), data])  # so that 16 bytes end at any end
    windows = np.lib.stride_tricks.sliding_window_view(padded, 16)
    octets = windows[ends].copy()
    place = np.arange(16)[None, :]
    first = (16 - lengths)[:, None]
    top = octets[np.arange(len(octets)), np.minimum(16 - lengths, 15)]
    fill = np.where((top >= 0x80) & (lengths > 0), np.uint8(0xFF), np.uint8(0))[:, None]
    octets = np.where(place < first, fill, octets)
    little = np.ascontiguousarray(octets[:, ::-1])
    array = fixed_array(little.reshape(-1), kind, valid)
    array.validate(full=True)
    return array
