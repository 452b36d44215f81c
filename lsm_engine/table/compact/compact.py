"""Compact: for each bucket pick → plan → run; then commit what changed, all buckets at once."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, InvalidInputError, LsmError
from lsm_engine.base.ids import FIRST_SNAPSHOT_ID
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.table.commit.commit import CommitIdentity, commit
from lsm_engine.table.commit.retries import Retries
from lsm_engine.table.compact.compact_append import compact_appends
from lsm_engine.table.compact.compact_bucket import compact_bucket
from lsm_engine.table.compact.compact_plan import BucketWork, plan_compaction
from lsm_engine.table.compact.postponed_buckets import assign_postponed_buckets
from lsm_engine.table.compact.pressure import bucket_pressures
from lsm_engine.table.ground.partition_specs import PartitionTest
from lsm_engine.table.ground.run_tasks import run_tasks
from lsm_engine.table.ground.session import TableSession

log = logging.getLogger(__name__)
Properties = Callable[[], Mapping[str, str]]
"""Properties to add to a compaction's snapshot, asked for when its files are written."""
FULL_COMPACTION = "lsm.full-compaction"
"""Property of the snapshots of full compactions of a whole table; other clients ignore it."""


def compact(
    session: TableSession,
    identity: CommitIdentity,
    *,
    full: bool = False,
    partitions: Sequence[Mapping[str, object]] | None = None,
    buckets: Sequence[int] | None = None,
) -> Snapshot | None:
    """Merge sorted runs where that is due (or all of them); None if nothing was."""
    session.options.require_writable()
    base = session.snapshots.latest(reads_state=True)
    if base is None:
        return None
    given: Snapshot | None = None
    holds = _chosen(session, partitions, buckets)
    if not session.schema.has_primary_key:
        return compact_appends(session, identity, base, holds, full=full)
    if session.schema.bucket_mode.policy.is_postponed and buckets is None:
        covers = None if partitions is None else PartitionTest(session.schema, partitions)
        given = assign_postponed_buckets(session, identity, covers)
        base = given or base
    work = plan_compaction(session, base, holds, full=full)
    if full and holds is None:
        identity = _marked_full(identity)
    return carry_out(session, identity, base, work) or given


def carry_out(
    session: TableSession,
    identity: CommitIdentity,
    base: Snapshot,
    work: Sequence[BucketWork],
    properties: Properties | None = None,
) -> Snapshot | None:
    """Run planned work on the table's executor, largest bucket first, and commit it."""
    if not work:
        return None
    context = session.context(frozenset[int]().union(*(item.schema_ids for item in work)))
    largest_first = sorted(work, key=lambda item: -item.size_bytes)
    messages = run_tasks(
        session,
        context,
        partial(compact_bucket, context.writing_behind()),
        largest_first,
        verb="compact",
    )
    if properties is not None:
        identity = replace(identity, properties={**(identity.properties or {}), **properties()})
    return commit(session, identity, messages, planned_on=base)


def compact_due(
    session: TableSession,
    identity: CommitIdentity,
    touched: frozenset[tuple[bytes, int]],
    *,
    rows_wait: Callable[[], bool],
) -> Snapshot | None:
    """Compact those buckets of a write that are due; the write stands: what fails is logged and stays due."""
    try:
        return compact_touched(session, identity, touched, rows_wait=rows_wait)
    except LsmError as error:
        log.warning("a compaction after a write failed and stays due: %s", error)
    return None


def compact_touched(
    session: TableSession,
    identity: CommitIdentity,
    touched: frozenset[tuple[bytes, int]],
    *,
    rows_wait: Callable[[], bool],
    properties: Properties | None = None,
) -> Snapshot | None:
    """Compact those of some buckets that are due, or all if `full-compaction.delta-commits` is up.

    A compaction that lost to another stays due. But a writer whose rows still wait for it (`rows_wait`) tries again for as long as
    `commit.timeout` allows and others commit; and one who would leave a bucket with more runs than
    `num-sorted-run.stop-trigger`, up to `commit.max-retries` times: writers must not outrun
    compactions.
    """
    retries, most = (
        Retries(session, rewrites=True),
        session.options[core_options.COMMIT_MAX_RETRIES],
    )
    newest, stuck = None, 0
    while True:
        try:
            return _compacted(session, identity, touched, properties)
        except CommitConflictError as conflict:
            log.info("lost a compaction to another: %s", conflict)
        retries.lost += 1
        before, newest = newest, session.snapshots.latest_id()
        # Who loses although nobody commits would lose for ever.
        stuck = stuck + 1 if newest == before else 0
        if rows_wait():
            given_up = retries.is_late or stuck > most
        else:
            given_up = retries.lost > most
            if not stops_writers(session, touched):
                return None
        if given_up:
            log.warning("buckets stay due: their compaction lost %d times", retries.lost)
            return None
        retries.sleep()


def _compacted(
    session: TableSession,
    identity: CommitIdentity,
    bucket_set: frozenset[tuple[bytes, int]],
    properties: Properties | None,
) -> Snapshot | None:
    base = session.newest_of_writer()
    if base is None:
        return None
    if not session.schema.has_primary_key:
        return compact_appends(session, identity, base, lambda *bucket: bucket in bucket_set)
    if _full_is_due(session):
        work = plan_compaction(session, base, full=True)
        return carry_out(session, _marked_full(identity), base, work, properties)
    work = plan_compaction(session, base, lambda *bucket: bucket in bucket_set)
    return carry_out(session, identity, base, work, properties)


def stops_writers(session: TableSession, bucket_set: frozenset[tuple[bytes, int]]) -> bool:
    """Whether one of some buckets has more sorted runs than `num-sorted-run.stop-trigger`."""
    return any(
        pressure.stopping and (pressure.partition, pressure.bucket) in bucket_set
        for pressure in bucket_pressures(session)
    )


def _full_is_due(session: TableSession) -> bool:
    """Whether so many commits came since the last full compaction that the next one is due.

    Also where that is further back than the snapshots that are left.
    """
    patience = session.options[core_options.FULL_COMPACTION_DELTA_COMMITS]
    if patience is None:
        return False
    commits = 0
    oldest = FIRST_SNAPSHOT_ID
    for snapshot in session.snapshots.newest_first():
        if FULL_COMPACTION in (snapshot.properties or {}):
            return False
        commits += snapshot.commit_kind is not CommitKind.COMPACT
        if commits >= patience:
            return True
        oldest = snapshot.id
    return oldest > FIRST_SNAPSHOT_ID


def _marked_full(identity: CommitIdentity) -> CommitIdentity:
    return replace(identity, properties={**(identity.properties or {}), FULL_COMPACTION: "true"})


def _chosen(
    session: TableSession,
    partitions: Sequence[Mapping[str, object]] | None,
    buckets: Sequence[int] | None,
) -> Callable[[bytes, int], bool] | None:
    if partitions is None and buckets is None:
        return None
    wrong = [bucket for bucket in buckets or () if bucket < 0]
    if wrong:
        raise InvalidInputError("buckets are numbered from 0", buckets=wrong)
    bucket_set = None if buckets is None else frozenset(buckets)
    covers = None if partitions is None else PartitionTest(session.schema, partitions)

    def holds(partition: bytes, bucket: int) -> bool:
        return (bucket_set is None or bucket in bucket_set) and (
            covers is None or covers(partition)
        )

    return holds
