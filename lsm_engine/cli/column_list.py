"""`--columns "id BIGINT NOT NULL, dt DATE, tags ARRAY<STRING>"` → an Arrow schema."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lsm_engine import BOUNDED_TYPES as BOUNDED
from lsm_engine import (
    ErrorKind,
    FieldIds,
    InvalidInputError,
    LsmError,
    ScalarType,
    UnsupportedError,
    arrow_type,
    parse_type,
    sql_field,
    type_from_arrow,
    type_text,
)

_OPEN, _CLOSE = "<(", ">)"


def parse_columns(text: str) -> pa.Schema:
    """Return the columns that a list of `name TYPE [NOT NULL]` declares.

    Types are those of schema files: BOOLEAN INT BIGINT DOUBLE DECIMAL(p, s) STRING CHAR(n) VARCHAR(n) BYTES DATE TIME
    TIMESTAMP(p) TIMESTAMP_LTZ(p) ARRAY<…> MAP<…, …> ROW<name TYPE, …>. Raises InvalidInputError for
    anything else, UnsupportedError for nested types with members that an Arrow schema cannot carry, such
    as ARRAY<VARCHAR(10)>.
    """
    return pa.schema(_column(part) for part in _parts(text))


def _column(text: str) -> pa.Field:
    name, kind = _named(text)
    declared = parse_type(_stored(kind))
    field = pa.field(name, arrow_type(declared), declared.nullable)
    if isinstance(declared, ScalarType) and declared.root in BOUNDED:
        return sql_field(name, kind)
    if "(" in kind:
        carried = type_from_arrow(field.type, nullable=field.nullable, column=name, ids=FieldIds())
        if type_text(carried) != type_text(declared):
            raise UnsupportedError(
                f"column {name!r} would become {type_text(carried)}; declare it so",
                kind=ErrorKind.UNSUPPORTED_TYPE,
                column=name,
                type=kind,
            )
    return field


def _stored(text: str) -> Any:
    """Return a type as schema files hold it: text, or an object for nested types."""
    text = text.strip()
    word, bracket, rest = text.partition("<")
    if not bracket:
        return text
    inner, closing, suffix = rest.rpartition(">")
    kind = f"{word.strip().upper()} {' '.join(suffix.upper().split())}".strip()
    parts = list(_parts(inner))
    match word.strip().upper(), len(parts):
        case ("ARRAY", 1) if closing:
            return {"type": kind, "element": _stored(parts[0])}
        case ("MAP", 2) if closing:
            return {"type": kind, "key": _stored(parts[0]), "value": _stored(parts[1])}
        case ("ROW", _) if closing:
            members = [_named(part) for part in parts]
            fields = [
                {"id": number, "name": name, "type": _stored(member)}
                for number, (name, member) in enumerate(members)
            ]
            return {"type": kind, "fields": fields}
        case _:
            raise _wrong(text)


def _named(text: str) -> tuple[str, str]:
    text = text.strip()
    if text[:1] in ('"', "`"):
        name, quote, kind = text[1:].partition(text[0])
    else:
        name, quote, kind = text.partition(" ")
    if not (name and quote and kind.strip()):
        raise _wrong(text)
    return name, kind.strip()


def _parts(text: str) -> Iterator[str]:
    """Cut at commas outside of brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth < 0 or depth > 20:
            raise _wrong(text)
        if letter == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth:
        raise _wrong(text)
    yield text[start:]


def _wrong(text: str) -> LsmError:
    return InvalidInputError(
        f"columns are written 'id BIGINT NOT NULL, dt DATE'; {text.strip()!r} is not understood",
        kind=ErrorKind.INVALID_SCHEMA,
    )
