"""Maps that a format stores as lists of entries, made maps again (Avro: those of other keys than text)."""

from typing import Any

import pyarrow as pa


def maps_of_lists(values: Any, target: pa.DataType) -> Any:
    """Return a column with lists of (key, value) as maps where `target` has maps; no copy.

    An array or a chunked array; what goes in comes out. Types beside the maps stay as they are.
    """
    kind = _with_maps(values.type, target)
    if kind == values.type:
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], type=kind)
    return values.view(kind)


def _with_maps(stored: pa.DataType, target: pa.DataType) -> pa.DataType:
    if pa.types.is_list(stored) and pa.types.is_map(target):
        entries = stored.value_type
        if not pa.types.is_struct(entries) or entries.num_fields != 2:
            raise ValueError("a map is stored as a list of other things than pairs")
        return pa.map_(
            _with_maps(entries.field(0).type, target.key_type),
            _with_maps(entries.field(1).type, target.item_type),
        )
    if pa.types.is_map(stored) and pa.types.is_map(target):
        return pa.map_(stored.key_type, _with_maps(stored.item_type, target.item_type))
    if pa.types.is_list(stored) and pa.types.is_list(target):
        return pa.list_(_with_maps(stored.value_type, target.value_type))
    if pa.types.is_struct(stored) and pa.types.is_struct(target):
        inner = {field.name: field.type for field in target}
        return pa.struct(
            [
                field.with_type(_with_maps(field.type, inner.get(field.name, field.type)))
                for field in stored
            ]
        )
    return stored
