"""Simulate a retention: what would be readable, freed and pinned by what. Deletes nothing."""

import re
from collections.abc import Iterable
from dataclasses import replace

from lsm_engine.base.errors import InvalidInputError
from lsm_engine.base.modes import EntryKind
from lsm_engine.base.record import record
from lsm_engine.io.clock import Clock
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.plan.expire import (
    PhysicalFile,
    candidate_buckets,
    dead_candidates,
    physical,
)
from lsm_engine.plan.retention import NO_LIMIT, Retention
from lsm_engine.plan.retention_pins import RetentionSimulation, pins_of
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history.expire import expire
from lsm_engine.table.tags.roots import Roots

_NUMBERED = re.compile(r"^(snapshot|changelog) \d+")


@record
class _At:
    """A clock that always returns `millis`."""

    millis: int
    clock: Clock

    def now_millis(self) -> int:
        """Return the time that is asked about."""
        return self.millis

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """Return the wall clock of now."""
        return self.clock.local_time()

    def sleep_millis(self, millis: int) -> None:
        """Nothing here waits."""
        raise AssertionError(millis)


def simulate_retention(
    session: TableSession, retention: Retention, *, later_millis: int = 0
) -> RetentionSimulation:
    """Return what expiry would do with a retention, repeated until nothing more would go.

    `later_millis`: as if that much time had passed without a commit.
    """
    if later_millis < 0:
        raise InvalidInputError("only the future can be simulated", later_millis=later_millis)
    unlimited = replace(retention, expire_limit=NO_LIMIT)
    at_millis = session.clock.now_millis() + later_millis
    clock = _At(millis=at_millis, clock=session.clock)
    then = session.with_components(replace(session.components, clock=clock))
    report = expire(then, unlimited, dry_run=True)
    expired = {snapshot.id for snapshot in report.plan.expired}
    snapshots = session.snapshots.stable_listing()
    retained = [snapshot for snapshot in snapshots if snapshot.id not in expired]
    history = dead_candidates(Roots(session).delta_entries(snapshots[1:]))

    files_by_root: dict[str, list[PhysicalFile]] = {}
    for root in Roots(session).kept_roots(
        retained, candidate_buckets(history), besides=report.tags
    ):
        files_by_root.setdefault(_NUMBERED.sub(r"\1s", root.name), []).extend(_files(root.entries))
    return RetentionSimulation(
        table=session.name,
        retention=retention,
        at_millis=at_millis,
        readable=tuple(snapshot.id for snapshot in retained),
        tags=tuple(tag.name for tag in session.tags.list() if tag.name not in report.tags),
        expired_tags=report.tags,
        plan=report.plan,
        changelogs=report.changelogs,
        pins=pins_of(history, list(files_by_root.items())),
    )


def _files(entries: Iterable[ManifestEntry]) -> list[PhysicalFile]:
    return [physical(entry) for entry in entries if entry.kind is EntryKind.ADD]
