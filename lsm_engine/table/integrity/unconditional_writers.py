"""Snapshots on an object store that were made by writers which publish without a condition.

pypaimon looks whether the name is taken, then copies over it; Java Paimon before conditional writes does
alike. Between the two a snapshot of ours may be overwritten, and both writers are acknowledged. What has
been lost so shows nowhere: all that can be named is that such a writer was here.
"""

from collections.abc import Iterator, Sequence

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.live_snapshots import is_of_another_client
from lsm_engine.table.ground.session import TableSession


def warnings_of(session: TableSession, snapshots: Sequence[Snapshot]) -> Iterator[str]:
    """Yield a warning for each writer of that kind; none on a disk, where a link is the condition."""
    if session.file_io.facts.has_directories:
        return
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        if is_of_another_client(snapshot):
            newest[snapshot.commit_user] = snapshot
    for user, snapshot in newest.items():
        yield (
            f"warning: snapshot {snapshot.id} was made by another client (user {user!r}), which may "
            "publish without a condition and overwrite commits of others; let it only read here, or "
            "have every writer take one lock (docs/object-stores.md)"
        )
