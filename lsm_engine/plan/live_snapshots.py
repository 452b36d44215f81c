"""Which snapshot files count: the gapless chain up to the newest, and nothing below EARLIEST.

A writer that was stopped before its create can land on an id that expiry has passed, or above what a
rollback took. Such a file is a ghost: it was never part of the table (docs/commit-protocol.md). Three
facts distinguish it from a snapshot: expiry moves EARLIEST before an id becomes free; live ids have
no gap; and each snapshot names the one it was made on.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from lsm_engine.meta.snapshot import Snapshot

BASE = "lsm.base"
"""Property of a snapshot: the delta manifest list of the snapshot that it was made on."""

_T = TypeVar("_T")


def with_base(
    properties: Mapping[str, str] | None, base: Snapshot | None
) -> Mapping[str, str] | None:
    """Return properties that name the base; None for none at all."""
    if base is None:
        return properties or None
    return {**(properties or {}), BASE: base.delta_manifest_list}


def named_base(snapshot: Snapshot) -> str | None:
    """Return what a snapshot names as its base; None: nothing, as those of other clients."""
    return (snapshot.properties or {}).get(BASE)


def follows(newer: Snapshot, older: Snapshot) -> bool:
    """Whether `newer` may have been made on `older`: by its id, and by the base it names, if any."""
    return newer.id == older.id + 1 and named_base(newer) in (None, older.delta_manifest_list)


def is_built_on(newer: Snapshot | None, older: Snapshot) -> bool:
    """Whether `newer` names `older` as its base."""
    return newer is not None and named_base(newer) == older.delta_manifest_list


def believed(earliest: int | None, newest: int) -> int:
    """Return the id from which on snapshots count, 0 if EARLIEST is unknown or beyond the newest."""
    return earliest if earliest is not None and earliest <= newest else 0


def live_ids(listed: Sequence[int], *, earliest: int | None, latest: int | None) -> list[int]:
    """Return the ids that count, of those listed in ascending order, by ids alone.

    `earliest` must have been read after the listing: what was listed before expiry passed it is then
    no ghost. Of the runs without a gap the newest counts. A single id above a gap is what a rollback
    cut off from its base, unless LATEST, which only confirmed commits move, names it.
    """
    newest = listed[-1] if listed else 0
    counted = [number for number in listed if number >= believed(earliest, newest)]
    return _newest_run(counted, lambda older, newer: newer == older + 1, lambda top: top == latest)


def live_line(
    snapshots: Sequence[Snapshot], *, earliest: int | None, latest: int | None
) -> list[Snapshot]:
    """Return the snapshots that count, of those found in ascending order; see `live_ids`."""
    newest = snapshots[-1].id if snapshots else 0
    counted = [one for one in snapshots if one.id >= believed(earliest, newest)]
    return _newest_run(
        counted, lambda older, newer: follows(newer, older), lambda top: top.id == latest
    )


def _newest_run(
    found: Sequence[_T], is_next: Callable[[_T, _T], bool], is_confirmed: Callable[[_T], bool]
) -> list[_T]:
    cuts = [at for at, pair in enumerate(pairwise(found), 1) if not is_next(*pair)]
    bounds = [0, *cuts, len(found)]
    runs = [list(found[start:end]) for start, end in pairwise(bounds)]
    if len(runs) > 1 and len(runs[-1]) == 1 and not is_confirmed(runs[-1][0]):
        return runs[-2]
    return runs[-1]


def without_ghosts(
    snapshots: Sequence[Snapshot], *, earliest: int | None, latest: int | None
) -> list[Snapshot]:
    """Return all but ghosts: also what lies behind a gap, and what an expiry has passed but not deleted.

    Below EARLIEST those are no ghosts that lead up to it, each made on the one before.
    """
    start = believed(earliest, snapshots[-1].id if snapshots else 0)
    live = [one for one in snapshots if one.id >= start]
    if len(live) > 1 and not follows(live[-1], live[-2]) and live[-1].id != latest:
        live.pop()
    for one in reversed([one for one in snapshots if one.id < start]):
        if not follows(live[0], one):
            break
        live.insert(0, one)
    return live
