"""Which snapshot files count: the gapless chain up to the newest, and nothing below EARLIEST.

A writer that was stopped before its create can land on an id that expiry has passed, or above what a
rollback took. Such a file is an orphan snapshot: it was never part of the table (docs/commit-protocol.md). Three
facts distinguish it from a snapshot: expiry moves EARLIEST before an id becomes free; live ids have
no gap; and each snapshot names the one it was made on."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from lsm_engine.format.snapshot import Snapshot

BASE = "lsm.base"
"""Property of a snapshot: the delta manifest list of the snapshot that it was made on."""

OTHER_CLIENT = "lsm.other-client"
"""Property of a snapshot: the id of the newest snapshot below it that another client made, if that is near."""
_NEAR = 50
_OURS = "lsm-engine-"

ROLLBACK_TARGET = "lsm.rollback-to"
"""Property of a rollback marker: the id that the table returns to."""


RENAMED_TO = "lsm.renamed-to"
"""Property of the last snapshot of a branch that is being renamed: the new name. No commit is made on that."""

BRANCH_ID = "lsm.branch-id"
"""Property of the first snapshot of a branch of a tag: another one for each branch that is made of the tag."""


def branch_id(snapshot: Snapshot) -> str | None:
    """Return the id of the branch that begins with a snapshot; None: no branch begins with it."""
    return (snapshot.properties or {}).get(BRANCH_ID)


def renamed_to(snapshot: Snapshot | None) -> str | None:
    """Return the new name of a branch that ends with a snapshot, as it is being renamed; None: it is not."""
    return None if snapshot is None else (snapshot.properties or {}).get(RENAMED_TO)


def with_base(
    properties: Mapping[str, str] | None, base: Snapshot | None
) -> Mapping[str, str] | None:
    """Return properties that name the base, and another client near below; None for none at all."""
    if base is None:
        return properties or None
    own_properties = {**(properties or {}), BASE: base.delta_manifest_list}
    # Handed on for some commits: another client that renames over files may still be active.
    foreign_id = base.id if is_of_another_client(base) else _other_client(base)
    if foreign_id is not None and base.id - foreign_id < _NEAR:
        own_properties[OTHER_CLIENT] = str(foreign_id)
    return own_properties


def is_of_another_client(snapshot: Snapshot) -> bool:
    """Whether another client made it: ours name their base, or at least the version that wrote them."""
    return named_base(snapshot) is None and not (snapshot.writer_version or "").startswith(_OURS)


def is_beside_others(snapshot: Snapshot) -> bool:
    """Whether a snapshot of ours was made where another client has committed lately."""
    return _other_client(snapshot) is not None


def _other_client(snapshot: Snapshot) -> int | None:
    text = (snapshot.properties or {}).get(OTHER_CLIENT, "")
    return int(text) if text.isdecimal() else None


def named_base(snapshot: Snapshot) -> str | None:
    """Return what a snapshot names as its base; None: nothing, as those of other clients."""
    return (snapshot.properties or {}).get(BASE)


def follows(newer: Snapshot, older: Snapshot) -> bool:
    """Whether `newer` may have been made on `older`: by its id, and by the base it names, if any."""
    return newer.id == older.id + 1 and named_base(newer) in (None, older.delta_manifest_list)


def adds_up(newer: Snapshot, older: Snapshot) -> bool | None:
    """Whether the total of `newer` is that of `older` plus its delta; None where a count is missing."""
    before, after, delta = (
        older.total_record_count,
        newer.total_record_count,
        newer.delta_record_count,
    )
    if before is None or after is None or delta is None:
        return None
    return after == before + delta


def is_built_on(newer: Snapshot | None, older: Snapshot) -> bool:
    """Whether `newer` names `older` as its base."""
    return newer is not None and named_base(newer) == older.delta_manifest_list


def rollback_target(snapshot: Snapshot) -> int | None:
    """Return the id that a rollback marker leads to; None for every other snapshot."""
    # Damaged text makes no marker: the snapshot would take others away.
    text = (snapshot.properties or {}).get(ROLLBACK_TARGET)
    return int(text) if text is not None and text.isdecimal() else None


def believed(earliest: int | None, newest: int) -> int:
    """Return the id from which on snapshots count, 0 if EARLIEST is unknown or beyond the newest."""
    # EARLIEST beyond the newest id is garbage, and must not hide the table.
    return earliest if earliest is not None and earliest <= newest else 0


def lost_below(earliest: int | None, oldest: Snapshot) -> range:
    """Return the ids from EARLIEST up to the oldest snapshot, whose files an expiry of ours would have left.

    Empty where another client is about: Java's moves EARLIEST after it has deleted.
    """
    # An expiry of Java moves EARLIEST after its deletions: missing files are no loss.
    may_lag = is_of_another_client(oldest) or is_beside_others(oldest)
    return range(0) if may_lag or not earliest or earliest < 0 else range(earliest, oldest.id)


def is_cut_off(top: Snapshot, below: Snapshot | None, *, latest: int | None) -> bool:
    """Whether the topmost snapshot was never part of the table, or is not any more.

    What stands alone, above a gap or made on another than the one below, is what a rollback cut off,
    unless LATEST, which only confirmed commits move, names it. A rollback marker that stands alone has done its work.
    """
    if below is not None and follows(top, below):
        return False
    return rollback_target(top) is not None or top.id != latest


def is_target_below(
    first: Snapshot, below: Snapshot, its_base: Snapshot | None = None, *, latest: int | None
) -> bool:
    """Whether a rollback, and no expiry, took the base of a snapshot: `below`, the newest under it, is what it led to.

    LATEST names that, or it stands on its own base. EARLIEST may lie above: an expiry that was stopped before it
    moved that goes on when the rollback has ended. What an expiry leaves below EARLIEST leads up to it, or is
    an orphan snapshot: alone, and not named by LATEST; it takes the oldest first. After a power cut any of them may be
    there again, on their bases: of a snapshot that EARLIEST names ask without `its_base`, unless its base was there since.
    """
    if follows(first, below):
        return False
    return below.id == latest or (its_base is not None and is_built_on(below, its_base))


def newest_run(ids: Sequence[int]) -> list[int]:
    """Return the newest of the runs without a gap, of ids in ascending order."""
    gaps = [index for index, (older, newer) in enumerate(pairwise(ids), 1) if newer != older + 1]
    return list(ids[gaps[-1] if gaps else 0 :])


def linked_run(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Return the newest run, of snapshots in ascending order, in which each follows the one before."""
    cuts = [
        index for index, pair in enumerate(pairwise(snapshots), 1) if not follows(pair[1], pair[0])
    ]
    return list(snapshots[cuts[-1] if cuts else 0 :])


def without_orphan_snapshots(
    snapshots: Sequence[Snapshot], *, earliest: int | None, latest: int | None
) -> list[Snapshot]:
    """Return all but orphan snapshots: also what lies behind a gap, and what an expiry has passed but not deleted.

    Below EARLIEST those are no orphan snapshots that lead up to it, each made on the one before.
    """
    start = believed(earliest, snapshots[-1].id if snapshots else 0)
    passed = [snapshot for snapshot in snapshots if snapshot.id < start]
    live = list(snapshots[len(passed) :])
    # What lies below a snapshot that EARLIEST names may be there again after a power cut.
    under = 2 if passed and start < live[0].id else 1
    if passed and is_target_below(live[0], *passed[-under:][::-1], latest=latest):
        live, passed = list(snapshots), []
    while len(live) > 1 and is_cut_off(live[-1], live[-2], latest=latest):
        live.pop()
    for passed_snapshot in reversed(passed):
        if not follows(live[0], passed_snapshot):
            break
        live.insert(0, passed_snapshot)
    return live


# -- Times of snapshots under a wrong clock --------------------------------------------------------
#
# One stamp from the year 2100 does not stop expiry.

CLOCK_DRIFT_MAX_MILLIS = 24 * 3600 * 1000
"""How far clocks of writers may be apart before one of them is taken to be wrong."""


def is_far_ahead(time_millis: int, now_millis: int) -> bool:
    """Whether a stamp lies so far after `now_millis` that its clock was wrong."""
    return time_millis - now_millis > CLOCK_DRIFT_MAX_MILLIS


def latest_possible_times(times: Sequence[int]) -> list[int]:
    """Return when each snapshot was made at the latest: no later than any that followed it.

    `times`: the stamps, oldest snapshot first.
    """
    return list(accumulate(reversed(times), min))[::-1]
