"""The rollback marker: the snapshot by which it is decided, and what readers take from it.

A rollback marker stands on the newest snapshot and holds the state of an older one, the target, with the target's
own manifest lists. While it is there, the table is at the target: what lies between is about to be
deleted, and no commit builds on it (docs/commit-protocol.md).
"""

from collections.abc import Sequence
from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER
from lsm_engine.base.version import WRITER_VERSION
from lsm_engine.format.documents import COMMIT_IDENTIFIERS, carried
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.snapshot_chain import (
    ROLLBACK_TARGET,
    follows,
    rollback_target,
    with_base,
)
from lsm_engine.planning.tags import without_changelog

FIRST = "lsm.rollback-first"
"""Property of a rollback marker: the delta manifest list of the snapshot that goes first, the one above the target."""
_REPLACES = "lsm.rollback-replaces"
"""Property of the marker of a forced fast-forward: snapshots of a branch replace those that go."""


def rollback_marker(
    target: Snapshot,
    newest: Snapshot,
    first: Snapshot | None,
    *,
    commit_user: str,
    uuid: str,
    now_millis: int,
) -> Snapshot:
    """Return the marker of a rollback to `target`, made on `newest`.

    `first`: the snapshot above the target, None where that has expired, and only a tag keeps the target.
    """
    marks = {
        ROLLBACK_TARGET: str(target.id),
        FIRST: "" if first is None else first.delta_manifest_list,
    }
    # The numbers go back with the rows: a replay of a commit that was taken back is a new commit.
    identifiers = carried(target)
    if identifiers is not None:
        marks[COMMIT_IDENTIFIERS] = identifiers
    return replace(
        without_changelog(target),
        id=newest.id + 1,
        commit_user=commit_user,
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.OVERWRITE,
        time_millis=max(now_millis, newest.time_millis),
        properties=with_base(marks, newest),
        uuid=uuid,
        writer_version=WRITER_VERSION,
    )


def leads_to(marker: Snapshot, snapshot: Snapshot | None) -> bool:
    """Whether `snapshot` is the target of a rollback marker: the same state under the same id."""
    return (
        snapshot is not None
        and rollback_target(marker) == snapshot.id
        and marker.delta_manifest_list == snapshot.delta_manifest_list
    )


def takes_first(marker: Snapshot, snapshot: Snapshot) -> bool:
    """Whether `snapshot` was rolled back first, and is not what a writer has made on the target since."""
    return (marker.properties or {}).get(FIRST) == snapshot.delta_manifest_list


def replaces_first(marker: Snapshot, first: Snapshot | None) -> bool:
    """Whether a marker is of a forced fast-forward that has still to replace what goes first."""
    is_of_fast_forward = _REPLACES in (marker.properties or {})
    return is_of_fast_forward and first is not None and takes_first(marker, first)


def as_fast_forward(marker: Snapshot) -> Snapshot:
    """Return a marker as that of a forced fast-forward: the table stays as it is until the first snapshot is replaced."""
    return replace(marker, properties={**(marker.properties or {}), _REPLACES: "true"})


def as_rollback(marker: Snapshot) -> Snapshot:
    """Return the marker of a forced fast-forward as that of a rollback: the table is at the target by it."""
    marks = {key: text for key, text in (marker.properties or {}).items() if key != _REPLACES}
    return replace(marker, properties=marks)


@record
class DividedChain:
    """The snapshots of a listing: `chain` are those that are kept, `rolled_back` those that a rollback marker takes.

    All come oldest first. `rolled_back` is without the `marker`, which is None without a rollback.
    """

    chain: tuple[Snapshot, ...]
    rolled_back: tuple[Snapshot, ...] = ()
    marker: Snapshot | None = None


def divide_by_marker(snapshots: Sequence[Snapshot]) -> DividedChain:
    """Divide snapshots, oldest first, by the marker at their top, if there is one."""
    newest = snapshots[-1] if snapshots else None
    to = None if newest is None else rollback_target(newest)
    if newest is None or to is None:
        return DividedChain(chain=tuple(snapshots))
    index = len(snapshots) - 1
    # A rollback takes what follows without a gap; an orphan snapshot below is not its own.
    while (
        index > 0
        and snapshots[index - 1].id > to
        and follows(snapshots[index], snapshots[index - 1])
    ):
        index -= 1
    return DividedChain(
        chain=tuple(snapshots[:index]), rolled_back=tuple(snapshots[index:-1]), marker=newest
    )
