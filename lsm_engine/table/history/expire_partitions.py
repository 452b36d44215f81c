"""Partition expiry: old partitions are dropped by a commit. Their files go with the snapshots."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidInputError, InvalidOptionError
from lsm_engine.base.modes import CommitKind
from lsm_engine.base.record import record
from lsm_engine.base.units import counted, parse_age
from lsm_engine.codec.binary_row import decode_row
from lsm_engine.meta.manifest import BucketScope, ManifestEntry
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.plan.partition_age import PartitionAge, PartitionClock, expired_partitions
from lsm_engine.plan.proposal import CommitIdentity, Proposal, overwriting
from lsm_engine.table.commit.commit import propose
from lsm_engine.table.ground.session import TableSession


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
    age = _age(session, older_than)
    base = session.snapshots.latest()
    planned = _over(session, base, age)
    paths = tuple(session.context().partition_path(one.partition) for one in planned)
    if dry_run or not planned:
        return PartitionExpiryReport(partitions=paths, dry_run=dry_run)
    planned_partitions = {one.partition for one in planned}

    def dropped(on: Snapshot | None) -> Sequence[ManifestEntry]:
        # Computed anew on the base that it lands on: rows that came meanwhile may keep a partition.
        still = {one.partition for one in _over(session, on, age)} & planned_partitions
        return (
            () if on is None else session.live_entries(on, BucketScope(partitions=frozenset(still)))
        )

    choose = overwriting(dropped)
    made = propose(session, Proposal(identity=identity, kind=CommitKind.OVERWRITE, choose=choose))
    return PartitionExpiryReport(partitions=paths, dry_run=False, snapshot=made)


def _age(session: TableSession, older_than: str | None) -> int:
    if older_than is not None:
        return parse_age(older_than)
    age = session.options[core_options.PARTITION_EXPIRATION_TIME]
    if age is None:
        raise InvalidOptionError(
            "the table has no 'partition.expiration-time'; set it, or pass older_than",
            key=core_options.PARTITION_EXPIRATION_TIME.key,
        )
    return age


def _over(session: TableSession, snapshot: Snapshot | None, age: int) -> tuple[PartitionAge, ...]:
    if snapshot is None:
        return ()
    live = session.live_entries(snapshot)
    options = session.options
    if options[core_options.PARTITION_EXPIRATION_STRATEGY] == "update-time":
        ages, now = _by_update(live), _utc(session.clock.now_millis())
    else:
        ages, now = _by_values(session, live), _local_now(session)
    return expired_partitions(
        ages,
        before=now - timedelta(milliseconds=age),
        max_count=options[core_options.PARTITION_EXPIRATION_MAX_NUM],
    )


def _by_update(live: Sequence[ManifestEntry]) -> list[PartitionAge]:
    newest: dict[bytes, int | None] = {}
    for entry in live:
        made = entry.file.creation_millis
        known = newest.get(entry.partition, 0)
        newest[entry.partition] = None if made is None or known is None else max(known, made)
    return [
        PartitionAge(partition=partition, time=None if millis is None else _utc(millis))
        for partition, millis in newest.items()
    ]


def _by_values(session: TableSession, live: Sequence[ManifestEntry]) -> list[PartitionAge]:
    fields = session.schema.select(session.schema.partition_keys)
    names, types = [field.name for field in fields], [field.type for field in fields]
    clock = PartitionClock(
        columns=tuple(names),
        pattern=session.options[core_options.PARTITION_TIMESTAMP_PATTERN],
        formatter=session.options[core_options.PARTITION_TIMESTAMP_FORMATTER],
    )
    ages = []
    for partition in sorted({entry.partition for entry in live}):
        values = decode_row(partition, types)
        texts = {
            name: None if value is None else str(value)
            for name, value in zip(names, values, strict=True)
        }
        ages.append(PartitionAge(partition=partition, time=clock.time_of(texts)))
    return ages


def _utc(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, tz=UTC)


def _local_now(session: TableSession) -> datetime:
    year, month, day, hour, minute, second, nanos = session.clock.local_time()
    return datetime(year, month, day, hour, minute, second, nanos // 1000, tzinfo=UTC)
