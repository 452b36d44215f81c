"""The data types of Paimon, and their form in schema files."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeAlias

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.base.record import record


class Root(Enum):
    """The scalar types; the value is the name in schema files."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    STRING = "STRING"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BYTES = "BYTES"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP WITH LOCAL TIME ZONE"


TEXT = frozenset({Root.STRING, Root.CHAR, Root.VARCHAR})
BINARY = frozenset({Root.BYTES, Root.BINARY, Root.VARBINARY})
TIMESTAMPS = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
# Flink and Paimon store an unbounded length as the largest INT.
_MAX_LENGTH = 2_147_483_647


@record
class ScalarType:
    """One column value without structure. `precision` is also the length of CHAR(n) and its kin."""

    root: Root
    nullable: bool = True
    precision: int | None = None
    scale: int | None = None

    def with_nullable(self, *, nullable: bool) -> "ScalarType":
        """Return the type with the other answer to "may it be null"."""
        return ScalarType(
            root=self.root, nullable=nullable, precision=self.precision, scale=self.scale
        )


@record
class ArrayType:
    """A list of values of one type."""

    element: "DataType"
    nullable: bool = True


@record
class MapType:
    """Pairs of a key and a value."""

    key: "DataType"
    value: "DataType"
    nullable: bool = True


@record
class RowType:
    """A structure of named fields, each with an id of its own."""

    fields: "tuple[DataField, ...]"
    nullable: bool = True


DataType: TypeAlias = ScalarType | ArrayType | MapType | RowType


def scalars_of(kind: DataType) -> Iterator[ScalarType]:
    """Yield the types without structure that a type is made of, in order."""
    match kind:
        case ScalarType():
            yield kind
        case ArrayType():
            yield from scalars_of(kind.element)
        case MapType():
            yield from scalars_of(kind.key)
            yield from scalars_of(kind.value)
        case RowType():
            for field in kind.fields:
                yield from scalars_of(field.type)


@record
class DataField:
    """A column or nested field. Its id, never its name, identifies the stored column."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None


_MEMBER_ID_BASE = (1 << 29) - 1
_MEMBER_IDS = 1 << 10
"""Ids that the members of one column have (Paimon's SpecialFields)."""


def element_id(field_id: int, depth: int) -> int:
    """Return the id of the elements of a list in column `field_id`; `depth`: 1 for the outermost list or map."""
    return _MEMBER_ID_BASE + field_id * _MEMBER_IDS + depth


def key_id(field_id: int, depth: int) -> int:
    """Return the id of the keys of a map in column `field_id`, at a depth as of `element_id`."""
    return _MEMBER_ID_BASE - field_id * _MEMBER_IDS - depth


def value_id(field_id: int, depth: int) -> int:
    """Return the id of the values of a map in column `field_id`, at a depth as of `element_id`."""
    return element_id(field_id, depth)


_TEXT = re.compile(
    r"(?P<name>[A-Z_]+(?: PRECISION)?)\s*(?:\(\s*(?P<p>\d+)\s*(?:,\s*(?P<s>\d+)\s*)?\))?"
    r"(?P<zone>\s+WITH(?:OUT)?\s+(?:LOCAL\s+)?TIME\s+ZONE)?(?P<null>\s+NOT\s+NULL|\s+NULL)?"
)
_SYNONYMS = {
    "INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "TIMESTAMP_LTZ": "TIMESTAMP",
    "DOUBLE PRECISION": "DOUBLE",
}  # fmt: skip
# SQL gives a type without a length or precision these values.
_DEFAULT_PRECISION = {
    Root.DECIMAL: 10, Root.CHAR: 1, Root.VARCHAR: 1, Root.BINARY: 1, Root.VARBINARY: 1,
    Root.TIME: 0, Root.TIMESTAMP: 6, Root.TIMESTAMP_LTZ: 6,
}  # fmt: skip
_RANGES = {
    Root.DECIMAL: (1, 38), Root.TIME: (0, 9), Root.TIMESTAMP: (0, 9), Root.TIMESTAMP_LTZ: (0, 9),
    Root.CHAR: (1, _MAX_LENGTH), Root.VARCHAR: (1, _MAX_LENGTH),
    Root.BINARY: (1, _MAX_LENGTH), Root.VARBINARY: (1, _MAX_LENGTH),
}  # fmt: skip


def parse_type(stored: Any) -> DataType:
    """Return the type that a schema file's JSON value means.

    Raises UnsupportedError for types that the format knows and this version does not read, such as
    VARIANT, and InvalidInputError for text that is no type.
    """
    # Schema files hold nested types as objects and others as text.
    if isinstance(stored, dict):
        return _parse_nested(stored)
    return _parse_scalar(str(stored))


def in_range(value: DataType) -> DataType:
    """Return a type whose lengths and digits values can have; InvalidInputError for others.

    For types that people give: files are read as far as they can be.
    """
    match value:
        case ArrayType():
            in_range(value.element)
        case MapType():
            in_range(value.key)
            in_range(value.value)
        case RowType():
            for field in value.fields:
                in_range(field.type)
        case ScalarType(root=root, precision=precision):
            least, most = _RANGES.get(root, (None, None))
            wrong = precision is not None and (
                least is None or most is None or not least <= precision <= most
            )
            if wrong or (value.scale or 0) > (precision or 0):
                room = (
                    f"takes {least} to {most}"
                    if least is not None
                    else "takes no length or precision"
                )
                note = ", of which the scale is a part" if root is Root.DECIMAL else ""
                raise InvalidInputError(
                    f"{_scalar_text(value)} is not a column type: {root.value} {room}{note}",
                    kind=ErrorKind.UNSUPPORTED_TYPE,
                    type=_scalar_text(value),
                )
    return value


def _parse_nested(stored: dict[str, Any]) -> DataType:
    word, _, remainder = str(stored.get("type", "")).strip().upper().partition(" ")
    nullable = remainder.strip() != "NOT NULL"
    if word == "ARRAY":
        return ArrayType(element=parse_type(stored["element"]), nullable=nullable)
    if word == "MAP":
        return MapType(
            key=parse_type(stored["key"]), value=parse_type(stored["value"]), nullable=nullable
        )
    if word == "ROW":
        fields = tuple(parse_field(field) for field in stored["fields"])
        return RowType(fields=fields, nullable=nullable)
    # The format may have further nested types, which this version does not read.
    raise UnsupportedError(
        f"type {word!r} is not supported", kind=ErrorKind.UNSUPPORTED_TYPE, type=word
    )


_SUCH_AS = "write one such as BIGINT, DOUBLE, DECIMAL(10, 2), STRING, BOOLEAN, DATE or TIMESTAMP"


def parse_field(stored: dict[str, Any]) -> DataField:
    """Return one member of a schema file's `fields`. TypeError where one of its own members is of another type."""
    field_id, texts = stored["id"], [stored.get(name) for name in ("description", "defaultValue")]
    if type(field_id) is not int or not isinstance(stored["name"], str):
        raise TypeError("a field has a whole number as its id and a text as its name")
    if not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError("the description and the default of a field are texts")
    return DataField(
        id=field_id,
        name=stored["name"],
        type=parse_type(stored["type"]),
        description=texts[0],
        default_value=texts[1],
    )


def _parse_scalar(text: str) -> ScalarType:
    match = _TEXT.fullmatch(text.strip().upper())
    if match is None:
        hint = _SUCH_AS
        if " DEFAULT " in text.upper():
            hint = "a default is set by alter(SetColumnDefault(column, value)), in a shell by lsm alter --default"
        raise InvalidInputError(
            f"{text!r} is not a column type; {hint}", kind=ErrorKind.UNSUPPORTED_TYPE, type=text
        )
    name = match["name"]
    zone = (match["zone"] or "").split()
    zoned = zone[:1] == ["WITH"]  # SQL's WITH TIME ZONE keeps the instant alone here, as everywhere
    # TIME WITHOUT TIME ZONE is valid SQL; a time zone itself belongs to a TIMESTAMP only.
    if zone and name != "TIMESTAMP" and (zoned or name != "TIME"):
        raise InvalidInputError(
            f"{text!r} is not a column type: a time zone is of a TIMESTAMP",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=text,
        )
    local = name == "TIMESTAMP_LTZ" or zoned
    name = _SYNONYMS.get(name, name)
    try:
        root = Root.TIMESTAMP_LTZ if local else Root(name)
    except ValueError:
        # The word is well formed, so it may be a type of a newer version.
        raise UnsupportedError(
            f"type {name!r} is not supported; {_SUCH_AS}",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            type=text,
        ) from None
    precision = int(match["p"]) if match["p"] else _DEFAULT_PRECISION.get(root)
    # The largest length is how the format stores STRING.
    if root is Root.VARCHAR and precision == _MAX_LENGTH:
        root, precision = Root.STRING, None
    # The largest length is how the format stores BYTES.
    if root is Root.VARBINARY and precision == _MAX_LENGTH:
        root, precision = Root.BYTES, None
    scale = int(match["s"] or 0) if root is Root.DECIMAL else None
    nullable = "NOT" not in (match["null"] or "")
    return ScalarType(root=root, nullable=nullable, precision=precision, scale=scale)


def type_json(value: DataType) -> Any:
    """Return a type as JSON of a schema file: text, or an object for nested types."""
    suffix = "" if value.nullable else " NOT NULL"
    match value:
        case ArrayType():
            return {"type": "ARRAY" + suffix, "element": type_json(value.element)}
        case MapType():
            return {
                "type": "MAP" + suffix,
                "key": type_json(value.key),
                "value": type_json(value.value),
            }
        case RowType():
            return {"type": "ROW" + suffix, "fields": [field_json(field) for field in value.fields]}
        case ScalarType():
            return _scalar_text(value) + suffix


def _scalar_text(value: ScalarType) -> str:
    match value.root:
        case Root.DECIMAL:
            return f"DECIMAL({value.precision}, {value.scale})"
        case Root.TIMESTAMP_LTZ:
            return f"TIMESTAMP({value.precision}) WITH LOCAL TIME ZONE"
        case _:
            length = "" if value.precision is None else f"({value.precision})"
            return f"{value.root.value}{length}"


def field_json(field: DataField) -> dict[str, Any]:
    """Return one member of a schema file's `fields`; absent members are left out."""
    stored: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_json(field.type)}
    if field.description is not None:
        stored["description"] = field.description
    if field.default_value is not None:
        stored["defaultValue"] = field.default_value
    return stored


def type_text(value: DataType) -> str:
    """Return a type as SQL text for people, nested types included."""
    suffix = "" if value.nullable else " NOT NULL"
    match value:
        case ArrayType():
            return f"ARRAY<{type_text(value.element)}>{suffix}"
        case MapType():
            return f"MAP<{type_text(value.key)}, {type_text(value.value)}>{suffix}"
        case RowType():
            inner = ", ".join(f"{field.name} {type_text(field.type)}" for field in value.fields)
            return f"ROW<{inner}>{suffix}"
        case ScalarType():
            return _scalar_text(value) + suffix
