"""Values written as text → values of a column's type: filters, CSV and JSON cells, partitions."""

import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record

_ZONED = r"(Z|\d:\d{2}.*[+-]\d{2}(:?\d{2})?)$"
_DAY_ONLY = r"^[^ T:]+$"
_HALF = np.full(256, 255, np.uint8)  # value of a hexadecimal digit, 255 for anything else
for _position, _digit in enumerate("0123456789abcdef"):
    _HALF[ord(_digit)] = _HALF[ord(_digit.upper())] = _position


@record
class Literal:
    """A value in a filter: what kind it was written as, its text, and where it stands."""

    kind: str  # number, text, boolean, date, timestamp, time, binary
    text: str
    position: int


def typed(literal: Literal, column: str, kind: pa.DataType) -> pa.Scalar:
    """Return a literal as a value that the column can be compared with.

    Numbers keep their value even where the column's type could not hold it (an INT column may be
    compared with 1.5). Raises InvalidInputError for anything that only a guess could compare.
    """
    try:
        found = _typed(literal, kind)
    except (pa.ArrowException, ValueError, ArithmeticError, OverflowError) as cause:
        raise _unfit(literal, column, kind) from cause
    if found is None:
        raise _unfit(literal, column, kind)
    return found


def _typed(literal: Literal, kind: pa.DataType) -> pa.Scalar | None:
    text = literal.text
    match literal.kind:
        case "number" if pa.types.is_integer(kind):
            value = Decimal(text)
            whole = value == value.to_integral_value()
            return pa.scalar(int(value), pa.int64()) if whole else pa.scalar(value)
        case "number" if pa.types.is_decimal(kind):
            return pa.scalar(Decimal(text))
        case "number" if pa.types.is_floating(kind):
            return pa.scalar(float(text), kind)
        case "boolean" if pa.types.is_boolean(kind):
            return pa.scalar(text == "true", kind)
        case "binary" if _is_binary(kind):
            return pa.scalar(bytes.fromhex(text), kind)
        case "text" if pa.types.is_string(kind):
            return pa.scalar(text, kind)
        case "text" | "date" if pa.types.is_date(kind):
            return parsed(pa.array([text]), kind)[0]
        case "text" | "date" | "timestamp" if pa.types.is_timestamp(kind):
            return _moment(text, [kind, pa.timestamp("us", kind.tz), pa.timestamp("ns", kind.tz)])
        case "text" | "time" if pa.types.is_time(kind):
            return _moment(text, [kind, pa.time64("us")])
        case _:
            return None


def _moment(text: str, kinds: Sequence[pa.DataType]) -> pa.Scalar:
    """Return a time in the first type that is fine enough for it."""
    *coarser, finest = kinds
    for kind in coarser:
        with suppress(pa.ArrowInvalid):
            return parsed(pa.array([text]), kind)[0]
    return parsed(pa.array([text]), finest)[0]


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _unfit(literal: Literal, column: str, kind: pa.DataType) -> InvalidInputError:
    shown = f"'{literal.text}'" if literal.kind == "text" else literal.text
    hint = ""
    if literal.kind == "text" and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        hint = "; write numbers without quotes"
    elif literal.kind == "text" and _is_binary(kind):
        hint = "; write bytes as X'00ff'"
    elif pa.types.is_string(kind):
        hint = "; write text in single quotes"
    return InvalidInputError(
        f"column {column!r} is {kind} and cannot be compared with {literal.kind} {shown}{hint}",
        kind=ErrorKind.INVALID_FILTER,
        column=column,
        character=literal.position + 1,
    )


def parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as values of a type; null stays null.

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
    whole = pc.fill_null(pa.concat_arrays([texts]), "")
    lengths = pc.binary_length(whole).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    digits = np.frombuffer(b"".join(whole.cast(pa.binary()).to_pylist()), np.uint8)
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
    found: dict[str, str | None] = {}
    for pair in pairs:
        for part in re.split(r",(?=[^,=]+=)", pair):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise InvalidInputError(
                    f"a partition is written column=value, such as dt=2024-05-01, not {part!r}",
                    kind=ErrorKind.INVALID_KEY,
                )
            found[name.strip()] = None if value == default_name else value
    return found
