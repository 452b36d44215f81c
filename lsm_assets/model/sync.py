"""What to report to Dagster about commits made outside of it: a plan, as a value."""

from collections.abc import Collection, Sequence

from lsm_assets.model.partitions import in_order, snapshot_id_of, snapshot_partition
from lsm_engine import record

EVENTS_MAX = 20
"""Snapshots per table and tick that get events of their own: reporting one takes some 0.1 s."""


@record
class SyncPlan:
    """Partitions to add and to remove, and snapshots (ids, oldest first) to report."""

    add_snapshots: tuple[str, ...] = ()
    remove_snapshots: tuple[str, ...] = ()
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    report_snapshots: tuple[int, ...] = ()
    report_tags: tuple[str, ...] = ()
    is_recording: bool = False
    """Whether a run has committed and still has to record it: it reports the table's version itself."""


def plan_sync(
    *,
    live: Sequence[int],
    known: Collection[str],
    unrecorded_yet: Collection[int] = (),
    live_tags: Sequence[str] = (),
    known_tags: Collection[str] = (),
    seen_tags: Collection[str] = (),
    replaced: Collection[int] = (),
    events_max: int = EVENTS_MAX,
) -> SyncPlan:
    """Compare a table with the partitions that Dagster keeps for it.

    `known` and `known_tags` have to be read before `live` and `live_tags`: then a commit that comes
    in between is new, and never taken for expired. `unrecorded_yet` are snapshots that a running
    Dagster run has made and is about to record. A tag's partition is only removed if an earlier tick
    has seen the tag (`seen_tags`): people add the partition first, then make the tag. `replaced`:
    snapshots whose id now names another commit, after a rollback; they are reported again.
    """
    live_keys = [snapshot_partition(each) for each in live]
    fresh = [each for each in live if snapshot_partition(each) not in known]
    fresh = [each for each in fresh if each not in unrecorded_yet]
    to_report = sorted({*fresh, *replaced})
    gone = set(known) - set(live_keys)
    new_tags = [name for name in live_tags if name not in known_tags]
    dead_tags = (set(seen_tags) - set(live_tags)) & set(known_tags)
    return SyncPlan(
        add_snapshots=tuple(snapshot_partition(each) for each in fresh),
        remove_snapshots=tuple(in_order(key for key in gone if snapshot_id_of(key) is not None)),
        add_tags=tuple(new_tags),
        remove_tags=tuple(sorted(dead_tags)),
        report_snapshots=tuple(to_report[-events_max:]) if events_max else (),
        report_tags=tuple(new_tags[-events_max:]) if events_max else (),
        is_recording=bool(unrecorded_yet),
    )
