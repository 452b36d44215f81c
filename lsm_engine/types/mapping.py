"""Mapping of the columns of a file to those of the read schema, and the casts between them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.casts import (
    cast_values,
    check_cast,
    keeps_order,
    may_lose_values,
    reads_as_is,
)
from lsm_engine.types.types import ArrayType, DataField, DataType, MapType, RowType, ScalarType

# -- Values of nested types in another of the same form, with NOT NULL inside kept -----------------

_Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Values without structure → those of a type."""


def in_type(path: str, values: pa.Array, target_type: pa.DataType, cast: _Cast) -> pa.Array:
    """Return values in a type of the same form, member by member; `cast` is for those without structure.

    Members are found by name, and null where there is none. Where they may not be null they hold zeros and
    empty text under a missing structure: no file takes nulls there. Raises InvalidInputError for nulls
    that remain, with the `path` to them, and what `cast` raises.
    """
    types = pa.types
    # The table has no dictionaries, so the values are decoded first.
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    # The right type alone is not enough where nested nulls are forbidden.
    if values.type == target_type and not requires(target_type):
        return values
    # A column of nulls has no form of its own.
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
    children = values.flatten()
    if names != [field.name for field in target_type]:  # else by place, as two may share a name
        by_name = dict(zip(names, children, strict=True))
        children = [
            by_name.get(field.name, pa.nulls(len(values), field.type)) for field in target_type
        ]
    members = [
        _member(f"{column}.{field.name}", inner, field, cast, missing)
        for field, inner in zip(target_type, children, strict=True)
    ]
    return pa.StructArray.from_arrays(
        members, fields=list(target_type), mask=missing if values.null_count else None
    )


def _list(column: str, values: pa.Array, target_type: pa.DataType, cast: _Cast) -> pa.Array:
    """Return lists or maps; maps may come as lists of pairs (polars has no maps)."""
    if pa.types.is_fixed_size_list(values.type):  # it has no offsets
        values = values.cast(pa.list_(values.type.value_type))

    def member(name: str, inner: pa.Array, field: pa.Field) -> pa.Array:
        return _member(f"{column}.{name}", inner, field, cast)

    return with_members(values, target_type, member)


def with_members(
    values: pa.Array,
    target_type: pa.DataType,
    member: Callable[[str, pa.Array, pa.Field], pa.Array],
) -> pa.Array:
    """Return lists, or maps, as a type of the same form. `member` converts their members.

    Its arguments: "element", or "key" and then "value", the members as they are, and the field to convert them to.
    """
    offsets, entries, mask = entries_of(values)
    if not pa.types.is_map(target_type):
        elements = member("element", entries, target_type.value_field)
        return pa.ListArray.from_arrays(offsets, elements, type=target_type, mask=mask)
    keys = member("key", pc.struct_field(entries, [0]), target_type.key_field)
    items = member("value", pc.struct_field(entries, [1]), target_type.item_field)
    return pa.MapArray.from_arrays(offsets, keys, items, type=target_type, mask=mask)


def entries_of(values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Return the offsets of lists or maps, their entries without those below nulls, and the mask of nulls."""
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
    """Return the values of a nested field in its type. `absent`: the rows whose structure is null."""
    converted = in_type(path, values, field.type, cast)
    if field.nullable or not converted.null_count:
        return converted
    missing = converted.is_null()
    # A null below a null structure is not a missing value.
    wrong = pc.sum(missing if absent is None else pc.and_not(missing, absent)).as_py() or 0
    if wrong:
        raise InvalidInputError(
            f"{counted(wrong, 'value')} missing of column {path!r}, which may not be null",
            column=path,
            rows=wrong,
        )
    return _without_nulls(converted)


def _without_nulls(values: pa.Array) -> pa.Array:
    """Return values with an empty value for each null."""
    types, kind = pa.types, values.type
    if types.is_struct(kind):
        members = [values.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(kind))
    if types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    if types.is_list(kind):
        return pa.ListArray.from_arrays(values.offsets, values.values, type=kind)
    # A field that may not be null has an empty value, which Arrow makes for every type.
    around = pa.struct([pa.field("value", kind, nullable=False)])
    return pc.fill_null(values, pa.array([None], around).field(0)[0])


def requires(kind: pa.DataType) -> bool:
    """Whether a type has nested fields that may not be null; keys of maps, which never are, aside."""
    if not pa.types.is_nested(kind):
        return False
    # Arrow's maps never have null keys.
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or requires(kind.key_type) or requires(kind.item_type)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return any(not field.nullable or requires(field.type) for field in fields)


# -- File schema → read schema ---------------------------------------------------------------------

Column: TypeAlias = Any
"""A pa.Array or pa.ChunkedArray; what goes in comes out."""


@record
class ColumnMapping:
    """The mapping of one column of the read. `source` None: the file has no such column, so every value is null."""

    target: DataField
    source: DataField | None

    @property
    def is_identity(self) -> bool:
        """Whether the stored values are those of the read, bit for bit."""
        return self.source is not None and reads_as_is(self.source.type, self.target.type)

    @property
    def orders_alike(self) -> bool:
        """Whether stored minima and maxima, once cast, bound the values of the read too.

        False for numbers read as text: 9 < 10, but "10" < "9"; and for those that lose digits.
        """
        # Without a stored column there are no bounds at all.
        if self.source is None or self.is_identity:
            return self.source is not None
        # A value that loses digits may leave its bounds.
        if may_lose_values(self.source.type, self.target.type):
            return False
        return keeps_order(self.source.type, self.target.type)


def map_fields(
    file_fields: Sequence[DataField], read_fields: Sequence[DataField], *, may_lose: bool = True
) -> tuple[ColumnMapping, ...]:
    """Return one mapping per field of the read, in order, matched by field id and never by name.

    A column that was dropped and added again under its old name has a new id: it starts as null.
    Raises UnsupportedError for a type change that this version does not read; inside of lists and maps,
    and wherever nothing `may_lose`, that is one by which values may be lost.
    """
    by_id = {field.id: field for field in file_fields}
    mappings = []
    for target in read_fields:
        source = by_id.get(target.id)
        if source is not None:
            _check_reads(target.name, source.type, target.type, may_lose=may_lose)
        mappings.append(ColumnMapping(target=target, source=source))
    return tuple(mappings)


def _check_reads(column: str, source: DataType, target: DataType, *, may_lose: bool) -> None:
    match source, target:
        case RowType(), RowType():
            map_fields(source.fields, target.fields, may_lose=may_lose)  # for its refusals
        case ArrayType(), ArrayType():
            _check_reads(column, source.element, target.element, may_lose=False)
        case MapType(), MapType():
            _check_reads(column, source.key, target.key, may_lose=False)
            _check_reads(column, source.value, target.value, may_lose=False)
        case _:
            check_cast(column, source, target, may_lose=may_lose)


def apply_mapping(mapping: ColumnMapping, values: Column | None, row_count: int) -> Column:
    """Return the column of the read from the stored one (`None` if the mapping has no source)."""
    target_type = arrow_type(mapping.target.type)
    # The column was added after the file was written.
    if mapping.source is None or values is None:
        return nulls(row_count, target_type)
    if mapping.is_identity:
        return values
    source, target = mapping.source.type, mapping.target.type
    # Arrow builds nested values from arrays and not from chunked ones.
    if isinstance(values, pa.ChunkedArray) and not isinstance(target, ScalarType):
        chunks = [_mapped(chunk, source, target) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=target_type)
    return _mapped(values, source, target)


def _mapped(values: Column, source: DataType, target: DataType) -> Column:
    """Return values of a type as another, structures inside of lists and maps included."""
    # Equal bytes need no copy.
    if reads_as_is(source, target):
        return values
    match source, target:
        case RowType(), RowType():
            return _map_row(values, source, target)
        case ArrayType(), ArrayType():
            inside = {"element": (source.element, target.element)}
        case MapType(), MapType():
            inside = {"key": (source.key, target.key), "value": (source.value, target.value)}
        case _:
            return cast_values(values, source, target)
    return with_members(
        values, arrow_type(target), lambda name, inner, _: _mapped(inner, *inside[name])
    )


def _map_row(values: pa.StructArray, source: RowType, target: RowType) -> pa.StructArray:
    """Return a structure with its children matched by id; a null structure stays null."""
    positions = {field.id: index for index, field in enumerate(source.fields)}
    children = [
        apply_mapping(
            mapping,
            None if mapping.source is None else values.field(positions[mapping.source.id]),
            len(values),
        )
        for mapping in map_fields(source.fields, target.fields)
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(target)), mask=mask)


def conform(values: Column, target_type: pa.DataType, *, file_name: str, column: str) -> Column:
    """Return a column as read from a file in the Arrow type that its declared type has here.

    Writers differ: plain integers for TINYINT, fixed bytes for decimals, INT96 without a zone,
    "item" for "element". Raises CorruptFileError if the bytes can't be of the declared type, which
    nulls in nested fields that may not be null are not.
    """
    stored = values.type
    # Most files have the declared type, and no cast is tried.
    if stored == target_type:
        return values
    try:
        if pa.types.is_timestamp(stored) and pa.types.is_timestamp(target_type):
            # Zones are labels here: the instant, or the wall clock, is the number itself.
            storage = pc.cast(
                _viewed(values, pa.timestamp(stored.unit)),
                pa.timestamp(target_type.unit),
                safe=False,
            )
            return _viewed(storage, target_type)
        # Arrow's own cast is faster and serves where nested nulls are allowed.
        if not requires(target_type):
            return pc.cast(values, target_type)
        if isinstance(values, pa.ChunkedArray):
            chunks = [in_type(column, chunk, target_type, pc.cast) for chunk in values.chunks]
            return pa.chunked_array(chunks, type=target_type)
        return in_type(column, values, target_type, pc.cast)
    except (pa.ArrowException, UnicodeDecodeError, InvalidInputError) as cause:
        # Values come from a file here, so what does not fit is damage and not a mistake of the caller.
        raise CorruptFileError(
            f"column {column!r} is stored as {stored}, which does not read as {target_type}",
            file=file_name,
            column=column,
        ) from cause


def _viewed(values: Column, target_type: pa.DataType) -> Column:
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array(
            [chunk.view(target_type) for chunk in values.chunks], type=target_type
        )
    return values.view(target_type)
