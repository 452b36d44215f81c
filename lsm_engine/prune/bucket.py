"""Bucket pruning: the buckets that may hold a match, by equality on every bucket key."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.prune.predicate import (
    Compare,
    Comparison,
    IsIn,
    Or,
    Predicate,
    conjuncts_of,
)
from lsm_engine.schema.arrow_types import arrow_type
from lsm_engine.schema.types import DataField

BucketOf = Callable[[Sequence[pa.Array]], npt.NDArray[np.integer]]
"""Columns of bucket keys, in order → the bucket of each row."""

_KEYS_TRIED_MAX = 4096


def candidate_buckets(
    predicate: Predicate, bucket_keys: Sequence[DataField], bucket_of: BucketOf
) -> frozenset[int] | None:
    """Return the buckets that may hold a match, or None if any may.

    Only values that the column's own type holds exactly count: hashing sees bytes, not values.
    `bucket_of` is the table's bucket function (the murmur hash of BinaryRows, modulo the bucket count).
    """
    columns = candidate_values(predicate, bucket_keys)
    if columns is None:
        return None
    if not len(columns[0]):
        return frozenset()
    return frozenset(int(bucket) for bucket in bucket_of(columns))


def candidate_values(
    predicate: Predicate, fields: Sequence[DataField], most: int = _KEYS_TRIED_MAX
) -> list[pa.Array] | None:
    """Return the combinations of values that a match may have, one array per column; None if unknown.

    Every column needs an equality or a set. The result is None too for more than `most` combinations.
    """
    columns: list[pa.Array] = []
    combinations = 1
    for field in fields:
        values = _values_of(predicate, field.name, arrow_type(field.type))
        if values is None:
            return None
        columns.append(values)
        combinations *= len(values)
    if not fields or combinations > most:
        return None
    rows = list(product(*(range(len(values)) for values in columns)))
    return [
        values.take(pa.array([row[position] for row in rows], pa.int64()))
        for position, values in enumerate(columns)
    ]


def _values_of(predicate: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    """Return the values of `column` that a match may have, in the column's type; None: any value."""
    narrowest: pa.Array | None = None
    for part in conjuncts_of(predicate):
        values = _values_in(part, column, kind)
        if values is not None and (narrowest is None or len(values) < len(narrowest)):
            narrowest = values
    return narrowest


def _values_in(part: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    match part:
        case Compare(comparison=Comparison.EQUAL) if part.column == column:
            return _as_stored(pa.repeat(part.value, 1), kind)
        case IsIn(null_matches=False) if part.column == column:
            return _as_stored(part.values, kind)
        case Or():
            branches = [_values_of(branch, column, kind) for branch in part.parts]
            if any(branch is None for branch in branches):
                return None
            return pc.unique(pa.concat_arrays(branches))
        case _:
            return None


def _as_stored(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if len(values) == 0:
        return pa.array([], kind)
    if not _is_exact(values.type, kind):
        return None
    try:
        stored: pa.Array = values.cast(kind)
    except pa.ArrowException:  # too large, or finer than the column: the filter decides
        return None
    if not pa.types.is_floating(kind):
        return pc.unique(stored)
    if pc.any(pc.is_nan(stored)).as_py():  # NaN has many bit patterns, hence many buckets
        return None
    return _with_both_zeros(stored)


def _is_exact(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's equality of the two types is equality of values cast to `kind`."""
    types = pa.types
    if source == kind:
        return True
    if types.is_integer(source):
        return bool(types.is_integer(kind) or types.is_decimal(kind))
    if types.is_timestamp(source) and types.is_timestamp(kind):
        return bool(source.tz == kind.tz)
    families = (
        (types.is_string, types.is_large_string),
        (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
        (types.is_decimal,),
        (types.is_time32, types.is_time64),
    )
    return any(
        any(test(source) for test in family) and any(test(kind) for test in family)
        for family in families
    )


def _with_both_zeros(values: pa.Array) -> pa.Array:
    """Return values with both zeros if they hold one: the zeros are equal, but hash differently."""
    if not pc.any(pc.equal(values, pa.scalar(0.0, values.type))).as_py():
        return pc.unique(values)
    both = pa.array([0.0, -0.0], values.type)
    return pa.concat_arrays([values.filter(pc.not_equal(values, both[0])), both])
