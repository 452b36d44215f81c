"""Types as people write them: SQL's words, nested in angle brackets, and Arrow's names."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError, UnsupportedError
from lsm_engine.schema.arrow_types import BOUNDED, FieldIds, arrow_type, sql_field, type_from_arrow
from lsm_engine.schema.types import DataType, ScalarType, parse_type, type_text

_OPEN, _CLOSE = "<([", ">)]"
_DEPTH_MAX = 20
_OTHER_WORDS = {
    "TEXT": "STRING",
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "BLOB": "BYTES",
    "BYTEA": "BYTES",
}
"""Of Spark, DuckDB, PostgreSQL and SQLite."""


def type_of_text(text: str) -> DataType:
    """Return the type that a text names, such as `DECIMAL(10, 2)`, `ARRAY<INT>`, `struct<a: int>`.

    SQL's words, ARRAY, MAP and ROW (or STRUCT) of them, `INT[]`, each with NOT NULL behind it; else
    Arrow's names ("int64", "timestamp[us]"). Raises as `parse_type`, which reads schema files.
    """
    try:
        return parse_type(_stored(text))
    except LsmError:
        try:
            alias = pa.type_for_alias(text.strip().lower())
        except ValueError:
            alias = None
        if alias is None:
            raise
        return type_from_arrow(alias, nullable=True, column=text, ids=FieldIds())


def columns_of_text(text: str) -> pa.Schema:
    """Return the columns that a list of `name TYPE [NOT NULL]` declares.

    Types are those of schema files: BOOLEAN INT BIGINT DOUBLE DECIMAL(p, s) STRING CHAR(n) VARCHAR(n) BYTES DATE TIME
    TIMESTAMP(p) TIMESTAMP_LTZ(p) ARRAY<…> MAP<…, …> ROW<name TYPE, …>. Raises InvalidInputError for
    anything else, UnsupportedError for nested types with members that an Arrow schema cannot carry, such
    as ARRAY<VARCHAR(10)>.
    """
    return pa.schema(_column(name, kind) for name, kind in map(_named, _parts(text)))


def _column(name: str, kind: str) -> pa.Field:
    declared = type_of_text(kind)
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
    if text.endswith("[]"):
        return {"type": "ARRAY", "element": _stored(text[:-2])}
    word, bracket, rest = text.partition("<")
    if not bracket:
        first, blank, more = text.partition(" ")
        return _OTHER_WORDS.get(first.upper(), first) + blank + more
    inner, closing, suffix = rest.rpartition(">")
    nullable = " ".join(suffix.upper().split())
    parts = list(_parts(inner))
    match word.strip().upper(), len(parts):
        case ("ARRAY", 1) if closing:
            return {"type": f"ARRAY {nullable}".strip(), "element": _stored(parts[0])}
        case ("MAP", 2) if closing:
            key, value = map(_stored, parts)
            return {"type": f"MAP {nullable}".strip(), "key": key, "value": value}
        case ("ROW" | "STRUCT", _) if closing:
            members = [_named(part) for part in parts]
            fields = [
                {"id": number, "name": name, "type": _stored(member)}
                for number, (name, member) in enumerate(members)
            ]
            return {"type": f"ROW {nullable}".strip(), "fields": fields}
        case _:
            raise _wrong(text)


def _named(text: str) -> tuple[str, str]:
    text = text.strip()
    if text[:1] in ('"', "`"):
        name, quote, kind = text[1:].partition(text[0])
        kind = kind.removeprefix(":")
    else:
        colon, blank = text.find(":"), text.find(" ")
        quote = ":" if colon > 0 and (blank < 0 or colon < blank) else " "
        name, quote, kind = text.partition(quote)
    if not (name and quote and kind.strip()):
        raise _wrong(text)
    return name, kind.strip()


def _parts(text: str) -> Iterator[str]:
    """Cut at commas outside of brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if depth < 0 or depth > _DEPTH_MAX:
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
