"""Stored rows as bytes that compare like the keys they hold.

The bytes are those of kernels/keys.py for the same values, so that a file's bounds from a manifest
and rows in memory can be compared with each other. In order of columns:

    (nullable keys only) 00 for null, 01 otherwise; a null's own bytes are zero, or no text
    numbers, dates, times     their width in bytes, big-endian, sign bit flipped; BOOLEAN 0 or 1
    FLOAT, DOUBLE             IEEE bits: negative ones inverted, others with the sign bit flipped;
                              -0.0 as 0.0, every NaN as the greatest value
    DECIMAL                   the unscaled value in 8 bytes to 18 digits, in 16 beyond
    TIMESTAMP                 ticks of the column's Arrow unit in 8 bytes
    text and binary           last column: the bytes; elsewhere 00 as 01 01, 01 as 01 02, then 00
"""

import struct
from collections.abc import Callable, Sequence

from lsm_engine.base.errors import CorruptFileError, ErrorKind, UnsupportedError
from lsm_engine.codec.row_layout import header_bytes
from lsm_engine.codec.row_slots import (
    is_pieces,
    is_wide_decimal,
    is_wide_timestamp,
    scalar,
)
from lsm_engine.schema.types import TIMESTAMPS, DataType, Root, ScalarType, type_text

KeyOrder = Callable[[bytes], bytes]
_Reader = Callable[[bytes, int], bytes]  # (stored row, slot position) -> memcomparable bytes

_WIDTHS = {
    Root.BOOLEAN: 1, Root.TINYINT: 1, Root.SMALLINT: 2, Root.INT: 4, Root.DATE: 4, Root.TIME: 4,
    Root.BIGINT: 8, Root.DECIMAL: 8, Root.TIMESTAMP: 8, Root.TIMESTAMP_LTZ: 8,
}  # fmt: skip
_NANOS_PER_MILLI = 1_000_000


def key_order(types: Sequence[DataType], *, nullable: bool = False) -> KeyOrder:
    """Return the function from a stored row of these types to its memcomparable bytes.

    With `nullable` nulls sort first; without it, as for keys of a table, a null is corrupt. The
    function raises CorruptFileError for rows that are not of these types; nested types raise
    UnsupportedError here and now.
    """
    arity = len(types)
    first_slot = 4 + header_bytes(arity)
    shortest = first_slot + 8 * arity
    expected = arity.to_bytes(4, "big")
    readers = [
        (
            _reader(kind, is_last=index == arity - 1),
            _null_form(kind, is_last=index == arity - 1),
            5 + index // 8,
            1 << (index % 8),
        )
        for index, kind in enumerate(types)
    ]

    def order(stored: bytes) -> bytes:
        if len(stored) < shortest or stored[:4] != expected:
            raise _corrupt(f"a stored key does not have {arity} fields", stored)
        parts: list[bytes] = []
        slot = first_slot
        for read, null_form, null_byte, null_bit in readers:
            is_null = stored[null_byte] & null_bit
            if nullable:
                parts.append(b"\x00" if is_null else b"\x01")
            elif is_null:
                raise _corrupt("a stored key holds a null", stored)
            parts.append(null_form if is_null else read(stored, slot))
            slot += 8
        return b"".join(parts)

    return order


def _reader(kind: DataType, *, is_last: bool) -> _Reader:
    kind = scalar(kind)
    if is_pieces(kind):
        return _piece if is_last else _terminated_piece
    if is_wide_decimal(kind):
        return _wide_decimal
    if is_wide_timestamp(kind):
        return _wide_timestamp(kind)
    if kind.root is Root.FLOAT:
        return _floating("<f", ">f", 4)
    if kind.root is Root.DOUBLE:
        return _floating("<d", ">d", 8)
    width = _WIDTHS[kind.root]
    return _boolean if kind.root is Root.BOOLEAN else _signed(width)


def _null_form(kind: DataType, *, is_last: bool) -> bytes:
    kind = scalar(kind)
    if is_pieces(kind):
        return b"" if is_last else b"\x00"
    if is_wide_decimal(kind):
        return bytes(16)
    return bytes({Root.FLOAT: 4, Root.DOUBLE: 8}.get(kind.root) or _WIDTHS[kind.root])


def _boolean(stored: bytes, slot: int) -> bytes:
    return b"\x01" if stored[slot] else b"\x00"


def _signed(width: int) -> _Reader:
    sign = 1 << (8 * width - 1)

    def read(stored: bytes, slot: int) -> bytes:
        value = int.from_bytes(stored[slot : slot + width], "little") ^ sign
        return value.to_bytes(width, "big")

    return read


def _floating(little: str, big: str, width: int) -> _Reader:
    sign = 1 << (8 * width - 1)
    mask = (1 << (8 * width)) - 1
    # Java and NumPy agree on this one of the many patterns of NaN; its sign bit is clear.
    nan = int.from_bytes(struct.pack(big, float("nan")), "big") & ~sign

    def read(stored: bytes, slot: int) -> bytes:
        (value,) = struct.unpack_from(little, stored, slot)
        bits = nan if value != value else int.from_bytes(struct.pack(big, value + 0.0), "big")
        return (bits ^ mask if bits & sign else bits | sign).to_bytes(width, "big")

    return read


def _piece(stored: bytes, slot: int) -> bytes:
    mark = stored[slot + 7]
    if mark & 0x80:
        length = mark & 0x7F
        if length > 7:
            raise _corrupt("a stored key claims more than 7 bytes in its slot", stored)
        return stored[slot : slot + length]
    return _behind(stored, slot)


def _terminated_piece(stored: bytes, slot: int) -> bytes:
    piece = _piece(stored, slot)
    return piece.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"


def _behind(stored: bytes, slot: int) -> bytes:
    length, offset = struct.unpack_from("<II", stored, slot)
    value_bytes = stored[4 + offset : 4 + offset + length]
    if len(value_bytes) != length:
        raise _corrupt("a stored key value lies outside its row", stored)
    return value_bytes


def _wide_decimal(stored: bytes, slot: int) -> bytes:
    value_bytes = _behind(stored, slot)
    if not 1 <= len(value_bytes) <= 16:
        raise _corrupt("a stored decimal has no byte or more than 16", stored)
    value = int.from_bytes(value_bytes, "big", signed=True)
    return (value + (1 << 127)).to_bytes(16, "big")


def _wide_timestamp(kind: ScalarType) -> _Reader:
    nanos_per_tick = 1000 if (kind.precision or 0) <= 6 else 1
    ticks_per_milli = _NANOS_PER_MILLI // nanos_per_tick
    assert kind.root in TIMESTAMPS, kind

    def read(stored: bytes, slot: int) -> bytes:
        nanos, offset = struct.unpack_from("<II", stored, slot)
        if 4 + offset + 8 > len(stored) or nanos >= _NANOS_PER_MILLI:
            raise _corrupt("a stored timestamp lies outside its row", stored)
        (millis,) = struct.unpack_from("<q", stored, 4 + offset)
        ticks = millis * ticks_per_milli + nanos // nanos_per_tick
        if not -(1 << 63) <= ticks < 1 << 63:
            raise UnsupportedError(
                f"a stored {type_text(kind)} key lies outside what Arrow holds",
                kind=ErrorKind.UNSUPPORTED_TYPE,
                type=type_text(kind),
            )
        return int(ticks + (1 << 63)).to_bytes(8, "big")

    return read


def _corrupt(message: str, stored: bytes) -> CorruptFileError:
    return CorruptFileError(f"{message}; run verify", stored=stored[:64].hex())
