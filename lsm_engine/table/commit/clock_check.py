"""Clocks that are far off are noticed before they stamp a snapshot."""

import logging

from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.snapshot_time import CLOCK_DRIFT_MAX_MILLIS, is_far_ahead
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)


def warn_of_clocks(session: TableSession, base: Snapshot | None) -> None:
    """Log a warning where this machine's clock, or the one that stamped the base, is far off.

    The storage's clock is asked only if the base's time and ours are more than a day apart.
    """
    now = session.clock.now_millis()
    before = session.schema.time_millis if base is None else base.time_millis
    if abs(now - before) <= CLOCK_DRIFT_MAX_MILLIS:
        return
    if base is not None and is_far_ahead(before, now):
        log.warning(
            "snapshot %d of table %s is stamped %d ms ahead of this machine's clock; the next one is "
            "stamped by this clock, so that expiry by time goes on",
            base.id,
            session.name,
            before - now,
        )
    by_storage = session.file_io.now_millis()
    if abs(now - by_storage) > CLOCK_DRIFT_MAX_MILLIS:
        log.warning(
            "this machine's clock and the storage's are %d ms apart; table %s is stamped by this one: "
            "set it right, or time travel and expiry by time go wrong",
            now - by_storage,
            session.name,
        )
