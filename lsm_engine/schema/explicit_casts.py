"""Type changes that may lose something: which there are, and what old values become.

As Java does it: whole numbers keep their low bits, fractions are cut off (rounded, half up, where a
decimal takes them), floating numbers stop at the ends of a whole type, text and bytes are cut to their
length, times to their precision. A decimal that does not fit becomes null.
"""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import TIMESTAMPS, Root, ScalarType

WHOLE = (Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT)
_FLOATING = (Root.FLOAT, Root.DOUBLE)
_CUT_TO = (Root.VARCHAR, Root.VARBINARY)
_WITH_ROOM = {
    Root.VARCHAR: (Root.STRING, Root.VARCHAR, *WHOLE, Root.BOOLEAN, Root.DATE),
    Root.VARBINARY: (Root.BYTES, Root.VARBINARY),
}
_DIGITS_MAX = 76


def can_cast_explicitly(source: ScalarType, target: ScalarType) -> bool:
    """Whether there is a rule for a change that may lose something.

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
    rounded = pc.round(_wide(values, wide_scale), scale, "half_towards_infinity")
    digits = pc.cast(rounded, pa.decimal256(_DIGITS_MAX, scale), safe=False)
    limit = pa.scalar(Decimal(10) ** (precision - scale), digits.type)
    fits = pc.less(pc.abs(digits), limit)
    return pc.cast(pc.if_else(fits, digits, pa.scalar(None, digits.type)), arrow_type(target))


def _times(values: pa.Array, target_type: pa.TimestampType) -> pa.Array:
    """Cut times, towards the past, to the unit of the wanted type."""
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}
    factor = per_second[values.type.unit] // per_second[target_type.unit]
    counts = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    scaled = pa.array(np.floor_divide(counts, factor), pa.int64(), mask=_nulls(values))
    return scaled.cast(target_type)


def _stopped(values: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Floating numbers as whole ones: through INT, or BIGINT, at whose ends they stop; NaN is 0."""
    numbers = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
    through = np.iinfo(np.int64 if target_type == pa.int64() else np.int32)
    numbers = np.nan_to_num(np.trunc(numbers), nan=0.0, posinf=np.inf, neginf=-np.inf)
    above, below = numbers >= float(through.max), numbers <= float(through.min)
    clipped = np.where(above | below, 0.0, numbers).astype(through.dtype)
    clipped = np.where(above, through.max, np.where(below, through.min, clipped))
    narrow = clipped.astype(through.dtype).astype(target_type.to_pandas_dtype())
    return pa.array(narrow, target_type, mask=_nulls(values))


def _nulls(values: pa.Array) -> np.ndarray:
    mask: np.ndarray = pc.is_null(values).to_numpy(zero_copy_only=False)
    return mask
