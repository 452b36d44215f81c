"""Changelogs that outlive their snapshots: when they do, and when they go in their turn."""

from collections.abc import Sequence

from lsm_engine.base import core_options
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.table_options import TableOptions
from lsm_engine.meta.consumer import Consumer
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.expire import ExpirePlan, MetadataNames, plan_changelog_expiry
from lsm_engine.plan.retention import Retention, choose_expired_changelogs
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.consumer import refuse_put_back
from lsm_engine.table.tags.removal import carry_out
from lsm_engine.table.tags.roots import Roots


def changelogs_outlive(options: TableOptions) -> bool:
    """Whether the table keeps changelogs longer, or more of them, than snapshots."""
    return any(
        (of_own := options[of_changelogs]) is not None and of_own > options[of_snapshots]
        for of_changelogs, of_snapshots in (
            (core_options.CHANGELOG_NUM_RETAINED_MIN, core_options.SNAPSHOT_NUM_RETAINED_MIN),
            (core_options.CHANGELOG_NUM_RETAINED_MAX, core_options.SNAPSHOT_NUM_RETAINED_MAX),
            (core_options.CHANGELOG_TIME_RETAINED, core_options.SNAPSHOT_TIME_RETAINED),
        )
    )


def changelog_retention(options: TableOptions, of_snapshots: Retention) -> Retention:
    """Return how long changelogs live: by their own options, else as snapshots, never shorter."""

    def longer(own: int | None, other: int) -> int:
        return other if own is None else max(own, other)

    largest = longer(options[core_options.CHANGELOG_NUM_RETAINED_MAX], of_snapshots.retained_max)
    smallest = longer(options[core_options.CHANGELOG_NUM_RETAINED_MIN], of_snapshots.retained_min)
    return Retention(
        retained_min=min(smallest, largest),
        retained_max=largest,
        time_retained_millis=longer(
            options[core_options.CHANGELOG_TIME_RETAINED], of_snapshots.time_retained_millis
        ),
        expire_limit=of_snapshots.expire_limit,
    )


def expire_changelogs(
    session: TableSession,
    of_snapshots: Retention,
    *,
    snapshots: Sequence[Snapshot],
    consumers: Sequence[Consumer],
    dry_run: bool,
) -> ExpirePlan | None:
    """Take the changelogs that retention does not keep; None where there are none.

    `snapshots`: those kept, oldest first; `consumers` the named readers. Nothing
    goes if any root is unreadable, or a consumer is put meanwhile where it needs what goes (CommitConflictError).
    """
    there = session.changelogs.all()
    if not there:
        return None
    choice = choose_expired_changelogs(
        there,
        snapshots,
        changelog_retention(session.options, of_snapshots),
        now_millis=session.clock.now_millis(),
        consumer_next_ids=[consumer.next_snapshot_id for consumer in consumers],
    )
    plan = _plan(session, choice.expired, there, snapshots, choice.reason)
    if plan.expired_changelogs and not dry_run:
        # Moved before anything is deleted, so that a half-deleted changelog is known for one.
        session.changelogs.hint_earliest(plan.expired_changelogs[-1].id + 1)
        refuse_put_back(session, consumers, plan.expired_changelogs[-1].id, is_passed=True)
        carry_out(session, plan, kind="expire-changelogs")
    return plan


def take_all(session: TableSession, *, reason: str) -> ExpirePlan | None:
    """Take every changelog that has outlived its snapshot; None where there are none."""
    there = session.changelogs.all()
    if not there:
        return None
    plan = _plan(session, there, there, session.snapshots.stable_listing(), reason)
    session.changelogs.hint_earliest(there[-1].id + 1)
    carry_out(session, plan, kind="expire-changelogs")
    return plan


def _plan(
    session: TableSession,
    expired: Sequence[Snapshot],
    there: Sequence[Snapshot],
    snapshots: Sequence[Snapshot],
    reason: str,
) -> ExpirePlan:
    roots = Roots(session)
    fed = [one for one in expired if roots.fed_by_deltas(one)]
    data = list(roots.delta_entries(fed, keeps=False))
    buckets = {(entry.partition, entry.bucket) for entry in data}
    names = MetadataNames.union(roots.expiring_names(one) for one in expired)
    kept = roots.kept_roots(
        snapshots, buckets, changelogs=[one for one in there if one not in expired]
    )
    return plan_changelog_expiry(
        expired,
        [entry for entry in data if entry.kind is EntryKind.ADD],
        roots.changelog_entries(expired, keeps=False),
        names=names,
        retained=kept,
        reason=reason,
    )
