"""`record`, the decorator of all values: frozen, slotted, keyword-only."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Make `cls` an immutable value that compares by content, pickles, and is built by name.

    What a dataclass compiles for each class to compare, hash and print it is written once here: that was
    0.05 s at the start of each process.
    """
    own = vars(cls)
    make: Any = dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
    record_class: Any = make(cls)
    content = _content([field.name for field in fields(record_class) if field.compare])
    printed = [field.name for field in fields(record_class) if field.repr]

    def __eq__(self: Any, other: object) -> Any:
        return content(self) == content(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(content(self))

    def __repr__(self: Any) -> str:
        if "__str__" in own:
            # A report's sentence: its plan may hold hundreds of snapshots.
            return f"<{type(self).__qualname__}: {self}>"
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in printed)
        return f"{type(self).__qualname__}({values})"

    def _repr_html_(self: Any) -> str:
        members = [(name, value) for name in printed if (value := getattr(self, name)) is not None]
        return html_table(type(self).__qualname__, ("", ""), members)

    # A method that the class defines itself is kept.
    for method in (__eq__, __hash__, __repr__, _repr_html_):
        if own.get(method.__name__) is None:
            setattr(record_class, method.__name__, method)
    return record_class  # type: ignore[no-any-return]


_CELL_MAX = 400
"""Characters of a value that a notebook shows."""


def html_table(title: object, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows as a table for a notebook."""

    def cells(tag: str, values: Iterable[object]) -> str:
        texts = (
            text if len(text) <= _CELL_MAX else f"{text[:_CELL_MAX]}…" for text in map(str, values)
        )
        return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<p><b>{escape(str(title))}</b></p><table>{cells('th', headings)}{body}</table>"


def _content(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gets the attributes of these names, always as a tuple."""
    if len(names) > 1:  # of one name it would return the bare value
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)
