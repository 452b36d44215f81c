"""Where the work of many buckets runs: the port, and the executor of one process."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.table.ground.bucket_context import Staging

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
        is_far: bool = False,
    ) -> list[CommitMessage]:
        """Return what the work on each item has to commit, in any order; None means nothing.

        `is_far`: the work waits for the answers of a store. `label` is for people. The first error is
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
        is_far: bool = False,
    ) -> list[CommitMessage]:
        """Run the work on up to `threads` threads; on light items here, unless it waits for a store."""
        del label
        done = self.one_by_one(work, items, discard=discard, is_far=is_far)
        return [message for message in done if message is not None]

    def one_by_one(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Iterable[T],
        *,
        discard: Discard,
        is_far: bool = False,
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
            yield from self.ordered(finish, items, is_light=_never if is_far else _is_light)
        except BaseException:
            discard(finished)
            raise

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Arrow rows are written by table/write/write.py."""
        del staging, rows
        return None

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any, Any], Any] | None:
        """Arrow rows are merged by table/write/merge.py."""
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
        if len(first) <= 1:
            yield from map(work, chain(first, following))
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="lsm") as pool:

            def begun(item: T) -> Future[R] | Callable[[], R]:
                return partial(work, item) if is_light(item) else pool.submit(work, item)

            waiting = [begun(item) for item in first]
            try:
                while waiting:
                    due = waiting.pop(0)
                    result = due.result() if isinstance(due, Future) else due()
                    waiting += [begun(item) for item in islice(following, 1)]
                    yield result
            finally:
                for late in waiting:
                    if isinstance(late, Future):
                        late.cancel()


def _is_light(item: object) -> bool:
    return 0 < getattr(item, "size_bytes", LIGHT_BYTES) < LIGHT_BYTES
