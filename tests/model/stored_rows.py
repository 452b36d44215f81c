"""Format sections 2, 6, 8 and 9 a second time, slowly: so that invariants do not ask the code under test."""

import re
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal

from tests.model.column_kinds import NAN, Plain

SEED = 42
_EXACT = Context(prec=60)
_TYPE = re.compile(
    r"(?P<name>[A-Z_]+)(?:\((?P<p>\d+)(?:, ?(?P<s>\d+))?\))?(?P<zone> WITH LOCAL TIME ZONE)?(?P<null> NOT NULL)?"
)
_FIXED = {
    "BOOLEAN": "<?", "TINYINT": "<b", "SMALLINT": "<h", "INT": "<i", "BIGINT": "<q", "FLOAT": "<f",
    "DOUBLE": "<d", "DATE": "<i", "TIME": "<i",
}  # fmt: skip
_TEXT = ("STRING", "CHAR", "VARCHAR")
_BINARY = ("BYTES", "BINARY", "VARBINARY")


@dataclass(frozen=True)
class StoredType:
    """A scalar type as schema files spell it."""

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def unit(self) -> int:
        """Parts of a millisecond that the model counts timestamps in."""
        return 1 if self.precision <= 3 else 1_000 if self.precision <= 6 else 1_000_000


def stored_type(text: str) -> StoredType:
    """Read `INT NOT NULL`, `DECIMAL(9, 2)`, `TIMESTAMP(6) WITH LOCAL TIME ZONE`."""
    found = _TYPE.fullmatch(text)
    assert found, text
    default = (
        6 if found["name"].startswith("TIMESTAMP") else 10 if found["name"] == "DECIMAL" else 0
    )
    return StoredType(found["name"], int(found["p"] or default), int(found["s"] or 0))


def decode_stored(stored: bytes, types: list[StoredType]) -> tuple[Plain, ...]:
    """Read a stored row: 4-byte arity, then a BinaryRow."""
    (arity,) = struct.unpack(">i", stored[:4])
    assert arity == len(types), (arity, types)
    row = stored[4:]
    header = (arity + 8 + 63) // 64 * 8
    values: list[Plain] = []
    for place, type_ in enumerate(types):
        is_null = row[(8 + place) // 8] >> (8 + place) % 8 & 1
        slot = row[header + 8 * place : header + 8 * place + 8]
        values.append(None if is_null else _decode_slot(row, slot, type_))
    return tuple(values)


def _decode_slot(row: bytes, slot: bytes, type_: StoredType) -> Plain:
    (word,) = struct.unpack("<Q", slot)
    offset, length = word >> 32, word & 0xFFFFFFFF
    if type_.name in _FIXED:
        (value,) = struct.unpack_from(_FIXED[type_.name], slot)
        return NAN if value != value else value
    if type_.name in _TEXT + _BINARY:
        short = slot[7] & 0x80
        data = slot[: slot[7] & 0x7F] if short else row[offset : offset + length]
        return data.decode() if type_.name in _TEXT else data
    if type_.name == "DECIMAL":
        if type_.precision <= 18:
            (unscaled,) = struct.unpack("<q", slot)
        else:
            unscaled = int.from_bytes(row[offset : offset + length], "big", signed=True)
        return Decimal(unscaled).scaleb(-type_.scale, _EXACT)
    assert type_.name.startswith("TIMESTAMP"), type_
    if type_.precision <= 3:
        (millis,) = struct.unpack("<q", slot)
        return millis
    (millis,) = struct.unpack_from("<q", row, offset)
    return millis * type_.unit + length * type_.unit // 1_000_000


def encode_row(values: tuple[Plain, ...], types: list[StoredType]) -> bytes:
    """Write a BinaryRow without arity; no value may be null (keys and partitions)."""
    header = (len(types) + 8 + 63) // 64 * 8
    slots, heap = b"", b""
    start = header + 8 * len(types)
    for value, type_ in zip(values, types, strict=True):
        offset = start + len(heap)
        slot, more = _encode_slot(value, type_, offset)
        slots += slot
        heap += more + bytes(-len(more) % 8)
    return bytes(header) + slots + heap


def _encode_slot(value: Plain, type_: StoredType, offset: int) -> tuple[bytes, bytes]:
    if type_.name in _FIXED:
        return struct.pack(_FIXED[type_.name], value).ljust(8, b"\0"), b""
    if type_.name in _TEXT + _BINARY:
        data = value.encode() if type_.name in _TEXT else value
        if len(data) <= 7:
            return data.ljust(7, b"\0") + bytes([0x80 + len(data)]), b""
        return struct.pack("<Q", (offset << 32) + len(data)), data
    if type_.name == "DECIMAL":
        unscaled = int(value.scaleb(type_.scale, _EXACT))
        if type_.precision <= 18:
            return struct.pack("<q", unscaled), b""
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        data = unscaled.to_bytes(size, "big", signed=True)
        return struct.pack("<Q", (offset << 32) + size), data.ljust(16, b"\0")
    if type_.precision <= 3:
        return struct.pack("<q", value), b""
    millis, rest = divmod(value, type_.unit)
    nanos = rest * 1_000_000 // type_.unit
    return struct.pack("<Q", (offset << 32) + nanos), struct.pack("<q", millis)


def murmur(data: bytes) -> int:
    """Return the 32-bit hash of format section 8, signed."""
    mask = 0xFFFFFFFF
    hashed = SEED
    for (word,) in struct.iter_unpack("<I", data):
        word = word * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) & mask
        hashed ^= word * 0x1B873593 & mask
        hashed = (hashed << 13 | hashed >> 19) & mask
        hashed = (hashed * 5 + 0xE6546B64) & mask
    hashed ^= len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & mask
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & mask
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def key_hash(values: tuple[Plain, ...], types: list[StoredType]) -> int:
    """Return the hash that chooses a key's bucket."""
    return murmur(encode_row(values, types))


def bucket_of(values: tuple[Plain, ...], types: list[StoredType], count: int) -> int:
    """Return the bucket of a key: the absolute value of Java's truncating remainder."""
    return abs(key_hash(values, types)) % count


def partition_path(values: tuple[Plain, ...], names: list[str], types: list[StoredType]) -> str:
    """Return the directory of a partition, by the legacy names that are the default."""
    pairs = zip(names, values, types, strict=True)
    return "/".join(
        f"{_escaped(name)}={_escaped(_text(value, type_))}" for name, value, type_ in pairs
    )


def _text(value: Plain, type_: StoredType) -> str:
    if value is None:
        return "__DEFAULT_PARTITION__"
    if type_.name == "BOOLEAN":
        return "true" if value else "false"
    if type_.name.startswith("TIMESTAMP"):
        return _local_date_time(value, type_)
    text = format(value, "f") if type_.name == "DECIMAL" else str(value)
    return text if text.strip() else "__DEFAULT_PARTITION__"


def _local_date_time(value: int, type_: StoredType) -> str:
    """Java's LocalDateTime.toString: seconds vanish when zero, fractions have 3, 6 or 9 digits."""
    seconds, rest = divmod(value, 1_000 * type_.unit)
    nanos = rest * 1_000_000 // type_.unit
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)  # noqa: DTZ001 - without a zone
    text = f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment.hour:02}:{moment.minute:02}"
    if moment.second or nanos:
        text += f":{moment.second:02}"
    if nanos:
        digits = f"{nanos:09}"
        text += "." + (
            digits[:3] if digits[3:] == "0" * 6 else digits[:6] if digits[6:] == "000" else digits
        )
    return text


def _escaped(text: str) -> str:
    special = "\"#%'*/:=?\\{}[]^\x7f"
    return "".join(
        f"%{ord(letter):02X}" if letter in special or ord(letter) < 0x20 else letter
        for letter in text
    )
