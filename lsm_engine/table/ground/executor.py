"""Where the work of many buckets runs: the port, and the executor of one process."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from lsm_engine.io.file_io import FileIO
from lsm_engine.meta.commit_message import CommitMessage
from lsm_engine.table.ground.bucket_context import Staging

T = TypeVar("T")
R = TypeVar("R")
Discard = Callable[[Sequence[CommitMessage]], None]


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
    ) -> list[CommitMessage]:
        """Return what the work on each item has to commit, in any order; None means nothing.

        The first error is raised after all other work has stopped, and after what the other items
        have to commit was handed to `discard`, which deletes its files. `label` is for people.
        """
        ...

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Write rows that only this executor can read, such as a Spark DataFrame, as level-0 files.

        None: the rows are not of that kind, and nothing was done. Files of a failed attempt are
        deleted as far as they are known.
        """
        ...

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any], Any] | None:
        """Return what stages a MERGE (`table.write.merge.MergePlan`) of rows that only this executor reads.

        What is returned is called with the state to look at, as `write_looked_up` does. None: the rows
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
    ) -> list[CommitMessage]:
        """Run the work on up to `threads` threads."""
        del label
        done = self.one_by_one(work, items, discard=discard)
        return [message for message in done if message is not None]

    def one_by_one(
        self,
        work: Callable[[T], CommitMessage | None],
        items: Iterable[T],
        *,
        discard: Discard,
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
            yield from self.ordered(finish, items)
        except BaseException:
            discard(finished)
            raise

    def stage(self, staging: Staging, rows: Any) -> list[CommitMessage] | None:
        """Arrow rows are written by table/write/write.py."""
        del staging, rows
        return None

    def merging(self, session: Any, source: Any, plan: Any) -> Callable[[Any], Any] | None:
        """Arrow rows are merged by table/write/merge.py."""
        del session, source, plan
        return None

    def ordered(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield results in the order of the items, at most `threads` items ahead of the reader."""
        following = iter(items)  # of very many splits each is made when it is come to
        first = list(islice(following, self.threads))
        if len(first) <= 1:
            yield from map(work, chain(first, following))
            return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="lsm") as pool:
            waiting = [pool.submit(work, item) for item in first]
            try:
                while waiting:
                    result = waiting.pop(0).result()
                    for item in following:
                        waiting.append(pool.submit(work, item))
                        break
                    yield result
            finally:
                for future in waiting:
                    future.cancel()
