"""Compact: for each bucket pick → plan → run; then commit what changed, all buckets at once."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, InvalidInputError, LsmError
from lsm_engine.base.ids import FIRST_SNAPSHOT_ID
from lsm_engine.base.modes import CommitKind
from lsm_engine.meta.manifest import BucketScope
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.key_moves import emits_moves
from lsm_engine.table.commit.commit import CommitIdentity, commit, committed_before, upkeep_of
from lsm_engine.table.commit.retries import Retries
from lsm_engine.table.compact.compact_append import (
    AppendWork,
    compact_append_bucket,
    plan_append_compaction,
)
from lsm_engine.table.compact.compact_bucket import compact_bucket
from lsm_engine.table.compact.compact_plan import BucketWork, plan_compaction
from lsm_engine.table.compact.postponed_buckets import assign_postponed_buckets
from lsm_engine.table.compact.pressure import bucket_pressures
from lsm_engine.table.ground.partition_specs import PartitionTest
from lsm_engine.table.ground.run_tasks import run_tasks
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.ground.time_travel import built_on

log = logging.getLogger(__name__)
Buckets = frozenset[tuple[bytes, int]]
HoldsBucket = Callable[[bytes, int], bool]
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
    """Merge sorted runs where that is due (or all of them); None if nothing was. A replay returns what it made."""
    before = committed_before(session, identity, CommitKind.COMPACT)
    return before or Compaction(session, identity).requested(
        full=full, partitions=partitions, buckets=buckets
    )


def compact_due(
    session: TableSession,
    identity: CommitIdentity,
    touched: Buckets,
    *,
    rows_wait: Callable[[], bool],
) -> Snapshot | None:
    """Compact those buckets of a write that are due; the write stands: what fails is logged and stays due."""
    try:
        return Compaction(session, identity).after_write(touched, rows_wait)
    except LsmError as error:
        log.warning("a compaction after a write failed and stays due: %s", error)
    return None


def carry_out(
    session: TableSession,
    identity: CommitIdentity,
    base: Snapshot,
    work: Sequence[BucketWork] | Sequence[AppendWork],
    properties: Properties | None = None,
) -> Snapshot | None:
    """Run planned work on the table's executor, largest bucket first, and commit it."""
    if not work:
        return None
    schema_ids = frozenset[int]().union(*(item.schema_ids for item in work))
    session = session.rewriting(schema_ids)
    context = session.context(schema_ids)
    rewrite = compact_bucket if session.schema.has_primary_key else compact_append_bucket
    with built_on(session, base):
        messages = run_tasks(
            session,
            context,
            partial(rewrite, context.writing_behind()),
            sorted(work, key=lambda item: -item.size_bytes),
            verb="compact",
        )
    if properties is not None:
        identity = replace(identity, properties={**(identity.properties or {}), **properties()})
    return commit(session, identity, messages, planned_on=base)


class Compaction:
    """What is compacted of one table, and in whose name that is committed."""

    def __init__(
        self,
        session: TableSession,
        identity: CommitIdentity,
        properties: Properties | None = None,
    ) -> None:
        self._session = session
        self._identity = identity
        self._properties = properties

    def requested(
        self,
        *,
        full: bool,
        partitions: Sequence[Mapping[str, object]] | None,
        buckets: Sequence[int] | None,
    ) -> Snapshot | None:
        """Compact what is due, or all, of some partitions and buckets; None: of all."""
        session = self._session
        session.options.require_writable()
        base = session.snapshots.latest(reads_state=True)
        if base is None:
            return None
        given: Snapshot | None = None
        if emits_moves(session.schema) and (partitions is not None or buckets is not None):
            raise InvalidInputError(
                "a key may move between partitions, and compactions emit both ends of its way: compact the "
                "whole table, without partitions and buckets",
                table=session.name,
            )
        covers = None if partitions is None else PartitionTest(session.schema, partitions)
        holds = _chosen(covers, buckets)
        if session.schema.bucket_mode.policy.is_postponed and buckets is None:
            given = assign_postponed_buckets(session, upkeep_of(self._identity), covers)
            base = given or base
        return self._of(base, holds, full=full) or given

    def after_write(self, touched: Buckets, rows_wait: Callable[[], bool]) -> Snapshot | None:
        """Compact those of some buckets that are due, or all if `full-compaction.delta-commits` is up.

        A compaction that lost to another stays due. But a writer whose rows still wait for it
        (`rows_wait`) tries again for as long as `commit.timeout` allows and others commit; and one who
        would leave a bucket with more runs than `num-sorted-run.stop-trigger`, up to
        `commit.max-retries` times: writers must not outrun compactions.
        """
        session = self._session
        most = session.options[core_options.COMMIT_MAX_RETRIES]
        retries = Retries(session, rewrites=True)
        newest, stuck = None, 0
        while True:
            base = session.newest_of_writer()
            if base is None:
                return None
            full = session.schema.has_primary_key and self._full_is_due()
            holds = None if full or emits_moves(session.schema) else BucketScope(buckets=touched)
            try:
                return self._of(base, holds, full=full)
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

    def _of(self, base: Snapshot, holds: HoldsBucket | None, *, full: bool) -> Snapshot | None:
        """Plan, carry out and commit; a full compaction of a whole tree is marked as such."""
        session, identity = self._session, self._identity
        work: Sequence[BucketWork] | Sequence[AppendWork]
        with built_on(session, base):
            if not session.schema.has_primary_key:
                work, marks = plan_append_compaction(session, base, holds, full=full), False
            else:
                work = plan_compaction(session, base, holds, full=full)
                if not full and emits_moves(session.schema) and _emits_some(session, work):
                    full, work = True, plan_compaction(session, base, full=True)
                marks = full and holds is None
        if marks:
            marked = {**(identity.properties or {}), FULL_COMPACTION: "true"}
            identity = replace(identity, properties=marked)
        return carry_out(session, identity, base, work, self._properties)

    def _full_is_due(self) -> bool:
        """Whether so many commits came since the last full compaction that the next one is due.

        Also where that is further back than the snapshots that are left.
        """
        patience = self._session.options[core_options.FULL_COMPACTION_DELTA_COMMITS]
        if patience is None:
            return False
        commits = 0
        oldest = FIRST_SNAPSHOT_ID
        for snapshot in self._session.snapshots.newest_first():
            if FULL_COMPACTION in (snapshot.properties or {}):
                return False
            commits += snapshot.commit_kind is not CommitKind.COMPACT
            if commits >= patience:
                return True
            oldest = snapshot.id
        return oldest > FIRST_SNAPSHOT_ID


def stops_writers(session: TableSession, bucket_set: Buckets) -> bool:
    """Whether one of some buckets has more sorted runs than `num-sorted-run.stop-trigger`."""
    return any(
        pressure.stopping and (pressure.partition, pressure.bucket) in bucket_set
        for pressure in bucket_pressures(session)
    )


def _emits_some(session: TableSession, work: Sequence[BucketWork]) -> bool:
    """Whether work emits what changed in some buckets where full compactions alone emit all."""
    waits = session.options[core_options.CHANGELOG_PRODUCER].policy.waits_for_full_compaction
    last = session.options.level_count - 1
    return waits and any(step.output_level == last for item in work for step in item.steps)


def _chosen(
    covers: Callable[[bytes], bool] | None, buckets: Sequence[int] | None
) -> HoldsBucket | None:
    if covers is None and buckets is None:
        return None
    wrong = [bucket for bucket in buckets or () if bucket < 0]
    if wrong:
        raise InvalidInputError("buckets are numbered from 0", buckets=wrong)
    chosen = None if buckets is None else frozenset(buckets)
    return lambda partition, bucket: (
        (chosen is None or bucket in chosen) and (covers is None or covers(partition))
    )
