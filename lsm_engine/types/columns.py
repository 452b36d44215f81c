"""The columns of a new table, declared by an Arrow schema, a frame, or names with types."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from typing import Any, get_args, get_origin

import numpy as np
import pyarrow as pa

from lsm_engine.base.errors import ErrorKind, InvalidInputError, unwritable_text
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.type_text import arrow_of_text, column_of_text
from lsm_engine.types.types import DataType

# -- Arrow's other encodings of the same values ----------------------------------------------------
#
# Views, as polars has them, and dictionaries (categories).


def decoded(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a stream without views and dictionaries, nested ones included; the same one if it has none.

    In two steps, as Arrow takes values from a dictionary of plain text and not from one of views.
    """
    for keeps_dictionaries in (True, False):
        target_schema = plain_schema(reader.schema, keeps_dictionaries=keeps_dictionaries)
        if target_schema != reader.schema:
            reader = reader.cast(target_schema)
    return reader


def plain_schema(schema: pa.Schema, *, keeps_dictionaries: bool = False) -> pa.Schema:
    """Return the columns with plain text and bytes where they have views, and values for dictionaries."""
    return pa.schema([_field(field, keeps_dictionaries) for field in schema])


def _field(field: pa.Field, keeps_dictionaries: bool) -> pa.Field:  # noqa: FBT001
    kind = _type(field.type, keeps_dictionaries)
    return field if kind == field.type else field.with_type(kind)


def _type(kind: pa.DataType, keeps_dictionaries: bool) -> pa.DataType:  # noqa: FBT001
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        value = _type(kind.value_type, keeps_dictionaries)
        return pa.dictionary(kind.index_type, value, kind.ordered) if keeps_dictionaries else value
    if pa.types.is_struct(kind):
        return pa.struct([_field(field, keeps_dictionaries) for field in kind])
    if pa.types.is_map(kind):
        key, item = (_field(part, keeps_dictionaries) for part in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    for is_list, listed in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(kind):
            return listed(_field(kind.value_field, keeps_dictionaries))
    return kind


# -- The columns of a new table as people have them ------------------------------------------------

_OF_PYTHON: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    date: pa.date32(),
    time: pa.time32("ms"),
    datetime: pa.timestamp("us"),
    Decimal: pa.decimal128(38, 18),
}


def columns_of(declaration: Any) -> pa.Schema:
    """Return the Arrow schema of a declaration of columns.

    `given`: an Arrow schema, or whatever exports one (a polars or pandas frame, an Arrow table, a
    DuckDB result); a mapping of names to types, or pairs of them. A type is Arrow's, polars', NumPy's,
    text ("BIGINT NOT NULL", "DECIMAL(10, 2)", "ARRAY<STRING>", "int64"), or one of Python's (int, str,
    float, bool, bytes, date, datetime, time, Decimal, list[int], dict[str, int]). Raises InvalidInputError naming the column, or what was given, and UnsupportedError as
    `columns_of_text` does.
    """
    # An Arrow schema comes first: it has the export method as well.
    if isinstance(declaration, pa.Schema):
        return declaration
    for capsule in ("__arrow_c_schema__", "__arrow_c_stream__"):
        if hasattr(declaration, capsule):
            return _exported(declaration, capsule)
    pairs = declaration.items() if isinstance(declaration, Mapping) else declaration
    # Text is iterable too, letter by letter.
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes):
        raise InvalidInputError(
            "columns are given as a pyarrow.Schema, a frame, or a mapping such as "
            "{'id': 'BIGINT', 'name': 'STRING'}",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            given=type(declaration).__name__,
        )
    try:
        return pa.schema([_column_field(pair) for pair in pairs])
    except (
        UnicodeEncodeError
    ) as cause:  # a name with half of a surrogate pair, which no file can hold
        raise unwritable_text(cause) from cause


def _exported(declaration: Any, capsule: str) -> pa.Schema:
    try:
        if capsule == "__arrow_c_schema__":
            return pa.schema(declaration)
        return plain_schema(pa.RecordBatchReader.from_stream(declaration).schema)
    except (pa.ArrowException, TypeError) as cause:
        raise InvalidInputError(
            f"columns of this {type(declaration).__name__} have no Arrow type; give {{name: type}}: {cause}",
            kind=ErrorKind.UNSUPPORTED_TYPE,
        ) from cause


def _column_field(pair: Any) -> pa.Field:
    # A field holds more than a pair: nullability and metadata.
    if isinstance(pair, pa.Field):
        return pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        hint = "; of rows take pyarrow.Table.from_pylist(rows)" if isinstance(pair, Mapping) else ""
        raise InvalidInputError(
            f"a column is given as a name and a type, such as ('id', 'BIGINT'){hint}",
            given=repr(pair),
        )
    name, kind = pair
    if isinstance(kind, str):
        return column_of_text(str(name), kind)
    return pa.field(str(name), given_type(kind, str(name)))


def given_type(kind: Any, column: str) -> pa.DataType:
    """Return the Arrow type of a column; InvalidInputError for anything but a type.

    `kind`: Arrow's, polars' or NumPy's, or Python's, `list[int]` and `dict[str, int]` among them.
    """
    if isinstance(kind, pa.DataType):
        return kind
    if isinstance(kind, DataType):
        return arrow_type(kind)
    if isinstance(kind, str):
        return arrow_of_text(column, kind)
    # `list[int]` and `dict[str, int]` are not classes, so they need their own look.
    origin = get_origin(kind)
    parts = [given_type(part, column) for part in get_args(kind)] if origin in (list, dict) else []
    if origin is list and len(parts) == 1:
        return pa.list_(parts[0])
    if origin is dict and len(parts) == 2:
        return pa.map_(*parts)
    column_type = _OF_PYTHON.get(kind) if isinstance(kind, type) else None
    # polars is not imported for callers that do not use it.
    if column_type is None and (type(kind).__module__ + repr(kind)).startswith("polars"):
        frame = import_module("polars").DataFrame(schema={column: kind})
        column_type = plain_schema(frame.to_arrow().schema).field(0).type
    if isinstance(kind, np.dtype) or (isinstance(kind, type) and issubclass(kind, np.generic)):
        column_type = _of_numpy(np.dtype(kind))
    if column_type is None:
        raise InvalidInputError(
            f"column {column!r} has no type: give Arrow's, SQL text such as 'BIGINT', or one of "
            + ", ".join(python_type.__name__ for python_type in _OF_PYTHON)
            + ", list[str], dict[str, int]",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=column,
            type=repr(kind),
        )
    return column_type


def _of_numpy(kind: np.dtype[Any]) -> pa.DataType | None:
    try:
        return pa.from_numpy_dtype(kind)
    except pa.ArrowNotImplementedError:  # objects, of which Arrow cannot know what they are
        return None
