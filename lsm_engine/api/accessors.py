"""Accessors of a table: operations on its tags, branches, consumers, changes, and its maintenance.

A table has one property for each: `table.tags.create("v1")`, `table.inspect.system("files")`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import pyarrow as pa

from lsm_engine.api.progress import reported
from lsm_engine.base.arguments import checks_all_arguments, checks_arguments
from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.other_libraries import ACCESSORS, missing_attribute
from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER, parse_age
from lsm_engine.changes.follow import Follower, FollowRequest, StartMode
from lsm_engine.changes.range import Point
from lsm_engine.changes.splits import Changes as ChangeRead
from lsm_engine.changes.splits import ChangesRequest
from lsm_engine.compact import plan, rescale
from lsm_engine.filter.partition import partition_rows
from lsm_engine.filter.where import Filter
from lsm_engine.format.snapshot import OPERATION, Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.inspect import explain, system_tables, tree
from lsm_engine.inspect.explain import simulate_retention
from lsm_engine.inspect.snapshots import (
    SnapshotDiff,
    changed_partitions,
    changed_ranges,
    compare,
    hides_level_0,
)
from lsm_engine.inspect.tree import BucketTree, bucket_trees
from lsm_engine.maintenance import branches, expire, orphans, repair, trash, verify
from lsm_engine.maintenance.branches import FastForwardReport
from lsm_engine.maintenance.expire import ExpiryReport, PartitionExpiryReport
from lsm_engine.maintenance.findings import VerifyReport
from lsm_engine.maintenance.orphans import OrphanReport
from lsm_engine.maintenance.repair import RepairReport, RestoreReport
from lsm_engine.maintenance.trash import TrashReport
from lsm_engine.maintenance.verify_files import Progress
from lsm_engine.metadata.consumers import Consumer
from lsm_engine.metadata.trash import TrashRecord
from lsm_engine.planning.compaction import Amplification, BucketForecast, BucketPressure
from lsm_engine.planning.history import FileExplanation, KeyExplanation, RetentionSimulation
from lsm_engine.planning.incremental import ChangeMode
from lsm_engine.planning.proposal import CommitIdentity, CommitOptions
from lsm_engine.planning.retention import NO_LIMIT, retention_of
from lsm_engine.table import branches as branches_table
from lsm_engine.table import tags
from lsm_engine.table.branches import Branch
from lsm_engine.table.bucket_context import partition_paths_of
from lsm_engine.table.names import names_of, partition_columns
from lsm_engine.table.session import TableSession
from lsm_engine.table.tags import AutoTagReport, AutoTags, TagExpiryReport
from lsm_engine.table.time_travel import snapshot_to_read, version_named
from lsm_engine.types.types import DataField

if TYPE_CHECKING:
    from lsm_engine.maintenance.forget import ForgetReport
    from lsm_engine.table.iceberg_state import IcebergState

T = TypeVar("T")


@checks_arguments
def commit_identity(
    session: TableSession,
    commit_user: str | None = None,
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER,
    properties: Mapping[str, str] | None = None,
    *,
    after_identifier: int | None = None,
    operation: str | None = None,
) -> CommitIdentity:
    """Return the identity of a commit from the options of a write; see CommitOptions."""
    if after_identifier is not None and commit_identifier == BATCH_COMMIT_IDENTIFIER:
        raise InvalidInputError(
            "after_identifier is the number before commit_identifier; pass that, too",
            after_identifier=after_identifier,
        )
    if operation is not None and (properties is None or isinstance(properties, Mapping)):
        properties = {OPERATION: operation, **(properties or {})}
    return CommitIdentity(
        commit_user=commit_user or session.ids.new_id(),
        commit_identifier=commit_identifier,
        properties=properties,
        after_identifier=after_identifier,
    )


class SessionHolder(Protocol):
    """A table, as accessors see it: its session is another one after each change of the schema."""

    session: TableSession


class Accessor:
    """Operations of one kind on a table."""

    def __init__(self, table: SessionHolder) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._session.name!r}>"

    if not TYPE_CHECKING:  # a checker goes on refusing names that an accessor lacks

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            raise missing_attribute(kind, name, ACCESSORS.get(kind, {}))

    @property
    def _session(self) -> TableSession:
        return self._table.session

    def _of_table(self, items: list[T]) -> list[T]:
        """Return the items; NotFoundError if there are none because the table was dropped."""
        if not items:  # an empty listing may be that of a directory that a drop has emptied
            self._session.identity.require(None)
        return items

    def _identity(self, commit: CommitOptions) -> CommitIdentity:
        return commit_identity(self._session, **commit)

    def _maintenance_identity(self, commit_user: str | None) -> CommitIdentity:
        return commit_identity(self._session, commit_user=commit_user)


@checks_all_arguments
class Tags(Accessor):
    """The tags of a table: names of snapshots, whose files they retain."""

    def __call__(self) -> list[Tag]:
        """Return the tags, as `list` does."""
        return self.list()

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def names(self) -> list[str]:
        """Return the names of the tags, from one listing; no tag is read."""
        return self._of_table(self._session.tags.names())

    def get(self, name: str) -> Tag:
        """Return one tag; raises NotFoundError."""
        return self._session.tags.load(name)

    def create(
        self,
        name: str,
        snapshot_id: int | None = None,
        retained: str | None = None,
        *,
        from_millis: int | None = None,
    ) -> Tag:
        """Tag a snapshot, by default the newest; its files are retained as long as the tag.

        Args:
            name: Its name, which is no number.
            snapshot_id: The snapshot.
            retained: A lifetime such as "7 d", after which expiry may take the tag; by default it stays.
            from_millis: In place of an id: the first snapshot made at that time or after it, in milliseconds.

        Raises:
            AlreadyExistsError: The name is taken.
            NotFoundError: The snapshot does not exist.
        """
        return tags.create(
            self._session, name, snapshot_id=snapshot_id, from_millis=from_millis, retained=retained
        )

    def replace(
        self, name: str, snapshot_id: int | None = None, retained: str | None = None
    ) -> Tag:
        """Move a tag to another snapshot, by default the newest, in one step; NotFoundError if none."""
        return tags.replace(self._session, name, snapshot_id=snapshot_id, retained=retained)

    def rename(self, name: str, new_name: str) -> Tag:
        """Give a tag another name; raises AlreadyExistsError if that is taken."""
        return tags.rename(self._session, name, new_name)

    def delete(self, name: str) -> None:
        """Delete a tag, and the files that no other snapshot, tag or branch references."""
        tags.delete(self._session, name)

    def expire(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        older_than: str | None = None,
    ) -> TagExpiryReport:
        """Delete tags whose lifetime is over; `older_than`: those created before that age as well."""
        return tags.expire_tags(self._session, dry_run=dry_run, older_than=older_than)

    def create_due(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> AutoTagReport:
        """Create the due tags of `tag.automatic-creation` that no commit has created yet."""
        return AutoTags(self._session).create_due(dry_run=dry_run)

    def list(self) -> list[Tag]:
        """Return the tags by snapshot, then name."""
        tags = self._session.tags.list()
        self._session.identity.require(tags[-1].snapshot if tags else None)
        return tags


@checks_all_arguments
class Branches(Accessor):
    """The branches of a table, each with snapshots, tags and a schema of its own."""

    def __call__(self) -> list[str]:
        """Return the names of the branches, as `names` does."""
        return self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def names(self) -> list[str]:
        """Return the names of the branches, without "main"."""
        return self._of_table(branches_table.branches(self._session).names())

    def create(self, name: str, tag: str | None = None) -> Branch:
        """Make a branch from a tag, or an empty one with the newest schema; `branch(name)` opens it.

        Raises InvalidInputError for names that cannot be, AlreadyExistsError for one that is taken.
        """
        return branches_table.create(self._session, name, tag=tag)

    def rename(self, name: str, new_name: str) -> Branch:
        """Give a branch another name; raises AlreadyExistsError if that is taken."""
        return branches.rename(self._session, name, new_name)

    def delete(self, name: str) -> None:
        """Delete a branch; `remove_orphan_files` deletes the files that only it referenced."""
        branches_table.delete(self._session, name)

    def fast_forward(
        self, name: str, *, force: bool = False, dry_run: bool = False
    ) -> FastForwardReport:
        """Fast-forward the table to a branch: main takes over the branch's snapshots.

        Killed half way, the table is at a snapshot of the branch, and doing it again finishes.

        Args:
            name: The branch.
            force: Roll commits back that the table has made since the branch began.
            dry_run: Return what would be done, and do nothing.

        Raises:
            CommitConflictError: The table has commits of its own since then.
        """
        done = branches.fast_forward(self._session, name, force=force, dry_run=dry_run)
        newest = self._session.schemas.latest()
        if newest is not None and newest.id != self._session.schema.id:
            self._table.session = self._session.with_schema(newest)
        return done


@checks_all_arguments
class Consumers(Accessor):
    """The named readers of the changes of a table. Expiry retains the snapshots that they read next."""

    def __call__(self) -> list[Consumer]:
        """Return the consumers, as `list` does."""
        return self.list()

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self.list())

    def reset(self, name: str, next_snapshot_id: int | None = None) -> Consumer | None:
        """Set a consumer to a snapshot, forwards or back, and create it if it is new; None deletes it.

        Snapshots (or changelogs) from there on are kept. Raises ExpiredError for what was deleted.
        """
        return expire.reset_consumer(self._session, name, next_snapshot_id)

    def clear(self, including: str = "*", excluding: str = "") -> tuple[str, ...]:
        """Delete consumers whose names match a pattern such as "etl-*"; return their names."""
        return expire.clear_consumers(self._session, including, excluding)

    def list(self) -> list[Consumer]:
        """Return the consumers and the snapshots that they read next, by name."""
        return self._of_table(self._session.consumers.list())


@checks_all_arguments
class Changes(Accessor):
    """The changes between snapshots of a table, and those of snapshots to come."""

    def read(
        self,
        after: Point | None = None,
        upto: Point | None = None,
        *,
        after_millis: int | None = None,
        upto_millis: int | None = None,
        mode: str | ChangeMode = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        overwrites: bool = False,
    ) -> ChangeRead:
        """Return a read of the changes after one snapshot, up to and including another.

        Args:
            after: A snapshot or its id, the name of a tag, or what a write returned; 0 is before the first snapshot. After
                a write comes what was committed after it, without the write's own rows if its changelog was there when
                it returned. By default the oldest changes that are kept come first.
            upto: The last snapshot, likewise; by default the newest.
            after_millis: In place of `after`: the latest snapshot at or before this time, in milliseconds.
            upto_millis: In place of `upto`, likewise.
            mode: "changelog" reads what `changelog-producer` made, "delta" the new rows of each commit (no -U is known),
                "auto" the changelog where there is one and else the delta; "diff" compares the two states and leaves
                out what lies between.
            columns: Names, of the table's columns, `_row_kind` and `_snapshot_id`.
            where: A filter, which may also read `_row_kind` and `_snapshot_id`.
            overwrites: Show what overwrites and restores did as well, as `streaming-read-overwrite` does: the rows
                before and after each, compared (tables with a key).

        Raises:
            ExpiredError: Retention has taken the changes.
            NotFoundError: A snapshot or tag does not exist.
            InvalidInputError: The range ends before it begins.
        """
        request = ChangesRequest(
            after=after,
            upto=upto,
            after_millis=after_millis,
            upto_millis=upto_millis,
            mode=_mode(mode),
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            overwrites=overwrites,
        )
        return ChangeRead(self._session, request)

    __call__ = read

    def to_arrow(
        self,
        after: Point | None = None,
        upto: Point | None = None,
        *,
        after_millis: int | None = None,
        upto_millis: int | None = None,
        mode: str | ChangeMode = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        overwrites: bool = False,
    ) -> pa.Table:
        """Return the changes after one snapshot, up to and including another, oldest first.

        Columns: `_snapshot_id`, `_row_kind` (+I, -U, +U, -D), and the table's; or those of `columns` alone.
        A -U stands right before its +U. See `changes`, which does not hold all rows at once.
        """
        return self.read(
            after,
            upto,
            after_millis=after_millis,
            upto_millis=upto_millis,
            mode=mode,
            columns=columns,
            where=where,
            overwrites=overwrites,
        ).to_arrow()

    def follow(
        self,
        start: str = "latest-full",
        *,
        after: Point | None = None,
        snapshot_id: int | None = None,
        timestamp_millis: int | None = None,
        mode: str | ChangeMode = "auto",
        columns: str | Sequence[str] | None = None,
        where: Filter | None = None,
        consumer_id: str | None = None,
        poll_millis: int | None = 1000,
        upto: int | None = None,
    ) -> Follower:
        """Return an iterator over the changes of each snapshot, which waits for new ones.

        A feed into another table counts each change once if it commits each item with its `snapshot_id` as
        `commit_identifier`, under one `commit_user`, and begins `after` that table's `last_commit_identifier`: a number that
        is not greater than the last one of its user changes nothing. With the number before it as `after_identifier` a
        commit is refused where a rollback of that table has left changes out. A consumer alone is not enough: it is created when the
        first item is acknowledged, so that a reader that dies over the first state begins with all rows again.

        Args:
            start: "latest-full" (the state so far as +I, then changes), "latest" (changes), "from-snapshot" and
                "from-snapshot-full" with `snapshot_id`, "from-timestamp" with `timestamp_millis`.
            after: As in `read`: the changes after it, whatever `start`; None: by `start`.
            snapshot_id: Where to start.
            timestamp_millis: When to start.
            mode: As in `read`.
            columns: As in `read`.
            where: As in `read`.
            consumer_id: A name. A later reader of this name goes on where this one stopped, whatever the start, and
                expiry keeps what it still needs. Asking for the next item acknowledges the one before.
            poll_millis: How long to wait before looking again; None: stop when there is nothing new.
            upto: Stop after this snapshot.

        Returns:
            An iterator of items with `snapshot_id`, `is_full`, `to_batches()`, `to_arrow()`, which `upsert` takes as they are.
        """
        request = FollowRequest(
            start=_start(start),
            after=after,
            snapshot_id=snapshot_id,
            timestamp_millis=timestamp_millis,
            mode=_mode(mode),
            columns=None if columns is None else names_of(columns, "columns"),
            where=where,
            consumer_id=consumer_id,
            poll_millis=poll_millis,
            upto=upto,
        )
        return Follower(self._session, request)


def _system_table(name: str, content: str) -> Callable[..., pa.Table]:
    """Return the method of `Inspect` that returns one system table."""

    def read(
        self: "Inspect",
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        where: Filter | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> pa.Table:
        return self.system(name, snapshot_id, tag=tag, where=where, columns=columns)

    read.__name__, read.__qualname__ = name, f"Inspect.{name}"
    read.__doc__ = f"Return the system table `{name}`: {content}; arguments as of `system`."
    return read


@checks_all_arguments
class Inspect(Accessor):
    """System tables and explanations of a table. They change nothing."""

    def system(
        self,
        name: str,
        snapshot_id: int | None = None,
        *,
        tag: str | None = None,
        where: Filter | None = None,
        columns: str | Sequence[str] | None = None,
    ) -> pa.Table:
        """Return a system table; docs/system-tables.md lists them and their columns.

        snapshots, compactions, schemas, options, tags, branches, consumers and aggregation_fields
        describe the table; files, file_key_ranges, file_indexes, partitions, buckets, manifests, manifest_lists
        and statistics of one snapshot, by default the newest. `where` keeps some rows. Raises
        NotFoundError for a name that is none.
        """
        return system_tables.system_table(
            self._session, name, snapshot_id=snapshot_id, tag=tag, where=where, columns=columns
        )

    aggregation_fields = _system_table(
        "aggregation_fields", "what becomes of several values of each column"
    )
    audit_log = _system_table("audit_log", "all changes that are kept, oldest first")
    binlog = _system_table("binlog", "the changes that are kept, a -U and its +U in one row")
    branches = _system_table("branches", "the branches")
    buckets = _system_table("buckets", "sums per bucket")
    compactions = _system_table("compactions", "the COMPACT snapshots")
    consumers = _system_table("consumers", "the named readers")
    damaged_files = _system_table(
        "damaged_files", "files that are missing or wrong, and what that concerns"
    )
    file_indexes = _system_table("file_indexes", "the indexes of live files")
    file_key_ranges = _system_table("file_key_ranges", "the keys of each live file")
    files = _system_table("files", "the live data files, level 0 included")
    health = _system_table("health", "what the doctor finds, with what it costs and what mends it")
    manifest_lists = _system_table("manifest_lists", "the manifest lists")
    manifests = _system_table("manifests", "the manifests, with the bounds that readers prune by")
    options = _system_table("options", "the options that the table sets")
    partitions = _system_table("partitions", "sums per partition")
    schemas = _system_table("schemas", "the versions of the schema")
    snapshots = _system_table("snapshots", "the snapshots")
    statistics = _system_table("statistics", "what an analysis left with the snapshot")
    table_indexes = _system_table("table_indexes", "the index files")
    tags = _system_table("tags", "the tags")

    def tree(self, snapshot: Snapshot | int | None = None) -> list[BucketTree]:
        """Return each bucket's LSM tree: its sorted runs, newest first, with their sizes.

        Of the newest snapshot, or of one given whole or by its id. Raises as `snapshot()` does.
        """
        loaded = self._session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return bucket_trees(self._session, loaded)

    def partition_path(self, partition: bytes | Mapping[str, object]) -> str:
        """Return the directory of a partition, such as `dt=2024-01-01`.

        Given as it is stored in facts, or by its values: {"dt": "2024-01-01"}, all columns named.
        """
        # Facts hold partitions as stored bytes, which need no values.
        if isinstance(partition, bytes):
            return self._session.context().partition_path(partition)
        return self.partition_paths({name: [value] for name, value in partition.items()})[0]

    def partition_paths(self, columns: Mapping[str, Sequence[object]]) -> list[str]:
        """Return the directories of partitions, given as the values of every partition column."""
        schema = self._session.schema
        return partition_paths_of(schema, partition_columns(schema, columns))

    def partition_rows(self, partitions: Sequence[bytes]) -> pa.Table:
        """Return partitions, given as they are stored in facts, as a table of the partition columns."""
        return _decoded_rows(
            partitions, self._session.schema.select(self._session.schema.partition_keys)
        )

    def key_rows(self, keys: Sequence[bytes]) -> pa.Table:
        """Return keys, given as they are stored in facts, as a table of the key without partition columns."""
        schema = self._session.schema
        return _decoded_rows(keys, schema.select(schema.trimmed_primary_keys))

    def pressure(self) -> list[BucketPressure]:
        """Return the compaction debt of each bucket, the greatest first."""
        return plan.bucket_pressures(self._session)

    def due_buckets(self) -> frozenset[tuple[bytes, int]]:
        """Return the (partition, bucket) pairs, as in `pressure()`, that `compact()` would work on now."""
        return plan.due_buckets(self._session)

    def forecast(self) -> list[BucketForecast]:
        """Return each bucket's debt, and when it is due at the pace of the newest commits."""
        return plan.bucket_forecasts(self._session)

    def amplification(self, commit_count: int | None = None) -> Amplification:
        """Return the write, read and space amplification of the tree.

        Over the newest `commit_count` snapshots, by default all that have not expired.
        """
        return tree.measured(self._session, commit_count=commit_count)

    def lookup_metrics(self) -> pa.Table:
        """Return, per lookup file of this process, how many keys it was asked for and how many it had.

        Columns: `lookup_file`, `used_by` (lookup or compaction), `file_size_in_bytes`, `request_count`,
        `hit_count`, `removal_cause`: null while it is there, else explicit (its data file left the levels, or
        its reader closed), replaced (found damaged), expired (idle) or size. Of removed files the last
        1,000 of the process are known. `lsm cache --files` shows those of other processes.
        """
        return tree.lookup_metrics(self._session)

    def diff_snapshots(
        self, first: int | str | None, second: int | str | None = None
    ) -> SnapshotDiff:
        """Return the files added and removed from one snapshot, by id or tag, to another (None: the newest).

        `first` None: from nothing. Raises NotFoundError for a snapshot or tag that is not there.
        """
        newer = snapshot_to_read(self._session, **version_named(second))
        if newer is None:
            raise NotFoundError(
                "the table is empty; there is no snapshot to compare",
                kind=ErrorKind.NO_SUCH_SNAPSHOT,
            )
        older = (
            snapshot_to_read(self._session, **version_named(first)) if first is not None else None
        )
        return compare(self._session, older, newer)

    def changed_partitions(self, snapshot: Snapshot | int) -> frozenset[str] | None:
        """Return the partitions whose rows a commit may have changed, as `dt=2024-01-01`; None: any.

        "" stands for the whole of a table without partitions. A compaction changes none, unless
        `hides_level_0`: then it changes those whose rows it takes up, and a write alone none. What
        expired snapshots changed: `Lineage.commits_of_table`. Raises as `snapshot()` does.
        """
        loaded = self._session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return changed_partitions(self._session, loaded)

    def changed_ranges(self, snapshot: Snapshot | int, column: str) -> pa.Table | None:
        """Return in which range of a column's values a commit may have changed rows; None: any rows.

        A row per file that came or went: `partition_path`, `low` and `high`; null: any value. Of a
        partition column they are exact. Of another they are the file's least and greatest value, of a
        primary key and of append tables alone: other columns of a row with a key may have had any
        value before. Files in which it is null throughout are left out. Raises as `snapshot()` does.
        """
        loaded = self._session.snapshots.load(snapshot) if isinstance(snapshot, int) else snapshot
        return changed_ranges(self._session, loaded, column)

    @property
    def hides_level_0(self) -> bool:
        """Whether rows are read once a compaction has taken them up: first-row, deletion vectors."""
        return hides_level_0(self._session)

    def explain_key(
        self, key: Mapping[str, Any], snapshot_id: int | None = None, tag: str | None = None
    ) -> KeyExplanation:
        """Return every stored version of one key in merge order, and the rule that decided.

        `key`: the primary key columns. Of the newest snapshot, or of one that an id or a tag names.
        `print(table.explain_key({"id": 5}))` is readable; `.versions` is an Arrow table. Raises
        InvalidInputError for keys that are missing, null or of another type.
        """
        snapshot = snapshot_to_read(self._session, snapshot_id=snapshot_id, tag=tag)
        is_named = snapshot is not None and (snapshot_id, tag) != (None, None)
        session = (
            self._session.as_of(snapshot) if is_named and snapshot is not None else self._session
        )
        return explain.explain_key(session, snapshot, key)

    def explain_file(self, file_name: str) -> FileExplanation:
        """Return which commit added a data file, which compaction took it, and what pins it.

        Raises NotFoundError if no snapshot, tag or branch names it.
        """
        return explain.explain_file(self._session, file_name)

    def simulate_retention(
        self,
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: str | None = None,
        later: str = "0 ms",
    ) -> RetentionSimulation:
        """Return what a retention would keep and free, and what pins what; change nothing.

        Arguments as of `expire_snapshots`; `later`: as if that much time had passed, such as "7 d".
        """
        retention = retention_of(
            self._session.options,
            retain_min=retain_min,
            retain_max=retain_max,
            older_than=older_than,
        )
        return simulate_retention(self._session, retention, later_millis=parse_age(later))

    def iceberg(self) -> "IcebergState":
        """Return what the Iceberg metadata shows (docs/iceberg.md): which snapshot, how far behind, and why."""
        state: IcebergState = _iceberg().state(self._session.newest())
        return state


def _iceberg() -> Any:
    # Imported on use: few tables have such metadata, and every process would pay for the import.
    return import_module("lsm_engine.table.iceberg_state")


@checks_all_arguments
class Maintenance(Accessor):
    """Expiry, repair, verification and undo. By default a repair returns its plan and changes nothing."""

    def expire(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- the documented front door
        *,
        retain_min: int | None = None,
        retain_max: int | None = None,
        older_than: str | timedelta | None = None,
        everything: bool = False,
    ) -> ExpiryReport:
        """Expire snapshots past their retention, and delete the files that only they reference.

        Tags, branches and changelogs keep their files. Tags and consumers whose time is over go as well, and changelogs by
        the options `changelog.*`. Nothing is deleted unless every root could be read.

        Args:
            dry_run: Return what would be deleted, and delete nothing.
            retain_min: Snapshots that always stay; by default `snapshot.num-retained.min`.
            retain_max: Snapshots that stay at most; by default `snapshot.num-retained.max`. To keep the newest snapshot
                alone: `expire(retain_min=1, retain_max=1)`.
            older_than: An age such as "1 h", or a timedelta; by default `snapshot.time-retained`.
            everything: Expire all that is past its retention in one call, not `snapshot.expire.limit` snapshots of it.
        """
        retention = retention_of(
            self._session.options,
            retain_min=retain_min,
            retain_max=retain_max,
            older_than=older_than,
        )
        if everything:
            retention = replace(retention, expire_limit=NO_LIMIT)
        return expire.expire(self._session, retention, dry_run=dry_run)

    def remove_orphan_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- the documented front door
        older_than: str | timedelta = "1 d",
        *,
        force: bool = False,
    ) -> OrphanReport:
        """Find, and with `dry_run=False` delete, files that nothing names: no snapshot, tag,
        changelog or branch.

        Writers that died leave such files. Nothing is deleted unless every root could be read.

        Args:
            dry_run: Find them, and delete none.
            older_than: Only files of this age or more are touched, by the storage's own clock.
            force: Allow ages below a day: a commit that is being written has files that nothing names yet.
        """
        return orphans.remove_orphans(
            self._session, dry_run=dry_run, older_than=older_than, force=force
        )

    def expire_partitions(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        older_than: str | None = None,
        commit_user: str | None = None,
    ) -> PartitionExpiryReport:
        """Drop partitions older than `partition.expiration-time`, or than an age such as "30 d".

        One commit drops them all; their files go when its predecessors expire. A partition's age is
        taken from its values, or its newest file (`partition.expiration-strategy`); those
        whose values spell no time are kept for ever.
        """
        identity = self._maintenance_identity(commit_user)
        return expire.expire_partitions(
            self._session, identity, dry_run=dry_run, older_than=older_than
        )

    def rescale(
        self,
        buckets: int,
        partitions: Sequence[Mapping[str, object]] | None = None,
        **commit: Unpack[CommitOptions],
    ) -> Snapshot | None:
        """Give partitions, or the whole table, another number of buckets; rows stay the same.

        Every partition is rewritten at once, in an OVERWRITE snapshot; then the option `bucket`, which
        new partitions go by, has the number. Partitions left out keep theirs, and are read and written
        by it. Other clients write to them only once they are rescaled as well. Returns None if all of them have that number already; raises InvalidOptionError for tables
        whose buckets are not a number, CommitConflictError if others keep writing to them.
        """
        identity = self._identity(commit)
        schema, snapshot = rescale.rescale(self._session, buckets, identity, partitions=partitions)
        self._table.session = self._session.with_schema(schema)
        return snapshot

    def verify(
        self,
        snapshot_id: int | None = None,
        *,
        deep: bool = False,
        incremental: bool = False,
        progress: Progress | bool | None = None,
    ) -> VerifyReport:
        """Check that every snapshot and tag (or one snapshot) reads: files, sizes, totals, levels.

        All problems are listed; none is raised. On Spark: `spark.verify_table`.

        Args:
            snapshot_id: Only this snapshot.
            deep: Read every page of every data file as well.
            incremental: Leave files out that an earlier incremental verification read and that have not changed.
            progress: True shows the number of files in a notebook or a terminal. A function is called with the path
                of each file, and how many were read before it.
        """
        with reported("files", progress=progress) as report:
            return verify.verify(
                self._session,
                snapshot=snapshot_id,
                deep=deep,
                incremental=incremental,
                progress=report,
            )

    def restore_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RestoreReport:
        """Find damaged and missing data files; with `dry_run=False` restore their rows.

        From the inputs of the compaction that wrote a file, the changelog of its commit, or older rows
        in a snapshot, tag or trash record; the report counts what each has, and what nothing has.
        """
        return repair.restore_files(
            self._session, self._maintenance_identity(commit_user), dry_run=dry_run
        )

    def remove_damaged_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Find damaged and missing data files of the newest state; with `dry_run=False` drop them from it."""
        return repair.remove_damaged_files(
            self._session, self._maintenance_identity(commit_user), dry_run=dry_run
        )

    def remove_unexisting_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Find missing data files of the newest state; with `dry_run=False` drop them from it."""
        identity = self._maintenance_identity(commit_user)
        return repair.remove_unexisting_files(self._session, identity, dry_run=dry_run)

    def remove_broken_records(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find records beside the snapshots that cannot be read; with `dry_run=False` remove them."""
        return repair.remove_broken_records(self._session, dry_run=dry_run)

    def repair_earliest_snapshot(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find snapshots below the oldest whole one; with `dry_run=False` delete their files."""
        return repair.repair_earliest_snapshot(self._session, dry_run=dry_run)

    def repair_latest_snapshot(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
    ) -> RepairReport:
        """Find snapshots above the newest readable one where the newest is lost, and a LATEST that names none.

        With `dry_run=False` take their files away, and with them what they committed; a newer one that a tag
        holds comes back.
        """
        return repair.repair_latest_snapshot(self._session, dry_run=dry_run)

    def compact_manifest(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """Rewrite the manifests of the newest state as fewer, without deleted entries."""
        return repair.compact_manifest(
            self._session, self._maintenance_identity(commit_user), dry_run=dry_run
        )

    def purge_files(
        self,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        commit_user: str | None = None,
    ) -> RepairReport:
        """List all files of the table; with `dry_run=False` delete its rows and history for good."""
        return repair.purge_files(
            self._session, self._maintenance_identity(commit_user), dry_run=dry_run
        )

    def forget(
        self,
        keys: Any,
        dry_run: bool = True,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        rewrite_tags: bool = False,
        rewrite_branches: bool = False,
        move_consumers: bool = False,
        unreferenced_older_than: str = "1 d",
    ) -> "ForgetReport":
        """Show where keys are stored; with `dry_run=False` remove them everywhere, and prove that.

        `keys`: the primary key columns, as for `delete`; of a table without a primary key any of its
        columns. Every stored version goes: from data files, changelogs, manifests, statistics, indexes,
        the trash, local caches and the catalog. All snapshots but the newest state are expired; time
        travel to them is lost. Tags and branches that hold a key refuse unless `rewrite_tags` and
        `rewrite_branches` allow that they are written anew without it, and so do consumers that have
        not read all changes, unless `move_consumers`. Files that nothing names go once they are older
        than `unreferenced_older_than`. No changelog is emitted: readers of changes are yours to notify.

        The report's `is_clean`: whether a search of every file at the end found none of the keys.
        What lies elsewhere, such as backups, is not searched: docs/forget.md. Raises InvalidInputError,
        with nothing changed, for refusals, UnsupportedError on a branch.
        """
        # Imported on use: few processes ever forget keys, and each would pay for the import.
        plans = import_module("lsm_engine.maintenance.forget_plan")
        forget = import_module("lsm_engine.maintenance.forget").forget
        scope = plans.ForgetScope(
            rewrite_tags=rewrite_tags,
            rewrite_branches=rewrite_branches,
            move_consumers=move_consumers,
            unreferenced_older_than=unreferenced_older_than,
        )
        report: ForgetReport = forget(self._session, keys, scope, dry_run=dry_run)
        return report

    def sync_iceberg(self, *, rebuild: bool = False) -> "IcebergState":
        """Have the Iceberg metadata show the newest snapshot, as each commit does, and return what it shows.

        `rebuild`: write all of it anew, from the newest state. Raises UnsupportedError, naming the file, where readers of
        Iceberg would misread one.
        """
        import_module("lsm_engine.table.iceberg").sync(self._session, rebuild=rebuild)
        state: IcebergState = _iceberg().state(self._session.newest())
        return state

    def trash(self) -> list[TrashRecord]:
        """Return the records of the trash, oldest first: files that maintenance removed and can restore."""
        return trash.trash_of(self._session).list()

    def undo(self, name: str | None = None) -> TrashRecord:
        """Restore the files of one record of the trash, by default the newest; return the record.

        Raises NotFoundError for an empty trash, InvalidInputError if the table has new
        snapshots, so that those of the trash no longer fit.
        """
        self._session.options.require_writable()
        return trash.undo(self._session, name)

    def empty_trash(
        self,
        dry_run: bool = False,  # noqa: FBT001, FBT002 -- as the other verbs of maintenance
        *,
        everything: bool = False,
    ) -> TrashReport:
        """Delete the files of records older than `maintenance.trash-retained`, or `everything`."""
        self._session.options.require_writable()
        return trash.empty(self._session, everything=everything, dry_run=dry_run)


def _decoded_rows(stored: Sequence[bytes], fields: Sequence[DataField]) -> pa.Table:
    return partition_rows(pa.array(stored, pa.binary()), fields)


def _mode(text: str | ChangeMode) -> ChangeMode:
    try:
        return ChangeMode(text)
    except ValueError as cause:
        modes = ", ".join(mode.value for mode in ChangeMode)
        raise InvalidInputError(f"changes are read in mode {modes}", mode=text) from cause


def _start(text: str) -> StartMode:
    try:
        return StartMode(text)
    except ValueError as cause:
        modes = ", ".join(mode.value for mode in StartMode)
        raise InvalidInputError(f"following starts at one of {modes}", start=text) from cause
