"""Equality on every bucket key → the only buckets that can hold a match."""

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
    """Return values of columns, a row for each combination that a match may have; None if any may be.

    Only equalities and sets count, one for every column. None too where there are more than `most`.
    """
    wanted: list[pa.Array] = []
    combinations = 1
    for field in fields:
        values = _values_of(predicate, field.name, arrow_type(field.type))
        if values is None:
            return None
        wanted.append(values)
        combinations *= len(values)
    if not fields or combinations > most:
        return None
    rows = list(product(*(range(len(values)) for values in wanted)))
    return [
        values.take(pa.array([row[position] for row in rows], pa.int64()))
        for position, values in enumerate(wanted)
    ]


def _values_of(predicate: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    """The values of `column` that a match must have one of, as its own type; None: any value."""
    found: pa.Array | None = None
    for part in conjuncts_of(predicate):
        values = _values_in(part, column, kind)
        if values is not None and (found is None or len(values) < len(found)):
            found = values
    return found


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
    except pa.ArrowException:  # too large, or finer than the column: leave it to the filter
        return None
    if not pa.types.is_floating(kind):
        return pc.unique(stored)
    if pc.any(pc.is_nan(stored)).as_py():  # many bit patterns, hence many buckets
        return None
    return _with_both_zeros(stored)


def _is_exact(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether equality as Arrow decides it between these types means equality as `kind`."""
    of = pa.types
    if given == kind:
        return True
    if of.is_integer(given):
        return bool(of.is_integer(kind) or of.is_decimal(kind))
    if of.is_timestamp(given) and of.is_timestamp(kind):
        return bool(given.tz == kind.tz)
    families = (
        (of.is_string, of.is_large_string),
        (of.is_binary, of.is_large_binary, of.is_fixed_size_binary),
        (of.is_decimal,),
        (of.is_time32, of.is_time64),
    )
    return any(
        any(test(given) for test in family) and any(test(kind) for test in family)
        for family in families
    )


def _with_both_zeros(values: pa.Array) -> pa.Array:
    """Zeros are equal and hash apart: a filter for one has to look for both."""
    if not pc.any(pc.equal(values, pa.scalar(0.0, values.type))).as_py():
        return pc.unique(values)
    both = pa.array([0.0, -0.0], values.type)
    return pa.concat_arrays([values.filter(pc.not_equal(values, both[0])), both])
