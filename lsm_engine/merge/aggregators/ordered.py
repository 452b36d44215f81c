"""Functions that keep one of the values: first, last, greatest, least."""

import numpy as np

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Bools, Longs
from lsm_engine.kernels.pick_rows import pick_greatest, pick_valid
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.aggregators.numeric import extremes
from lsm_engine.merge.ranks import words_of
from lsm_engine.merge.versions import NEWEST, Computed, Folded, Picked, Versions, last_rows


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
    bitmaps, shifts = versions.validity(name)
    pick_valid(bitmaps, shifts, versions.run, versions.row, versions.offsets, backwards, picked)
    return picked
