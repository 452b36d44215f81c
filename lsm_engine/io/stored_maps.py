"""Maps that a format stores as lists of entries, made maps again (Avro: those of other keys than text)."""

from typing import Any

import pyarrow as pa


def maps_of_lists(values: Any, wanted: pa.DataType) -> Any:
    """Return a column with its lists of (key, value) as maps wherever `wanted` has a map, over the same buffers.

    An array or a chunked array; what goes in comes out. Types beside the maps stay as they are.
    """
    kind = _with_maps(values.type, wanted)
    if kind == values.type:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], type=kind)
    return values.view(kind)


def _with_maps(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_list(stored) and pa.types.is_map(wanted):
        entries = stored.value_type
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise ValueError("a map is stored as a list of other things than pairs")
        return pa.map_(
            _with_maps(entries.field(0).type, wanted.key_type),
            _with_maps(entries.field(1).type, wanted.item_type),
        )
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return pa.map_(stored.key_type, _with_maps(stored.item_type, wanted.item_type))
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return pa.list_(_with_maps(stored.value_type, wanted.value_type))
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        inner = {field.name: field.type for field in wanted}
        return pa.struct(
            [
                field.with_type(_with_maps(field.type, inner.get(field.name, field.type)))
                for field in stored
            ]
        )
    return stored
