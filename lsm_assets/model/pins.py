"""Where the rows of a recorded snapshot can still be read: one rule for all readers, over facts alone."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from lsm_assets.model.versions import TableVersion
from lsm_engine import record


@record
class Holder:
    """A tag (by its name) or a branch that still has the state of a commit."""

    version: TableVersion
    tag: str | None = None
    branch: str | None = None


Range: TypeAlias = tuple[Any, Any]
"""The least and the greatest value of a column in rows that a commit may have changed."""
Changed: TypeAlias = Mapping[str, frozenset[Range] | None]
"""By directory of a table, in which ranges of a column rows may have changed; None: in any."""


@record
class CommitFacts:
    """A commit and the partitions that it changed, as `dt=2024-01-01`; None: any of them.

    `dagster_run_id`: the Dagster run that made it, None for commits from elsewhere. `ranges`: what is
    known, by partition, of a column that tells the partitions of the asset apart.
    """

    version: TableVersion
    partitions: frozenset[str] | None
    dagster_run_id: str | None = None
    ranges: Changed = field(default_factory=dict)

    @property
    def changed(self) -> Changed | None:
        """Where it may have changed rows; None: anywhere."""
        if self.partitions is None:
            return None
        return {path: self.ranges.get(path) for path in self.partitions}


ReadIn: TypeAlias = Callable[[Changed], Collection[str]]
"""Returns which of the partitions that are read may have changed."""


@record
class Pin:
    """What to read in place of a recorded snapshot. `why` is a sentence if it is not that snapshot.

    With `tag` it is read by the tag's name; with `branch` on that branch, by `snapshot_id`; with `after`
    only the changes since that snapshot are; with `is_partial` some of them could not be told yet.
    """

    snapshot_id: int
    tag: str | None = None
    branch: str | None = None
    why: str = ""
    after: int | None = None
    is_partial: bool = False


@record
class Gone:
    """No state with the recorded rows is left, and why."""

    why: str


def resolve_pin(
    recorded: TableVersion,
    *,
    live: Mapping[int, TableVersion],
    holders: Sequence[Holder] = (),
    past: CommitFacts | None = None,
    since: Iterable[CommitFacts] = (),
    read_in: ReadIn | None = None,
) -> Pin | Gone:
    """Return where the rows of `recorded` can be read, of those partitions that are (None: all).

    The recorded snapshot if it is live; else a tag or a branch that has it; else the newest live
    snapshot in which the partitions are unchanged since, which compactions leave them. `live`: by id.
    `past`: what is recorded under the id of an expired snapshot, None if nothing is. `since`: the
    commits after it, oldest first, read no further than the first that changed a partition.
    """
    wanted = recorded.snapshot_id
    at = live.get(wanted)
    if at is not None and at.is_same(recorded):
        return Pin(snapshot_id=wanted)
    for holder in holders:
        if holder.version.is_same(recorded):
            return _held(holder)
    if not live:
        return Gone(why=f"the table has no snapshot, and {wanted} is recorded")
    if not wanted:
        return _unchanged(wanted, live, since, read_in)
    if at is not None or wanted > min(live):
        return Gone(why=f"snapshot {wanted} was rolled back, or the table was created anew")
    if past is None:
        return Gone(
            why=f"snapshot {wanted} has expired, and the catalog's lineage has no record of it"
        )
    if not past.version.is_same(recorded):
        return Gone(why=f"snapshot {wanted} was replaced, or the table was created anew")
    return _unchanged(wanted, live, since, read_in)


def _held(holder: Holder) -> Pin:
    wanted = holder.version.snapshot_id
    where = f"tag {holder.tag!r}" if holder.tag else f"branch {holder.branch!r}"
    return Pin(
        snapshot_id=wanted,
        tag=holder.tag,
        branch=holder.branch,
        why=f"snapshot {wanted} is gone; read from {where}, which holds it",
    )


def _unchanged(
    wanted: int,
    live: Mapping[int, TableVersion],
    since: Iterable[CommitFacts],
    read_in: ReadIn | None,
) -> Pin | Gone:
    found, reason = None, "nothing is recorded of what came after it"
    for expected, commit in enumerate(since, wanted + 1):
        number = commit.version.snapshot_id
        if number != expected:
            reason = f"the catalog's lineage has no record of snapshot {expected}"
            break
        if _changes(commit, read_in):
            reason = f"snapshot {number} has changed what is read here"
            break
        found = number if number in live else found
    then = f"snapshot {wanted} has expired" if wanted else "no row was there to be seen"
    if found is None:
        return Gone(why=f"{then}, and {reason}")
    what = "the table is" if read_in is None else "the partitions read are"
    why = f"{then}; read at {found}, the newest in which {what} unchanged"
    return Pin(snapshot_id=found, why=why)


def _changes(commit: CommitFacts, read_in: ReadIn | None) -> bool:
    if commit.changed is None or read_in is None:
        return commit.partitions != frozenset()
    return bool(read_in(commit.changed))
