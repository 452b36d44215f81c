"""Predicates that are not bound to a schema: `col("price") > 5`, joined by &, | and ~.

SQL text (`filter/sql.py`) and Arrow expressions (`filter/expression.py`) become these values too.
`filter/binding.py` binds them to the columns of a table.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NoReturn, ParamSpec, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.arguments import checks_arguments
from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.filter.predicate import Comparison, RowExpression

P = ParamSpec("P")


class Predicate:
    """A condition on rows: true, false, or null where a value is null, as in SQL; `is_null` is never null."""

    __slots__ = ()

    def __and__(self, other: "Predicate") -> "Predicate":
        return AllOf(parts=(*_parts(AllOf, self), *_parts(AllOf, _predicate(other))))

    def __or__(self, other: "Predicate") -> "Predicate":
        return AnyOf(parts=(*_parts(AnyOf, self), *_parts(AnyOf, _predicate(other))))

    def __rand__(self, other: object) -> "Predicate":
        return _predicate(other) & self

    def __ror__(self, other: object) -> "Predicate":
        return _predicate(other) | self

    def __invert__(self) -> "Predicate":
        return Negated(part=self)

    def __bool__(self) -> bool:
        raise InvalidInputError(
            "a predicate is neither true nor false by itself: join with & and | and ~ instead of and, "
            "or, not, put each comparison in parentheses, and write between(low, high) for a chain",
            kind=ErrorKind.INVALID_FILTER,
        )


_One: TypeAlias = Predicate | str | pc.Expression
Filter: TypeAlias = _One | Sequence[_One]
"""A filter: a predicate, SQL text, an Arrow expression, or a list of filters that all have to hold."""


@record
class AllOf(Predicate):
    """Every part is true."""

    parts: tuple[Predicate, ...]


@record
class AnyOf(Predicate):
    """Some part is true."""

    parts: tuple[Predicate, ...]


@record
class Negated(Predicate):
    """The part is false."""

    part: Predicate


@record
class Test(Predicate):
    """A column against a value that is not null."""

    column: str
    comparison: Comparison
    value: object


@record
class ColumnTest(Predicate):
    """A column against another."""

    column: str
    comparison: Comparison
    other_column: str


@record
class Among(Predicate):
    """A column against a set without nulls. `null_is`: the result for a null row."""

    column: str
    values: object
    null_is: bool | None = None


@record
class LikePattern(Predicate):
    """A text column against an SQL pattern: % any text, _ any letter, \\ before either for itself."""

    column: str
    pattern: str


@record
class Prefix(Predicate):
    """A text column that begins with `text`."""

    column: str
    text: str


@record
class NullTest(Predicate):
    """A column that is null."""

    column: str


@record
class Fixed(Predicate):
    """The same for every row; None is null."""

    value: bool | None


@record
class Computed(Predicate):
    """An expression of SQL over these columns, which is computed for each row. It prunes no file."""

    columns: tuple[str, ...]
    expression: RowExpression


@record
class Unknown(Predicate):
    """A part that only Arrow evaluates. It prunes no file."""


@record
class TypedText:
    """A value of SQL with its type in front, such as DATE '2024-05-01'; `kind` in small letters."""

    kind: str
    text: str


class Column(Predicate):
    """A column by name: compare it with values or other columns. A boolean one is a predicate itself."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"col({self.name!r})"

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._test(Comparison.EQUAL, other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._test(Comparison.NOT_EQUAL, other)

    def __lt__(self, other: object) -> Predicate:
        return self._test(Comparison.LESS, other)

    def __le__(self, other: object) -> Predicate:
        return self._test(Comparison.LESS_EQUAL, other)

    def __gt__(self, other: object) -> Predicate:
        return self._test(Comparison.GREATER, other)

    def __ge__(self, other: object) -> Predicate:
        return self._test(Comparison.GREATER_EQUAL, other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: object) -> NoReturn:
        raise _wrong(
            f"a filter does not compute: write an Arrow expression, pc.field({self.name!r}) + 1 > 2",
            self.name,
        )

    def __neg__(self) -> NoReturn:
        self.__add__(None)

    __len__ = __abs__ = __neg__
    __iter__ = None

    def __contains__(self, item: object) -> NoReturn:
        raise _wrong("`in` asks nothing here: write like('%part%'), or is_in(values)", self.name)

    def __getitem__(self, field: object) -> NoReturn:
        raise _wrong(
            f"of a nested field write an Arrow expression, pc.field({self.name!r}, {field!r}) == value",
            self.name,
        )

    __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __add__
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __add__

    def between(self, low: object, high: object) -> Predicate:
        """From `low` to `high`, both included."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Iterable[object]) -> Predicate:
        """One of `values`: a list, a set, Arrow or NumPy arrays; without nulls."""
        candidates = values
        if isinstance(values, pa.ChunkedArray):
            candidates = values.combine_chunks()
        elif isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise _wrong(f"is_in takes a list of values, not {values!r}", self.name)
        elif not isinstance(values, pa.Array):
            candidates = tuple(values)
        has_null = (
            candidates.null_count
            if isinstance(candidates, pa.Array)
            else any(v is None for v in candidates)
        )
        if has_null:
            raise _wrong("nothing equals null: leave it out, and add | is_null()", self.name)
        return Among(column=self.name, values=candidates)

    def is_null(self) -> Predicate:
        """No value."""
        return NullTest(column=self.name)

    def is_not_null(self) -> Predicate:
        """Some value."""
        return ~NullTest(column=self.name)

    def like(self, pattern: str) -> Predicate:
        """Text of an SQL pattern: % is any text, _ any letter, and \\ before either means itself."""
        return LikePattern(column=self.name, pattern=_text(pattern, self.name))

    def starts_with(self, prefix: str) -> Predicate:
        """Text that begins with `prefix`."""
        return Prefix(column=self.name, text=_text(prefix, self.name))

    def _test(self, comparison: Comparison, operand: object) -> Predicate:
        if isinstance(operand, Column):
            return ColumnTest(column=self.name, comparison=comparison, other_column=operand.name)
        if operand is None or (isinstance(operand, pa.Scalar) and not operand.is_valid):
            raise _wrong("nothing compares with null: write is_null() or is_not_null()", self.name)
        if isinstance(operand, Predicate | pc.Expression):
            raise _wrong("a column is compared with a value or a column", self.name)
        return Test(column=self.name, comparison=comparison, value=operand)


class _ByName(Generic[P]):
    """A function of a column's name that has columns as attributes as well."""

    def __init__(self, function: Callable[P, Column]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Column:
        return self._function(*args, **kwargs)

    def __getitem__(self, name: str) -> Column:
        column: Any = self._function
        result: Column = column(name)
        return result

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):  # Python and its tools look these up on any object
            raise AttributeError(name)
        return Column(name)


@_ByName
@checks_arguments
def col(name: str) -> Column:
    """Return a column to compare: `col("price") > 5`, `col.price > 5`, `col("dt").is_in(["2026-01-01"])`."""
    return Column(name)


def _parts(kind: type[AllOf | AnyOf], predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the parts of a predicate of the same kind, else the predicate itself."""
    return predicate.parts if isinstance(predicate, kind) else (predicate,)


def _predicate(value: object) -> Predicate:
    if isinstance(value, Predicate):
        return value
    raise InvalidInputError(
        f"a predicate is joined with a predicate, not {value!r}; put each comparison in parentheses, "
        "such as (col('a') > 1) & (col('b') == 2)",
        kind=ErrorKind.INVALID_FILTER,
    )


def _text(value: object, column: str) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(f"the pattern is text, not {value!r}", column)


def _wrong(message: str, column: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {column!r}: {message}", kind=ErrorKind.INVALID_FILTER, column=column
    )
