"""What a function over the versions of one column has to offer."""

from typing import Protocol

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.kernels.arrow_views import Bools
from lsm_engine.merge.versions import Folded, Versions

NOTHING_LOST: Bools | None = None
"""The answer of functions whose result always stands for what was folded."""


class Aggregator(Protocol):
    """Folds a column of versions, oldest to newest, to one value per key. Pure.

    A retract takes its value back. Folding some neighbouring versions first, then the result with
    the others, must give the same; where a retract forbids that, `needs_full_history` is true.
    """

    @property
    def takes_retracts(self) -> bool:
        """Whether a value can be taken back."""
        ...

    @property
    def may_need_full_history(self) -> bool:
        """Whether `needs_full_history` can ever hold."""
        ...

    @property
    def keeps_single_row(self) -> bool:
        """Whether folding one version that adds gives its value back."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns to read beside the one that is folded."""
        ...

    def fold(self, versions: Versions, name: str) -> Folded:
        """Return each key's value; a key may have no version here, its value is then null."""
        ...

    def needs_full_history(self, versions: Versions, name: str) -> Bools | None:
        """Return the keys whose folded value cannot stand for their versions; None: no key's.

        Asked only if some version retracts. A retract may reach below what is folded here.
        """
        ...


def refuse_retracts(versions: Versions, name: str, function: str) -> None:
    """Raise InvalidInputError if some version retracts."""
    if versions.retracts is None:
        return
    group = int(versions.group_of_each[versions.retracts.argmax()])
    raise InvalidInputError(
        f"column {name!r}: function {function!r} cannot take values back; set "
        f"'fields.{name}.ignore-retract' = true, or write no -U and -D",
        kind=ErrorKind.INVALID_ROWS,
        column=name,
        key=versions.key(group),
    )
