"""The columns of a data file, as every format stores them."""

import pyarrow as pa

from lsm_engine.options import core_options
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.table_schema import (
    KEY_ID_OFFSET,
    KEY_PREFIX,
    SEQUENCE_NUMBER,
    SEQUENCE_NUMBER_ID,
    VALUE_KIND,
    VALUE_KIND_ID,
    TableSchema,
)
from lsm_engine.types.types import ArrayType, DataField, DataType, MapType, RowType

FIELD_ID = b"PARQUET:field_id"
"""Where an Arrow field keeps its field id."""


def file_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns of a data file, field ids included.

    With a primary key: `_KEY_<column>` for each key column (but for `data-file.thin-mode`), sequence
    number, row kind, then every column of the table; without one, the table's columns alone.
    """
    columns = [_with_id(field, arrow_field(field)) for field in schema.fields]
    if not schema.has_primary_key:
        # Only merges need keys and sequence numbers; rows of append tables are never merged.
        return pa.schema(columns)
    # In thin mode a reader takes the keys from the table's own columns.
    again = () if schema.options[core_options.DATA_FILE_THIN_MODE] else schema.trimmed_primary_keys
    keys = [
        pa.field(KEY_PREFIX + field.name, arrow_type(field.type), nullable=False).with_metadata(
            {FIELD_ID: str(KEY_ID_OFFSET + field.id)}
        )
        for field in schema.select(again)
    ]
    system = [
        pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False).with_metadata(
            {FIELD_ID: str(SEQUENCE_NUMBER_ID)}
        ),
        pa.field(VALUE_KIND, pa.int8(), nullable=False).with_metadata(
            {FIELD_ID: str(VALUE_KIND_ID)}
        ),
    ]
    return pa.schema([*keys, *system, *columns])


def arrow_field(field: DataField) -> pa.Field:
    """Return one column's Arrow field, nested structure fields carrying their ids."""
    return pa.field(field.name, _type_with_ids(field.type), nullable=field.type.nullable)


def _with_id(field: DataField, arrow: pa.Field) -> pa.Field:
    return arrow.with_metadata({FIELD_ID: str(field.id)})


def _type_with_ids(value: DataType) -> pa.DataType:
    match value:
        case ArrayType():
            element = _type_with_ids(value.element)
            return pa.list_(pa.field("element", element, value.element.nullable))
        case MapType():
            return pa.map_(
                pa.field("key", _type_with_ids(value.key), nullable=False),
                pa.field("value", _type_with_ids(value.value), value.value.nullable),
            )
        case RowType():
            return pa.struct([_with_id(field, arrow_field(field)) for field in value.fields])
        case _:
            return arrow_type(value)
