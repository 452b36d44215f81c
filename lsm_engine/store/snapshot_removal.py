"""Files of snapshots that go: oldest first, each unless its id is another's by now."""

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

    From afar the look for the next one goes with a deletion: a round lies between a look and its deletion.
    `files` deletes what only these snapshots name, in one round, with the first look; if it raises, nothing
    more is deleted.
    """
    looks = [partial(store.find_now, one.id) for one in snapshots]
    first: list[Callable[[], Any]] = [*([] if files is None else [files]), *looks[:1]]
    there = together(file_io, *first)[-1] if first else None
    for at, one in enumerate(snapshots):
        acts: list[Callable[[], Snapshot | None]] = [*looks[at + 1 : at + 2]]
        if same_state(there, one):
            acts.insert(0, partial(store.delete_there, one.id))
        there = together(file_io, *acts)[-1] if acts else None
