"""Recognize the own commit: replays, and publishes whose answer was lost."""

from collections.abc import Iterable
from enum import Enum

from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.proposal import CommitStep


def already_committed(step: CommitStep, snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """Return the snapshot that proves that `step` was committed before, or None.

    `snapshots` come newest first, of any user; reading stops at the first proof or disproof. The
    same uuid is a proof. So is, for numbered commits, the same (user, identifier, kind), or, where
    that is not there, the oldest greater identifier of the same user: identifiers of a user only grow,
    hence a step that is not followed by a smaller one has been here, even if its own snapshot has
    expired. BATCH commits share one identifier and are known by uuid alone.
    """
    numbered = step.commit_identifier != BATCH_COMMIT_IDENTIFIER
    later: Snapshot | None = None
    for snapshot in snapshots:
        if snapshot.uuid is not None and snapshot.uuid == step.uuid:
            return snapshot
        theirs = snapshot.commit_identifier
        if (
            not numbered
            or snapshot.commit_user != step.commit_user
            or theirs == BATCH_COMMIT_IDENTIFIER
        ):
            continue
        if theirs == step.commit_identifier and snapshot.commit_kind is step.kind:
            return snapshot
        if theirs < step.commit_identifier:
            break
        if theirs > step.commit_identifier:
            later = snapshot
    return later


class PublishOutcome(Enum):
    """The outcome of a publish whose answer was lost."""

    LANDED = "landed"
    """The snapshot is ours and visible."""
    LOST = "lost"
    """Another snapshot has the id: nothing of ours is visible, plan again."""
    ABSENT = "absent"
    """The id is free: publish the same bytes under the same id again."""
    UNKNOWN = "unknown"
    """The id has come and gone: whose it was is unknown, so nothing may be deleted."""


def resolve_publish(
    attempted: Snapshot, *, stored: Snapshot | None, latest_id: int | None
) -> PublishOutcome:
    """Return how an attempt to publish `attempted` ended.

    `stored` is the snapshot that has the id now, read after the attempt; `latest_id` the newest id,
    read after `stored`.
    """
    if stored is not None:
        assert stored.id == attempted.id, (stored.id, attempted.id)
        return PublishOutcome.LANDED if same_state(stored, attempted) else PublishOutcome.LOST
    # A newer snapshot stands on this id, which was used and freed: whose it was cannot be seen.
    if latest_id is not None and latest_id >= attempted.id:
        return PublishOutcome.UNKNOWN
    return PublishOutcome.ABSENT


def same_state(first: Snapshot | None, second: Snapshot | None) -> bool:
    """Whether two snapshots are the same commit: an id alone may be used again after a rollback."""
    if first is None or second is None:
        return first is second
    return (first.id, first.delta_manifest_list, first.uuid) == (
        second.id,
        second.delta_manifest_list,
        second.uuid,
    )
