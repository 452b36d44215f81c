"""What a write returns: the snapshot of its rows, whether they can be read, and a bookmark behind them."""

from dataclasses import field, fields
from operator import attrgetter

from lsm_engine.base.record import record
from lsm_engine.meta.snapshot import Snapshot

_NAMES = tuple(field.name for field in fields(Snapshot))
_members = attrgetter(*_NAMES)


@record
class WriteResult(Snapshot):
    """The snapshot that holds the rows of a write. As `after=` of changes: what came after the write.

    `visible`: whether a scan finds the rows; False where they still need a compaction (first-row,
    deletion vectors) or a bucket. `changelog_id`: the snapshot up to which the changelog has emitted
    them; `id` where it comes with the commit, is still to come, or there is none. `buckets`: where
    the rows are, if others committed between the two. These three do not count when compared.
    """

    visible: bool = field(default=True, compare=False)
    changelog_id: int = field(compare=False)
    buckets: frozenset[tuple[bytes, int]] = field(default=frozenset(), compare=False)

    @property
    def position(self) -> int:
        """The snapshot that a reader of the changelog goes on after; see `buckets`."""
        return self.id if self.buckets else self.changelog_id

    @staticmethod
    def from_snapshot(
        snapshot: Snapshot,
        *,
        visible: bool = True,
        changelog_id: int | None = None,
        buckets: frozenset[tuple[bytes, int]] = frozenset(),
    ) -> "WriteResult":
        """Return a snapshot as the result of the write that made it."""
        return WriteResult(
            **dict(zip(_NAMES, _members(snapshot), strict=True)),
            visible=visible,
            changelog_id=snapshot.id if changelog_id is None else changelog_id,
            buckets=buckets,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and bool(_members(self) == _members(other))

    __hash__ = Snapshot.__hash__
    __repr__ = Snapshot.__repr__
