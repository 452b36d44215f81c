"""TrashRecord: what one act of maintenance took, kept so that it can be given back."""

from dataclasses import field as attribute

from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag

ROLLED_BACK = "rolled back to snapshot"
"""How the reason of a rollback begins."""


@record
class TrashRecord:
    """What was removed from one branch of a table (`branch`; "" is main), when, and why.

    `snapshots`, `changelogs` and `tags` are gone as files and kept here; `paths` are files that stay
    where they are until the record is emptied, relative to the table's directory. `undo_id`: of whoever gives it
    back. `content`: the bytes of the file that it was read from, which do not count in comparisons.
    """

    name: str
    created_millis: int
    reason: str
    branch: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    changelogs: tuple[Snapshot, ...] = ()
    tags: tuple[Tag, ...] = ()
    paths: tuple[str, ...] = ()
    undo_id: str | None = None
    content: bytes | None = attribute(default=None, compare=False, repr=False)

    @property
    def was_rolled_back(self) -> bool:
        """Whether its snapshots are no part of the table's history any more, and not only expired."""
        return self.reason.startswith(ROLLED_BACK)
