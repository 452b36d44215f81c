"""Values as people and programs read them: plain JSON values.

Encodings in JSON: timestamps ISO 8601 (with Z if they are instants), dates and times ISO 8601, decimals
text that keeps every digit, binary lower-case hexadecimal text, floats that JSON has no word for
"NaN", "Infinity" and "-Infinity", maps with text keys objects, other maps lists of key and value."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine import ErrorKind, InvalidInputError

# -- Values written as text → values of a column's type: CSV and JSON cells, keys, partitions ------

_ZONED = r"(Z|\d:\d{2}.*[+-]\d{2}(:?\d{2})?)$"
_DAY_ONLY = r"^[^ T:]+$"
_HALF = np.full(256, 255, np.uint8)  # value of a hexadecimal digit, 255 for anything else
for _position, _digit in enumerate("0123456789abcdef"):
    _HALF[ord(_digit)] = _HALF[ord(_digit.upper())] = _position


def _is_binary_literal(kind: pa.DataType) -> bool:
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
    if _is_binary_literal(kind):
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


# -- Values as people and programs read them: plain JSON values ------------------------------------


def plain_rows(rows: pa.Table | pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Return rows as dictionaries of plain values, converted column by column."""
    names = rows.schema.names
    columns = [plain_values(column) for column in rows.columns]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values as JSON can hold them."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain_values(chunk)]
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_values(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
        return list(text.to_pylist())
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind):
        return [_plain_float(value) for value in column.to_pylist()]
    if _is_binary(kind):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    if pa.types.is_struct(kind):
        return _plain_structs(column)
    if pa.types.is_map(kind):
        return _plain_maps(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _cut(column, plain_values(column.flatten()))
    return list(column.to_pylist())


def _plain_float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _plain_structs(column: pa.Array) -> list[Any]:
    names = [column.type.field(position).name for position in range(column.type.num_fields)]
    members = [plain_values(member) for member in column.flatten()]
    values = zip(*members, strict=True) if members else (() for _ in column)
    valid = column.is_valid().to_pylist()
    return [
        dict(zip(names, value, strict=True)) if is_valid else None
        for value, is_valid in zip(values, valid, strict=True)
    ]


def _plain_maps(column: pa.Array) -> list[Any]:
    # keys and items are the whole buffers: offsets count from their beginning, slices or not.
    keys, items = plain_values(column.keys), plain_values(column.items)
    offsets = column.offsets.to_pylist()
    texts = pa.types.is_string(column.type.key_type)
    rows: list[Any] = []
    for row, is_valid in enumerate(column.is_valid().to_pylist()):
        cut = slice(offsets[row], offsets[row + 1])
        pairs = list(zip(keys[cut], items[cut], strict=True))
        if not is_valid:
            rows.append(None)
        elif texts:
            rows.append(dict(pairs))
        else:
            rows.append([{"key": key, "value": value} for key, value in pairs])
    return rows


def _cut(column: pa.Array, flat: list[Any]) -> list[Any]:
    """Cut the values of all lists, none of null lists among them, into one list per row."""
    lengths = pc.list_value_length(column).to_pylist()
    lists, start = [], 0
    for length in lengths:
        lists.append(None if length is None else flat[start : start + length])
        start += length or 0
    return lists
