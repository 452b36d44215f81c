"""The interface of aggregate functions over the versions of one column."""

from abc import ABC, abstractmethod

import numpy as np

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools
from lsm_engine.merge.versions import Folded, Versions


@record
class Aggregator(ABC):
    """Folds a column of versions, oldest to newest, to one value per key. Pure.

    A retract takes its value back. Folding some neighbouring versions first, then the result with
    the others, must give the same; where a retract forbids that, `needs_full_history` is true.
    `takes_retracts`: whether a value can be taken back. `may_need_full_history`: whether
    `needs_full_history` can ever hold. `adds_may_remove`: whether values that add can reach below, too.
    `keeps_single_row`: whether folding one version that adds gives its value back. `needs`: columns to
    read beside the one that is folded.
    """

    takes_retracts: bool = False
    may_need_full_history: bool = False
    adds_may_remove: bool = False
    keeps_single_row: bool = False
    needs: tuple[str, ...] = ()

    @abstractmethod
    def fold(self, versions: Versions, name: str) -> Folded:
        """Return each key's value; a key may have no version here, its value is then null."""

    def needs_full_history(self, versions: Versions, name: str) -> Bools | None:
        """Return the keys whose folded value cannot stand for their versions; None: no key's.

        Asked only if some version retracts. A retract may reach below what is folded here: those of
        which some version takes a value back, if that can happen at all.
        """
        if not self.may_need_full_history or versions.retracts is None:
            return None
        flags = versions.retracts & versions.valid(name)
        return np.bincount(versions.group_of_each[flags], minlength=versions.group_count) > 0

    def removes(self, versions: Versions, name: str) -> Bools:
        """Return the versions whose value removes something older though they add (`adds_may_remove`)."""
        del name
        return np.zeros(len(versions), np.bool_)


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
