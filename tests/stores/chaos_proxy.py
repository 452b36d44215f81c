"""A proxy before an object store that does what no server does on demand.

It counts requests, delays each, answers 503, 429 and 409 in place of the server, and cuts the connection after
the server has applied a request. Heads pass as they came, `Host` included, so signatures stay valid.

    with s3proxy(tmp_path) as server, chaos_proxy(server, Faults(delay=0.05)) as proxy:
        ...  # use proxy.server, a StoreServer like the one behind it
        assert proxy.counts()["PUT"] == 4
        assert proxy.rounds() <= 3
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from tests.stores.http_messages import Head, body_pieces, read_head
from tests.stores.servers import StoreServer

_CONDITIONS = ("if-none-match", "if-match", "x-goog-if-generation-match")
# Status, S3's code for it, and Azure's; the reason is for people who read traces.
_REFUSALS = {
    403: ("Forbidden", "AccessDenied", "AuthorizationPermissionMismatch"),
    503: ("Service Unavailable", "SlowDown", "ServerBusy"),
    429: ("Too Many Requests", "TooManyRequests", "TooManyRequests"),
    409: ("Conflict", "ConditionalRequestConflict", "ConditionalRequestConflict"),
}
_IDLE = 2.0  # seconds after which a kept connection to the server is not trusted any more
CUT = 0  # the status of a request whose answer never arrived


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What happens to requests: a delay in seconds, and the share (0 to 1) of each kind of trouble.

    `unavailable` answers 503, `throttled` 429, `conflict` 409, `forbidden` 403; none of these reaches the server. `cut` passes the
    request on, waits for the whole answer, and closes the connection instead of delivering it. Conflicts are for
    conditional PUTs alone, as on S3; on Azure a 409 means that the name is taken, so cause none there. `verbs`
    limits all but the delay; LIST is a verb here.
    """

    delay: float = 0.0
    unavailable: float = 0.0
    throttled: float = 0.0
    conflict: float = 0.0
    forbidden: float = 0.0
    cut: float = 0.0
    verbs: frozenset[str] = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "LIST"})

    def fate(self, request: "Request", chance: float) -> int | None:
        """The status to answer, `CUT`, or None to pass the request on."""
        if request.verb not in self.verbs:
            return None
        conflict = self.conflict if request.conditional and request.verb == "PUT" else 0.0
        shares = (
            (503, self.unavailable),
            (429, self.throttled),
            (409, conflict),
            (403, self.forbidden),
            (CUT, self.cut),
        )
        for status, share in shares:
            if chance < share:
                return status
            chance -= share
        return None


@dataclass(kw_only=True)
class Request:
    """One request: its status as the client saw it, and when it came and was answered, in seconds of one clock.

    `ended` is taken before the last piece of the answer leaves: what the client does next is later.
    """

    verb: str
    target: str
    conditional: bool
    started: float
    ended: float = float("inf")
    status: int = CUT

    def answered(self, status: int) -> None:
        self.status, self.ended = status, time.monotonic()


class ChaosProxy:
    """A running proxy. `faults` may be replaced at any time; `server` is where clients go."""

    def __init__(self, behind: StoreServer, port: int, faults: Faults, seed: int) -> None:
        self.server = replace(behind, port=port)
        self.faults = faults
        self.requests: list[Request] = []
        self._behind = behind
        self._random = Random(seed)

    def counts(self) -> Counter[str]:
        """Requests by verb since the last `forget`; a GET of a listing counts as LIST."""
        return Counter(request.verb for request in self.requests)

    def refused(self) -> Counter[int]:
        """Requests by what the proxy did to them: 503, 429, 409, 403 or `CUT`."""
        statuses = (request.status for request in self.requests)
        return Counter(status for status in statuses if status in (*_REFUSALS, CUT))

    def rounds(self) -> int:
        """The most requests that went one after the other; exact once a delay outweighs all else."""
        rounds, free = 0, float("-inf")
        for request in sorted(self.requests, key=lambda request: request.ended):
            if request.started >= free:
                rounds, free = rounds + 1, request.ended
        return rounds

    def in_flight(self) -> int:
        """The most requests that were under way at once."""
        came = [(request.started, 1) for request in self.requests]
        went = [(request.ended, -1) for request in self.requests]
        most = now = 0
        for _, change in sorted(came + went):
            now += change
            most = max(most, now)
        return most

    def forget(self) -> None:
        """Count from zero."""
        self.requests = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, in order."""
        behind = _Behind(self._behind)
        # Whoever hangs up, on either side, ends this connection and nothing else.
        hangs_up = contextlib.suppress(ConnectionError, asyncio.IncompleteReadError)
        with contextlib.closing(writer), contextlib.closing(behind), hangs_up:
            while (head := await read_head(reader)) is not None:
                if not await self._one(head, reader, writer, behind):
                    writer.transport.abort()
                    return

    async def _one(
        self,
        head: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        behind: "_Behind",
    ) -> bool:
        """Answer one request; False cuts the connection."""
        request = Request(
            verb=_verb(head),
            target=head.first[1],
            conditional=any(name in head.headers for name in _CONDITIONS),
            started=time.monotonic(),
        )
        self.requests.append(request)
        fate = self.faults.fate(request, self._random.random())
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(self.faults.delay)
        if fate in _REFUSALS:
            async for _ in body_pieces(head, reader):
                pass
            request.answered(fate)
            writer.write(_refusal(fate))
            await writer.drain()
            return True
        try:
            await behind.passed(request, head, reader, None if fate == CUT else writer)
        finally:  # also where somebody has hung up
            if fate == CUT or request.ended == float("inf"):
                request.answered(CUT)
        return fate != CUT


class _Behind:
    """The connection to the server that belongs to one connection of a client."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._used = 0.0
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open = None

    async def passed(
        self,
        request: Request,
        head: Head,
        body: asyncio.StreamReader,
        client: asyncio.StreamWriter | None,
    ) -> None:
        """Pass a request on and its answer back, or only wait for that."""
        reader, writer = await self._connection()
        writer.write(head.without("expect"))
        async for piece in body_pieces(head, body):
            writer.write(piece)
            await writer.drain()
        await writer.drain()
        answer = await read_head(reader)
        if answer is None:
            raise ConnectionResetError("the server hung up")
        async for piece in _answer_pieces(head, answer, reader):
            if client is not None:
                request.answered(answer.status)
                client.write(piece)
                await client.drain()
        self._used = time.monotonic()
        if answer.headers.get("connection", "").lower() == "close":
            self.close()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        stale = time.monotonic() - self._used > _IDLE
        if self._open is not None and (stale or self._open[0].at_eof()):
            self.close()
        if self._open is None:
            where = (self._server.host, self._server.port)
            self._open = await asyncio.open_connection(*where, limit=1 << 20)
        return self._open


async def _answer_pieces(
    asked: Head, answer: Head, reader: asyncio.StreamReader
) -> AsyncIterator[bytes]:
    yield answer.raw
    if asked.first[0] != "HEAD" and answer.status not in (204, 304):
        async for piece in body_pieces(answer, reader, until_closed=True):
            yield piece


def _verb(head: Head) -> str:
    method, target = head.first[:2]
    path, _, query = target.partition("?")
    names = {part.partition("=")[0] for part in query.split("&")}
    of_bucket = path.count("/") == 1 or path.endswith("/")
    listed = "list-type" in names or "comp=list" in query or (of_bucket and "prefix" in names)
    return "LIST" if method == "GET" and listed else method


def _refusal(status: int) -> bytes:
    reason, code, azure = _REFUSALS[status]
    body = f"<Error><Code>{code}</Code><Message>made by the proxy</Message></Error>".encode()
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\n"
        f"x-ms-error-code: {azure}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def chaos_proxy(
    server: StoreServer, faults: Faults = Faults(), *, seed: int = 0
) -> Iterator[ChaosProxy]:
    """Run a proxy before the server, in a thread of this process."""
    loop = asyncio.new_event_loop()
    proxies: list[ChaosProxy] = []
    ready = threading.Event()
    ended = asyncio.Event()

    async def run() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.CancelledError):  # still open when the proxy ends
                await proxies[0].serve(reader, writer)

        listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        port = listening.sockets[0].getsockname()[1]
        proxies.append(ChaosProxy(server, port, faults, seed))
        ready.set()
        await ended.wait()
        listening.close()

    def thread() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run())

    worker = threading.Thread(target=thread, name="chaos-proxy", daemon=True)
    worker.start()
    assert ready.wait(timeout=30)
    try:
        yield proxies[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        worker.join(timeout=30)
