"""The predicate tree: a filter on the columns of one schema, as pruning reasons about it.

A predicate is true, false or null for a row; a filter keeps the rows for which it is true.
`filter/binding.py` makes trees of predicates, `filter/expression.py` Arrow expressions of trees.
"""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.record import record


class Comparison(Enum):
    """How a column is compared; the value is Arrow's name of the function."""

    EQUAL = "equal"
    NOT_EQUAL = "not_equal"
    LESS = "less"
    LESS_EQUAL = "less_equal"
    GREATER = "greater"
    GREATER_EQUAL = "greater_equal"

    @property
    def inverse(self) -> "Comparison":
        """The comparison that is true if this one is false, but for NaN and null."""
        return _INVERSE[self]

    @property
    def mirrored(self) -> "Comparison":
        """The comparison with its operands exchanged."""
        return _MIRRORED[self]


_INVERSE = {
    Comparison.EQUAL: Comparison.NOT_EQUAL,
    Comparison.NOT_EQUAL: Comparison.EQUAL,
    Comparison.LESS: Comparison.GREATER_EQUAL,
    Comparison.LESS_EQUAL: Comparison.GREATER,
    Comparison.GREATER: Comparison.LESS_EQUAL,
    Comparison.GREATER_EQUAL: Comparison.LESS,
}
_MIRRORED = {
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.NOT_EQUAL: Comparison.NOT_EQUAL,
    Comparison.LESS: Comparison.GREATER,
    Comparison.LESS_EQUAL: Comparison.GREATER_EQUAL,
    Comparison.GREATER: Comparison.LESS,
    Comparison.GREATER_EQUAL: Comparison.LESS_EQUAL,
}


@record
class And:
    """Every part is true."""

    parts: "tuple[Predicate, ...]"


@record
class Or:
    """Some part is true."""

    parts: "tuple[Predicate, ...]"


@record
class Not:
    """The part is false (not: null)."""

    part: "Predicate"


@record
class Compare:
    """A column against a value that is not null; null rows compare to null."""

    column: str
    comparison: Comparison
    value: pa.Scalar


@record
class IsIn:
    """A column against a set without nulls. A null row gives `null_matches`, never null."""

    column: str
    values: pa.Array
    null_matches: bool = False


@record
class StartsWith:
    """A text column that begins with `prefix`."""

    column: str
    prefix: str


@record
class IsNull:
    """A column that is null."""

    column: str


@record
class IsValid:
    """A column that is not null."""

    column: str


@record
class Constant:
    """The same for every row; None is null."""

    value: bool | None


class RowExpression(Protocol):
    """An expression of SQL that gives a boolean for each row."""

    @property
    def text(self) -> str:
        """The expression as it is shown."""

    def flags(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """Return its value for each row."""


@record
class Opaque:
    """An expression that only Arrow can evaluate, and the columns that it reads."""

    columns: tuple[str, ...]
    expression: pc.Expression

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and bool(self.expression.equals(other.expression))

    def __hash__(self) -> int:
        return hash(self.columns)


@record
class Computed:
    """An expression of SQL that is computed for each row, the columns that it reads, and its text."""

    columns: tuple[str, ...]
    expression: RowExpression

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Computed) and self.expression.text == value.expression.text

    def __hash__(self) -> int:
        return hash(self.expression.text)


Predicate: TypeAlias = (
    And | Or | Not | Compare | IsIn | StartsWith | IsNull | IsValid | Constant | Opaque | Computed
)
TRUE = Constant(value=True)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Return the columns that a predicate reads."""
    match predicate:
        case And() | Or():
            return frozenset().union(*(columns_of(part) for part in predicate.parts))
        case Not():
            return columns_of(predicate.part)
        case Constant():
            return frozenset()
        case Opaque() | Computed():
            return frozenset(predicate.columns)
        case Compare() | IsIn() | StartsWith() | IsNull() | IsValid():
            return frozenset((predicate.column,))


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """Return the flat conjunction of `parts`; without parts it is true."""
    flat = [leaf for part in parts for leaf in conjuncts_of(part) if leaf != TRUE]
    return flat[0] if len(flat) == 1 else And(parts=tuple(flat)) if flat else TRUE


def conjuncts_of(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the conjuncts of a predicate: it is true if all of them are."""
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(leaf for part in predicate.parts for leaf in conjuncts_of(part))


def split_conjuncts(
    predicate: Predicate, pushable: Collection[str]
) -> tuple[Predicate | None, Predicate | None]:
    """Return (pushed, residual), each None if empty; both together are `predicate`.

    Pushed conjuncts read only `pushable` columns. Below a merge these are the key and partition
    columns: every version of a key agrees on them, while a filter on a value column could hide the
    newest version and let an older one appear (semantics section 3).
    """
    names = frozenset(pushable)
    pushed = [part for part in conjuncts_of(predicate) if columns_of(part) <= names]
    residual = [part for part in conjuncts_of(predicate) if not columns_of(part) <= names]
    return (all_of(pushed) if pushed else None, all_of(residual) if residual else None)


def implied_on(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """Return the condition that `predicate` implies for `columns` alone.

    The result is true for every row for which `predicate` is true, and may be true for more; it is
    the constant true if nothing is known.
    """
    names = frozenset(columns)
    # A part on these columns alone holds as it is.
    if columns_of(predicate) <= names:
        return predicate
    match predicate:
        case And():
            return all_of(implied_on(part, names) for part in predicate.parts)
        case Or():
            parts = tuple(implied_on(part, names) for part in predicate.parts)
            return TRUE if TRUE in parts else Or(parts=parts)
        case _:
            return TRUE
