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
from lsm_engine.types.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    element_id,
    key_id,
    value_id,
)

FIELD_ID = b"PARQUET:field_id"
"""Where an Arrow field keeps its field id."""


def file_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns of a data file, field ids included.

    With a primary key: `_KEY_<column>` for each key column (but for `data-file.thin-mode`), sequence
    number, row kind, then every column of the table; without one, the table's columns alone.
    """
    columns = [_with_id(arrow_field(field), field.id) for field in schema.fields]
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
    """Return one column's Arrow field, whose members carry their field ids."""
    return pa.field(field.name, _type_with_ids(field.type, field.id), nullable=field.type.nullable)


def _with_id(arrow: pa.Field, field_id: int) -> pa.Field:
    return arrow.with_metadata({FIELD_ID: str(field_id)})


def _type_with_ids(value: DataType, field_id: int, depth: int = 1) -> pa.DataType:
    """Return the Arrow type of a column or structure field; `depth`: how many lists and maps are around it."""
    match value:
        case ArrayType():
            element = _type_with_ids(value.element, field_id, depth + 1)
            return pa.list_(
                _with_id(
                    pa.field("element", element, value.element.nullable),
                    element_id(field_id, depth),
                )
            )
        case MapType():
            key = pa.field("key", _type_with_ids(value.key, field_id, depth + 1), nullable=False)
            item = _type_with_ids(value.value, field_id, depth + 1)
            return pa.map_(
                _with_id(key, key_id(field_id, depth)),
                _with_id(pa.field("value", item, value.value.nullable), value_id(field_id, depth)),
            )
        case RowType():
            return pa.struct([_with_id(arrow_field(field), field.id) for field in value.fields])
        case _:
            return arrow_type(value)


def field_ids(column: pa.Field) -> tuple[bytes | None, ...]:
    """Return the field ids of a column and its members, as it was read from Parquet; None where there is none."""
    kind = column.type
    is_map = pa.types.is_map(kind)
    members = (
        [kind.key_field, kind.item_field] if is_map else map(kind.field, range(kind.num_fields))
    )
    own = (column.metadata or {}).get(FIELD_ID)
    return (own, *(number for member in members for number in field_ids(member)))
