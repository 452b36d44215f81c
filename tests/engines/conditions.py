"""Conditions on a column, and which rows meet them: as SQL has it, and IEEE for floating numbers."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.engines.kinds import Kind

COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NEGATED = "not "
KEYS_BELOW = 9
"""Conditions with `or` take rows by key too: those below this one."""
PATTERNS = ("%", "a%", "%a", "_", "a\\%%", "A%", " %", "", "é%", "\U0010ffff%")
PREFIXES = ("", "a", " ", "é", "\U0010ffff", "zz", "x" * 70)


@dataclass(frozen=True)
class Condition:
    """An operator over a column, with values; `not` before it turns it round, null aside.

    `or_key`: rows with small keys are kept as well.
    """

    operator: str
    values: tuple[Any, ...] = ()
    or_key: bool = False

    def __str__(self) -> str:
        return f"{self.operator} {', '.join(map(repr, self.values))}" + " or key" * self.or_key

    @property
    def negated(self) -> bool:
        return self.operator.startswith(NEGATED)

    @property
    def positive(self) -> str:
        """The operator without its `not`."""
        return self.operator.removeprefix(NEGATED)

    def keeps(self, key: int, value: Any) -> bool:
        """Whether a row is among those that the condition keeps."""
        if self.or_key and key < KEYS_BELOW:
            return True
        if self.positive == "is null":
            return (value is None) != self.negated
        return value is not None and self._holds(value) != self.negated

    def _holds(self, value: Any) -> bool:
        match self.positive:
            case "in":
                return any(value == other for other in self.values)
            case "between":
                low, high = self.values
                return bool(low <= value <= high)
            case "like":
                return re.fullmatch(_regex(self.values[0]), value, re.DOTALL) is not None
            case "starts with":
                return bool(value.startswith(self.values[0]))
            case comparison:
                return bool(COMPARED[comparison](value, self.values[0]))


def _regex(pattern: str) -> str:
    parts = re.findall(r"\\?.", pattern, re.DOTALL)
    return "".join(
        {"%": ".*", "_": "."}.get(part, re.escape(part.removeprefix("\\"))) for part in parts
    )


def conditions(kind: Kind) -> Iterator[Condition]:
    """Yield what a column of a type is asked."""
    for negation in ("", NEGATED):
        yield Condition(f"{negation}is null")
    if not kind.is_ordered:
        return
    literals = (*kind.values, *kind.beside)
    for value in literals:
        for comparison in COMPARED:
            yield Condition(comparison, (value,))
            yield Condition(NEGATED + comparison, (value,))
    for value in (literals[0], literals[len(literals) // 2]):
        for comparison in COMPARED:
            yield Condition(comparison, (value,), or_key=True)
    for negation in ("", NEGATED):
        for low, high in zip(literals[::2], literals[1::2], strict=False):
            yield Condition(f"{negation}between", (low, high))
            yield Condition(f"{negation}in", (low, high))
        yield Condition(f"{negation}in", literals)
        yield Condition(f"{negation}in", literals[-1:])
        if pa.types.is_string(kind.arrow):
            for pattern in PATTERNS:
                yield Condition(f"{negation}like", (pattern,))
            for prefix in PREFIXES:
                yield Condition(f"{negation}starts with", (prefix,))


def kept(condition: Condition, keys: list[int], values: list[Any]) -> list[int]:
    """Return the keys of the rows that meet a condition."""
    return sorted(
        key for key, value in zip(keys, values, strict=True) if condition.keeps(key, value)
    )
