"""Values written as text → values of a column's type: CSV and JSON cells, keys, partitions."""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine import ErrorKind, InvalidInputError

_ZONED = r"(Z|\d:\d{2}.*[+-]\d{2}(:?\d{2})?)$"
_DAY_ONLY = r"^[^ T:]+$"
_HALF = np.full(256, 255, np.uint8)  # value of a hexadecimal digit, 255 for anything else
for _position, _digit in enumerate("0123456789abcdef"):
    _HALF[ord(_digit)] = _HALF[ord(_digit.upper())] = _position


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as values of a type; null remains null.

    Dates "2024-05-01"; timestamps with a blank or T between date and time, UTC where the column is
    an instant and no offset is written; times "08:00:00"; binary in hexadecimal. Raises
    pyarrow.ArrowInvalid for what does not fit.
    """
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _instants(texts, kind)
    if pa.types.is_time(kind):
        moments = pc.binary_join_element_wise("1970-01-01 ", texts, "")
        return moments.cast(pa.timestamp("us")).cast(pa.time64("us")).cast(kind)
    if _is_binary(kind):
        return _bytes(texts).cast(kind)
    return texts.cast(kind)


def _instants(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    zoned = pc.match_substring_regex(texts, _ZONED)
    suffix = pc.if_else(pc.match_substring_regex(texts, _DAY_ONLY), " 00:00:00Z", "Z")
    marked = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, suffix, ""))
    return marked.cast(kind)


def _bytes(texts: pa.Array) -> pa.Array:
    """Decode hexadecimal text column-wise: two digits of the data buffer make one byte."""
    if len(texts) == 0:
        return pa.array([], pa.binary())
    filled = pc.fill_null(pa.concat_arrays([texts]), "")
    lengths = pc.binary_length(filled).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    digits = np.frombuffer(b"".join(filled.cast(pa.binary()).to_pylist()), np.uint8)
    halves = _HALF[digits]
    if (lengths % 2).any() or (halves == 255).any():
        raise pa.ArrowInvalid("binary values are hexadecimal digits, two for each byte")
    data = (halves[0::2] << 4) | halves[1::2]
    valid = texts.is_valid()
    joined = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, pa.py_buffer(offsets // 2), pa.py_buffer(data.tobytes())]
    )
    return pc.if_else(valid, joined, pa.scalar(None, pa.binary()))


def partition_values(pairs: Sequence[str], default_name: str) -> dict[str, str | None]:
    """Return {"dt": "2024-05-01"} for ["dt=2024-05-01"]; the default partition's name means null."""
    values: dict[str, str | None] = {}
    for pair in pairs:
        for part in re.split(r",(?=[^,=]+=)", pair):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise InvalidInputError(
                    f"a partition is written column=value, such as dt=2024-05-01, not {part!r}",
                    kind=ErrorKind.INVALID_KEY,
                )
            values[name.strip()] = None if value == default_name else value
    return values
