"""Files of snapshots that go: oldest first, each unless its id is another's by now."""

from collections.abc import Sequence
from functools import partial

from lsm_engine.io.file_io import FileIO
from lsm_engine.io.together import together
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.ownership import same_state
from lsm_engine.store.snapshots import SnapshotStore

_LOOKED_AT = 16


def delete_states(file_io: FileIO, store: SnapshotStore, snapshots: Sequence[Snapshot]) -> None:
    """Delete the files of snapshots one after the other; from afar some are looked at together."""
    at_once = _LOOKED_AT if file_io.facts.is_far else 1
    for start in range(0, len(snapshots), at_once):
        some = snapshots[start : start + at_once]
        found = together(file_io, *(partial(store.find, one.id) for one in some))
        for one, there in zip(some, found, strict=True):
            if same_state(there, one):
                store.delete_there(one.id)
