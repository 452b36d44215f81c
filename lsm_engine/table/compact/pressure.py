"""Compaction debt per bucket, from the newest snapshot, and where it goes."""

from lsm_engine.base import core_options
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.pressure import BucketPressure, pressures
from lsm_engine.plan.pressure_forecast import BucketForecast, arrivals_of, forecasts
from lsm_engine.table.compact.compact_plan import plan_compaction
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.tags.roots import Roots

_COMMITS_SEEN = 100


def bucket_pressures(session: TableSession) -> list[BucketPressure]:
    """Return the pressure of every bucket, the most urgent first; what is due, the strategy's pick shows."""
    latest = session.snapshots.latest()
    if latest is None or not session.schema.has_primary_key:
        return []
    return list(
        pressures(
            session.live_entries(latest),
            run_trigger=session.options[core_options.NUM_SORTED_RUN_COMPACTION_TRIGGER],
            stop_trigger=session.options.stop_trigger,
            picked=_picked(session, latest),
        )
    )


def due_buckets(session: TableSession) -> frozenset[tuple[bytes, int]]:
    """Return the (partition, bucket) pairs in which a compaction would find something to do now."""
    latest = session.snapshots.latest()
    if latest is None or not session.schema.has_primary_key:
        return frozenset()
    return _picked(session, latest)


def _picked(session: TableSession, snapshot: Snapshot) -> frozenset[tuple[bytes, int]]:
    works = plan_compaction(session, snapshot, counts_picks=False)
    return frozenset((work.partition, work.bucket) for work in works)


def bucket_forecasts(session: TableSession) -> list[BucketForecast]:
    """Return each bucket's debt with a forecast, from the pace of the newest commits."""
    newest = list(session.snapshots.newest_first(limit=_COMMITS_SEEN))
    writes = [each for each in newest if each.commit_kind is not CommitKind.COMPACT]
    if not newest:
        return []
    # The oldest commit opens the span; what it wrote came before.
    span = session.clock.now_millis() - newest[-1].time_millis
    counted = [each for each in writes if each.id != newest[-1].id]
    arrivals = arrivals_of(Roots(session).delta_entries(counted))
    return list(forecasts(bucket_pressures(session), arrivals, span_millis=max(span, 0)))
