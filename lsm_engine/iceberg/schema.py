"""Schemas and single values of Iceberg: a Paimon table's columns by field id, partitions, and bounds as bytes."""

import math
import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.types.casts import can_cast
from lsm_engine.types.table_schema import (
    KEY_ID_OFFSET,
    KEY_PREFIX,
    SEQUENCE_NUMBER,
    SEQUENCE_NUMBER_ID,
    VALUE_KIND,
    VALUE_KIND_ID,
    TableSchema,
)
from lsm_engine.types.types import (
    BINARY,
    TEXT,
    TIMESTAMPS,
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    element_id,
    key_id,
    type_text,
    value_id,
)

JsonObject: TypeAlias = dict[str, Any]
PARTITION_FIELD_START = 1000
"""The id of the first partition field."""
_MICROS_DIGITS = 6
_WHOLE = (Root.TINYINT, Root.SMALLINT, Root.INT)
_NAMES = {
    Root.BOOLEAN: "boolean",
    **dict.fromkeys(_WHOLE, "int"),
    Root.BIGINT: "long",
    Root.FLOAT: "float",
    Root.DOUBLE: "double",
    **dict.fromkeys(TEXT, "string"),
    **dict.fromkeys(BINARY, "binary"),
    Root.DATE: "date",
    Root.TIMESTAMP: "timestamp",
    Root.TIMESTAMP_LTZ: "timestamptz",
}
_PROMOTIONS = {("int", "long"), ("float", "double")}


# -- Schemas ---------------------------------------------------------------------------------------


def iceberg_schema(schema: TableSchema) -> JsonObject:
    """Return a table schema as Iceberg's JSON: ids of schema and columns are Paimon's.

    Raises UnsupportedError, naming the column, for a type that Iceberg's readers cannot read.
    """
    columns = [_column(field) for field in schema.fields]
    _require_own_ids(columns)
    result: JsonObject = {"type": "struct", "schema-id": schema.id, "fields": columns}
    keys = schema.select(schema.primary_keys)
    # Iceberg takes identifier columns that are required and no floating-point numbers.
    is_identifier = all(not field.type.nullable for field in keys) and not any(
        isinstance(field.type, ScalarType) and field.type.root in (Root.FLOAT, Root.DOUBLE)
        for field in keys
    )
    if keys and is_identifier:
        result["identifier-field-ids"] = [field.id for field in keys]
    return result


def _column(field: DataField) -> JsonObject:
    column: JsonObject = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _iceberg_type(field.type, field, 1),
    }
    if field.description:
        column["doc"] = field.description
    return column


def _iceberg_type(kind: DataType, field: DataField, depth: int) -> Any:
    match kind:
        case ArrayType():
            return {
                "type": "list",
                "element-id": element_id(field.id, depth),
                "element": _iceberg_type(kind.element, field, depth + 1),
                "element-required": not kind.element.nullable,
            }
        case MapType():
            return {
                "type": "map",
                "key-id": key_id(field.id, depth),
                "key": _iceberg_type(kind.key, field, depth + 1),
                "value-id": value_id(field.id, depth),
                "value": _iceberg_type(kind.value, field, depth + 1),
                "value-required": not kind.value.nullable,
            }
        case RowType():
            return {"type": "struct", "fields": [_column(member) for member in kind.fields]}
        case ScalarType():
            return _scalar_name(kind, field)


def _scalar_name(kind: ScalarType, field: DataField) -> str:
    if kind.root is Root.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    # Files hold timestamps of more digits as INT96 and times in milliseconds; pyiceberg refuses to read such a file.
    is_fine = kind.root in TIMESTAMPS and (kind.precision or 0) > _MICROS_DIGITS
    if is_fine or kind.root is Root.TIME:
        raise UnsupportedError(
            f"column {field.name!r} is {type_text(kind)}, which readers of Iceberg do not take: neither times nor "
            "timestamps of more than 6 digits; change the column's type, or leave 'metadata.iceberg.storage' out",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=field.name,
        )
    return _NAMES[kind.root]


def _require_own_ids(columns: Iterable[JsonObject]) -> None:
    names: dict[int, str] = {}
    for number, name in ids_of(columns):
        if number in names:
            # Two maps as key and value of one map have the same ids for what they hold.
            raise UnsupportedError(
                f"members {names[number]!r} and {name!r} have the same field id {number}, which Iceberg metadata does "
                "not take; leave 'metadata.iceberg.storage' out",
                kind=ErrorKind.UNSUPPORTED_TYPE,
                column=name.partition(".")[0],
            )
        names[number] = name


def ids_of(columns: Iterable[JsonObject], within: str = "") -> Iterable[tuple[int, str]]:
    """Yield the field ids of Iceberg columns and of all their members, with their paths."""
    for column in columns:
        path = f"{within}{column['name']}"
        yield column["id"], path
        yield from _member_ids(column["type"], path)


def _member_ids(kind: Any, path: str) -> Iterable[tuple[int, str]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from ids_of(kind["fields"], f"{path}.")
        return
    for member in ("element", "key", "value"):
        if member in kind:
            yield kind[f"{member}-id"], f"{path}.{member}"
            yield from _member_ids(kind[member], f"{path}.{member}")


def has_lists_or_maps(schema: TableSchema) -> bool:
    """Whether files need field ids of members that older writers of this project left out."""

    def holds(kind: DataType) -> bool:
        match kind:
            case RowType():
                return any(holds(field.type) for field in kind.fields)
            case ScalarType():
                return False
            case _:
                return True

    return any(holds(field.type) for field in schema.fields)


def name_mapping(schema: TableSchema) -> list[JsonObject]:
    """Return the names by which readers find the columns of files without field ids (spec, column projection)."""
    keys = schema.select(schema.trimmed_primary_keys)
    stored_keys = [
        {"field-id": KEY_ID_OFFSET + field.id, "names": [f"{KEY_PREFIX}{field.name}"]}
        for field in keys
    ]
    # Readers want to know every column of such a file, also those that the table does not show.
    own = [
        {"field-id": number, "names": [name]}
        for number, name in ((SEQUENCE_NUMBER_ID, SEQUENCE_NUMBER), (VALUE_KIND_ID, VALUE_KIND))
    ]
    return [*_names_of(iceberg_schema(schema)["fields"]), *(stored_keys + own if keys else [])]


def _names_of(columns: Iterable[JsonObject]) -> list[JsonObject]:
    return [_mapped_field(column["id"], column["name"], column["type"]) for column in columns]


def _mapped_field(number: int, name: str, kind: Any) -> JsonObject:
    mapped: JsonObject = {"field-id": number, "names": [name]}
    if isinstance(kind, str):
        return mapped
    if kind["type"] == "struct":
        members = _names_of(kind["fields"])
    else:
        members = [
            _mapped_field(kind[f"{member}-id"], member, kind[member])
            for member in ("element", "key", "value")
            if member in kind
        ]
    return {**mapped, "fields": members}


def renamed_column(stored: TableSchema, read: TableSchema) -> str | None:
    """Return a column that files of schema `stored` have by another name than `read`; None: none."""
    names = {field.id: field.name for field in stored.fields}
    names_before = set(names.values())
    for field in read.fields:
        # A column that is new has no values in the file, unless a former one had its name.
        if names.get(field.id, field.name) != field.name or (
            field.id not in names and field.name in names_before
        ):
            return field.name
    return None


def changed_column(stored: TableSchema, read: TableSchema) -> str | None:
    """Return a column whose values in files of schema `stored` are no values of its type in `read`; None: all are.

    Iceberg reads an int as a long, a float as a double, a decimal with more digits, and nothing else as another type.
    """
    types = {field.id: field for field in stored.fields}
    for field in read.fields:
        before = types.get(field.id)
        if before is not None and not (
            _keeps_values(before.type, field.type)
            and _reads_as(
                _iceberg_type(before.type, before, 1), _iceberg_type(field.type, field, 1)
            )
        ):
            return field.name
    return None


def _keeps_values(stored: DataType, read: DataType) -> bool:
    """Whether a read changes no value. Iceberg knows no lengths, and its readers would show values that a scan cuts."""
    match stored, read:
        case RowType(), RowType():
            members = {field.id: field.type for field in stored.fields}
            return all(
                _keeps_values(members[field.id], field.type)
                for field in read.fields
                if field.id in members
            )
        case ArrayType(), ArrayType():
            return _keeps_values(stored.element, read.element)
        case MapType(), MapType():
            return _keeps_values(stored.key, read.key) and _keeps_values(stored.value, read.value)
        case _:
            return can_cast(stored, read)


def _reads_as(stored: Any, read: Any) -> bool:
    if isinstance(stored, str) or isinstance(read, str):
        return stored == read or (stored, read) in _PROMOTIONS or _is_wider(stored, read)
    if stored["type"] != read["type"]:
        return False
    if stored["type"] == "struct":
        members = {member["id"]: member for member in stored["fields"]}
        return all(
            _reads_as(members[member["id"]]["type"], member["type"])
            for member in read["fields"]
            if member["id"] in members
        )
    return all(
        _reads_as(stored[member], read[member])
        for member in ("element", "key", "value")
        if member in read
    )


def _is_wider(stored: Any, read: Any) -> bool:
    texts = [str(kind) for kind in (stored, read)]
    if not all(text.startswith("decimal(") for text in texts):
        return False
    (precision, scale), (read_precision, read_scale) = (
        tuple(map(int, text.removeprefix("decimal(").removesuffix(")").split(", ")))
        for text in texts
    )
    return scale == read_scale and precision <= read_precision


def partition_spec(schema: TableSchema) -> list[JsonObject]:
    """Return the fields of the one partition spec: each partition column by its own value."""
    return [
        {
            "name": field.name,
            "transform": "identity",
            "source-id": field.id,
            "field-id": PARTITION_FIELD_START + i,
        }
        for i, field in enumerate(schema.select(schema.partition_keys))
    ]


# -- Values ----------------------------------------------------------------------------------------

PlainValue: TypeAlias = bool | int | float | str | bytes | Decimal | None
"""A value in Iceberg's units: days, microseconds, and otherwise as Python has it."""


def plain_values(column: pa.Array, kind: ScalarType) -> list[PlainValue]:
    """Return values in Iceberg's units; NaN is None, as no bound may be one."""
    if kind.root is Root.DATE:
        column = column.cast(pa.int32())
    elif kind.root in TIMESTAMPS:
        unit = pa.timestamp("us", column.type.tz)
        column = column.cast(unit).cast(pa.int64())
    values: list[PlainValue] = column.to_pylist()
    if kind.root in (Root.FLOAT, Root.DOUBLE):
        return [None if value is None or math.isnan(float(value)) else value for value in values]
    return values


def bound_bytes(values: Iterable[PlainValue], kind: ScalarType) -> list[bytes | None]:
    """Return values as Iceberg stores single values (spec, appendix D): little-endian, decimals big-endian."""
    code = _CODES.get(_NAMES.get(kind.root, ""))
    if code is not None:
        pack = struct.Struct(code).pack
        return [None if value is None else pack(value) for value in values]
    if kind.root is Root.DECIMAL:
        return [None if value is None else _decimal_bytes(value, kind) for value in values]
    return [value.encode() if isinstance(value, str) else value for value in values]  # type: ignore[misc]


_CODES = {
    "boolean": "<?", "int": "<i", "long": "<q", "float": "<f", "double": "<d", "date": "<i",
    "timestamp": "<q", "timestamptz": "<q",
}  # fmt: skip


def _unscaled(value: Any, kind: ScalarType) -> int:
    # Arithmetic of Decimal would round 38 digits to those of its context.
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int), value
    number = int("".join(map(str, digits)) + "0" * ((kind.scale or 0) + exponent))
    return -number if sign else number


def _decimal_bytes(value: Any, kind: ScalarType) -> bytes:
    number = _unscaled(value, kind)
    size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return number.to_bytes(size, "big", signed=True)


def partition_tuples(
    stored_rows: Sequence[bytes], fields: Sequence[DataField]
) -> list[tuple[PlainValue, ...]]:
    """Return stored partitions in Iceberg's units, a tuple for each; decimals as Avro's fixed bytes."""
    types = [field.type for field in fields]
    if not types:
        return [() for _ in stored_rows]
    columns = decode_columns(pa.array(stored_rows, pa.binary()), types)
    columns_of_values = []
    for column, kind in zip(columns, types, strict=True):
        assert isinstance(kind, ScalarType), kind
        values = plain_values(column, kind)
        if kind.root is Root.DECIMAL:
            size = decimal_size(kind)
            values = [
                None if value is None else _unscaled(value, kind).to_bytes(size, "big", signed=True)
                for value in values
            ]
        columns_of_values.append(values)
    return list(zip(*columns_of_values, strict=True))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_avro(value: Any, kind: ScalarType) -> PlainValue:
    """Return a partition value, as it was handed to Avro's codec or as that gave it back, in Iceberg's units."""
    match value:
        case datetime():
            return (value - _EPOCH) // timedelta(microseconds=1)
        case date():
            return value.toordinal() - _EPOCH.toordinal()
        case bytes() if kind.root is Root.DECIMAL:
            number = int.from_bytes(value, "big", signed=True)
            return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -(kind.scale or 0)))
        case _:
            unchanged: PlainValue = value
            return unchanged


def decimal_size(kind: ScalarType) -> int:
    """Return the bytes that hold every decimal of a precision."""
    greatest = int("9" * (kind.precision or 10))
    return (greatest.bit_length() + 8) // 8
