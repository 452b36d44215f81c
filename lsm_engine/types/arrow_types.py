"""Conversion between Paimon types and the Arrow types that hold their values in memory."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, UnsupportedError
from lsm_engine.types.column_path import Steps, path_text
from lsm_engine.types.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    in_range,
    parse_type,
    type_text,
)

_PLAIN: dict[Root, pa.DataType] = {
    Root.BOOLEAN: pa.bool_(),
    Root.TINYINT: pa.int8(),
    Root.SMALLINT: pa.int16(),
    Root.INT: pa.int32(),
    Root.BIGINT: pa.int64(),
    Root.FLOAT: pa.float32(),
    Root.DOUBLE: pa.float64(),
    Root.STRING: pa.string(),
    Root.CHAR: pa.string(),
    Root.VARCHAR: pa.string(),
    Root.BYTES: pa.binary(),
    Root.BINARY: pa.binary(),
    Root.VARBINARY: pa.binary(),
    Root.DATE: pa.date32(),
    Root.TIME: pa.time32("ms"),
}
_FROM_ARROW: dict[pa.DataType, Root] = {
    pa.bool_(): Root.BOOLEAN,
    pa.int8(): Root.TINYINT,
    pa.int16(): Root.SMALLINT,
    pa.int32(): Root.INT,
    pa.int64(): Root.BIGINT,
    pa.uint8(): Root.SMALLINT,
    pa.uint16(): Root.INT,
    pa.uint32(): Root.BIGINT,
    pa.float32(): Root.FLOAT,
    pa.float64(): Root.DOUBLE,
    pa.string(): Root.STRING,
    pa.large_string(): Root.STRING,
    pa.string_view(): Root.STRING,
    pa.binary(): Root.BYTES,
    pa.large_binary(): Root.BYTES,
    pa.binary_view(): Root.BYTES,
    pa.date32(): Root.DATE,
    pa.date64(): Root.DATE,
}
_UNIT_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def timestamp_unit(precision: int) -> str:
    """Return the Arrow unit that holds timestamps of a precision: ms to 3, us to 6, ns beyond."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_type(value: DataType) -> pa.DataType:
    """Return the Arrow type that holds values of a column type."""
    match value:
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(value.element), value.element.nullable))
        case MapType():
            return pa.map_(
                pa.field("key", arrow_type(value.key), nullable=False),
                pa.field("value", arrow_type(value.value), value.value.nullable),
            )
        case RowType():
            return pa.struct(arrow_fields(value.fields))
        case ScalarType(root=Root.DECIMAL):
            return pa.decimal128(value.precision or 10, value.scale or 0)
        case ScalarType(root=Root.TIMESTAMP):
            return pa.timestamp(timestamp_unit(value.precision or 0))
        case ScalarType(root=Root.TIMESTAMP_LTZ):
            return pa.timestamp(timestamp_unit(value.precision or 0), "UTC")
        case ScalarType():
            return _PLAIN[value.root]


def arrow_fields(fields: Iterable[DataField]) -> list[pa.Field]:
    """Return columns as Arrow fields, in order."""
    return [
        pa.field(field.name, arrow_type(field.type), nullable=field.type.nullable)
        for field in fields
    ]


def arrow_schema(fields: Iterable[DataField]) -> pa.Schema:
    """Return columns as an Arrow schema."""
    return pa.schema(arrow_fields(fields))


def compared_schema(fields: Iterable[DataField]) -> pa.Schema:
    """Return columns as filters see them: those of CHAR know their length, which literals are padded to."""
    stored = [*fields]
    return pa.schema(
        arrow.with_metadata({SQL_TYPE: type_text(field.type)}) if _is_char(field.type) else arrow
        for field, arrow in zip(stored, arrow_fields(stored), strict=True)
    )


def _is_char(kind: DataType | None) -> bool:
    return isinstance(kind, ScalarType) and kind.root is Root.CHAR


def char_length(field: pa.Field) -> int | None:
    """Return n of a CHAR(n) among the fields of `compared_schema`; None for any other column."""
    text = (field.metadata or {}).get(SQL_TYPE)
    kind = None if text is None else parse_type(text.decode())
    return kind.precision if isinstance(kind, ScalarType) and _is_char(kind) else None


HIGHEST_FIELD_ID = (1 << 30) - 2
"""Ids from here on are those of columns that the format adds (SpecialFields.SYSTEM_FIELD_ID_START)."""


class FieldIds:
    """Hands out field ids in the order that schema files number them: depth first."""

    def __init__(self, highest: int = -1) -> None:
        self.highest = highest

    def next(self) -> int:
        """Return an unused id; UnsupportedError once the ids for columns are used up."""
        if self.highest >= HIGHEST_FIELD_ID:
            raise UnsupportedError(
                "the schema has used up the ids for columns, beyond which clients keep their own; copy "
                "the rows into a new table",
                highest_field_id=self.highest,
            )
        self.highest += 1
        return self.highest


BOUNDED = (Root.CHAR, Root.VARCHAR, Root.BINARY, Root.VARBINARY)
SQL_TYPE = b"lsm.type"
DEFAULT_VALUE = b"lsm.default"
"""Metadata of an Arrow field: the column's type as SQL text, where Arrow has no type of its own."""


def sql_field(name: str, kind: str, *, nullable: bool = True) -> pa.Field:
    """Return the Arrow field of a column of bounded length: CHAR, VARCHAR, BINARY or VARBINARY (n).

    For the columns of a new table, beside other Arrow fields. Raises InvalidInputError for other types:
    an Arrow type already describes them in full.
    """
    declared = in_range(parse_type(kind))
    if not isinstance(declared, ScalarType) or declared.root not in BOUNDED:
        raise InvalidInputError(
            f"column {name!r}: {kind!r} has no length to declare; use an Arrow type",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=name,
        )
    return declared_field(name, declared.with_nullable(nullable=nullable and declared.nullable))


def declared_column(field: DataField) -> pa.Field:
    """Return the Arrow field of a column; its comment, its default and those of fields within are in the metadata."""
    column = declared_field(field.name, field.type)
    texts = {b"comment": field.description, DEFAULT_VALUE: field.default_value}
    metadata = {key: text.encode() for key, text in texts.items() if text is not None}
    return column.with_metadata({**(column.metadata or {}), **metadata}) if metadata else column


def declared_field(name: str, kind: DataType) -> pa.Field:
    """Return the Arrow field of a new column of a type; lengths, nested ones too, are in the metadata of fields."""
    metadata = None
    match kind:
        case ArrayType():
            arrow = pa.list_(declared_field("element", kind.element))
        case MapType():
            key = declared_field("key", kind.key).with_nullable(False)  # noqa: FBT003
            arrow = pa.map_(key, declared_field("value", kind.value))
        case RowType():
            arrow = pa.struct([declared_column(field) for field in kind.fields])
        case ScalarType():
            arrow = arrow_type(kind)
            if kind.root in BOUNDED:
                metadata = {SQL_TYPE: type_text(kind).encode()}
    return pa.field(name, arrow, kind.nullable, metadata=metadata)


def _declared(field: pa.Field) -> DataType | None:
    """Return the type that a field's metadata names, if any; it must be one of the field's Arrow type."""
    text = (field.metadata or {}).get(SQL_TYPE)
    # A field without such metadata has the type that Arrow gives it.
    if text is None:
        return None
    declared = parse_type(text.decode())
    if (
        not isinstance(declared, ScalarType)
        or declared.root not in BOUNDED
        or arrow_type(declared) != field.type
    ):
        # A cast keeps the metadata of a field, which then names a type that the values do not have.
        raise InvalidInputError(
            f"column {field.name!r} is declared as {text.decode()!r} and has Arrow type {field.type}; "
            "make it with lsm_engine.sql_field",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=field.name,
        )
    return declared.with_nullable(nullable=field.nullable)


def _type_of(field: pa.Field, column: str, ids: FieldIds) -> DataType:
    """Return the type of an Arrow field: its declared type, if it has one."""
    return _declared(field) or type_from_arrow(
        field.type, nullable=field.nullable, column=column, ids=ids
    )


def type_of_field(field: pa.Field) -> DataType:
    """Return the type that a new column for an Arrow field has; raises as `field_from_arrow` does."""
    return _type_of(field, field.name, FieldIds())


def field_from_arrow(field: pa.Field, ids: FieldIds) -> DataField:
    """Return a new column for an Arrow field, nested ids included.

    Raises UnsupportedError for Arrow types that no Paimon type holds, naming the column, and InvalidInputError for a
    default that its type cannot hold.
    """
    own = ids.next()
    default = (field.metadata or {}).get(DEFAULT_VALUE)
    column = DataField(
        id=own,
        name=field.name,
        type=_type_of(field, field.name, ids),
        description=_comment_of(field),
        default_value=None if default is None else default.decode(),
    )
    default_of(column)
    return column


def _comment_of(field: pa.Field) -> str | None:
    """Return the comment in the metadata of a field, under either name that other libraries use."""
    metadata = field.metadata or {}
    comment: bytes | None = metadata.get(b"comment", metadata.get(b"description"))
    return None if comment is None else comment.decode(errors="replace")


def with_ids(value: DataType, ids: FieldIds) -> DataType:
    """Return a type whose fields have new ids, as those of text have none of their own yet."""
    match value:
        case ArrayType():
            return replace(value, element=with_ids(value.element, ids))
        case MapType():
            return replace(value, key=with_ids(value.key, ids), value=with_ids(value.value, ids))
        case RowType():
            fields = []
            for field in value.fields:
                own = ids.next()  # before those of its own fields
                fields.append(replace(field, id=own, type=with_ids(field.type, ids)))
            return replace(value, fields=tuple(fields))
        case ScalarType():
            return value


def require_own_ids(fields: Iterable[DataField]) -> None:
    """Raise InvalidInputError where two fields, nested ones included, have one id."""
    paths_by_id: dict[int, Steps] = {}
    for path, field in nested_fields(fields):
        number = field.id
        if number in paths_by_id:
            # Files are matched to columns by id, so one of the two would read the other's values.
            raise InvalidInputError(
                f"fields {path_text(paths_by_id[number])!r} and {path_text(path)!r} have the same id {number}, which "
                f"other clients refuse; drop the column {path[0]!r} and add it again",
                kind=ErrorKind.INVALID_SCHEMA,
                column=path_text(path),
                field_id=number,
            )
        paths_by_id[number] = path


def doubled_names(fields: Iterable[DataField]) -> set[str]:
    """Return the names that two columns have, or two fields of one structure, as a.b."""
    counts = Counter(path for path, _ in nested_fields(fields))
    return {path_text(path) for path, count in counts.items() if count > 1}


def nested_fields(
    fields: Iterable[DataField], within: Steps = ()
) -> Iterator[tuple[Steps, DataField]]:
    """Yield columns and all fields within them, each with its path."""
    for field in fields:
        path = (*within, field.name)
        yield path, field
        kinds: list[tuple[DataType, Steps]] = [(field.type, path)]
        while kinds:
            kind, path = kinds.pop()
            match kind:
                case ArrayType(element=element):
                    kinds.append((element, (*path, "element")))
                case MapType(key=key, value=value):
                    kinds += ((value, (*path, "value")), (key, (*path, "key")))
                case RowType(fields=inner):
                    yield from nested_fields(inner, path)
                case ScalarType():
                    pass


def type_from_arrow(value: pa.DataType, *, nullable: bool, column: str, ids: FieldIds) -> DataType:
    """Return the Paimon type that holds an Arrow type; dictionaries count as their values."""
    # A dictionary is a way to hold values and no type of the table.
    if pa.types.is_dictionary(value):
        value = value.value_type
    if (
        pa.types.is_list(value)
        or pa.types.is_large_list(value)
        or pa.types.is_fixed_size_list(value)
    ):
        return ArrayType(element=_type_of(value.value_field, column, ids), nullable=nullable)
    if pa.types.is_map(value):
        key = _type_of(value.key_field, column, ids)
        item = _type_of(value.item_field, column, ids)
        return MapType(key=key, value=item, nullable=nullable)
    if pa.types.is_struct(value):
        fields = tuple(field_from_arrow(value.field(i), ids) for i in range(value.num_fields))
        return RowType(fields=fields, nullable=nullable)
    return _scalar_from_arrow(value, nullable=nullable, column=column)


def _scalar_from_arrow(value: pa.DataType, *, nullable: bool, column: str) -> ScalarType:
    # Paimon's decimals have at most 38 digits and no negative scale.
    if pa.types.is_decimal(value) and value.precision <= 38 and value.scale >= 0:
        return ScalarType(
            root=Root.DECIMAL, nullable=nullable, precision=value.precision, scale=value.scale
        )
    if pa.types.is_timestamp(value):
        root = Root.TIMESTAMP if value.tz is None else Root.TIMESTAMP_LTZ
        return ScalarType(root=root, nullable=nullable, precision=_UNIT_PRECISION[value.unit])
    if pa.types.is_time(value):
        # Arrow's 32-bit time, which the table uses, ends at milliseconds.
        precision = min(_UNIT_PRECISION[value.unit], 3)
        return ScalarType(root=Root.TIME, nullable=nullable, precision=precision)
    if pa.types.is_fixed_size_binary(value):
        return ScalarType(root=Root.BINARY, nullable=nullable, precision=value.byte_width)
    root_found = _FROM_ARROW.get(value)
    if root_found is None:
        raise UnsupportedError(
            f"column {column!r} has Arrow type {value}, which no table type holds; cast it first",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=column,
            type=str(value),
        )
    return ScalarType(root=root_found, nullable=nullable)


def default_of(field: DataField) -> pa.Scalar | None:
    """Return a column's default value; None without one.

    Raises InvalidInputError, naming the column, for text that is no value of the column's type.
    """
    # A column without a default is null where no value is given.
    if field.default_value is None:
        return None
    if isinstance(field.type, ScalarType):
        try:
            text = pa.array([field.default_value], pa.string())
            return text.cast(arrow_type(field.type))[0]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # the error below names the column, the type and the text
    raise InvalidInputError(
        f"column {field.name!r} of type {type_text(field.type)} cannot have the default "
        f"{field.default_value!r}",
        kind=ErrorKind.INVALID_SCHEMA,
        column=field.name,
        default=field.default_value,
    )
