"""What a table is run with: storage, clock, random ids, an executor and listeners."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Protocol, TypeAlias, runtime_checkable

from lsm_engine.base.record import record
from lsm_engine.io.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.io.directory_lock import directory_lock
from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.manifest import ManifestEntry, ManifestFileMeta
from lsm_engine.meta.snapshot import Snapshot
from lsm_engine.meta.tag import Tag
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.executor import Executor, LocalExecutor

TreeKey: TypeAlias = tuple[str, bytes, int]
"""Branch, partition and bucket."""
_WITHOUT = 10
"""So many attempts after waiting in vain take no turns: who holds the lock may be stopped for hours."""
_MOST_WITHOUT = 1_000
"""As many as they may become, twice as many each time."""
_PATIENCE_MILLIS = 2_000


@record
class CommittedFiles:
    """The files that one commit published, for listeners such as the lineage catalog."""

    snapshot: Snapshot
    schema: TableSchema
    base_manifests: tuple[ManifestFileMeta, ...]
    delta_manifests: tuple[ManifestFileMeta, ...]
    changelog_manifests: tuple[ManifestFileMeta, ...]
    delta: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...]


@record
class Removal:
    """What one act of maintenance removed, and why. `files` are bare names, `branch` "" is main.

    `kind`: expire-snapshots, expire-changelogs, expire-tags, delete-tag, replace-tag, rollback,
    delete-branch, fast-forward, remove-orphans, empty-trash, repair, forget.
    """

    removal_id: str
    kind: str
    reason: str
    at_millis: int
    branch: str = ""
    snapshot_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    freed_bytes: int = 0


class TableListener(Protocol):
    """Is notified of what has become visible. A listener that fails is logged, no more."""

    def committed(self, table: str, files: CommittedFiles) -> None:
        """A snapshot was published."""
        ...

    def altered(self, table: str, schema: TableSchema) -> None:
        """A new schema is in force."""
        ...

    def tagged(self, table: str, tag: Tag) -> None:
        """A tag was created."""
        ...

    def untagged(self, table: str, name: str) -> None:
        """A tag was deleted."""
        ...

    def expired(
        self, table: str, snapshot_ids: tuple[int, ...], removed_files: tuple[str, ...]
    ) -> None:
        """Snapshots were taken by retention, and data files, by name, went with them."""
        ...

    def rolled_back(self, table: str, to_snapshot_id: int, sealed_millis: int | None) -> None:
        """Every snapshot after this one was removed; their ids will be used again."""
        ...

    def removed(self, table: str, removal: Removal) -> None:
        """Maintenance took something away."""
        ...

    def on_branch(self, branch: str) -> "TableListener":
        """Return the listener for a branch of the table that is heard of under the same name."""
        ...


@record
class StoredKeys:
    """Keys of a table as stored rows, by partition; under None where a key determines no partition.

    `emptied_partitions` hold no row any more. `texts` are the keys' long values, as they stand in files.
    """

    by_partition: tuple[tuple[bytes | None, frozenset[bytes]], ...]
    emptied_partitions: frozenset[bytes]
    texts: tuple[bytes, ...]


@runtime_checkable
class KeyHolder(Protocol):
    """A listener that keeps stored keys, such as the least and greatest of files, and can forget them."""

    def rows_with_keys(self, table: str, keys: StoredKeys) -> int:
        """Return how many of its rows about a table hold one of the keys, or an emptied partition."""
        ...

    def forget_keys(self, table: str, keys: StoredKeys) -> None:
        """Take the keys out of its rows, and out of the bytes of its files."""
        ...

    def files_with_texts(self, texts: tuple[bytes, ...]) -> tuple[tuple[str, bytes], ...]:
        """Return the paths of its files that hold one of some texts as bytes, each with the text."""
        ...


class SkippedPicks:
    """Counts per bucket the picks that took nothing. Threads may share it; it dies with its table object.

    Java counts in its writers, and a restarted one begins anew, too (decision 41).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[TreeKey, int] = {}

    def is_due(self, tree: TreeKey, max_interval: int) -> bool:
        """Count one more pick; True, and from 0 again, if it is the `max_interval`-th."""
        with self._lock:
            count = self._counts.pop(tree, 0) + 1
            if count >= max_interval:
                return True
            self._counts[tree] = count
        return False

    def would_be_due(self, tree: TreeKey, max_interval: int) -> bool:
        """Return what `is_due` would, and count nothing."""
        with self._lock:
            return self._counts.get(tree, 0) + 1 >= max_interval


class CommitTurns:
    """The turns that attempts of a table's commits take with other processes of this machine. Threads may share it.

    Nothing rests on turns: who waits in vain, as behind a process that was stopped, goes on without,
    and writers on other machines or of other clients take none (decision 33).
    """

    def __init__(self) -> None:
        self._without = 0
        self._in_vain = _WITHOUT

    @contextmanager
    def taken(self, file_io: FileIO, directory: str, clock: Clock) -> Iterator[None]:
        """Wait for a turn and hold it for one attempt, unless it was waited for in vain lately."""
        if self._without > 0:
            self._without -= 1
            yield
            return
        with directory_lock(file_io, directory, clock, patience_millis=_PATIENCE_MILLIS) as is_ours:
            if is_ours:
                self._in_vain = _WITHOUT
            else:
                self._without, self._in_vain = self._in_vain, min(2 * self._in_vain, _MOST_WITHOUT)
            yield


@record
class Components:
    """Objects with behaviour; settings are in the table's options."""

    file_io: FileIO
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    executor: Executor = field(default_factory=LocalExecutor)
    listeners: tuple[TableListener, ...] = ()
    skipped_picks: SkippedPicks = field(default_factory=SkippedPicks)
    commit_turns: CommitTurns = field(default_factory=CommitTurns)
