"""Parsing of types as text: SQL names, nested types in angle brackets, and Arrow names."""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, LsmError, UnsupportedError
from lsm_engine.types.arrow_types import (
    FieldIds,
    arrow_type,
    declared_field,
    field_from_arrow,
    type_from_arrow,
)
from lsm_engine.types.types import DataType, in_range, parse_type, type_text

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
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "FLOAT32": "FLOAT",
    "FLOAT64": "DOUBLE",
}
"""Of Spark, DuckDB, PostgreSQL and SQLite, and those of Arrow that mean nothing else there."""
_MEMBER = re.compile(r"^\s*(item|element)\s*:")
"""The text that Arrow prints before the type of a list's values."""
_ARRAY = re.compile(r"(?P<element>.*)\[\]\s*(?P<null>NOT\s+NULL|NULL)?", re.DOTALL | re.IGNORECASE)
_NULLS = ("", "NULL", "NOT NULL")


def type_of_text(text: str, column: str | None = None) -> DataType:
    """Return the type that a text names, such as `DECIMAL(10, 2)`, `ARRAY<INT>`, `struct<a: int>`.

    SQL's words, ARRAY (or LIST), MAP and ROW (or STRUCT) of them, `INT[]`, each with NOT NULL behind it; those of
    `_OTHER_WORDS` that are timestamps with a precision as well, such as `DATETIME(3)`; else Arrow's names ("int64", "timestamp[us]").
    `column`: whose type it is, for messages. Raises as `parse_type`, which reads schema files, and InvalidInputError for a length, precision or scale that no
    value can have.
    """
    try:
        return in_range(parse_type(_stored(text)))
    except LsmError:
        # Not a type of SQL: Arrow's names, such as "int64" and "date32", are accepted too.
        try:
            alias = pa.type_for_alias(text.strip().lower())
        except ValueError:
            alias = None
        if alias is None:
            raise
        return type_from_arrow(alias, nullable=True, column=column or text, ids=FieldIds())


def columns_of_text(text: str) -> pa.Schema:
    """Return the columns that a list of `name TYPE [NOT NULL]` declares.

    Types are those of schema files: BOOLEAN INT BIGINT DOUBLE DECIMAL(p, s) STRING CHAR(n) VARCHAR(n) BYTES DATE TIME
    TIMESTAMP(p) TIMESTAMP_LTZ(p) ARRAY<…> MAP<…, …> ROW<name TYPE, …>. Raises InvalidInputError for
    anything else, UnsupportedError for types that an Arrow schema cannot carry, such as TIMESTAMP(5).
    """
    return pa.schema(column_of_text(name, kind) for name, kind in map(_split_field, _parts(text)))


def column_of_text(name: str, kind: str) -> pa.Field:
    """Return the column that a name and a type's text declare, its length included.

    Without a length text and bytes are of any, also by names such as VARCHAR and BINARY. Raises as `columns_of_text`, whose columns these are.
    """
    declared = type_of_text(kind, name)
    # A type without a length needs no metadata beside the Arrow type.
    if "(" not in kind:
        return pa.field(name, arrow_type(declared), declared.nullable)
    field = declared_field(name, declared)
    # The round trip shows a length that the metadata could not hold.
    _require_same(name, declared, field_from_arrow(field, FieldIds()).type)
    return field


def type_of_column(name: str, kind: str) -> DataType:
    """Return the type of a column that is declared so; raises as `column_of_text`."""
    return field_from_arrow(column_of_text(name, kind), FieldIds()).type


def arrow_of_text(name: str, kind: str) -> pa.DataType:
    """Return the Arrow type that holds a type's text; UnsupportedError where it would be another one.

    `name`: the column's, for the message.
    """
    field = column_of_text(name, kind)
    if "(" in kind:  # a length is said by the field
        _require_same(
            name, type_of_text(kind), field_from_arrow(field.remove_metadata(), FieldIds()).type
        )
    return field.type


def _require_same(name: str, declared: DataType, carried: DataType) -> None:
    # Arrow carries NOT NULL as it is, and gives it to the keys of maps, which never are null.
    became, expected = (type_text(kind).replace(" NOT NULL", "") for kind in (carried, declared))
    if became != expected:
        raise UnsupportedError(
            f"column {name!r} would become {type_text(carried)}; declare it so",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=name,
            type=type_text(declared),
        )


def _stored(text: str) -> Any:
    """Return a type as schema files hold it: text, or an object for nested types."""
    text = text.strip()
    # `INT[]` is tried first, because its element may contain brackets itself.
    if (array := _ARRAY.fullmatch(text)) is not None:
        nullable = " ".join((array["null"] or "").upper().split())
        return {"type": f"ARRAY {nullable}".strip(), "element": _stored(array["element"])}
    word, bracket, remainder = text.partition("<")
    # Without a bracket the text names a scalar type.
    if not bracket:
        first = re.split(r"\W", text, maxsplit=1)[0]
        tail = text[len(first) :]
        meant = _OTHER_WORDS.get(first.upper(), first)
        if tail.lstrip().startswith("(") and not meant.startswith("TIMESTAMP"):
            return text  # others have no precision
        return meant + tail
    inner, closing, suffix = remainder.rpartition(">")
    nullable = " ".join(suffix.upper().split())
    # After the last bracket only NOT NULL can follow.
    if nullable not in _NULLS:
        raise _wrong(text)
    parts = list(_parts(inner))
    match word.strip().upper(), len(parts):
        case ("ARRAY" | "LIST", 1) if closing:
            element = _stored(_MEMBER.sub("", parts[0]))
            return {"type": f"ARRAY {nullable}".strip(), "element": element}
        case ("MAP", 2) if closing:
            key, value = map(_stored, parts)
            return {"type": f"MAP {nullable}".strip(), "key": key, "value": value}
        case ("ROW" | "STRUCT", _) if closing:
            members = [_split_field(part) for part in parts]
            fields = [
                {"id": number, "name": name, "type": _stored(member)}
                for number, (name, member) in enumerate(members)
            ]
            return {"type": f"ROW {nullable}".strip(), "fields": fields}
        case _:
            raise _wrong(text)


def _split_field(text: str) -> tuple[str, str]:
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
    """Split at commas outside of brackets."""
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
