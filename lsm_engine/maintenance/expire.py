"""Expire snapshots, changelogs, consumers and partitions.

1. Delete the consumers and automatic tags whose time is over: the steps below need not keep files for them.
2. Choose the snapshots that retention does not keep, and plan once: an unreadable reference stops the expiry here.
3. Move EARLIEST to the oldest snapshot that stays. Tags, consumers and commits that are made from now on see it.
4. Look for a rollback, and for consumers that were reset before step 3.
5. Read every retained reference again, and plan which files none of them names.
6. Delete data files, then metadata, then the snapshot files: after a crash they lead to the same plan again.
7. Delete the changelogs that outlived their snapshots, by a retention of their own, and old records of the trash."""

import fnmatch
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from itertools import chain, islice

from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    ErrorKind,
    ExpiredError,
    InvalidInputError,
    InvalidOptionError,
    LsmError,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, format_bytes, parse_age
from lsm_engine.commit.commit import propose
from lsm_engine.format.manifest import BucketScope, ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.maintenance import trash
from lsm_engine.maintenance.rollback import refuse_unfinished, refuse_while_rolled_back
from lsm_engine.metadata.consumers import Consumer
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.expire import (
    ExpirePlan,
    MetadataNames,
    candidate_buckets,
    dead_candidates,
    plan_changelog_expiry,
    plan_expiry,
    snapshots_to_replay,
)
from lsm_engine.planning.proposal import CommitIdentity, Proposal, overwriting
from lsm_engine.planning.retention import (
    ExpiryChoice,
    PartitionAge,
    Retention,
    ages_by_values,
    choose_expired,
    choose_expired_changelogs,
    expired_partitions,
    kept_of_passed,
)
from lsm_engine.planning.snapshot_chain import believed
from lsm_engine.storage.clock import wall_time
from lsm_engine.storage.paths import EARLIEST
from lsm_engine.table import tags as tags_table
from lsm_engine.table.references import (
    References,
    carry_out,
    committed_files,
    keep_identifiers,
    planned_paths,
)
from lsm_engine.table.session import TableSession

# -- Consumers -------------------------------------------------------------------------------------
#
# Named readers of changes. What they still need does not expire.


def reset_consumer(
    session: TableSession, name: str, next_snapshot_id: int | None
) -> Consumer | None:
    """Set a consumer's next snapshot, and create it if it is new; None: delete it. Returns it as it is now.

    Raises ExpiredError, with nothing changed, for a snapshot that no longer can be read from.
    """
    if next_snapshot_id is None:
        if not session.consumers.delete(name):
            raise NotFoundError(f"no consumer {name!r}", kind=ErrorKind.NO_SUCH_FILE, consumer=name)
        return None
    if next_snapshot_id < 1:
        raise InvalidInputError("snapshots are numbered from 1", next_snapshot_id=next_snapshot_id)
    before, now = session.consumers.reset(name, next_snapshot_id)
    try:
        # The consumer is written before EARLIEST is read; an expiry moves EARLIEST before it reads consumers
        # (decisions/0004). So one of the two sees the other.
        first = first_readable(session)
        if first is not None and next_snapshot_id < first:
            session.consumers.take_back(now, before)  # not what others have done to it since
            raise ExpiredError(
                f"snapshot {next_snapshot_id} has expired; the oldest whose changes can be read is {first}",
                snapshot_id=next_snapshot_id,
                earliest_id=first,
            )
        session.consumers.require_there(now, before)
        return session.consumers.find(name)
    except StorageError as cause:
        # The consumer stands there: "retry" alone would hide that.
        raise CommitUnknownError(
            f"the consumer was set to snapshot {next_snapshot_id}, and the storage does not report whether that can "
            "still be read; look before trying again",
            consumer=name,
            path=cause.facts.get("path"),
        ) from cause


def first_readable(session: TableSession) -> int | None:
    """Return the oldest id whose changes can be read, from a snapshot or a changelog."""
    marked = session.snapshots.earliest_hint()
    ids = [_first_changelog(session), marked or session.snapshots.earliest_id()]
    candidates = [number for number in ids if number is not None]
    return min(candidates, default=None)


def _first_changelog(session: TableSession) -> int | None:
    """Return the oldest changelog that no expiry has passed, as it may be deleting those below EARLIEST."""
    ids = session.changelogs.ids()
    marked = session.changelogs.earliest_hint() or 0
    return min([number for number in ids if number >= marked] or ids, default=None)


def refuse_put_back(
    session: TableSession, consumers: Sequence[Consumer], last_id: int, *, is_passed: bool
) -> None:
    """Raise CommitConflictError where a consumer needs a snapshot up to `last_id` that did not when `consumers` were read.

    An expiry asks before EARLIEST moves, and once it has passed them (`is_passed`): a reader that put the consumer there
    may have looked at EARLIEST before that.
    """
    before = {(consumer.name, consumer.next_snapshot_id) for consumer in consumers}
    for consumer in session.consumers.list():
        position = consumer.next_snapshot_id
        if position <= last_id and (consumer.name, position) not in before:
            remedy = (
                "repair the earliest snapshot, so that it can be read again, or move the consumer on"
                if is_passed
                else "expire again"
            )
            raise CommitConflictError(
                f"consumer {consumer.name!r} was put at snapshot {position}, which was about to expire; no "
                f"snapshot was deleted, {remedy}",
                consumer=consumer.name,
                table=session.name,
            )


def clear_consumers(
    session: TableSession, including: str = "*", excluding: str = ""
) -> tuple[str, ...]:
    """Forget the consumers whose names match a pattern such as "etl-*"; return them."""
    expired = [
        consumer.name
        for consumer in session.consumers.list()
        if fnmatch.fnmatchcase(consumer.name, including)
        and not (excluding and fnmatch.fnmatchcase(consumer.name, excluding))
    ]
    for name in expired:
        session.consumers.delete(name)
    # The consumers of a table that was renamed are elsewhere.
    session.identity.require_there()
    return tuple(expired)


def find_expired_consumers(session: TableSession, *, dry_run: bool) -> tuple[Consumer, ...]:
    """Return the consumers that have not moved for `consumer.expiration-time`, by the clock of the storage."""
    lifetime = session.options[core_options.CONSUMER_EXPIRATION_TIME]
    consumers = session.consumers.list() if lifetime is not None else []
    if lifetime is None or not consumers:
        return ()
    # By the clock that stamped the files of the consumers.
    now = session.storage_time(deletes=not dry_run)
    return tuple(consumer for consumer in consumers if now - consumer.modified_millis > lifetime)


# -- Changelogs that outlive their snapshots: when they do, and when they go in their turn ---------


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
    """Return the retention of changelogs: their own options, else that of snapshots, and never less than that."""

    def longer(own: int | None, of_snapshot: int) -> int:
        return of_snapshot if own is None else max(own, of_snapshot)

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
    """Delete the changelogs that retention does not keep; return None if the table has no changelogs.

    `snapshots`: the retained ones, oldest first. Nothing is deleted if a retained reference is unreadable. Raises
    CommitConflictError if a consumer was reset meanwhile to a changelog that would be deleted.
    """
    changelogs = session.changelogs.all()
    if not changelogs:
        return None
    choice = choose_expired_changelogs(
        changelogs,
        snapshots,
        changelog_retention(session.options, of_snapshots),
        now_millis=session.clock.now_millis(),
        consumer_next_ids=[consumer.next_snapshot_id for consumer in consumers],
    )
    plan = _plan_changelogs(session, choice.expired, changelogs, snapshots, choice.reason)
    if plan.expired_changelogs and not dry_run:
        # Moved before anything is deleted, so that a half-deleted changelog is known for one.
        session.changelogs.hint_earliest(plan.expired_changelogs[-1].id + 1)
        # A reader that reset a consumer may have read EARLIEST before it moved.
        refuse_put_back(session, consumers, plan.expired_changelogs[-1].id, is_passed=True)
        carry_out(session, plan, kind="expire-changelogs")
    return plan


def expire_all_changelogs(session: TableSession, *, reason: str) -> ExpirePlan | None:
    """Delete every changelog that has outlived its snapshot; return None if there are none."""
    changelogs = session.changelogs.all()
    if not changelogs:
        return None
    plan = _plan_changelogs(
        session, changelogs, changelogs, session.snapshots.stable_listing(), reason
    )
    # Before the first deletion, so that no reader begins with one that is about to go.
    session.changelogs.hint_earliest(changelogs[-1].id + 1)
    carry_out(session, plan, kind="expire-changelogs")
    return plan


def _plan_changelogs(
    session: TableSession,
    expired: Sequence[Snapshot],
    changelogs: Sequence[Snapshot],
    snapshots: Sequence[Snapshot],
    reason: str,
) -> ExpirePlan:
    references = References(session)
    fed = [snapshot for snapshot in expired if references.fed_by_deltas(snapshot)]
    data = list(references.delta_entries(fed, keeps=False))
    buckets = {(entry.partition, entry.bucket) for entry in data}
    names = MetadataNames.union(references.expiring_names(snapshot) for snapshot in expired)
    retained = references.retained_by_all(
        snapshots,
        buckets,
        changelogs=[snapshot for snapshot in changelogs if snapshot not in expired],
    )
    return plan_changelog_expiry(
        expired,
        [entry for entry in data if entry.kind is EntryKind.ADD],
        references.changelog_entries(expired, keeps=False),
        names=names,
        retained=retained,
        reason=reason,
    )


# -- Expire ----------------------------------------------------------------------------------------

log = logging.getLogger(__name__)
_LOOKED_FOR = 1000  # of the files that a dead expiry would have deleted first


@record
class ExpiryReport:
    """The result of an expiry, or with `dry_run` of its plan.

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
        """Snapshots that expire, oldest first."""
        return tuple(snapshot.id for snapshot in self.plan.expired)

    def __str__(self) -> str:
        verb = "would expire" if self.dry_run else "expired"
        files = len(self.plan.data_files) + len(self.plan.changelog_files)
        freed = format_bytes(self.plan.freed_bytes)
        kept_text = "".join(
            f"; {name} keeps {counted(count, 'file')}" for name, count in self.plan.kept_by
        )
        further_text = self._further_counts()
        return (
            f"{verb} {counted(len(self.plan.expired), 'snapshot')} and {counted(files, 'data file')} ({freed})"
            f"{further_text}; {self.plan.reason}{kept_text}"
        )

    def _further_counts(self) -> str:
        feed = () if self.changelogs is None else self.changelogs.expired_changelogs
        counts = (("changelog", feed), ("tag", self.tags), ("consumer", self.consumers))
        return "".join(f", {counted(len(items), noun)}" for noun, items in counts if items)


def _sweep_iceberg(session: TableSession) -> None:
    """Delete files of the Iceberg metadata that no version names; a failure is logged, as the snapshots have expired."""
    if not session.options.writes_iceberg:
        return
    try:
        import_module("lsm_engine.table.iceberg").sweep(session)
    except LsmError as error:
        log.warning("old Iceberg metadata of table %s was not deleted: %s", session.name, error)


def expire(session: TableSession, retention: Retention, *, dry_run: bool) -> ExpiryReport:
    """Delete the snapshots that retention does not keep; nothing if any retained reference is unreadable."""
    session.options.require_writable()
    return _Expiry(session, retention, dry_run=dry_run).run()


class _Expiry:
    """One expiry.

    `_seen` is the session through which references are read, with documents that are fetched together. It is
    replaced once EARLIEST has moved, as only references that are read after that count.
    """

    def __init__(self, session: TableSession, retention: Retention, *, dry_run: bool) -> None:
        self._session = session
        self._seen = session.gathered()
        self._retention = retention
        self._dry_run = dry_run

    def run(self) -> ExpiryReport:
        """Delete in this order: consumers, tags, snapshots, changelogs, old trash."""
        session, retention, dry_run = self._session, self._retention, self._dry_run
        if not dry_run:
            # Metadata that lags behind may name files that this expiry deletes.
            session.follow_iceberg()
        live_consumers, expired_names = self._consumers()
        tags = tags_table.expire_tags(self._seen, dry_run=dry_run, automatic=True).names
        choice = self._choose([consumer.next_snapshot_id for consumer in live_consumers])
        if not choice.retained:
            # The snapshots and tags of a table that was renamed are elsewhere.
            session.identity.require_there()
        if choice.expired and not dry_run:
            # Once EARLIEST has moved, what expires does not count any more, and the lineage would not see it.
            self._notify_expiring(choice.expired)
            consumers_need_snapshots = not (
                self._reads_changelogs_only or changelogs_outlive(session.options)
            )
            last_id = choice.expired[-1].id if consumers_need_snapshots else 0
            self._announce(
                choice,
                lambda: refuse_put_back(self._seen, live_consumers, last_id, is_passed=False),
            )
            # Once more after EARLIEST has moved: a reset writes its consumer, then reads EARLIEST.
            # One of the two sees the other.
            refuse_put_back(self._seen, live_consumers, last_id, is_passed=True)
            # Consumers may have moved while EARLIEST did.
            live_consumers = self._seen.consumers.list()
        plan = self._plan(choice)
        log.info("expiry plan table=%s snapshots=%d", session.name, len(plan.expired))
        if not dry_run and not plan.is_empty:
            self._require_same_branch(choice)
            carry_out(self._seen, plan)
            session.follow_iceberg()
        changelogs = expire_changelogs(
            self._seen,
            retention,
            snapshots=choice.retained,
            consumers=live_consumers,
            dry_run=dry_run,
        )
        if session.options[core_options.MAINTENANCE_TRASH_RETAINED] is not None and not dry_run:
            trash.empty(session, everything=False, dry_run=False)
        if not dry_run:
            _sweep_iceberg(session)
        return ExpiryReport(
            plan=plan, dry_run=dry_run, changelogs=changelogs, tags=tags, consumers=expired_names
        )

    def _require_same_branch(self, choice: ExpiryChoice) -> None:
        """Raise CommitConflictError where the branch was deleted, and made again of the same tag, or renamed.

        A branch that was made again begins with the same snapshot, which expires here.
        """
        name, newest = self._session.paths.branch_name, choice.retained[-1:]
        if name and newest and not tags_table.is_there(self._session, newest[0]):
            raise CommitConflictError(
                f"branch {name!r} was deleted, renamed or rolled back while it expired; nothing was deleted, try again",
                branch=name,
            )

    def _consumers(self) -> tuple[list[Consumer], tuple[str, ...]]:
        """Delete the consumers whose time is over; return the others, and the names of the deleted ones.

        A consumer that has moved since it was read stays.
        """
        expired_consumers = find_expired_consumers(self._seen, dry_run=self._dry_run)
        deleted = {
            consumer.name
            for consumer in expired_consumers
            if self._dry_run or self._seen.consumers.delete_as_read(consumer)
        }
        live = [listed for listed in self._seen.consumers.list() if listed not in expired_consumers]
        for consumer in expired_consumers:
            # A consumer that moved between two reads counts at its new position.
            moved = (
                None if consumer.name in deleted else self._seen.consumers.find_now(consumer.name)
            )
            if moved is not None and moved not in live:
                live.append(moved)
        return live, tuple(
            consumer.name for consumer in expired_consumers if consumer.name in deleted
        )

    def _notify_expiring(self, snapshots: Sequence[Snapshot]) -> None:
        """Notify every listener of the snapshots that expire; the error of one stops the expiry."""
        session = self._session
        if session.paths.branch_name:
            session.notify_removing()
            return
        for listener in session.components.listeners:
            listener.expiring(session.name, snapshots, partial(committed_files, session))

    @property
    def _reads_changelogs_only(self) -> bool:
        return self._session.options[core_options.CONSUMER_CHANGELOG_ONLY]

    def _choose(self, positions: Sequence[int]) -> ExpiryChoice:
        """Return the snapshots that expire, with those below EARLIEST that another expiry has left or is deleting.

        If retention keeps one of the latter, and none of their files is deleted yet, EARLIEST may be damaged:
        nothing expires until retention keeps no snapshot below EARLIEST. `positions`: the next snapshots of consumers.
        """
        snapshots = self._seen.snapshots.stable_listing()
        # What lies between a marker and its target is the rollback's to delete.
        refuse_unfinished(snapshots)
        marked = believed(
            self._seen.snapshots.earliest_hint(), snapshots[-1].id if snapshots else 0
        )
        now = self._session.clock.now_millis()
        needed = () if self._reads_changelogs_only else positions
        # An expiry that died has passed these: some of their files may be missing.
        passed = tuple(snapshot for snapshot in snapshots if snapshot.id < marked)
        choice = choose_expired(
            snapshots[len(passed) :], self._retention, now_millis=now, consumer_next_ids=needed
        )
        finished = replace(choice, expired=(*passed, *choice.expired))
        retained = kept_of_passed(
            snapshots, passed, self._retention, now_millis=now, consumer_next_ids=needed
        )
        if retained is None:
            return finished
        choice_of_passed = replace(choice, expired=passed, retained=tuple(snapshots[len(passed) :]))
        # Files go in this order.
        first_paths = islice(planned_paths(self._seen, self._plan(choice_of_passed)), _LOOKED_FOR)
        if not all(map(self._seen.file_io.exists, first_paths)):
            return finished
        reason = f"EARLIEST is {marked}, past snapshots from {passed[0].id} on that retention keeps"
        log.warning(
            "table=%s %s: an expiry died, or EARLIEST is damaged", self._session.name, reason
        )
        return replace(choice_of_passed, expired=(), reason=f"{reason}; see lsm verify")

    def _announce(self, choice: ExpiryChoice, require: Callable[[], None]) -> None:
        """Announce an expiry to other processes: move EARLIEST.

        `require` raises if the choice does not hold any more. An error after the move leaves EARLIEST where it is,
        as another expiry may already delete the snapshots below it; the next expiry deletes those that remain.
        """
        # This plan is not carried out: it shows, while nothing has changed, that every reference can be read.
        self._plan(choice)
        require()
        # Before EARLIEST moves too: an expiry that gives up here has changed nothing.
        refuse_while_rolled_back(self._seen, choice.retained[-1])
        # A replay is known by the snapshot of its commit, or else by the file, which is therefore written first.
        keep_identifiers(self._session, (*choice.expired, *choice.retained), len(choice.expired))
        try:
            self._raise_fence(choice)
        except CommitConflictError:
            # A rollback is under way: it mends EARLIEST at its end.
            with suppress(CorruptFileError):
                self._session.snapshots.mend_earliest()
            raise

    def _raise_fence(self, choice: ExpiryChoice) -> None:
        """Move EARLIEST to the oldest retained snapshot, then look for a rollback.

        From now on a process that tags an expiring snapshot sees EARLIEST and gives up; the plan sees a tag that was
        made before (decisions/0004). A commit that gets the id of an expired snapshot sees EARLIEST, too (decisions/0034).
        """
        session, before = self._session, self._seen
        hint = session.paths.snapshot_hint(EARLIEST)
        documents = [
            session.paths.snapshot_file(snapshot.id)
            for snapshot in (*choice.expired, *choice.retained)
        ]

        def moved() -> SnapshotStore:
            self._seen = session.gathered([*documents, hint])
            return self._seen.snapshots

        before.snapshots.advance_earliest(choice.retained[0].id, choice.retained[-1].id, moved)
        # EARLIEST was there already, so that nothing was gathered after the move.
        if self._seen is before:
            moved()
        if session.options[core_options.COMMIT_FSYNC]:
            session.file_io.sync([hint])  # no power cut may bring ids back that were passed
        # A rollback creates its sign, then reads EARLIEST: one of the two sees the other.
        refuse_while_rolled_back(self._seen, choice.retained[-1])

    def _plan(self, choice: ExpiryChoice) -> ExpirePlan:
        session, references = self._seen, References(self._seen)
        references.expect(chain(choice.expired, choice.retained))
        may_read_again = (
            session.file_io.facts.is_remote
        )  # a request for each costs more than what they drive out
        replayed = references.delta_entries(snapshots_to_replay(choice), keeps=may_read_again)
        candidates = dead_candidates(replayed)
        outlived = choice.expired if changelogs_outlive(session.options) else ()
        feeds = [*session.changelogs.all(), *outlived]
        retained = references.retained_by_all(
            choice.retained, candidate_buckets(candidates), changelogs=feeds
        )
        names = MetadataNames.union(
            references.expiring_names(snapshot)
            for snapshot in references.prefetched(choice.expired)
        )
        return plan_expiry(
            choice,
            candidates,
            changelogs=references.changelog_entries(choice.expired, keeps=False),
            names=names,
            retained=retained,
            outlived=outlived,
        )


# -- Partition expiry ------------------------------------------------------------------------------
#
# Old partitions are dropped by a commit. Their files go with the snapshots.


@record
class PartitionExpiryReport:
    """Partitions, by path and oldest first, that went in `snapshot`, or would in a `dry_run`."""

    partitions: tuple[str, ...]
    dry_run: bool
    snapshot: Snapshot | None = None

    def __str__(self) -> str:
        if not self.partitions:
            return "no partition is old enough"
        verb = "would drop" if self.dry_run else "dropped"
        return f"{verb} {counted(len(self.partitions), 'partition')}"


def expire_partitions(
    session: TableSession, identity: CommitIdentity, *, dry_run: bool, older_than: str | None = None
) -> PartitionExpiryReport:
    """Drop the partitions older than `partition.expiration-time`, or than an age such as "30 d".

    Partitions whose values spell no time are kept. Raises InvalidOptionError where no age is known.
    """
    session.options.require_writable()
    if not session.schema.partition_keys:
        raise InvalidInputError(
            "the table has no partitions; nothing can expire", table=session.name
        )
    age = _max_age(session, older_than)
    base = session.snapshots.latest()
    planned = _old_partitions(session, base, age)
    paths = tuple(
        session.context().partition_path(partition_age.partition) for partition_age in planned
    )
    if dry_run or not planned:
        return PartitionExpiryReport(partitions=paths, dry_run=dry_run)
    planned_partitions = {partition_age.partition for partition_age in planned}

    def dropped(on: Snapshot | None) -> Sequence[ManifestEntry]:
        # Computed anew on the base that it lands on: rows that came meanwhile may keep a partition.
        still = {
            partition_age.partition for partition_age in _old_partitions(session, on, age)
        } & planned_partitions
        return (
            () if on is None else session.live_entries(on, BucketScope(partitions=frozenset(still)))
        )

    choose = overwriting(dropped)
    snapshot = propose(
        session, Proposal(identity=identity, kind=CommitKind.OVERWRITE, choose=choose)
    )
    return PartitionExpiryReport(partitions=paths, dry_run=False, snapshot=snapshot)


def _max_age(session: TableSession, older_than: str | None) -> int:
    if older_than is not None:
        return parse_age(older_than)
    age = session.options[core_options.PARTITION_EXPIRATION_TIME]
    if age is None:
        raise InvalidOptionError(
            "the table has no 'partition.expiration-time'; set it, or pass older_than",
            key=core_options.PARTITION_EXPIRATION_TIME.key,
        )
    return age


def _old_partitions(
    session: TableSession, snapshot: Snapshot | None, age: int
) -> tuple[PartitionAge, ...]:
    if snapshot is None:
        return ()
    live = session.live_entries(snapshot)
    options = session.options
    if options[core_options.PARTITION_EXPIRATION_STRATEGY] == "update-time":
        ages, now = _ages_by_update(live), _utc(session.clock.now_millis())
    else:
        partitions = {entry.partition for entry in live}
        ages, now = ages_by_values(session.schema, partitions), wall_time(session.clock)
    return expired_partitions(
        ages,
        before=now - timedelta(milliseconds=age),
        max_count=options[core_options.PARTITION_EXPIRATION_MAX_NUM],
    )


def _ages_by_update(live: Sequence[ManifestEntry]) -> list[PartitionAge]:
    newest: dict[bytes, int | None] = {}
    for entry in live:
        millis_created = entry.file.creation_millis
        greatest = newest.get(entry.partition, 0)
        newest[entry.partition] = (
            None if millis_created is None or greatest is None else max(greatest, millis_created)
        )
    return [
        PartitionAge(partition=partition, time=None if millis is None else _utc(millis))
        for partition, millis in newest.items()
    ]


def _utc(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, tz=UTC)
