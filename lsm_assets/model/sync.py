"""Plan what to report to Dagster about commits of other clients."""

from collections.abc import Collection, Sequence

from lsm_assets.model.partitions import (
    parse_snapshot_partition,
    snapshot_partition,
    sorted_snapshot_partitions,
)
from lsm_engine import record

EVENTS_MAX = 20
"""Snapshots per table and tick that get events: reporting one takes about 0.1 s."""


@record
class SyncPlan:
    """Partitions to add and to remove, and snapshots (ids, oldest first) and tags to report.

    `is_recording`: a running Dagster run has committed and will record its commit. It then reports the table's
    version itself.
    """

    add_snapshots: tuple[str, ...] = ()
    remove_snapshots: tuple[str, ...] = ()
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    report_snapshots: tuple[int, ...] = ()
    report_tags: tuple[str, ...] = ()
    is_recording: bool = False


def plan_sync(
    *,
    live_ids: Sequence[int],
    known_partitions: Collection[str],
    unrecorded_ids: Collection[int] = (),
    live_tags: Sequence[str] = (),
    known_tags: Collection[str] = (),
    seen_tags: Collection[str] = (),
    replaced_ids: Collection[int] = (),
    events_max: int = EVENTS_MAX,
) -> SyncPlan:
    """Compare a table with the partitions that Dagster has for it.

    Read `known_partitions` and `known_tags` before `live_ids` and `live_tags`. A commit between the two reads is then
    new; in the other order it would look expired.

    Args:
        live_ids: Live snapshots, oldest first.
        known_partitions: Snapshot partitions in Dagster.
        unrecorded_ids: Snapshots of a running Dagster run, which will record them.
        live_tags: Tags of the table.
        known_tags: Tag partitions in Dagster.
        seen_tags: Tags that an earlier tick has seen.
        replaced_ids: Snapshots whose id names another commit since a rollback. They are reported again.
        events_max: Newest snapshots, and tags, that get events.
    """
    live_keys = [snapshot_partition(snapshot_id) for snapshot_id in live_ids]
    fresh = [
        snapshot_id
        for snapshot_id in live_ids
        if snapshot_partition(snapshot_id) not in known_partitions
    ]
    fresh = [snapshot_id for snapshot_id in fresh if snapshot_id not in unrecorded_ids]
    to_report = sorted({*fresh, *replaced_ids})
    expired_keys = set(known_partitions) - set(live_keys)
    new_tags = [name for name in live_tags if name not in known_tags]
    # Users add the partition first and then materialise it. A tag that no tick has seen may still be created.
    dead_tags = (set(seen_tags) - set(live_tags)) & set(known_tags)
    return SyncPlan(
        add_snapshots=tuple(snapshot_partition(snapshot_id) for snapshot_id in fresh),
        remove_snapshots=tuple(
            sorted_snapshot_partitions(
                key for key in expired_keys if parse_snapshot_partition(key) is not None
            )
        ),
        add_tags=tuple(new_tags),
        remove_tags=tuple(sorted(dead_tags)),
        report_snapshots=tuple(to_report[-events_max:]) if events_max else (),
        report_tags=tuple(new_tags[-events_max:]) if events_max else (),
        is_recording=bool(unrecorded_ids),
    )
