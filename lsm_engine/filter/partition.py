"""Partition pruning: exact for existing partitions, by partition ranges for manifests."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import CorruptFileError, ErrorKind, InvalidInputError
from lsm_engine.filter.expression import matches
from lsm_engine.filter.predicate import (
    Compare,
    Comparison,
    IsIn,
    IsNull,
    Or,
    Predicate,
    all_of,
    conjuncts_of,
    implied_on,
)
from lsm_engine.filter.stats import Mask, StoredStats, covered_columns, stored_bounds, stored_mask
from lsm_engine.format.binary_row import decode_columns
from lsm_engine.format.manifest import BucketScope, ManifestFileMeta
from lsm_engine.types.arrow_types import arrow_schema, arrow_type
from lsm_engine.types.declared_lengths import has_length, stored_values
from lsm_engine.types.types import DataField

_PAIRS_MAX = 1_000_000  # of manifests and partitions: comparing more takes longer than it spares
_FEW = 16  # manifests: reading them costs no more than looking at their ranges


def partition_mask(predicate: Predicate, partitions: pa.Array, fields: Sequence[DataField]) -> Mask:
    """Return which of some partitions may hold a match.

    `partitions`: binary[n], stored rows, best without duplicates; `fields`: the partition columns in
    order. The part of the predicate that is about these columns is evaluated exactly.
    """
    about = implied_on(predicate, [field.name for field in fields])
    # A table without partitions has one partition, which may hold any match.
    if not fields:
        return np.ones(len(partitions), dtype=np.bool_)
    return matches(about, partition_rows(partitions, fields))


def partition_rows(partitions: pa.Array, fields: Sequence[DataField]) -> pa.Table:
    """Return stored partition rows as a table of the partition columns."""
    columns = decode_columns(partitions, [field.type for field in fields])
    return pa.table(columns, schema=arrow_schema(fields))


def partition_predicate(values: Mapping[str, object], fields: Sequence[DataField]) -> Predicate:
    """Return the predicate of a static partition, such as {"dt": "2024-01-01"}; None means null.

    Not all partition columns need a value. Raises InvalidInputError for a name that is no partition
    column and for a value that its column does not hold.
    """
    by_name = {field.name: field for field in fields}
    parts: list[Predicate] = []
    for name, value in values.items():
        # A misspelled column would otherwise select all partitions.
        if name not in by_name:
            names = ", ".join(by_name) or "none"
            raise InvalidInputError(
                f"{name!r} is not a partition column; there are: {names}",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=name,
            )
        kind = arrow_type(by_name[name].type)
        try:
            scalar = None if value is None else _as_stored(value, kind)
            scalar = None if scalar is None else _with_length(by_name[name], scalar)
        except (pa.ArrowException, ValueError, TypeError) as cause:
            raise InvalidInputError(
                f"partition column {name!r} is {kind} and cannot be {value!r}", column=name
            ) from cause
        if scalar is None:
            parts.append(IsNull(column=name))
        else:
            parts.append(Compare(column=name, comparison=Comparison.EQUAL, value=scalar))
    return all_of(parts)


def _with_length(field: DataField, value: pa.Scalar) -> pa.Scalar:
    # Without a length the value is stored as it is given.
    if not has_length(field.type):
        return value
    return stored_values(field.name, field.type, pa.array([value.as_py()], value.type))[0]


def _as_stored(value: object, kind: pa.DataType) -> pa.Scalar:
    """Return a value in its column's type; ValueError for one that the cast would change."""
    scalar = pa.scalar(value)
    stored = scalar.cast(kind)
    rounds = isinstance(value, str) or pa.types.is_floating(
        kind
    )  # FLOAT has no 0.1: the nearest is meant
    if not rounds and stored.cast(scalar.type) != scalar:
        raise ValueError(value)
    return stored


def manifest_mask(
    predicate: Predicate, manifests: Sequence[ManifestFileMeta], fields: Sequence[DataField]
) -> Mask:
    """Return which manifests may name a file of a matching partition, by their partition ranges."""
    about = implied_on(predicate, [field.name for field in fields])
    return stored_mask(about, _stats_of(manifests), covered_columns(fields, fields))


def manifests_holding(
    manifests: Sequence[ManifestFileMeta], partitions: Sequence[bytes], fields: Sequence[DataField]
) -> list[bool]:
    """Return which manifests may name a file of one of some partitions, by their partition ranges."""
    # Nothing can be held where one side is empty.
    if not manifests or not partitions:
        return [False] * len(manifests)
    names = [field.name for field in fields]
    bounds = stored_bounds(_stats_of(manifests), covered_columns(fields, fields), names)
    rows = partition_rows(pa.array(partitions, pa.binary()), fields) if fields else None
    holding = np.ones((len(manifests), len(partitions)), dtype=np.bool_)
    for name, column_bounds in bounds.items():
        if rows is None or pa.types.is_floating(column_bounds.mins.type):
            continue  # a range says nothing of NaN
        values: pa.Array = rows[name].combine_chunks()
        low, high, ranks = _ranks(column_bounds.mins, column_bounds.maxs, values)
        # A value is inside if it lies between the bounds in the order of all values.
        inside = (low[:, None] <= ranks[None, :]) & (ranks[None, :] <= high[:, None])
        unknown = ~(_is_valid(column_bounds.mins) & _is_valid(column_bounds.maxs))
        no_nulls = pc.fill_null(pc.equal(column_bounds.null_counts, 0), fill_value=False)
        may_be_null = ~no_nulls.to_numpy(zero_copy_only=False)
        # A null has no place between bounds, so the count of nulls decides.
        null = ~_is_valid(values)
        holding &= np.where(null[None, :], may_be_null[:, None], inside | unknown[:, None])
    return [bool(row.any()) for row in holding]


def manifests_in(
    manifests: Sequence[ManifestFileMeta], scope: BucketScope, fields: Sequence[DataField]
) -> Sequence[ManifestFileMeta]:
    """Return the manifests that may name files of a scope. A few manifests are returned unpruned."""
    candidates = [meta for meta in manifests if scope.may_be_in(meta)]
    # Statistics of a few manifests cost more than they spare.
    if len(candidates) <= _FEW:
        return candidates
    partitions = sorted({*scope.partitions, *(partition for partition, _ in scope.buckets)})
    # The table of pairs would take too much memory and time.
    if len(candidates) * len(partitions) > _PAIRS_MAX:
        return candidates
    try:
        holding = manifests_holding(candidates, partitions, fields)
    except CorruptFileError:
        return candidates  # without readable statistics every manifest may match
    return [meta for meta, holds in zip(candidates, holding, strict=True) if holds]


def _stats_of(manifests: Sequence[ManifestFileMeta]) -> StoredStats:
    stats = [manifest.partition_stats for manifest in manifests]
    counts = [manifest.added_file_count + manifest.deleted_file_count for manifest in manifests]
    return StoredStats.from_stats(stats, counts)


def _ranks(*arrays: pa.Array) -> list[np.ndarray]:
    """Return dense ranks that compare across arrays as the values do; nulls come last."""
    ranks = pc.rank(pa.concat_arrays(arrays), tiebreaker="dense").to_numpy()
    return np.split(ranks, np.cumsum([len(array) for array in arrays])[:-1])


def _is_valid(array: pa.Array) -> Mask:
    valid: Mask = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid


# -- Bucket pruning: the buckets that may hold a match, by equality on every bucket key ------------

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
    # Without a value for each key column any hash is possible.
    if columns is None:
        return None
    # A set without values matches no row, so no bucket is needed.
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
        # A read of all buckets costs less than to hash so many keys.
        return None
    rows = list(product(*(range(len(values)) for values in columns)))
    return [
        values.take(pa.array([row[position] for row in rows], pa.int64()))
        for position, values in enumerate(columns)
    ]


def _values_of(predicate: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    """Return the values of `column` that a match may have, in the column's type; None: any value."""
    narrowest: pa.Array | None = None
    # Each conjunct alone bounds the values: the fewest are best.
    for part in conjuncts_of(predicate):
        values = _values_in(part, column, kind)
        if values is not None and (narrowest is None or len(values) < len(narrowest)):
            narrowest = values
    return narrowest


def _values_in(part: Predicate, column: str, kind: pa.DataType) -> pa.Array | None:
    match part:
        case Compare(comparison=Comparison.EQUAL) if part.column == column:
            return _as_stored_key(pa.repeat(part.value, 1), kind)
        case IsIn(null_matches=False) if part.column == column:
            return _as_stored_key(part.values, kind)
        case Or():
            branches = [_values_of(branch, column, kind) for branch in part.parts]
            if any(branch is None for branch in branches):  # that branch allows any value
                return None
            return pc.unique(pa.concat_arrays(branches))
        case _:
            return None


def _as_stored_key(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    # An empty set has no type that could be compared.
    if len(values) == 0:
        return pa.array([], kind)
    # A value that Arrow compares after a cast may have other bytes than the stored one.
    if not _is_exact(values.type, kind):
        return None
    try:
        stored: pa.Array = values.cast(kind)
    except pa.ArrowException:  # too large, or finer than the column: the filter decides
        return None
    if not pa.types.is_floating(kind):
        # Other types have one bit pattern for each value.
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
