"""File schema → read schema: which stored column fills which wanted one, and through which cast."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.evolution import (
    cast_values,
    check_cast,
    keeps_order,
    may_lose_values,
    reads_as_is,
)
from lsm_engine.schema.nested_values import in_type, nulls, requires, with_members
from lsm_engine.schema.types import (
    ArrayType,
    DataField,
    DataType,
    MapType,
    RowType,
    ScalarType,
)

Column: TypeAlias = Any
"""A pa.Array or pa.ChunkedArray; what goes in comes out."""


@record
class ColumnMapping:
    """How one wanted column is made. `source` None: no such column then, so every value is null."""

    target: DataField
    source: DataField | None

    @property
    def is_identity(self) -> bool:
        """Whether stored values are the wanted ones, bit for bit."""
        return self.source is not None and reads_as_is(self.source.type, self.target.type)

    @property
    def orders_alike(self) -> bool:
        """Whether stored minima and maxima, once cast, bound the wanted values too.

        False for numbers read as text: 9 < 10, but "10" < "9"; and for those that lose digits.
        """
        if self.source is None or self.is_identity:
            return self.source is not None
        if may_lose_values(self.source.type, self.target.type):
            return False
        return keeps_order(self.source.type, self.target.type)


def map_fields(
    file_fields: Sequence[DataField], read_fields: Sequence[DataField], *, may_lose: bool = True
) -> tuple[ColumnMapping, ...]:
    """Return one mapping per wanted field, in order, matched by field id and never by name.

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
    """Return the wanted column from the stored one (`None` when the mapping has no source)."""
    target_type = arrow_type(mapping.target.type)
    if mapping.source is None or values is None:
        return nulls(row_count, target_type)
    if mapping.is_identity:
        return values
    source, target = mapping.source.type, mapping.target.type
    if isinstance(values, pa.ChunkedArray) and not isinstance(target, ScalarType):
        chunks = [_mapped(chunk, source, target) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=target_type)
    return _mapped(values, source, target)


def _mapped(values: Column, source: DataType, target: DataType) -> Column:
    """Return values of a type as another, structures inside of lists and maps included."""
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
        if not requires(target_type):
            return pc.cast(values, target_type)
        if isinstance(values, pa.ChunkedArray):
            chunks = [in_type(column, chunk, target_type, pc.cast) for chunk in values.chunks]
            return pa.chunked_array(chunks, type=target_type)
        return in_type(column, values, target_type, pc.cast)
    except (pa.ArrowException, UnicodeDecodeError, InvalidInputError) as cause:
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
