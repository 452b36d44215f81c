"""A new object being written: one PUT for a small one, an upload in parts for a large one."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from lsm_engine.base.errors import LsmError

PART_BYTES = 8 << 20
_PARTS_WAITING = 1

Put = Callable[[bytes], None]
Upload = Callable[[Iterator[bytes], int], None]
"""From the parts and a function's total size to an object; raises what an iterator raises, and aborts."""


class _GivenUpError(Exception):
    """The writer aborted the upload."""


class ObjectOutput:
    """One object being written. It exists once `close` has returned, whole or not at all."""

    def __init__(
        self, write: Put, upload: Callable[[Iterator[bytes], Callable[[], int]], None]
    ) -> None:
        self._put = write
        self._upload = upload
        self._buffer = bytearray()
        self._written = 0
        self._parts: queue.Queue[bytes | None] | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._given_up = False
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it is closed or aborted."""
        return self._closed

    def write(self, data: Any) -> int:
        """Append bytes; raises the error of an upload that has failed meanwhile."""
        if self._closed:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        self._buffer += view
        self._written += len(view)
        while len(self._buffer) >= PART_BYTES:
            part = bytes(memoryview(self._buffer)[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._send(part)
        return len(view)

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Do nothing: parts are sent once they are full."""

    def close(self) -> None:
        """Finish the object."""
        if self._closed:
            return
        self._closed = True
        last_part, self._buffer = bytes(self._buffer), bytearray()
        if self._thread is None:
            self._put(last_part)
            return
        if last_part:
            self._send(last_part)
        self._end()
        if self._failure is not None:
            raise self._failure

    def abort(self) -> None:
        """Give the object up. A started upload is aborted, so that no parts remain and are billed."""
        if self._closed:
            return
        self._closed = self._given_up = True
        self._buffer.clear()
        if self._thread is not None:
            with contextlib.suppress(LsmError):
                self._end()

    def _send(self, part: bytes) -> None:
        if self._thread is None:
            self._parts = queue.Queue(_PARTS_WAITING)
            self._thread = threading.Thread(target=self._run, name="lsm-upload", daemon=True)
            self._thread.start()
        self._hand_over(part)
        if self._failure is not None:
            self._closed = True
            raise self._failure

    def _hand_over(self, part: bytes | None) -> None:
        """Wait for a place in the queue, as long as the upload lives."""
        assert self._parts is not None
        assert self._thread is not None
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._parts.put(part, timeout=0.1)
                return

    def _end(self) -> None:
        assert self._thread is not None
        self._hand_over(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._upload(self._each_part(), self.tell)
        except _GivenUpError:  # `abort` has raised it in the upload
            pass
        except BaseException as failure:  # noqa: BLE001 -- raised where the writer is
            self._failure = failure

    def _each_part(self) -> Iterator[bytes]:
        assert self._parts is not None
        while (part := self._parts.get()) is not None:
            yield part
        if self._given_up:
            raise _GivenUpError
