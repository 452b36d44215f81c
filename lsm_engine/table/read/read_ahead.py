"""Parts of a scan read on several threads: rows come in the order of the parts, in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from queue import SimpleQueue
from threading import RLock

import pyarrow as pa

Part = Callable[[], Iterator[pa.RecordBatch]]
AHEAD_BYTES = 512 << 20
"""Decoded bytes that all threads together may be ahead of whoever takes the rows."""


def read_ahead(
    parts: Iterable[Part], *, threads: int, most_bytes: int = AHEAD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the parts, one part after another; up to `threads` are read at once.

    `most_bytes` is shared by the threads; one batch of each may go beyond. A part is asked for when a
    thread is free for it. An error comes where its rows would have come.
    """
    following = iter(parts)  # of very many parts each is made when it is come to
    first = list(islice(following, 2))
    if len(first) == 1:
        yield from first[0]()
        return
    following = chain(first, following)
    running: deque[_Ahead] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lsm-read") as pool:
        try:
            while True:
                for part in islice(following, threads - len(running)):
                    running.append(_Ahead(pool, part, max(1, most_bytes // threads)))
                    running[-1].read_on()
                if not running:
                    return
                yield from running[0].batches()
                running.popleft()
        finally:
            for ahead in running:
                ahead.give_up()


class _Ahead:
    """The batches of one part, between the threads that read them and the one that takes them.

    No thread waits here until rows are taken: it leaves, and whoever takes rows sends another when
    there is room. An interpreter that ends waits for the threads of all pools, with rows half taken.
    Lock and queue are such as an interrupt cannot leave held, as it can a Condition.
    """

    def __init__(self, pool: ThreadPoolExecutor, part: Part, most_bytes: int) -> None:
        self._pool = pool
        self._rows = _rows_of(part)
        self._most_bytes = most_bytes
        self._handed: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
        self._lock = RLock()
        self._bytes = 0
        self._is_read = False
        self._is_given_up = False
        self._error: BaseException | None = None

    def read_on(self) -> None:
        """Have a thread read to the part's end, or as far ahead as allowed."""
        self._is_read = True  # first: after an interrupt it may be in a thread's hands
        self._pool.submit(self._read)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is read, as it comes."""
        while (batch := self._handed.get()) is not None:
            with self._lock:
                self._bytes -= batch.nbytes
                has_room = not self._is_read and self._bytes < self._most_bytes
            if has_room:
                self.read_on()
            yield batch
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # it knows this frame: a cycle would keep the rows that were being read

    def give_up(self) -> None:
        """Nobody takes any more: a thread that reads stops at its next batch."""
        with self._lock:
            self._is_given_up = True
            self._error = None
            is_read = self._is_read
        if not is_read:
            self._rows.close()

    def _read(self) -> None:
        try:
            for batch in self._rows:
                if not self._hand_over(batch):
                    return
        except BaseException as error:  # noqa: BLE001 -- raised by whoever takes the rows
            with self._lock:
                if not self._is_given_up:
                    self._error = error
        self._handed.put(None)

    def _hand_over(self, batch: pa.RecordBatch) -> bool:
        """Return whether to go on: to more rows, or to the end of a part that was given up."""
        with self._lock:
            if self._is_given_up:
                self._rows.close()
                return True
            self._bytes += batch.nbytes
            self._is_read = self._bytes < self._most_bytes
            self._handed.put(batch)  # before the lock is left: the next thread's rows come behind
            return self._is_read


def _rows_of(part: Part) -> Generator[pa.RecordBatch, None, None]:
    """Read a part; nothing of it before the first row is asked for."""
    yield from part()
