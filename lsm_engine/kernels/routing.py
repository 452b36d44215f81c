"""Group rows by a small number each, such as the number of their bucket."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.compiled import compiled

# Beyond this many groups per row, counting them costs more than sorting the rows.
_SPARSE = 8


@record
class RowGroups:
    """Rows grouped: `order[starts[i]:starts[i + 1]]` are the rows of group `ids[i]`, as they came.

    `ids` ascend and name groups that have rows only; `starts` has one entry more, the row count.
    """

    order: Longs
    ids: Longs
    starts: Longs

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield each group's id, and where its rows start and stop in `order`."""
        bounds = self.starts.tolist()
        yield from zip(self.ids.tolist(), bounds[:-1], bounds[1:], strict=True)


def group_rows(ids: NDArray[np.integer], group_count: int) -> RowGroups:
    """Group rows by `ids`, each in 0 to `group_count` - 1; rows of a group keep their order."""
    numbers = np.ascontiguousarray(ids, np.int64)
    assert not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < group_count
    if group_count > max(_SPARSE * len(numbers), 1024):
        order = np.argsort(numbers, kind="stable").astype(np.int64, copy=False)
        present, firsts = np.unique(numbers[order], return_index=True)
        return RowGroups(order=order, ids=present, starts=np.append(firsts, len(numbers)))
    order = np.empty(len(numbers), np.int64)
    begins = np.zeros(group_count + 1, np.int64)
    _counting_sort(numbers, begins, order)
    present = np.flatnonzero(np.diff(begins))
    starts = np.append(begins[present], len(numbers))
    return RowGroups(order=order, ids=present, starts=starts)


# Compiles in about 0.3 s.
@compiled
def _counting_sort(numbers: Longs, begins: Longs, order: Longs) -> None:
    """Fill `begins` with the first place of each group, and `order` with the rows in their places."""
    for row in range(len(numbers)):
        begins[numbers[row] + 1] += 1
    for group in range(1, len(begins)):
        begins[group] += begins[group - 1]
    next_place = np.empty(len(begins), np.int64)
    for group in range(len(begins)):
        next_place[group] = begins[group]
    for row in range(len(numbers)):
        place = next_place[numbers[row]]
        next_place[numbers[row]] = place + 1
        order[place] = row
