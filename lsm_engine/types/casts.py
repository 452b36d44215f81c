"""Casts between column types: the type changes that are allowed, and the conversion of stored values."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, UnsupportedError
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.types import (
    BINARY,
    TEXT,
    TIMESTAMPS,
    ArrayType,
    DataType,
    MapType,
    Root,
    RowType,
    ScalarType,
    type_text,
)

# -- Type changes that may lose values -------------------------------------------------------------
#
# As Java does it: whole numbers keep their low bits, fractions are cut off (rounded, half up,
# where a decimal takes them), floating numbers stop at the ends of a whole type, text and bytes
# are cut to their length, times to their precision. A decimal that does not fit becomes null.

WHOLE = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_FLOATING = (Root.FLOAT, Root.DOUBLE)
_CUT_TO = (Root.VARCHAR, Root.VARBINARY)
_WITH_ROOM = {
    Root.VARCHAR: (Root.STRING, Root.VARCHAR, *WHOLE, Root.BOOLEAN, Root.DATE),
    Root.VARBINARY: (Root.BYTES, Root.VARBINARY),
}
_DIGITS_MAX = 76


def can_cast_explicitly(source: ScalarType, target: ScalarType) -> bool:
    """Whether a cast that may lose values has a rule.

    Without one: text that would have to be parsed, floating numbers as text or decimals, which
    languages spell differently, and times of another zone.
    """
    if target.root in WHOLE:
        return source.root in (*WHOLE, *_FLOATING, Root.DECIMAL, Root.BOOLEAN)
    if target.root in _FLOATING:
        return source.root in (*WHOLE, *_FLOATING, Root.DECIMAL, Root.BOOLEAN)
    if target.root is Root.DECIMAL:
        # What does not fit becomes null, which the column has to allow.
        return source.root in (*WHOLE, Root.DECIMAL) and target.nullable
    if target.root is Root.BOOLEAN:
        return source.root in WHOLE
    if target.root in _CUT_TO:
        return source.root in _WITH_ROOM[target.root]
    # Arrow's units hold these precisions alone as they are.
    return target.root in TIMESTAMPS and source.root is target.root and target.precision in (3, 6)


def cast_explicitly(
    values: pa.Array | pa.ChunkedArray, source: ScalarType, target: ScalarType
) -> pa.Array | pa.ChunkedArray:
    """Return old values as the new type; the pair must have a rule."""
    # Chunks are cast one by one, so that no copy of the whole column is made.
    if isinstance(values, pa.ChunkedArray):
        chunks = [_cast(chunk, source, target) for chunk in values.chunks]
        return pa.chunked_array(chunks, arrow_type(target))
    return _cast(values, source, target)


def _cast(values: pa.Array, source: ScalarType, target: ScalarType) -> pa.Array:
    target_type = arrow_type(target)
    match target.root:
        case Root.VARCHAR:
            return pc.utf8_slice_codeunits(pc.cast(values, target_type), 0, target.precision)
        case Root.VARBINARY:
            return pc.binary_slice(values, 0, target.precision)
        case Root.DECIMAL:
            return _decimals(values, target)
        case Root.BOOLEAN:
            return pc.not_equal(values, pa.scalar(0, values.type))
        case root if root in TIMESTAMPS:
            return _times(values, target_type)
        case root if root in WHOLE and source.root in _FLOATING:
            return _stopped(values, target_type)
        case root if root in WHOLE and source.root is Root.DECIMAL:
            integers = pc.round(_wide(values, source.scale or 0), 0, "towards_zero")
            longs = pc.cast(integers, pa.int64(), safe=False)
            return pc.cast(longs, target_type, safe=False)
        case _:
            if source.root is Root.DECIMAL:
                values = pc.cast(values, pa.float64(), safe=False)
            return pc.cast(values, target_type, safe=False)


def _wide(values: pa.Array, scale: int) -> pa.Array:
    return pc.cast(values, pa.decimal256(_DIGITS_MAX, scale))


def _decimals(values: pa.Array, target: ScalarType) -> pa.Array:
    precision, scale = target.precision or 10, target.scale or 0
    wide_scale = max(scale, values.type.scale if pa.types.is_decimal(values.type) else 0)
    # 256 bits have room for all digits before they are rounded. A number with too many digits becomes null.
    rounded = pc.round(_wide(values, wide_scale), scale, "half_towards_infinity")
    digits = pc.cast(rounded, pa.decimal256(_DIGITS_MAX, scale), safe=False)
    limit = pa.scalar(Decimal(10) ** (precision - scale), digits.type)
    fits = pc.less(pc.abs(digits), limit)
    return pc.cast(pc.if_else(fits, digits, pa.scalar(None, digits.type)), arrow_type(target))


def _times(values: pa.Array, target_type: pa.TimestampType) -> pa.Array:
    """Return times in the unit of another type, rounded towards the past."""
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}
    factor = per_second[values.type.unit] // per_second[target_type.unit]
    # `floor_divide`, because Arrow's cast cuts times towards zero, before 1970 towards the future.
    counts = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    scaled = pa.array(np.floor_divide(counts, factor), pa.int64(), mask=_nulls(values))
    return scaled.cast(target_type)


def _stopped(values: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Return floating numbers as whole ones: through INT, or BIGINT, at whose ends they stop; NaN is 0."""
    # Java's rules: the narrower types get the low bits of an INT.
    numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    through = np.iinfo(np.int64 if target_type == pa.int64() else np.int32)
    numbers = np.nan_to_num(np.trunc(numbers), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # NumPy's conversion of a float out of range is undefined, so those are replaced before and after it.
    above, below = numbers >= float(through.max), numbers <= float(through.min)
    clipped = np.where(above | below, 0.0, numbers).astype(through.dtype)
    clipped = np.where(above, through.max, np.where(below, through.min, clipped))
    narrow = clipped.astype(through.dtype).astype(target_type.to_pandas_dtype())
    return pa.array(narrow, target_type, mask=_nulls(values))


def _nulls(values: pa.Array) -> np.ndarray:
    mask: np.ndarray = pc.is_null(values).to_numpy(zero_copy_only=False)
    return mask


# -- Type changes of a column, and casts of its stored values --------------------------------------
#
# A change loses nothing when every old value has one plain reading as the new type. What may
# lose something goes by the rules of explicit casts. The rest is refused by name rather than
# guessed at: text that may not parse, and renderings that clients disagree about.

_DIGITS = {Root.TINYINT: 3, Root.SMALLINT: 5, Root.INT: 10, Root.BIGINT: 19}
_CHARACTERS = {Root.BOOLEAN: 5, Root.DATE: 10, **{root: 1 + n for root, n in _DIGITS.items()}}
"""Characters of the longest value as text, for years of four digits."""
_OF_A_LENGTH = TEXT | BINARY


def reads_as_is(source: DataType, target: DataType) -> bool:
    """Whether stored values are those of the other type bit for bit, with the same nested fields by id."""
    if source == target:
        # Equal types, names of fields included, need no closer look.
        return True
    # Values of another Arrow type have other bytes.
    if arrow_type(source) != arrow_type(target):
        return False
    match source, target:
        case ScalarType(), ScalarType():
            # Longer values than the new length have to be cut.
            return not _shortens(source, target)
        case ArrayType(), ArrayType():
            return reads_as_is(source.element, target.element)
        case MapType(), MapType():
            return reads_as_is(source.key, target.key) and reads_as_is(source.value, target.value)
        case RowType(), RowType():
            return all(
                source_field.id == target_field.id
                and reads_as_is(source_field.type, target_field.type)
                for source_field, target_field in zip(source.fields, target.fields, strict=True)
            )
        case _:
            return False


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether values of `source` read as `target` without loss, regardless of nullability."""
    # Nested values are read as they are or field by field, never cast as a whole.
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return reads_as_is(source, target)
    # Decimals and timestamps of the same name still differ in precision.
    if source.root is target.root and source.root not in (Root.DECIMAL, *TIMESTAMPS):
        return not _shortens(source, target)
    if source.root in WHOLE:
        return _whole_reads_as(source, target)
    match source.root:
        case Root.BOOLEAN | Root.DATE if target.root in TEXT:
            return _holds_text(source, target)
        case Root.FLOAT:
            return target.root is Root.DOUBLE
        case Root.DECIMAL:
            return target.root is Root.DECIMAL and _holds_decimal(source, target)
        case Root.DATE:
            return target.root is Root.TIMESTAMP
        case root if root in TIMESTAMPS:
            return target.root is root and (target.precision or 0) >= (source.precision or 0)
        case root if root in TEXT:
            return target.root in TEXT and not _shortens(source, target)
        case root if root in BINARY:
            return target.root in BINARY and not _shortens(source, target)
        case _:
            return False


def _whole_reads_as(source: ScalarType, target: ScalarType) -> bool:
    if target.root in WHOLE:
        return WHOLE.index(target.root) >= WHOLE.index(source.root)
    if target.root is Root.DECIMAL:
        # The digits before the point decide: a scale takes digits from them.
        return (target.precision or 10) - (target.scale or 0) >= _DIGITS[source.root]
    if target.root is Root.FLOAT:
        return source.root in (Root.TINYINT, Root.SMALLINT)  # exact up to 24 bits
    if target.root is Root.DOUBLE:
        return source.root is not Root.BIGINT  # exact up to 53 bits
    # CHAR(n) would pad a number with blanks.
    return target.root in TEXT and target.root is not Root.CHAR and _holds_text(source, target)


def _holds_text(source: ScalarType, target: ScalarType) -> bool:
    return target.precision is None or target.precision >= _CHARACTERS[source.root]


def _holds_decimal(source: ScalarType, target: ScalarType) -> bool:
    integer_digits = (source.precision or 10) - (source.scale or 0)
    return (
        (target.scale or 0) >= (source.scale or 0)
        and (target.precision or 10) - (target.scale or 0) >= integer_digits
    )  # fmt: skip


def _shortens(source: ScalarType, target: ScalarType) -> bool:
    """Whether a type of a declared length becomes shorter; an unbounded type has no precision."""
    # An unbounded target holds texts of any length.
    if target.root not in _OF_A_LENGTH or target.precision is None:
        return False
    return source.precision is None or source.precision > target.precision


def may_lose_values(source: DataType, target: DataType) -> bool:
    """Whether a cast has a rule, but may lose values."""
    return (
        not can_cast(source, target)
        and isinstance(source, ScalarType)
        and isinstance(target, ScalarType)
        and can_cast_explicitly(source, target)
    )


def keeps_order(source: DataType, target: DataType) -> bool:
    """Whether values compare as before once they are read as another type. 9 < 10, but "10" < "9"."""
    if not isinstance(source, ScalarType) or not isinstance(target, ScalarType):
        return True
    return (source.root in TEXT) == (target.root in TEXT)


def check_cast(column: str, source: DataType, target: DataType, *, may_lose: bool = True) -> None:
    """Raise UnsupportedError, naming the column, unless `source` can be read as `target`.

    `may_lose` false: unless nothing can be lost by that.
    """
    if not (can_cast(source, target) or (may_lose and may_lose_values(source, target))):
        raise UnsupportedError(
            f"column {column!r} cannot change from {type_text(source)} to {type_text(target)};"
            " add a new column and copy the values",
            kind=ErrorKind.UNSUPPORTED_TYPE,
            column=column,
        )


def cast_values(
    values: pa.Array | pa.ChunkedArray, source: DataType, target: DataType
) -> pa.Array | pa.ChunkedArray:
    """Return old values as the new type. `values` are of the Arrow type of `source`.

    The pair must have passed `check_cast`. Values that do not fit raise pa.ArrowInvalid: dates far
    from 1970 have no nanosecond timestamp.
    """
    if not can_cast(source, target):
        assert isinstance(source, ScalarType)
        assert isinstance(target, ScalarType)
        return cast_explicitly(values, source, target)
    target_type = arrow_type(target)
    # Types such as VARCHAR(5) and STRING share one Arrow type.
    if values.type == target_type:
        return values
    if (
        isinstance(source, ScalarType)
        and source.root is Root.DATE
        and pa.types.is_timestamp(target_type)
    ):
        # Arrow goes through seconds, which reach every date; the unit follows.
        return pc.cast(pc.cast(values, pa.timestamp("s")), target_type)
    return pc.cast(values, target_type)


# -- Stored values that a narrower type cannot hold ------------------------------------------------
#
# Which do not come back from it as they were.


def loses_somewhere(source: DataType, target: DataType) -> bool:
    """Whether a column of `source`, read as `target`, may lose something, fields of structures included."""
    # Fields are matched by id, because a rename must not look like a loss.
    if isinstance(source, RowType) and isinstance(target, RowType):
        by_id = {field.id: field.type for field in source.fields}
        return any(
            field.id in by_id and loses_somewhere(by_id[field.id], field.type)
            for field in target.fields
        )
    return may_lose_values(source, target)


def lost_count(
    stored: pa.Array | pa.ChunkedArray,
    read: pa.Array | pa.ChunkedArray,
    source: DataType,
    target: DataType,
) -> int:
    """Return how many values of a column are others once read as `target` (`read`, from `cast_values`).

    Rounding counts, too: what does not convert back to the stored value has lost something.
    """
    # A cast without loss needs no comparison of values.
    if not loses_somewhere(source, target):
        return 0
    if isinstance(stored, pa.ChunkedArray):
        return sum(
            lost_count(stored_chunk, read_chunk, source, target)
            for stored_chunk, read_chunk in zip(stored.chunks, read.chunks, strict=True)
        )
    # A structure is counted field by field, as only some of its fields change.
    if isinstance(source, RowType) and isinstance(target, RowType):
        positions = {field.id: number for number, field in enumerate(source.fields)}
        old, new = stored.flatten(), read.flatten()
        return sum(
            lost_count(
                old[positions[field.id]],
                new[number],
                source.fields[positions[field.id]].type,
                field.type,
            )
            for number, field in enumerate(target.fields)
            if field.id in positions
        )
    assert isinstance(source, ScalarType)
    assert isinstance(target, ScalarType)
    # A null that was a value before is a loss that the comparison cannot see.
    lost = pc.and_(stored.is_valid(), read.is_null())
    differs = pc.fill_null(_differs(stored, read, source, target), False)  # noqa: FBT003
    return int(pc.sum(pc.or_(lost, differs)).as_py() or 0)


def _differs(stored: pa.Array, read: pa.Array, source: ScalarType, target: ScalarType) -> pa.Array:
    # Text and bytes lose something only if they were cut.
    if target.root in TEXT | BINARY:
        return pc.not_equal(pc.cast(stored, read.type), read)
    # A wide decimal holds both values with all their digits.
    if Root.DECIMAL in (source.root, target.root):
        scale = max(source.scale or 0, target.scale or 0)
        wide = pa.decimal256(_DIGITS_MAX, scale)
        return pc.not_equal(
            pc.cast(stored, wide), pc.cast(_without_extensions(read), wide, safe=False)
        )
    if source.root in _FLOATING:
        return _differs_from_floating(stored, read, target)
    if target.root in _FLOATING:
        # 2 to the power of 63, to which the greatest numbers round, is no BIGINT.
        back = pc.cast(read, pa.int64(), safe=False)
        inside = pc.less(read, pa.scalar(2.0**63, read.type))
        return pc.or_(pc.invert(inside), pc.not_equal(pc.cast(stored, pa.int64()), back))
    if target.root in (*WHOLE, Root.BOOLEAN):
        return pc.not_equal(pc.cast(stored, pa.int64()), pc.cast(read, pa.int64()))
    return pc.not_equal(stored, pc.cast(read, stored.type, safe=False))


def _without_extensions(read: pa.Array) -> pa.Array:
    return read.cast(pa.float64()) if pa.types.is_float32(read.type) else read


def _differs_from_floating(stored: pa.Array, read: pa.Array, target: ScalarType) -> pa.Array:
    numbers = stored.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    after = read.cast(pa.float64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
    differs = (numbers != after) & ~(np.isnan(numbers) & np.isnan(after))
    if target.root in WHOLE:
        differs |= numbers >= 2.0 ** (read.type.bit_width - 1)
    return pa.array(differs)
