"""Expire: move the hint → read every root → plan → delete data, then metadata, snapshots last.

The snapshot file goes last because it is the to-do list: after a crash the same plan is found again.
Consumers and tags whose time is over go first, so that they hold nothing back; changelogs that have
outlived their snapshots go last, by a retention of their own.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice

from lsm_engine.base import core_options
from lsm_engine.base.errors import CommitConflictError, CorruptFileError
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes
from lsm_engine.io.paths import EARLIEST
from lsm_engine.meta.consumer import Consumer
from lsm_engine.plan.expire import (
    ExpirePlan,
    MetadataNames,
    candidate_buckets,
    dead_candidates,
    plan_expiry,
    snapshots_to_replay,
)
from lsm_engine.plan.live_snapshots import believed
from lsm_engine.plan.retention import ExpiryChoice, Retention, choose_expired, kept_of_passed
from lsm_engine.store.snapshots import SnapshotStore
from lsm_engine.table.ground.session import TableSession
from lsm_engine.table.history import expire_changelogs, trash
from lsm_engine.table.history.consumer import consumers_over, refuse_put_back
from lsm_engine.table.history.expire_changelogs import changelogs_outlive
from lsm_engine.table.history.rollback_plan import refuse_unfinished, refuse_while_rolled_back
from lsm_engine.table.tags import expire_tags
from lsm_engine.table.tags.removal import carry_out, keep_identifiers, planned_paths
from lsm_engine.table.tags.roots import Roots

log = logging.getLogger(__name__)
_LOOKED_FOR = 1000  # of the files that a dead expiry would have deleted first


@record
class ExpiryReport:
    """What an expiry did, or with `dry_run` would do.

    `plan` is of snapshots, `changelogs` of changelogs that had outlived theirs; `tags` and
    `consumers` are names of those whose time was over.
    """

    plan: ExpirePlan
    dry_run: bool
    changelogs: ExpirePlan | None = None
    tags: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        feed = self.changelogs is not None and not self.changelogs.is_empty
        return self.plan.is_empty and not (feed or self.tags or self.consumers)

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        """Snapshots that go, oldest first."""
        return tuple(snapshot.id for snapshot in self.plan.expired)

    def __str__(self) -> str:
        verb = "would expire" if self.dry_run else "expired"
        files = len(self.plan.data_files) + len(self.plan.changelog_files)
        freed = format_bytes(self.plan.freed_bytes)
        kept = "".join(
            f"; {name} keeps {counted(count, 'file')}" for name, count in self.plan.kept_by
        )
        more = self._others()
        return (
            f"{verb} {counted(len(self.plan.expired), 'snapshot')} and {counted(files, 'data file')} ({freed})"
            f"{more}; {self.plan.reason}{kept}"
        )

    def _others(self) -> str:
        feed = () if self.changelogs is None else self.changelogs.expired_changelogs
        counts = (("changelog", feed), ("tag", self.tags), ("consumer", self.consumers))
        return "".join(f", {counted(len(some), what)}" for what, some in counts if some)


def expire(session: TableSession, retention: Retention, *, dry_run: bool) -> ExpiryReport:
    """Take away the snapshots that retention does not keep; nothing if any root is unreadable."""
    session.options.require_writable()
    return _Expiry(session, retention, dry_run=dry_run).run()


class _Expiry:
    """One expiry. `_seen` is the table as roots are read of it: as it was, once EARLIEST has moved as it is."""

    def __init__(self, session: TableSession, retention: Retention, *, dry_run: bool) -> None:
        self._session = session
        self._seen = session.gathered()
        self._retention = retention
        self._dry_run = dry_run

    def run(self) -> ExpiryReport:
        """Take away what goes: consumers, tags, snapshots, changelogs, old trash."""
        session, retention, dry_run = self._session, self._retention, self._dry_run
        there, over = self._consumers()
        tags = expire_tags.expire_tags(self._seen, dry_run=dry_run, automatic=True).names
        choice = self._choose([one.next_snapshot_id for one in there])
        if choice.expired and not dry_run:
            needing = not (self._reads_changelogs_only or changelogs_outlive(session.options))
            last_id = choice.expired[-1].id if needing else 0
            self._announce(
                choice, lambda: refuse_put_back(self._seen, there, last_id, is_passed=False)
            )
            refuse_put_back(self._seen, there, last_id, is_passed=True)
            there = self._seen.consumers.list()
        plan = self._plan(choice)
        log.info("expiry plan table=%s snapshots=%d", session.name, len(plan.expired))
        if not dry_run and not plan.is_empty:
            carry_out(self._seen, plan)
            names = tuple(file.file_name for file in plan.data_files)
            expired = tuple(snapshot.id for snapshot in plan.expired)
            session.notify(lambda listener: listener.expired(session.name, expired, names))
        changelogs = expire_changelogs.expire_changelogs(
            self._seen, retention, snapshots=choice.retained, consumers=there, dry_run=dry_run
        )
        if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is not None and not dry_run:
            trash.empty(session, everything=False, dry_run=False)
        return ExpiryReport(
            plan=plan, dry_run=dry_run, changelogs=changelogs, tags=tags, consumers=over
        )

    def _consumers(self) -> tuple[list[Consumer], tuple[str, ...]]:
        """Return the consumers that stay, and the names of those whose time was over, which are deleted by then.

        One that has moved since it was read is not over any more.
        """
        over = consumers_over(self._seen, dry_run=self._dry_run)
        gone = {
            consumer.name
            for consumer in over
            if self._dry_run or self._seen.consumers.delete_as_read(consumer)
        }
        kept = [one for one in self._seen.consumers.list() if one not in over]
        for consumer in over:
            moved = None if consumer.name in gone else self._seen.consumers.find_now(consumer.name)
            if moved is not None and moved not in kept:
                kept.append(moved)
        return kept, tuple(consumer.name for consumer in over if consumer.name in gone)

    @property
    def _reads_changelogs_only(self) -> bool:
        return self._session.options[core_options.CONSUMER_CHANGELOG_ONLY]

    def _choose(self, positions: Sequence[int]) -> ExpiryChoice:
        """Return what expires: also what lies below EARLIEST, of an expiry that died, or goes on.

        Where retention keeps some of that and none of its files is deleted yet, EARLIEST may be damaged
        instead: nothing expires then, until retention lets go of all that is below EARLIEST.
        `positions`: the next snapshots of consumers.
        """
        there = self._seen.snapshots.stable_listing()
        refuse_unfinished(there)
        marked = believed(self._seen.snapshots.earliest_hint(), there[-1].id if there else 0)
        now = self._session.clock.now_millis()
        needed = () if self._reads_changelogs_only else positions
        passed = tuple(one for one in there if one.id < marked)
        choice = choose_expired(
            there[len(passed) :], self._retention, now_millis=now, consumer_next_ids=needed
        )
        finished = replace(choice, expired=(*passed, *choice.expired))
        kept = kept_of_passed(
            there, passed, self._retention, now_millis=now, consumer_next_ids=needed
        )
        if kept is None:
            return finished
        only = replace(choice, expired=passed, retained=tuple(there[len(passed) :]))
        # Files go in this order.
        first = islice(planned_paths(self._seen, self._plan(only)), _LOOKED_FOR)
        if not all(map(self._seen.file_io.exists, first)):
            return finished
        reason = f"EARLIEST is {marked}, past snapshots from {passed[0].id} on that retention keeps"
        log.warning(
            "table=%s %s: an expiry died, or EARLIEST is damaged", self._session.name, reason
        )
        return replace(only, expired=(), reason=f"{reason}; see lsm verify")

    def _announce(self, choice: ExpiryChoice, require: Callable[[], None]) -> None:
        """Let other writers know of an expiry; the plan is then made of the table as it is once they do.

        EARLIEST moves before the roots are read that count. They are read once before that, too: a root
        that cannot be read is met while nothing has changed. Whatever fails after that leaves EARLIEST
        where it is: another expiry that found it there may be deleting what it has passed. The next
        expiry takes the snapshots that are left. `require` raises where the choice does not hold any more.
        """
        self._plan(choice)
        require()
        refuse_while_rolled_back(self._seen, choice.retained[-1])
        # Before anybody may take the last snapshot for expired that has the identifier of a commit.
        keep_identifiers(self._session, (*choice.expired, *choice.retained), len(choice.expired))
        try:
            self._raise_fence(choice)
        except CommitConflictError:
            # A rollback is under way: it mends EARLIEST at its end.
            with suppress(CorruptFileError):
                self._session.snapshots.mend_earliest()
            raise

    def _raise_fence(self, choice: ExpiryChoice) -> None:
        """Move EARLIEST to what is kept, then look whether a rollback is in the way.

        Who tags one of the others from now on sees it and gives up, and who did before is a root that
        the plan sees (decisions/0004); a writer that lands on one of their ids sees it, too
        (decisions/0034).
        """
        session, before = self._session, self._seen
        hint = session.paths.snapshot_hint(EARLIEST)
        known = [session.paths.snapshot_file(one.id) for one in (*choice.expired, *choice.retained)]

        def moved() -> SnapshotStore:
            self._seen = session.gathered([*known, hint])
            return self._seen.snapshots

        before.snapshots.advance_earliest(choice.retained[0].id, choice.retained[-1].id, moved)
        if self._seen is before:
            moved()
        if session.options[core_options.COMMIT_FSYNC]:
            session.file_io.sync([hint])  # no power cut may bring ids back that were passed
        refuse_while_rolled_back(self._seen, choice.retained[-1])

    def _plan(self, choice: ExpiryChoice) -> ExpirePlan:
        seen, roots = self._seen, Roots(self._seen)
        roots.expect(chain(choice.expired, choice.retained))
        again = seen.file_io.facts.is_far  # a request for each costs more than what they drive out
        replayed = roots.delta_entries(snapshots_to_replay(choice), keeps=again)
        candidates = dead_candidates(replayed)
        outlived = choice.expired if changelogs_outlive(seen.options) else ()
        feeds = [*seen.changelogs.all(), *outlived]
        kept = roots.kept_roots(choice.retained, candidate_buckets(candidates), changelogs=feeds)
        names = MetadataNames.union(
            roots.expiring_names(one) for one in roots.together(choice.expired)
        )
        return plan_expiry(
            choice,
            candidates,
            changelogs=roots.changelog_entries(choice.expired, keeps=False),
            names=names,
            retained=kept,
            outlived=outlived,
        )
