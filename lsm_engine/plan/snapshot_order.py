"""Rows as new as their snapshot: `sequence.snapshot-ordering`.

New files are numbered by the commit, all rows of a file alike, with the id of the snapshot that
publishes them; what a compaction writes carries the numbers of its input. A lost race then costs
nothing but another number in the manifest. docs/decisions/0028 describes what is on disk.
"""

from dataclasses import replace

from lsm_engine.base.ids import FIRST_SNAPSHOT_ID
from lsm_engine.base.modes import EntryKind, FileSource
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.commit_steps import CommitStep


def id_after(base: Snapshot | None) -> int:
    """Return the id of the snapshot that follows `base`."""
    return FIRST_SNAPSHOT_ID if base is None else base.id + 1


def stamped(step: CommitStep, snapshot_id: int) -> CommitStep:
    """Return a step whose new files hold rows of snapshot `snapshot_id`.

    Files of one bucket come oldest first. As they then have one number, the newest gets the
    earliest creation time: all clients order files that tie by it (mergetree/levels).
    """
    oldest: dict[tuple[bytes, int], int] = {}
    delta: list[ManifestEntry] = []
    for entry in reversed(step.delta):
        if is_numbered_by_commit(entry):
            bucket = (entry.partition, entry.bucket)
            created = max(entry.file.creation_millis or 0, oldest.get(bucket, -1) + 1)
            oldest[bucket] = created
            file = replace(
                entry.file,
                min_sequence_number=snapshot_id,
                max_sequence_number=snapshot_id,
                creation_millis=created,
            )
            entry = replace(entry, file=file)
        delta.append(entry)
    return replace(step, delta=tuple(reversed(delta)))


def is_numbered_by_commit(entry: ManifestEntry) -> bool:
    """Whether an entry adds a file of new rows."""
    return entry.kind is EntryKind.ADD and entry.file.file_source is FileSource.APPEND
