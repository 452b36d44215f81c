"""Arrow's other encodings of the same values: views, as polars has them, and dictionaries (categories)."""

import pyarrow as pa


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
