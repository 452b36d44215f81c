"""HTTP/1.1 messages as the proxy needs them: a head that is passed on as it came, and a body in pieces."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

_PIECE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Head:
    """The first line and the headers of a request or an answer; `raw` with the empty line that ends them."""

    raw: bytes
    first: list[str]
    headers: dict[str, str]

    @property
    def status(self) -> int:
        return int(self.first[1])

    def without(self, name: str) -> bytes:
        """The same head without one header."""
        start = name.lower().encode() + b":"
        lines = self.raw.split(b"\r\n")
        return b"\r\n".join(line for line in lines if not line.lower().startswith(start))


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head of a connection; None where it has ended."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(raw=raw, first=first.split(" ", 2), headers=headers)


async def body_pieces(
    head: Head, reader: asyncio.StreamReader, *, until_closed: bool = False
) -> AsyncIterator[bytes]:
    """The body that follows a head, framed as it came: by length, in chunks, or until the end."""
    if head.headers.get("transfer-encoding", "").lower() == "chunked":
        async for piece in _chunks(reader):
            yield piece
    elif "content-length" in head.headers:
        left = int(head.headers["content-length"])
        while left:
            piece = await reader.read(min(left, _PIECE))
            if not piece:
                raise ConnectionResetError("the body ends early")
            left -= len(piece)
            yield piece
    elif until_closed:
        while piece := await reader.read(_PIECE):
            yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    size = -1
    while size != 0:
        line = await reader.readuntil(b"\r\n")
        yield line
        size = int(line.split(b";")[0], 16)
        left = size + 2 if size else 0
        while left:
            piece = await reader.read(min(left, _PIECE))
            if not piece:
                raise ConnectionResetError("a chunk ends early")
            left -= len(piece)
            yield piece
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":  # trailers
        yield line
    yield b"\r\n"
