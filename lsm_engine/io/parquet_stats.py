"""Statistics of Parquet footers: minima, maxima and null counts per row group."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_engine.base.record import record
from lsm_engine.codec.stats import ColumnExtremes


@record
class ColumnBounds:
    """One entry per row group: `lower` and `upper` are null where nothing is known, and where every
    value is null; `null_counts` holds None where unknown.
    """

    lower: pa.Array
    upper: pa.Array
    null_counts: tuple[int | None, ...]
    is_known: tuple[bool, ...]  # whether the bounds cover every value that is not null

    def of_each(self, group_counts: Sequence[int]) -> ColumnExtremes:
        """Return the extremes of each file. The row groups of files follow each other, `group_counts` per file.

        A bound is null where any row group's is not known, a count None where any has none.
        """
        if all(count == 1 for count in group_counts):
            is_known = pa.array(self.is_known, pa.bool_())
            null = pa.scalar(None, self.lower.type)
            lower, upper = self.lower, self.upper
            if not all(self.is_known):
                lower, upper = (pc.if_else(is_known, bound, null) for bound in (lower, upper))
            return ColumnExtremes(least=lower, greatest=upper, null_counts=self.null_counts)
        ends = list(accumulate(group_counts, initial=0))
        parts = [self._file_extremes(slice(*pair)) for pair in pairwise(ends)]
        return ColumnExtremes(
            least=pa.concat_arrays([part.least for part in parts]),
            greatest=pa.concat_arrays([part.greatest for part in parts]),
            null_counts=[part.null_counts[0] for part in parts],
        )

    def _file_extremes(self, groups: slice) -> ColumnExtremes:
        kind = self.lower.type
        lower = upper = pa.nulls(1, kind)
        if all(self.is_known[groups]):
            lower = pa.array([pc.min(self.lower[groups])], kind)
            upper = pa.array([pc.max(self.upper[groups])], kind)
        counts = self.null_counts[groups]
        known_counts = [count for count in counts if count is not None]
        return ColumnExtremes(
            least=lower,
            greatest=upper,
            null_counts=[sum(known_counts) if len(known_counts) == len(counts) else None],
        )


def column_bounds(
    row_groups: Sequence["pq.RowGroupMetaData"],
    leaf: int,
    stored: pa.DataType,
    *,
    nan_free: bool = False,
) -> ColumnBounds:
    """Return the bounds of one leaf column in row groups of any files, in its stored Arrow type.

    Unless it is known to be `nan_free`, a floating point column has no upper bound: NaN sorts last,
    and no statistics count it.
    """
    chunks = [group.column(leaf).statistics for group in row_groups]
    has_bounds = [chunk is not None and chunk.has_min_max for chunk in chunks]
    read = _reader(stored)
    lower = [read(chunk, "min") if has else None for chunk, has in zip(chunks, has_bounds)]  # noqa: B905
    upper = [read(chunk, "max") if has else None for chunk, has in zip(chunks, has_bounds)]  # noqa: B905
    if pa.types.is_floating(stored) and not nan_free:
        upper = [None] * len(upper)
    return ColumnBounds(
        lower=_typed(lower, stored),
        upper=_typed(upper, stored),
        null_counts=tuple(
            chunk.null_count if chunk is not None and chunk.has_null_count else None
            for chunk in chunks
        ),
        is_known=tuple(
            has or (chunk is not None and chunk.has_null_count and chunk.num_values == 0)
            for chunk, has in zip(chunks, has_bounds, strict=True)
        ),
    )


def _reader(stored: pa.DataType) -> Callable[[Any, str], Any]:
    if _is_number_of_bits(stored) or pa.types.is_string(stored) or pa.types.is_binary(stored):
        return _raw
    return _cooked


def _raw(chunk: Any, bound: str) -> Any:
    return getattr(chunk, bound + "_raw")


def _cooked(chunk: Any, bound: str) -> Any:
    return getattr(chunk, bound)


def _is_number_of_bits(stored: pa.DataType) -> bool:
    """Whether Parquet and Arrow store a type as the same integer: no detour by datetime."""
    return bool(pa.types.is_temporal(stored))


def _typed(values: list[Any], stored: pa.DataType) -> pa.Array:
    if _is_number_of_bits(stored):
        return pa.array(values, pa.int64() if stored.bit_width == 64 else pa.int32()).view(stored)
    if pa.types.is_string(stored):
        return pa.array(values, pa.binary()).cast(stored)
    return pa.array(values, stored)


def leaf_positions(schema: pa.Schema) -> dict[str, int]:
    """Return the leaf position of every flat column; structures count their leaves and have none."""
    positions = {}
    position = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            positions[field.name] = position
        position += leaf_count(field.type)
    return positions


def leaf_count(value: pa.DataType) -> int:
    """Return how many Parquet columns hold an Arrow type."""
    if pa.types.is_map(value):
        return leaf_count(value.key_type) + leaf_count(value.item_type)
    if pa.types.is_list(value) or pa.types.is_large_list(value):
        return leaf_count(value.value_type)
    if pa.types.is_struct(value):
        return sum(leaf_count(value.field(i).type) for i in range(value.num_fields))
    return 1
