"""Values of nested types in another of the same form, with NOT NULL inside kept."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.units import counted

_Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Values without structure → those of a type."""


def in_type(path: str, values: pa.Array, target_type: pa.DataType, cast: _Cast) -> pa.Array:
    """Return values in a type of the same form, member by member; `cast` is for those without structure.

    Members are found by name, and null where there is none. Where they may not be null they hold zeros and
    empty text under a missing structure: no file takes nulls there. Raises InvalidInputError for nulls
    that remain, with the `path` to them, and what `cast` raises.
    """
    types = pa.types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == target_type and not requires(target_type):
        return values
    if types.is_null(values.type):
        values = pa.nulls(len(values), target_type)
    if types.is_struct(values.type) and types.is_struct(target_type):
        return _struct(path, values, target_type, cast)
    if has_entries(values.type) and (types.is_map(target_type) or types.is_list(target_type)):
        return _list(path, values, target_type, cast)
    return cast(values, target_type)  # or what Arrow says against it


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Return missing values of a type, which every file takes."""
    missing = pa.nulls(count, kind)
    return in_type("", missing, kind, pa.Array.cast) if requires(kind) else missing


def has_entries(kind: pa.DataType) -> bool:
    """Whether values of a type are lists or maps."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_map(kind)
    )


def _struct(
    column: str, values: pa.StructArray, target_type: pa.StructType, cast: _Cast
) -> pa.Array:
    missing = values.is_null()
    names = [field.name for field in values.type]
    given = values.flatten()
    if names != [field.name for field in target_type]:  # else by place, as two may share a name
        by_name = dict(zip(names, given, strict=True))
        given = [
            by_name.get(field.name, pa.nulls(len(values), field.type)) for field in target_type
        ]
    members = [
        _member(f"{column}.{field.name}", inner, field, cast, missing)
        for field, inner in zip(target_type, given, strict=True)
    ]
    return pa.StructArray.from_arrays(
        members, fields=list(target_type), mask=missing if values.null_count else None
    )


def _list(column: str, values: pa.Array, target_type: pa.DataType, cast: _Cast) -> pa.Array:
    """Return lists or maps; maps may come as lists of pairs (polars has no maps)."""
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))

    def member(name: str, inner: pa.Array, field: pa.Field) -> pa.Array:
        return _member(f"{column}.{name}", inner, field, cast)

    return with_members(values, target_type, member)


def with_members(
    values: pa.Array,
    target_type: pa.DataType,
    member: Callable[[str, pa.Array, pa.Field], pa.Array],
) -> pa.Array:
    """Return lists, or maps, as a type of the same form. `member` makes what is in them.

    It is given "element", or "key" and then "value", what is there now, and the field that it shall be.
    """
    offsets, entries, mask = entries_of(values)
    if not pa.types.is_map(target_type):
        elements = member("element", entries, target_type.value_field)
        return pa.ListArray.from_arrays(offsets, elements, type=target_type, mask=mask)
    keys = member("key", pc.struct_field(entries, [0]), target_type.key_field)
    items = member("value", pc.struct_field(entries, [1]), target_type.item_field)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target_type, mask=mask)


def entries_of(values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Return where each of lists or maps begins, what is in them without nulls' own, and which are null."""
    missing = values.is_null()
    present = ~missing.to_numpy(zero_copy_only=False)
    ends = values.offsets.to_numpy()
    lengths = np.diff(ends)
    entries = values.values.slice(ends[0], ends[-1] - ends[0])
    if lengths[~present].any():  # what lies below nulls is no value
        entries = entries.filter(pa.array(np.repeat(present, lengths)))
    offsets = pa.array(np.append(0, np.cumsum(lengths * present, dtype=np.int64))).cast(pa.int32())
    return offsets, entries, missing if values.null_count else None


def _member(
    path: str, values: pa.Array, field: pa.Field, cast: _Cast, absent: pa.BooleanArray | None = None
) -> pa.Array:
    """Return a nested field's values in its type. `absent`: where there is no structure around it."""
    converted = in_type(path, values, field.type, cast)
    if field.nullable or not converted.null_count:
        return converted
    missing = converted.is_null()
    wrong = pc.sum(missing if absent is None else pc.and_not(missing, absent)).as_py() or 0
    if wrong:
        raise InvalidInputError(
            f"{counted(wrong, 'value')} missing of column {path!r}, which may not be null",
            column=path,
            rows=wrong,
        )
    return _without_nulls(converted)


def _without_nulls(values: pa.Array) -> pa.Array:
    """Return values with empty ones in the place of nulls."""
    types, kind = pa.types, values.type
    if types.is_struct(kind):
        members = [values.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(kind))
    if types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    if types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, values.values, type=kind)
    around = pa.struct([pa.field("value", kind, nullable=False)])
    return pc.fill_null(values, pa.array([None], around).field(0)[0])


def requires(kind: pa.DataType) -> bool:
    """Whether a type has nested fields that may not be null; keys of maps, which never are, aside."""
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or requires(kind.key_type) or requires(kind.item_type)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return any(not field.nullable or requires(field.type) for field in fields)
