"""How much a table writes, reads and keeps beyond its rows, from the commits that are left."""

from lsm_engine.plan.amplification import Amplification, amplification
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.roots import Roots


def measured(session: TableSession, *, commit_count: int | None = None) -> Amplification:
    """Return the amplification over the newest snapshots, all that are left or `commit_count`."""
    newest = list(session.snapshots.newest_first(limit=commit_count))
    live = session.live_entries(newest[0]) if newest else []
    return amplification(
        (
            (snapshot.commit_kind, list(Roots(session).delta_entries([snapshot])))
            for snapshot in reversed(newest)
        ),
        live,
    )
