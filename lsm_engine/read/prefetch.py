"""Read parts of a scan on several threads: rows come in the order of the parts, in bounded memory."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from queue import SimpleQueue
from threading import RLock

import pyarrow as pa

Part = Callable[[], Iterator[pa.RecordBatch]]
AHEAD_BYTES = 128 << 20
"""Decoded bytes that all threads together may read ahead of the consumer."""


def read_ahead(
    parts: Iterable[Part], *, threads: int, most_bytes: int = AHEAD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the parts, one part after another; up to `threads` are read at once.

    All threads share `most_bytes`; each may exceed it by one batch. The next part is requested when a
    thread is free. An error is raised at the position of the rows that it replaces.
    """
    following = iter(parts)  # of very many parts each is made when it is come to
    first = list(islice(following, 2))
    # A single part gains nothing from threads.
    if len(first) == 1:
        yield from first[0]()
        return
    following = chain(first, following)
    running: deque[_Ahead] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="lsm-read") as pool:
        try:
            while True:
                # A new part starts only when a thread is free, which bounds the memory.
                for part in islice(following, threads - len(running)):
                    running.append(_Ahead(pool, part, max(1, most_bytes // threads)))
                    running[-1].read_on()
                if not running:
                    return
                yield from running[0].batches()
                running.popleft()
        finally:
            # The consumer may have stopped early, and threads must not wait for it.
            for ahead in running:
                ahead.give_up()


class _Ahead:
    """The queue of batches of one part, between the threads that read and the consumer.

    No thread blocks on a full queue: it returns to the pool, and the consumer submits another when
    there is space. At exit an interpreter joins all pool threads, so a blocked thread would hang it.
    An interrupt can leave a Condition locked; it cannot leave this lock or queue locked.
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
        """Submit a read to the part's end, or as far ahead as the limit allows."""
        self._is_read = True  # first: after an interrupt it may be in a thread's hands
        self._pool.submit(self._read)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order as threads read them."""
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
        """Stop the reading thread at its next batch: the consumer has stopped."""
        with self._lock:
            self._is_given_up = True
            self._error = None
            is_read = self._is_read
        if not is_read:
            self._rows.close()

    def _read(self) -> None:
        try:
            for batch in self._rows:
                # Enough bytes wait for the consumer, so this thread is free for another part.
                if not self._hand_over(batch):
                    return
        except BaseException as error:  # noqa: BLE001 -- raised where the rows are taken
            with self._lock:
                if not self._is_given_up:
                    # Nothing takes the error of a part that was given up.
                    self._error = error
        self._handed.put(None)

    def _hand_over(self, batch: pa.RecordBatch) -> bool:
        """Queue a batch; return whether to read on: there is space, or the part is being drained."""
        with self._lock:
            # The rest of the part is closed, so its files are released.
            if self._is_given_up:
                self._rows.close()
                return True
            self._bytes += batch.nbytes
            self._is_read = self._bytes < self._most_bytes
            self._handed.put(batch)  # before the lock is left: the next thread's rows come behind
            return self._is_read


def _rows_of(part: Part) -> Generator[pa.RecordBatch, None, None]:
    """Read a part lazily: the file opens when the first row is requested."""
    yield from part()
