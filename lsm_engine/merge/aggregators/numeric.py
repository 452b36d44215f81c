"""Sum and product. What does not fit the column's type is an error, never a wrapped number."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.fold import (
    GREATEST,
    LEAST,
    NO_OVERFLOW,
    PRODUCT,
    SUM,
    FoldedFloats,
    FoldedIntegers,
    WideSums,
    fold_floats,
    fold_integers,
    reduce_floats,
    reduce_integers,
    sum_wide,
)
from lsm_engine.kernels.pick_rows import NO_FLAGS, pick_greatest, pick_valid
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.sequence import words_of
from lsm_engine.merge.versions import (
    NEWEST,
    Computed,
    Folded,
    Picked,
    Versions,
    fixed_width,
    last_rows,
)

_NARROW_DIGITS = 18
WIDEST_PRODUCT = 25
"""Digits of a decimal up to which its products and quotients fit Arrow's widest decimals."""


@record
class Sum(Aggregator):
    """The sum; a retract subtracts, from nothing as well. Null where no version has a value."""

    takes_retracts: bool = True
    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator. InvalidInputError, naming column and key, where a sum does not fit."""
        kind = versions.schema.field(name).type
        if pa.types.is_decimal(kind) and kind.precision > _NARROW_DIGITS:
            return Computed(values=_wide_sums(versions, name, kind))
        return Computed(values=_folded(SUM, versions, name, kind))


@record
class Product(Aggregator):
    """The product; a retract divides, whole numbers towards zero. Dividing nothing leaves nothing."""

    takes_retracts: bool = True
    may_need_full_history: bool = True  # what a quotient rounds off cannot be made good
    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator. InvalidInputError where a product does not fit, or a divisor is zero."""
        kind = versions.schema.field(name).type
        if pa.types.is_decimal(kind):
            return Computed(values=_decimal_products(versions, name, kind))
        return Computed(values=_folded(PRODUCT, versions, name, kind))


def extremes(versions: Versions, name: str, *, least: bool) -> pa.Array | None:
    """Return the greatest value of each key, or the `least`; None for types that are no numbers.

    NaN is greater than every number, and -0.0 less than 0.0. Times are numbers, decimals of more than 18 digits are not.
    """
    kind = versions.schema.field(name).type
    wide = pa.types.is_decimal(kind) and kind.precision > _NARROW_DIGITS
    if wide or fixed_width(kind) is None:
        return None
    return _folded(LEAST if least else GREATEST, versions, name, kind)


def _folded(operation: int, versions: Versions, name: str, kind: pa.DataType) -> pa.Array:
    width = kind.bit_width // 8
    values, rows = versions.values(name, width), versions.rows
    marks = NO_FLAGS if versions.retracts is None else versions.retracts
    valid = np.empty(versions.group_count, np.bool_)
    is_unmarked = (
        operation != PRODUCT and not len(marks) and bool((np.diff(versions.offsets) > 0).all())
    )
    if pa.types.is_floating(kind):
        floats = np.empty(versions.group_count, np.float64)
        folded_floats = FoldedFloats(floats, valid)
        if is_unmarked:
            reduce_floats(operation, values, rows, folded_floats)
        else:
            fold_floats(operation, values, rows, marks, folded_floats)
        return _array(floats.astype(f"f{width}", copy=False), valid, kind)
    low, high = _bounds(kind)
    halves = 2 if pa.types.is_decimal(kind) else 1
    out = np.empty(halves * versions.group_count, np.int64)
    folded = FoldedIntegers(out, valid)
    fits = is_unmarked and reduce_integers(operation, values, rows, folded)
    if not fits or (operation == SUM and _beyond(out[::halves], low, high)):
        failed = fold_integers(operation, values, rows, marks, (low, high), folded)
        _Column(versions, name, kind).check(failed)
    if halves == 2:
        return _array(out, valid, kind)
    return _array(out.astype(f"i{width}", copy=False), valid, kind)


def _array(values: npt.NDArray[Any], valid: Bools, kind: pa.DataType) -> pa.Array:
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(valid), [bits, pa.py_buffer(values)])


def _beyond(out: Longs, low: int, high: int) -> bool:
    """Whether some sum does not fit."""
    if low == -(1 << 63) or not len(out):
        return False
    return bool(out.min() < low or out.max() > high)


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        most: int = 10**kind.precision - 1
        return -most, most
    half = 1 << (kind.bit_width - 1)
    return -half, half - 1


def _wide_sums(versions: Versions, name: str, kind: pa.DataType) -> pa.Array:
    count = versions.group_count
    low, high = np.empty(count, np.uint64), np.empty(count, np.uint64)
    valid = np.empty(count, np.bool_)
    limit = 10**kind.precision
    failed = sum_wide(
        versions.values(name, 16),
        versions.rows,
        NO_FLAGS if versions.retracts is None else versions.retracts,
        (np.uint64(limit & (2**64 - 1)), np.uint64(limit >> 64)),
        WideSums(low, high, valid),
    )
    _Column(versions, name, kind).check(failed)
    return _decimals(low, high, valid, kind)


def _decimals(low: Words, high: Words, valid: Bools, kind: pa.DataType) -> pa.Array:
    halves = np.empty((len(low), 2), np.uint64)
    halves[:, 0], halves[:, 1] = low, high
    return _array(halves, valid, kind)


class _Column(NamedTuple):
    """A column that is folded, for errors that name it."""

    versions: Versions
    name: str
    kind: pa.DataType

    def check(self, failed: int) -> None:
        """Raise InvalidInputError for what a kernel says of a group that failed."""
        if failed == NO_OVERFLOW:
            return
        group = failed if failed >= 0 else -2 - failed
        problem = (
            f"the result does not fit {self.kind}; use a wider type"
            if failed >= 0
            else "a retract of zero would divide by it; correct the row, or set 'ignore-retract'"
        )
        raise InvalidInputError(
            f"column {self.name!r}: {problem}",
            kind=ErrorKind.INVALID_ROWS,
            column=self.name,
            key=self.versions.key(group),
        )


def _decimal_products(versions: Versions, name: str, kind: pa.DataType) -> pa.Array:
    """Fold by rounds: the second version of every key at once, then the third, …

    Values travel as whole numbers of the smallest digit, in Arrow's widest decimals; each step is
    rounded half away from zero.
    """
    valid = versions.valid(name)
    valid_versions = versions.filtered(valid)
    if (
        valid_versions.retracts is not None
    ):  # dividing nothing leaves nothing: leading retracts do not count
        first_add = np.maximum.accumulate(
            np.where(valid_versions.retracts, np.int64(-1), valid_versions.group_of_each)
        )
        valid_versions = valid_versions.filtered(first_add == valid_versions.group_of_each)
    column = valid_versions.column(name).cast(pa.decimal256(kind.precision, kind.scale))
    sizes = np.diff(valid_versions.offsets)
    result = column.take(pa.array(valid_versions.offsets[:-1], mask=sizes == 0))
    for step in range(1, int(sizes.max(initial=0))):
        groups = np.flatnonzero(sizes > step)
        rows = valid_versions.offsets[groups] + step
        product, value = result.take(pa.array(groups)), column.take(pa.array(rows))
        divides = (
            np.zeros(len(rows), np.bool_)
            if valid_versions.retracts is None
            else valid_versions.retracts[rows]
        )
        next_product = _multiplied(
            product, value, divides, groups, _Column(valid_versions, name, kind)
        )
        mask = np.zeros(len(sizes), np.bool_)
        mask[groups] = True
        result = pc.replace_with_mask(result, pa.array(mask), next_product)
    return result.cast(kind)


def _multiplied(
    product: pa.Array, value: pa.Array, divides: Bools, groups: np.ndarray, column: _Column
) -> pa.Array:
    kind = column.kind
    zero = pa.scalar(0, value.type)
    by_zero = np.asarray(pc.equal(value, zero)) & divides
    if by_zero.any():
        column.check(-2 - int(groups[by_zero.argmax()]))
    next_product = pc.round(
        pc.multiply(product, value), kind.scale, round_mode="half_towards_infinity"
    )
    next_product = next_product.cast(pa.decimal256(76, kind.scale), safe=False)
    if divides.any():
        safe = pc.if_else(pc.equal(value, zero), pa.scalar(1, value.type), value)
        quotient = pc.divide(_unscaled(product, kind.scale), _unscaled(safe, 0))
        rounded = pc.round(quotient, 0, round_mode="half_towards_infinity")
        digits = rounded.cast(pa.decimal256(76 - kind.scale, 0))
        next_product = pc.if_else(pa.array(divides), _scaled_down(digits, kind.scale), next_product)
    limit = pa.scalar(10 ** (kind.precision - kind.scale), pa.decimal256(76, kind.scale))
    too_large = np.asarray(pc.greater_equal(pc.abs(next_product), limit))
    if too_large.any():
        column.check(int(groups[too_large.argmax()]))
    return next_product.cast(product.type)


def _unscaled(values: pa.Array, extra_digits: int) -> pa.Array:
    """Return decimals as whole numbers of their smallest digit, times ten to the `extra_digits`."""
    kind = values.type
    unscaled = pa.Array.from_buffers(
        pa.decimal256(kind.precision, 0), len(values), values.buffers(), offset=values.offset
    )
    if not extra_digits:
        return unscaled
    wide = unscaled.cast(pa.decimal256(kind.precision + extra_digits, extra_digits))
    return pa.Array.from_buffers(
        pa.decimal256(kind.precision + extra_digits, 0), len(wide), wide.buffers()
    )


def _scaled_down(unscaled: pa.Array, scale: int) -> pa.Array:
    """Return whole numbers of the smallest digit as decimals of a scale."""
    return pa.Array.from_buffers(
        pa.decimal256(76, scale), len(unscaled), unscaled.buffers(), offset=unscaled.offset
    )


# -- Functions that keep one of the values: first, last, greatest, least ---------------------------


@record
class LastValue(Aggregator):
    """The newest value, null or not; a retract leaves null."""

    takes_retracts: bool = True
    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        del name
        if versions.retracts is None:
            return NEWEST
        picked = last_rows(versions)
        retracted = picked >= 0
        retracted[retracted] = versions.retracts[picked[retracted]]
        picked[retracted] = -1
        return Picked(positions=picked)


@record
class LastNonNull(Aggregator):
    """The newest value that is not null; the retract of such a value leaves null."""

    takes_retracts: bool = True
    may_need_full_history: bool = True
    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        if not versions.has_nulls(name) and versions.retracts is None:
            return NEWEST
        if versions.retracts is None:
            values = versions.picked_values(name, backwards=True)
            if values is not None:
                return Computed(values=values)
        picked = valid_rows_of(versions, name, backwards=True)
        picked[self._taken_back(versions, picked)] = -1
        return Picked(positions=picked)

    def needs_full_history(self, versions: Versions, name: str) -> Bools | None:
        """A null by retract would look like no value at all, and let an older value through."""
        return self._taken_back(versions, valid_rows_of(versions, name, backwards=True))

    def _taken_back(self, versions: Versions, picked: Longs) -> Bools:
        is_picked: Bools = picked >= 0
        if versions.retracts is None:
            return np.zeros(len(picked), np.bool_)
        is_picked[is_picked] = versions.retracts[picked[is_picked]]
        return is_picked


@record
class FirstValue(Aggregator):
    """The oldest value, null or not."""

    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, "first_value")
        return Picked(
            positions=np.where(np.diff(versions.offsets) > 0, versions.offsets[:-1], np.int64(-1))
        )


@record
class FirstNonNull(Aggregator):
    """The oldest value that is not null."""

    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, "first_non_null_value")
        values = versions.picked_values(name, backwards=False)
        if values is not None:
            return Computed(values=values)
        return Picked(positions=valid_rows_of(versions, name, backwards=False))


@record
class Extreme(Aggregator):
    """The greatest value, or the `least`; false is below true. Nulls are passed over."""

    function: str
    least: bool = False
    keeps_single_row: bool = True

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, self.function)
        if (values := extremes(versions, name, least=self.least)) is not None:
            return Computed(values=values)
        words, valid = words_of([versions.column(name)])
        picked = np.empty(versions.group_count, np.int64)
        pick_greatest(words, valid, versions.offsets, self.least, False, picked)  # noqa: FBT003
        return Picked(positions=picked)


def valid_rows_of(versions: Versions, name: str, *, backwards: bool) -> Longs:
    """Return the oldest version with a value of each key (the newest if `backwards`), or -1."""
    picked = np.empty(versions.group_count, np.int64)
    pick_valid(versions.validity(name), versions.rows, backwards, picked)
    return picked
