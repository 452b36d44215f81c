"""Which files may hold which of a batch's keys, by their key ranges: slices of sorted keys, not pairs.

With the keys sorted, a file's candidates are one slice of them. A thousand files and a hundred thousand
keys are then a thousand pairs of numbers, whatever the ranges.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from lsm_engine.base.errors import CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.kernels.arrow_views import Longs
from lsm_engine.kernels.keys import SortKeys, lower_bound, upper_bound

USELESS_SHARE = 0.9
"""Ranges that leave more than this share of all pairs are passed over: what they spare is less than
they vary by. A slice costs nothing once it is known, so that half of the pairs is much to spare.
"""


@record
class KeySpan:
    """The smallest and the greatest key of a file, as bytes that compare; None: not known."""

    file_name: str
    lowest: bytes | None
    highest: bytes | None


class KeySpans(Protocol):
    """The key ranges of some files, gone through once."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[KeySpan]: ...


@record
class Candidates:
    """File i may hold the sorted keys from `starts[i]` to `stops[i]`. `text` explains why."""

    starts: Longs
    stops: Longs
    pruned: bool
    text: str


def candidates_by_range(spans: KeySpans, keys: SortKeys, *, enabled: bool = True) -> Candidates:
    """Return which keys each file may hold, both ends of its range included.

    A file without a range may hold all. Where ranges overlap so much that they leave most pairs, as
    those of random keys do, they are not used, which `text` states. Raises CorruptFileError,
    naming the file, for a range the wrong way round.
    """
    count, files = len(keys), len(spans)
    starts, stops = np.zeros(files, np.int64), np.full(files, count, np.int64)
    everything = files * count
    if not enabled:
        return Candidates(
            starts=starts, stops=stops, pruned=False, text="ranges not used: switched off"
        )
    for index, span in enumerate(spans):
        if span.lowest is None or span.highest is None:
            continue
        if span.lowest > span.highest:
            raise CorruptFileError(
                "a file's smallest key is above its greatest; restore it, or run verify",
                file=span.file_name,
            )
        starts[index] = lower_bound(keys, span.lowest)
        stops[index] = upper_bound(keys, span.highest)
    pair_count = int((stops - starts).sum())
    share = pair_count / everything if everything else 0.0
    if share > USELESS_SHARE and files > 1:
        return Candidates(
            starts=np.zeros(files, np.int64),
            stops=np.full(files, count, np.int64),
            pruned=False,
            text=f"ranges not used: they leave {share:.0%} of the pairs of keys and files",
        )
    return Candidates(
        starts=starts,
        stops=stops,
        pruned=True,
        text=f"ranges leave {pair_count} of {everything} pairs of keys and files",
    )
