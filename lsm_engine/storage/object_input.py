"""A file of an object store that is being read, range by range."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Self

import pyarrow as pa

WHOLE_BYTES = 1 << 20
"""Files up to this size are fetched by one request."""
TAIL_BYTES = 64 << 10
"""How much of the end of others is fetched together: the footer is there."""
_AHEAD_BYTES = 256 << 10
_HELD_BYTES = 64 << 20

Ranges = Sequence[tuple[int, int]]
Fetch = Callable[[int, int], Any]
"""From (offset, length) to a buffer with exactly these bytes."""


class ObjectInput:
    """A seekable file over a function that fetches ranges; cached bytes are not fetched."""

    closed = False

    def __init__(
        self,
        fetch: Fetch,
        size: int,
        content: Any = b"",
        fetch_many: Callable[[Ranges], Sequence[Any]] | None = None,
    ) -> None:
        """`content`: all bytes, if they are known. `fetch_many` fetches ranges concurrently."""
        self._fetch = fetch
        self._fetch_many = fetch_many
        self._size = size
        self._known = memoryview(content)
        self._known_from = 0
        self._ranges: list[tuple[int, memoryview]] = []
        self._ahead = memoryview(b"")
        self._ahead_from = 0
        self._at = 0

    @classmethod
    def whole(cls, content: Any) -> Self:
        """Return a file whose bytes are all known."""
        return cls(lambda *_: b"", len(content), content)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Whether it can be positioned."""
        return True

    def writable(self) -> bool:
        """Whether it can be written."""
        return False

    def read(self, length: int | None = None) -> bytes:
        """Return up to `length` bytes, fewer only at the end; the rest without one."""
        return bytes(self.read_buffer(length))

    def read_buffer(self, length: int | None = None) -> pa.Buffer:
        """Return the result of `read`, without a copy if possible."""
        remaining = max(self._size - self._at, 0)
        count = remaining if length is None or length < 0 else min(length, remaining)
        content = self._bytes(self._at, count)
        self._at += count
        return pa.py_buffer(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to an offset from the start (0), from here (1), or from the end (2)."""
        self._at = max(offset + (0, self._at, self._size)[whence], 0)
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def size(self) -> int:
        """Return the file's size in bytes."""
        return self._size

    def flush(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Release the fetched bytes."""
        self.closed = True
        self._known = self._ahead = memoryview(b"")
        self._ranges = []

    def hold_ranges(self, ranges: Ranges) -> None:
        """Fetch ranges (offset, length) concurrently, up to 64 MB, and hold them until the next call."""
        self._ranges = []
        sums = accumulate(count for _, count in ranges)
        needed = [
            (start, count)
            for (start, count), before in zip(ranges, sums, strict=True)
            if before <= _HELD_BYTES and not self._holds(start, count)
        ]
        if self._fetch_many is not None and needed:
            buffers = self._fetch_many(needed)
            self._ranges = [
                (start, memoryview(buffer))
                for (start, _), buffer in zip(needed, buffers, strict=True)
            ]

    def _holds(self, start: int, count: int) -> bool:
        known_to = self._known_from + len(self._known)
        return self._known_from <= start and start + count <= known_to

    def _bytes(self, start: int, count: int) -> Any:
        own = ((self._known_from, self._known), (self._ahead_from, self._ahead))
        for buffer_start, buffer in (*own, *self._ranges):
            if buffer_start <= start and start + count <= buffer_start + len(buffer):
                return buffer[start - buffer_start : start - buffer_start + count]
        if count >= _AHEAD_BYTES:
            return self._fetch(start, count)
        if start >= self._size - TAIL_BYTES:  # the footer, most likely
            self._known_from = max(self._size - TAIL_BYTES, 0)
            tail = self._fetch(self._known_from, self._size - self._known_from)
            self._known = memoryview(tail)
            return self._known[start - self._known_from : start - self._known_from + count]
        # Small reads follow each other: pages of a column, blocks of an Avro file.
        self._ahead = memoryview(self._fetch(start, min(_AHEAD_BYTES, self._size - start)))
        self._ahead_from = start
        return self._ahead[:count]
