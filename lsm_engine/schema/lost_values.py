"""Stored values that a narrower type cannot hold: which do not come back from it as they were."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.schema.evolution import may_lose_values
from lsm_engine.schema.explicit_casts import WHOLE
from lsm_engine.schema.types import BINARY, TEXT, DataType, Root, RowType, ScalarType

_FLOATING = (Root.FLOAT, Root.DOUBLE)
_DIGITS_MAX = 76


def loses_somewhere(source: DataType, target: DataType) -> bool:
    """Whether a column of `source`, read as `target`, may lose something, fields of structures included."""
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
    if not loses_somewhere(source, target):
        return 0
    if isinstance(stored, pa.ChunkedArray):
        return sum(
            lost_count(stored_chunk, read_chunk, source, target)
            for stored_chunk, read_chunk in zip(stored.chunks, read.chunks, strict=True)
        )
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
    lost = pc.and_(stored.is_valid(), read.is_null())
    differs = pc.fill_null(_differs(stored, read, source, target), False)  # noqa: FBT003
    return int(pc.sum(pc.or_(lost, differs)).as_py() or 0)


def _differs(stored: pa.Array, read: pa.Array, source: ScalarType, target: ScalarType) -> pa.Array:
    if target.root in TEXT | BINARY:
        return pc.not_equal(pc.cast(stored, read.type), read)
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
