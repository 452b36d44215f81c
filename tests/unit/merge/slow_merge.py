"""What several versions of one key become, folded one by one: written from semantics section 6 alone.

A version is a kind and a value. Functions see versions oldest first; `None` is SQL's null.
"""

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

ADD, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
RETRACTS = (UPDATE_BEFORE, DELETE)
Version = tuple[str, Any]


class DoesNotFitError(Exception):
    """The result is beyond the column's type."""


def folded(step: Callable[[Any, Any, bool], Any], versions: Sequence[Version]) -> Any:
    """Fold from null with `step(accumulator, value, retract)`."""
    accumulator = None
    for kind, value in versions:
        accumulator = step(accumulator, value, kind in RETRACTS)
    return accumulator


def sum_step(fits: Callable[[Any], Any]) -> Callable[[Any, Any, bool], Any]:
    def step(accumulator, value, retract):
        if value is None:
            return accumulator
        signed = -value if retract else value
        return fits(signed if accumulator is None else accumulator + signed)

    return step


def product_step(fits: Callable[[Any], Any], divide: Callable[[Any, Any], Any]):
    def step(accumulator, value, retract):
        if value is None:
            return accumulator
        if retract:
            return None if accumulator is None else fits(divide(accumulator, value))
        return value if accumulator is None else fits(accumulator * value)

    return step


def towards_zero(a: int, b: int) -> int:
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def fits_bits(bits: int) -> Callable[[int], int]:
    def fits(value: int) -> int:
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise DoesNotFitError
        return value

    return fits


def fits_decimal(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    def fits(value: Decimal) -> Decimal:
        with localcontext() as context:
            context.prec = 100
            rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
            if abs(rounded) >= Decimal(10) ** (precision - scale):
                raise DoesNotFitError
        return rounded

    return fits


def last_value(accumulator, value, retract):
    del accumulator
    return None if retract else value


def last_non_null_value(accumulator, value, retract):
    if value is None:
        return accumulator
    return None if retract else value


def in_java_order(value):
    """Compare floats as Double.compare does: NaN is the greatest, and -0.0 is below 0.0."""
    if not isinstance(value, float):
        return value
    return (True, 0.0, 0) if value != value else (False, value, math.copysign(1, value))


def greatest(accumulator, value, retract):
    assert not retract
    present = [one for one in (accumulator, value) if one is not None]
    return max(present, key=in_java_order) if present else None


def least(accumulator, value, retract):
    assert not retract
    present = [one for one in (accumulator, value) if one is not None]
    return min(present, key=in_java_order) if present else None


def list_agg(delimiter: str, *, distinct: bool):
    def step(accumulator, value, retract):
        assert not retract
        if value is None or not value.strip():
            return accumulator
        if accumulator is None:
            return value
        if not distinct:
            return accumulator + delimiter + value
        tokens = accumulator.split(delimiter)
        made = accumulator
        for token in value.split(delimiter):
            if token.strip() and token not in tokens:
                tokens.append(token)
                made += delimiter + token
        return made

    return step


def first_value(versions: Sequence[Version]) -> Any:
    return versions[0][1]


def first_non_null_value(versions: Sequence[Version]) -> Any:
    return next((value for _, value in versions if value is not None), None)


def collect(*, distinct: bool):
    def step(accumulator, value, retract):
        if value is None:
            return accumulator
        left = list(accumulator or [])
        for element in value:
            if retract:
                if element in left:
                    left.remove(element)
            elif not distinct or element not in left:
                left.append(element)
        return None if retract and accumulator is None else left

    return step


def merge_map(accumulator, value, retract):
    if value is None:
        return accumulator
    left = dict(accumulator or {})
    for key, item in value:
        left.pop(key, None)
        if not retract:
            left[key] = item
    return None if retract and accumulator is None else left


def merge_map_with_keytime(accumulator, value, retract):
    """Values are (time, payload) or null."""
    assert not retract
    if value is None or accumulator is None:
        return accumulator if value is None else dict(value)
    left = dict(accumulator)
    for key, item in value:
        if item is None:
            left.pop(key, None)
        elif item["t"] is not None:
            there = left.get(key)
            if there is None or there["t"] is None or item["t"] > there["t"]:
                left[key] = item
    return left


def nested_update(key: Sequence[str], sequence: Sequence[str], limit: int):
    def rank(row):
        return tuple((row[name] is not None, row[name] or 0) for name in sequence)

    def unkeyed(accumulator, value, retract):
        left = [] if accumulator is None else accumulator
        if retract:
            return None if accumulator is None else [row for row in left if row not in value]
        return (left + [row for row in value if row is not None])[: max(limit, len(left))]

    def keyed(accumulator, value, retract):
        if retract and accumulator is None:
            return None
        left = {tuple(row[name] for name in key): row for row in accumulator or []}
        for row in value:
            if row is None:
                continue
            name = tuple(row[part] for part in key)
            if retract:
                left.pop(name, None)
            elif name in left:
                if rank(row) >= rank(left[name]):
                    left[name] = row
            elif len(left) < limit:
                left[name] = row
        return list(left.values())

    def step(accumulator, value, retract):
        if value is None:
            return accumulator
        return (keyed if key else unkeyed)(accumulator, value, retract)

    return step


def nested_partial_update(key: Sequence[str]):
    def step(accumulator, value, retract):
        assert not retract
        if value is None:
            return accumulator
        left: dict[Any, dict[str, Any]] = {}
        for row in [*(accumulator or []), *value]:
            if row is None:
                continue
            there = left.setdefault(tuple(row[name] for name in key), dict.fromkeys(row))
            there.update({name: one for name, one in row.items() if one is not None})
        return list(left.values())

    return step


def column(function: Any, versions: Sequence[Version], *, ignore_retract: bool = False) -> Any:
    """The value of a column whose versions are several."""
    if ignore_retract:
        versions = [one for one in versions if one[0] not in RETRACTS]
        if not versions:
            return None
    if function in (first_value, first_non_null_value):
        return function(versions)
    return folded(function, versions)


Row = dict[str, Any]


def live_after(rows: Sequence[tuple[str, Row]], removes: Callable[[int], bool]):
    """The rows after the last that empties its key."""
    kept = list(rows)
    for at in range(len(rows)):
        if removes(at):
            kept = list(rows[at + 1 :])
    return kept


def group_of(
    rows: Sequence[tuple[str, Row]],
    sequence: Sequence[str],
    members: dict[str, Any],
) -> tuple[Row, list[int]]:
    """The columns of one sequence group, and the order in which functions take the rows."""
    state: Row = dict.fromkeys((*sequence, *members))
    clock: tuple[Any, ...] | None = None
    order: list[int] = []
    for at, (kind, row) in enumerate(rows):
        here = tuple(
            (row[name] is not None, row[name] if row[name] is not None else 0) for name in sequence
        )
        if not any(valid for valid, _ in here):
            continue
        if clock is not None and here < clock:
            order.insert(0, at)
            continue
        clock = here
        order.append(at)
        state.update({name: row[name] for name in sequence})
        for name in members:
            state[name] = None if kind in RETRACTS else row[name]
    for name, function in members.items():
        if function is not None:
            state[name] = column(function, [(rows[at][0], rows[at][1][name]) for at in order])
    return state, order
