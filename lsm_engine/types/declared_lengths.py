"""Values of CHAR(n), VARCHAR(n), BINARY(n) and VARBINARY(n): how they are stored, read and compared.

CHAR(n) is padded with blanks to n when it is written and when it is read. Where a text is too long, blanks at its end go.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.units import counted
from lsm_engine.types.arrow_types import BOUNDED, arrow_type
from lsm_engine.types.mapping import entries_of, with_members
from lsm_engine.types.types import (
    TEXT,
    ArrayType,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    scalars_of,
)

BLANK = " "
_Change: TypeAlias = Callable[[ScalarType, pa.Array], pa.Array]
_TEXTS = (Root.CHAR, Root.VARCHAR)


def has_length(kind: DataType) -> bool:
    """Whether values of a type, or values in them, are of a declared length."""
    return any(
        scalar.root in BOUNDED and scalar.precision is not None for scalar in scalars_of(kind)
    )


def holds_char(kind: DataType) -> bool:
    """Whether values of a type, or values in them, are CHAR(n)."""
    return any(scalar.root is Root.CHAR for scalar in scalars_of(kind))


def stored_values(name: str, kind: DataType, values: pa.Array) -> pa.Array:
    """Return the values of a column as they are stored; InvalidInputError, with the path, for longer ones.

    CHAR(n) and VARCHAR(n) count code points, BINARY(n) and VARBINARY(n) bytes.
    """
    # Most columns have no length, and their values are not looked at.
    if not has_length(kind):
        return values
    fitted = _map_values(kind, values, _fitted_text)
    for path, declared, inner in _bounded(name, kind, fitted):
        lengths = pc.utf8_length(inner) if declared.root in TEXT else pc.binary_length(inner)
        # A null has no length, and the sum of no rows is null.
        wrong = pc.sum(pc.greater(lengths, declared.precision)).as_py() or 0
        if wrong:
            raise InvalidInputError(
                f"{counted(wrong, 'value')} of column {path!r} longer than {declared.precision}",
                column=path,
                rows=wrong,
            )
    return fitted


def padded_values(kind: DataType, values: Any) -> Any:
    """Return stored values, an array or a chunked one, with CHAR(n) padded to n: not every client writes the blanks."""
    return _of_chunks(kind, values, _padded_text) if holds_char(kind) else values


def compared_values(kind: DataType, values: Any) -> Any:
    """Return values of a filter in the form that compares with stored ones: a longer one equals none."""
    return _of_chunks(kind, values, _fitted_text) if has_length(kind) else values


def upper_bounds(kind: DataType, bounds: Any) -> Any:
    """Return the upper bounds of a column of the read from the stored ones: those of CHAR(n) are padded.

    A blank is more than a control character: "a" is less than "a\\t", and "a " is not.
    """
    # Only CHAR(n) is padded, so the bounds of other types hold as they are.
    if not isinstance(kind, ScalarType) or kind.root is not Root.CHAR:
        return bounds
    return _padded_text(kind, pc.replace_substring_regex(bounds, "(?s)[\\x00-\\x1f].*", ""))


def short_count(kind: ScalarType, texts: Any) -> int:
    """Return how many texts of a CHAR(n) are shorter than n without the blanks at their end."""
    return _count(pc.less(pc.utf8_length(pc.utf8_rtrim(texts, BLANK)), kind.precision))


def unpadded_count(kind: ScalarType, texts: Any) -> int:
    """Return how many texts are not of the n letters of CHAR(n)."""
    return _count(pc.not_equal(pc.utf8_length(texts), kind.precision))


def _count(flags: Any) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _fitted_text(kind: ScalarType, values: pa.Array) -> pa.Array:
    """Return texts less the blanks that they are too long by, CHAR(n) padded to n; others as they are."""
    # Only text has blanks that do not count.
    if kind.root not in _TEXTS or kind.precision is None:
        return values
    longest = pc.max(pc.utf8_length(values)).as_py() or 0
    # Texts that fit are not copied.
    if longest > kind.precision:
        excess = pc.utf8_slice_codeunits(values, kind.precision, longest)
        cut = pc.utf8_slice_codeunits(values, 0, kind.precision)
        values = pc.if_else(pc.equal(pc.utf8_rtrim(excess, BLANK), ""), cut, values)
    return _padded_text(kind, values)


def _padded_text(kind: ScalarType, values: Any) -> Any:
    if kind.root is not Root.CHAR or kind.precision is None:
        return values
    # The shortest value is null where the column has no values.
    shortest = pc.min(pc.utf8_length(values)).as_py()
    if shortest is None or shortest >= kind.precision:
        return values
    return pc.utf8_rpad(values, kind.precision, BLANK)


def _refuse_same_keys(name: str, offsets: pa.Array, keys: pa.Array) -> None:
    """Raise InvalidInputError for maps with two keys that are equal once padded."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets.to_numpy()))
    distinct = pa.table({"row": rows, "key": keys}).group_by(["row", "key"]).aggregate([])
    if distinct.num_rows < len(keys):
        raise InvalidInputError(
            f"a map in column {name!r} has a key twice, blanks at their ends aside; keep one of them",
            column=name,
        )


def _of_chunks(kind: DataType, values: Any, change: _Change) -> Any:
    if isinstance(values, pa.ChunkedArray):
        chunks = [_map_values(kind, chunk, change) for chunk in values.chunks]
        return pa.chunked_array(chunks, type=arrow_type(kind))
    return _map_values(kind, values, change)


def _map_values(kind: DataType, values: pa.Array, change: _Change) -> pa.Array:
    """Return values with those of a declared length changed, those in structures, lists and maps too."""
    # A structure without lengths is not taken apart.
    if not has_length(kind):
        return values
    match kind:
        case ScalarType():
            return change(kind, values)
        case RowType():
            members = [
                _map_values(field.type, values.field(index), change)
                for index, field in enumerate(kind.fields)
            ]
            # Arrow's constructor wants no mask where nothing is null.
            mask = values.is_null() if values.null_count else None
            return pa.StructArray.from_arrays(members, fields=list(values.type), mask=mask)
        case ArrayType():
            inside = {"element": kind.element}
        case MapType():
            inside = {"key": kind.key, "value": kind.value}
    return with_members(
        values, values.type, lambda name, inner, _: _map_values(inside[name], inner, change)
    )


def _bounded(
    name: str, kind: DataType, values: pa.Array
) -> Iterator[tuple[str, ScalarType, pa.Array]]:
    """Yield the values of a bounded length in a column, with the path to them; not what lies below nulls."""
    # Types without a length end the recursion early.
    if not has_length(kind):
        return
    match kind:
        case ScalarType():
            yield name, kind, values
        case ArrayType():
            yield from _bounded(f"{name}.element", kind.element, values.flatten())
        case MapType():
            offsets, entries, _ = entries_of(values)
            keys = pc.struct_field(entries, [0])
            # Padding may make two keys of a map equal.
            if holds_char(kind.key):
                _refuse_same_keys(name, offsets, keys)
            yield from _bounded(f"{name}.key", kind.key, keys)
            yield from _bounded(f"{name}.value", kind.value, pc.struct_field(entries, [1]))
        case RowType():
            for field, inner in zip(kind.fields, values.flatten(), strict=True):
                yield from _bounded(f"{name}.{field.name}", field.type, inner)
