"""What is left of a stream of additions and removals, each to one of many small collections.

`ids` number the (collection, key) pairs densely from 0, `groups` the collections. Entries come in
the order in which they happen; entries of one group need not be neighbours.
"""

import numpy as np

from lsm_engine.kernels.arrow_views import Bools, Longs, Words
from lsm_engine.kernels.compiled import compiled

NO_LIMIT = np.iinfo(np.int64).max


# --- compiled loops: about 0.2 s each -------------------------------------------------------------


@compiled
def latest_of_keys(
    ids: Longs,
    groups: Longs,
    removes: Bools,
    words: Words,
    limit: int,
    current: Longs,
    sizes: Longs,
) -> None:
    """Write the entry that stands for each id into `current` (-1: none); the later one stands.

    An entry replaces one whose word is not above its own. A key that is new to its group is not
    taken while the group holds `limit` keys. `current` and `sizes` come filled with -1 and 0.
    """
    for entry in range(len(ids)):
        number, group = ids[entry], groups[entry]
        standing = current[number]
        if removes[entry]:
            if standing >= 0:
                current[number] = -1
                sizes[group] -= 1
        elif standing >= 0:
            if words[entry] >= words[standing]:
                current[number] = entry
        elif sizes[group] < limit:
            current[number] = entry
            sizes[group] += 1


@compiled
def remaining(
    ids: Longs,
    removes: Bools,
    once: bool,  # noqa: FBT001 -- compiled functions take arguments by position
    is_exhaustive: bool,  # noqa: FBT001 -- as above
    heads: Longs,
    tails: Longs,
    following: Longs,
    survives: Bools,
) -> None:
    """Flag the additions that are left: a removal takes the oldest of its id, or `every` one.

    With `once` an addition counts only while no other of its id is there. `heads` and `tails` (one
    per id) and `following` (one per entry) come filled with -1, `kept` with False.
    """
    for entry in range(len(ids)):
        number = ids[entry]
        if removes[entry]:
            while heads[number] >= 0:
                survives[heads[number]] = False
                heads[number] = following[heads[number]]
                if not is_exhaustive:
                    break
            continue
        if heads[number] < 0:
            heads[number] = entry
        elif once:
            continue
        else:
            following[tails[number]] = entry
        tails[number] = entry
        survives[entry] = True
