"""Deletion of snapshot files: oldest first, each unless another snapshot has its id by now."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lsm_engine.io.file_io import FileIO
from lsm_engine.io.together import together
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshots import SnapshotStore


def delete_states(
    file_io: FileIO,
    store: SnapshotStore,
    snapshots: Sequence[Snapshot],
    *,
    files: Callable[[], object] | None = None,
) -> None:
    """Delete the files of snapshots one after the other, each after a look.

    On a remote store the look at the next file runs concurrently with a deletion: one round trip lies between
    a look and its deletion. `files` deletes the files that only these snapshots name, concurrently with the
    first look; if it raises, no more files are deleted.
    """
    looks = [partial(store.find_now, snapshot.id) for snapshot in snapshots]
    first: list[Callable[[], Any]] = [*([] if files is None else [files]), *looks[:1]]
    current = together(file_io, *first)[-1] if first else None
    for i, snapshot in enumerate(snapshots):
        acts: list[Callable[[], Snapshot | None]] = [*looks[i + 1 : i + 2]]
        if same_state(current, snapshot):
            acts.insert(0, partial(store.delete_there, snapshot.id))
        current = together(file_io, *acts)[-1] if acts else None
