"""The components of a table: storage, clock, random ids, an executor and listeners."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from lsm_engine.base.errors import UnsupportedError
from lsm_engine.base.record import record
from lsm_engine.format.commit_message import CommitMessage
from lsm_engine.format.manifest import ManifestEntry, ManifestFileMeta, StoredKeys
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.storage.clock import Clock, IdSource, SystemClock, SystemIds
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.location import plain_path, scheme_of
from lsm_engine.storage.locks import directory_lock
from lsm_engine.storage.options import NO_OPTIONS, StorageOptions
from lsm_engine.table.bucket_context import Staging
from lsm_engine.types.table_schema import TableSchema

# -- Executors: the protocol, and that of one process ----------------------------------------------

T = TypeVar("T")
R = TypeVar("R")
Discard = Callable[[Sequence[CommitMessage]], None]

LIGHT_BYTES = 128 << 10
"""Files of an item, together, below which work on it is the interpreter's rather than that of loops and Parquet.

Threads would only take turns then: two take a third more CPU than one, and as long.
"""


def _never(item: object) -> bool:
    del item
    return False


class Executor(Protocol):
    """Runs one function over many values. Function and values pickle; storage is all they share."""

    def check_storage(self, file_io: FileIO) -> None:
        """Raise InvalidOptionError for storage that tasks do not share with this process.

        Called before `messages`; `stage` checks for itself.
        """
        ...

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Return what the work on each item has to commit, in any order; None means nothing.

        `is_remote`: the work waits for the answers of a store. `label` is for people. The first error is
        raised after all other work has stopped, and after what the other items have to commit was handed
        to `discard`, which deletes its files.
        """
        ...

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Write rows that only this executor can read, such as a Spark DataFrame, as level-0 files.

        None: the rows are not of that kind, and nothing was done. Files of a failed attempt are
        deleted as far as they are known.
        """
        ...

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any, Any], Any] | None:
        """Return what stages a MERGE (`table.write.merge.MergePlan`) of rows that only this executor reads.

        What is returned is called with the table and the state to look at, as `write_looked_up` does. None: the rows
        are not of that kind.
        """
        ...


class LocalExecutor:
    """Threads of this process: the kernels and Parquet release the interpreter's lock."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(8, len(os.sched_getaffinity(0)))

    def check_storage(self, file_io: FileIO) -> None:
        """Threads see what their process sees."""

    def messages(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Sequence[T],
        *,
        label: str,
        discard: Discard,
        is_remote: bool = False,
    ) -> list[CommitMessage]:
        """Run the work on up to `threads` threads; on light items here, unless it waits for a store."""
        del label
        done = self.one_by_one(work, items, discard=discard, is_remote=is_remote)
        return [message for message in done if message is not None]

    def one_by_one(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Iterable[T],
        *,
        discard: Discard,
        is_remote: bool = False,
    ) -> Iterator[CommitMessage | None]:
        """Yield what the work on each item has to commit, in the order of the items.

        If one fails, or the reader gives up, what the others have finished is handed to `discard`.
        """
        finished: list[CommitMessage] = []

        def finish(item: T) -> CommitMessage | None:
            message = work(item)
            if message is not None:
                finished.append(message)
            return message

        try:
            yield from self.ordered(finish, items, is_light=_never if is_remote else _is_light)
        except BaseException:
            # The finished work is not going to be committed, so that its files would be orphans.
            discard(finished)
            raise

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Arrow rows are written by dml/write.py."""
        del staging, rows
        return None

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any, Any], Any] | None:
        """Arrow rows are merged by dml/merge.py."""
        del session, source, plan
        return None

    def ordered(
        self,
        work: Callable[[T], R],
        items: Iterable[T],
        *,
        is_light: Callable[[T], bool] = _never,
    ) -> Iterator[R]:
        """Yield results in the order of the items, at most `threads` items ahead of the reader.

        Light items are worked on by the calling thread, when their results are asked for.
        """
        following = iter(items)  # of very many splits each is made when it is come to
        first = list(islice(following, self.threads))
        # One item gains nothing by a thread.
        if len(first) <= 1:
            yield from map(work, chain(first, following))
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="lsm") as pool:

            def begun(item: T) -> Future[R] | Callable[[], R]:
                return partial(work, item) if is_light(item) else pool.submit(work, item)

            waiting = [begun(item) for item in first]
            try:
                while waiting:
                    head = waiting.pop(0)
                    result = head.result() if isinstance(head, Future) else head()
                    waiting += [begun(item) for item in islice(following, 1)]
                    yield result
            finally:
                for late in waiting:
                    if isinstance(late, Future):
                        late.cancel()


def _is_light(item: object) -> bool:
    return 0 < getattr(item, "size_bytes", LIGHT_BYTES) < LIGHT_BYTES


# -- Components of a table: storage, clock, ids, executor, listeners -------------------------------

TreeKey: TypeAlias = tuple[str, bytes, int]
"""Branch, partition and bucket."""
_WITHOUT = 10
"""So many attempts after waiting in vain take no turns: the holder of the lock may be stopped for hours."""
_MOST_WITHOUT = 1_000
"""As many as they may become, twice as many each time."""
_PATIENCE_MILLIS = 2_000


@record
class CommittedFiles:
    """The files that one commit published, for the lineage."""

    snapshot: Snapshot
    schema: TableSchema
    base_manifests: tuple[ManifestFileMeta, ...]
    delta_manifests: tuple[ManifestFileMeta, ...]
    changelog_manifests: tuple[ManifestFileMeta, ...]
    delta: tuple[ManifestEntry, ...]
    changelog: tuple[ManifestEntry, ...]


@record
class PublishedSnapshot:
    """A snapshot that was just published on a branch, and the one that it was made on.

    `read` reads the files of a snapshot.
    """

    snapshot: Snapshot
    base: Snapshot | None
    branch: str
    read: Callable[[Snapshot], CommittedFiles]


@record
class Removal:
    """The files that one maintenance operation removed, and the reason. `files` are bare names, `branch` "" is main.

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
    """Is notified of new schemas, and of what maintenance removes. One that fails afterwards is logged, no more."""

    def altered(self, table: str, schema: TableSchema) -> None:
        """A new schema is in force."""
        ...

    def shown_by_iceberg(
        self, table: str, options: Mapping[str, str], current: Callable[[], str | None]
    ) -> None:
        """Iceberg metadata was written, or deleted. `current` returns the location of the newest version, if any.

        `options`: those of the table, which may give readers of Iceberg another name for it.
        """
        ...

    def committed_beside_others(self, table: str, published: PublishedSnapshot) -> None:
        """A snapshot was published where another client, which may replace it by a rename, commits as well."""
        ...

    def removing(self, table: str) -> None:
        """Maintenance is about to remove something. An error stops it before anything is removed."""
        ...

    def expiring(
        self,
        table: str,
        snapshots: Sequence[Snapshot],
        read: Callable[[Snapshot], CommittedFiles],
    ) -> None:
        """Snapshots of main are about to expire; `read` reads their files. An error stops it, as that of `removing`."""
        ...

    def removed(self, table: str, removal: Removal) -> None:
        """Maintenance took something away."""
        ...


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

    Nothing rests on turns: a writer that waits in vain, as behind a stopped process, goes on without,
    and writers on other machines or of other clients take none (decision 33).
    """

    def __init__(self) -> None:
        self._without = 0
        self._in_vain = _WITHOUT

    @contextmanager
    def turn(self, file_io: FileIO, directory: str, clock: Clock) -> Iterator[None]:
        """Wait for a turn and hold it for one attempt, unless it was waited for in vain lately."""
        # A stopped holder would cost every attempt its whole patience otherwise.
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
    """Objects with behaviour; settings are in the table's options.

    `location`: of the table's directory, as it was opened; "" if it was not named. `storage`: options of its store.
    """

    file_io: FileIO
    location: str = ""
    storage: StorageOptions = NO_OPTIONS
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=SystemIds)
    executor: Executor = field(default_factory=LocalExecutor)
    listeners: tuple[TableListener, ...] = ()
    skipped_picks: SkippedPicks = field(default_factory=SkippedPicks)
    commit_turns: CommitTurns = field(default_factory=CommitTurns)

    def absolute_location(self) -> str:
        """Return where the table lies, as readers of Iceberg name it: an absolute path, or a location with a scheme.

        Raises UnsupportedError for a table that was opened without a location.
        """
        if not self.location:
            raise UnsupportedError(
                "Iceberg metadata names files by their location, and this table was opened without one; open it by "
                "open_table or a catalog"
            )
        if scheme_of(self.location) is not None:
            return self.location.rstrip("/")
        return os.path.abspath(plain_path(self.location))
