"""The house's one kind of value: frozen, slotted, keyword-only."""

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make `cls` an immutable value that compares by content, pickles, and is built by name."""
    made: Any = dataclass(frozen=True, slots=True, kw_only=True)
    return made(cls)  # type: ignore[no-any-return]
