"""The server: one process that answers the requests of every protocol, and says who may ask."""

import asyncio
import base64
import ctypes
import hmac
import json
import logging
import os
import re
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any, TextIO
from urllib.parse import parse_qsl, urlencode

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from lsm_engine.base.errors import (
    CommitUnknownError,
    InvalidOptionError,
    LsmError,
    without_secrets,
)
from lsm_engine.base.record import record
from lsm_engine.base.version import VERSION
from lsm_engine.cli.call import Call
from lsm_engine.cli.output import Column
from lsm_engine.metadata.manifests import share_local
from lsm_engine.server.operation import (
    Access,
    Operation,
    Protocol,
    Request,
    Service,
    status_of,
    text_of,
)
from lsm_engine.storage.clock import SystemClock
from lsm_engine.ui import parts
from lsm_engine.ui.routes import POLICY, Site

log = logging.getLogger(__name__)
access_log = logging.getLogger("lsm_engine.server.access")

PROTOCOLS = ("lsm_engine.server.paimon", "lsm_engine.server.iceberg")
"""Modules with a `PROTOCOL`."""

# -- Settings --------------------------------------------------------------------------------------

_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_TOKEN_LENGTH_MIN = 16
_HEADER_SECONDS = 10
_HEAD_BYTES_MAX = 64 << 10
_M_ARENA_MAX = -8
"""The parameter of glibc's mallopt that bounds the number of arenas."""
_OPEN_BODY_BYTES = 8 << 10
"""The largest body of a request that needs no token."""
_WAITING_PER_THREAD = 16
"""Requests that may wait for each thread; more are refused."""


@record
class Limits:
    """Limits for clients: bytes of a body, seconds, concurrent requests, open connections."""

    body_bytes: int = 16 << 20
    seconds: float = 60.0
    threads: int = 8
    connections: int = 1_000


@record
class Tokens:
    """The secrets of clients, by what they allow."""

    write: tuple[str, ...] = field(repr=False)
    read: tuple[str, ...] = field(default=(), repr=False)

    def access_of(self, token: str) -> Access | None:
        """Return what a token allows; None for a wrong one. The time it takes tells nothing of the secrets."""
        given_bytes = token.encode(errors="replace")
        allowed = None
        for access, texts in ((Access.READ, self.read), (Access.WRITE, self.write)):
            for text in texts:
                if hmac.compare_digest(text.encode(), given_bytes):
                    allowed = access
        return allowed


# -- Replies ---------------------------------------------------------------------------------------

_COOKIE = "lsm_token"
_JSON = "application/json"
_SECURE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refusal(Exception):
    """A request that is answered before it reaches an operation."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


@record
class Exchange:
    """A request while it is answered, for the log and the metrics."""

    request: HttpRequest
    path: str
    protocol: Protocol | None = None
    operation: Operation | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    access: Access | None = None

    @property
    def label(self) -> str:
        """The name of the operation, or the kind of page."""
        if self.operation is not None and self.protocol is not None:
            return f"{self.protocol.name}.{self.operation.name}"
        first = self.path.strip("/").partition("/")[0]
        return first if first in ("health", "metrics", "operations", "openapi.json") else "page"


class Metrics:
    """Counts and times of requests, in the form that Prometheus reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "lsm_requests", "Requests", ["operation", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "lsm_request_seconds",
            "Seconds until a request was answered",
            ["operation"],
            registry=self.registry,
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
        )
        self.running = Gauge(
            "lsm_requests_running", "Requests that are carried out", registry=self.registry
        )
        self.commits = Counter(
            "lsm_commits", "Commits of clients", ["outcome"], registry=self.registry
        )

    def text(self) -> bytes:
        """Return all of them as text."""
        return generate_latest(self.registry)


# -- The application -------------------------------------------------------------------------------

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """Answers every request of a process: checks who asks, and runs operations in threads."""

    def __init__(
        self,
        service: Service,
        site: Site,
        tokens: Tokens,
        *,
        limits: Limits | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.service = replace(service, access_of=tokens.access_of)
        self.site, self.tokens = site, tokens
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.protocols: list[Protocol] = [import_module(name).PROTOCOL for name in PROTOCOLS]
        names = "|".join(re.escape(name.lower()) for name in (*_LOCAL_NAMES, *hosts))
        self._host = re.compile(rf"(?:{names})(?::\d{{1,5}})?")
        self._clock = SystemClock()
        self._threads = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="lsm-serve")
        self._pending = 0
        self._held_bytes = 0

    def close(self) -> None:
        """Wait for running operations, and stop reading tables."""
        self._threads.shutdown(wait=True)
        self.site.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI asks."""
        if scope["type"] != "http":  # nothing here speaks by web sockets
            return
        started = perf_counter()
        request = HttpRequest(scope, receive)
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        exchange = Exchange(request=request, path=path)
        try:
            self._check_host(request.headers)
            exchange = self._routed(exchange)
            exchange = replace(exchange, access=self._access(exchange))
            response = await self._response(exchange)
        except Refusal as refusal:
            response = self._refused(exchange, refusal)
        except ClientDisconnect:
            # The client does not wait for an answer; the log has the request all the same.
            response = Response(status_code=499)
        self._finish(exchange, response, perf_counter() - started)
        await response(scope, receive, send)

    # ---- who asks ---------------------------------------------------------------------------------

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._host.fullmatch(hosts[0].strip().lower()):
            # A page of another site whose name resolves to this machine must not reach it.
            raise Refusal(421, "this server does not answer to that name; --allow-host names it")

    def _routed(self, exchange: Exchange) -> Exchange:
        method = exchange.request.method
        for protocol in self.protocols:
            try:
                match = protocol.find(method, exchange.path)
            except UnicodeDecodeError:
                raise Refusal(400, "a name in the path is no UTF-8") from None
            if match is not None:
                return replace(exchange, protocol=protocol, operation=match[0], names=match[1])
        # An unknown operation of a protocol is refused in its words.
        for protocol in self.protocols:
            if exchange.path.startswith(f"{protocol.root}/v1/"):
                return replace(exchange, protocol=protocol)
        return exchange

    def _access(self, exchange: Exchange) -> Access | None:
        if exchange.path == "/health" or (exchange.operation and exchange.operation.is_open):
            return None
        request = exchange.request
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        is_page = exchange.protocol is None
        if kind.lower() == "bearer":
            allowed = self.tokens.access_of(token.strip())
        elif is_page:
            # Pages alone: a page of another site could have a browser send the cookie along with a write.
            link = request.query_params.get("token")
            allowed = self.tokens.access_of(link or request.cookies.get(_COOKIE, ""))
            if link and allowed:
                raise Refusal(303, "", self._with_cookie(request, link))
        else:
            allowed = None
        if allowed is None:
            raise Refusal(
                401,
                "this server needs one of its tokens, sent as a bearer token",
                {"WWW-Authenticate": "Bearer"},
            )
        needed = exchange.operation.access if exchange.operation else Access.READ
        if needed is Access.WRITE and allowed is not Access.WRITE:
            raise Refusal(403, "this token allows to read alone; this operation changes something")
        return allowed

    def _with_cookie(self, request: HttpRequest, token: str) -> dict[str, str]:
        """Return headers that keep a token of a link out of the address."""
        pairs = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        query = f"?{urlencode(pairs)}" if pairs else ""
        return {
            # A path that begins with two slashes would name another host.
            "Location": f"/{request.url.path.lstrip('/')}{query}",
            "Set-Cookie": f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/",
        }

    # ---- what is answered -------------------------------------------------------------------------

    async def _response(self, exchange: Exchange) -> Response:
        if exchange.protocol is not None:
            if exchange.operation is None:
                raise Refusal(404, "this protocol has no such operation")
            return await self._run_operation(exchange)
        if exchange.request.method not in ("GET", "HEAD"):
            raise Refusal(405, "pages are read only: GET and HEAD", {"Allow": "GET, HEAD"})
        match exchange.path:
            case "/health":
                return await self._health()
            case "/metrics":
                return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")
            case "/openapi.json":
                text = json.dumps(openapi_document(self.protocols))
                return Response(text, media_type=_JSON)
            case "/operations":
                headers = {"Content-Security-Policy": POLICY}
                page = operations_page(self.protocols)
                return Response(page.encode(), 200, headers, "text/html")
            case _:
                return await self._page(exchange.request)

    async def _health(self) -> Response:
        await self._in_thread(self.service.catalog.list_databases)
        return Response('{"status": "ok"}', media_type=_JSON)

    async def _page(self, request: HttpRequest) -> Response:
        query = request.scope["query_string"].decode("ascii", "replace")
        target = request.scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        reply = await self._in_thread(
            partial(self.site.reply, f"{target}?{query}" if query else target)
        )
        headers = {"Content-Security-Policy": reply.policy}
        if reply.location is not None:
            headers["Location"] = reply.location
        body = b"" if request.method == "HEAD" else reply.body
        return Response(body, reply.status, headers, reply.content_type)

    async def _run_operation(self, exchange: Exchange) -> Response:
        operation, protocol = exchange.operation, exchange.protocol
        assert operation is not None
        assert protocol is not None
        content = await self._content(exchange)
        self._held_bytes += len(content)
        try:
            return await self._answered(exchange, operation, protocol, content)
        finally:
            self._held_bytes -= len(content)

    async def _answered(
        self, exchange: Exchange, operation: Operation, protocol: Protocol, content: bytes
    ) -> Response:
        query = dict(parse_qsl(exchange.request.scope["query_string"].decode("ascii", "replace")))
        request = Request(
            service=self.service,
            path=exchange.names,
            query=query,
            content=content,
            authorization=exchange.request.headers.get("authorization", ""),
            access=exchange.access or Access.READ,
        )
        prefix = exchange.names.get("prefix", self.service.prefix)
        if prefix != self.service.prefix:
            raise Refusal(404, f"this server has the catalog {self.service.prefix!r} alone")
        try:
            members = await self._in_thread(partial(operation.run, request))
        except LsmError as error:
            self._count_commit(operation, error=error)
            status = status_of(error)
            if status == 501:
                status = protocol.unsupported_status
            if status == 500:
                log.warning("%s failed: %s", exchange.label, error)
            answer = protocol.error(status, text_of(error), error, operation, request)
            return _json_response(answer, status, _header_of(error))
        except Refusal:
            raise
        except Exception as error:  # a defect: the server goes on, and the log has it
            log.warning("%s failed", exchange.label, exc_info=error)
            raise Refusal(
                500, "this should not have happened; the log of the server says more"
            ) from error
        self._count_commit(operation, members=members)
        return _json_response(members, 204 if operation.method == "HEAD" else 200)

    def _count_commit(
        self,
        operation: Operation,
        *,
        members: Mapping[str, Any] | None = None,
        error: LsmError | None = None,
    ) -> None:
        if operation.name == "commitTable":
            outcome = "landed" if members and members["success"] else "lost"
            if error is not None:
                outcome = "unknown" if isinstance(error, CommitUnknownError) else "refused"
            self.metrics.commits.labels(outcome).inc()

    async def _content(self, exchange: Exchange) -> bytes:
        """Return the body of a request, within the limits of bytes and of time."""
        request, operation = exchange.request, exchange.operation
        is_open = operation is not None and operation.is_open
        bytes_max = min(
            self.limits.body_bytes, _OPEN_BODY_BYTES if is_open else self.limits.body_bytes
        )
        too_large = Refusal(413, f"a body has at most {bytes_max} bytes", _CLOSE)
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "a body is sent as it is, without a Content-Encoding", _CLOSE)
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > bytes_max:
            raise too_large

        async def read(content: bytearray) -> None:
            async for piece in request.stream():
                content += piece
                self._held_bytes += len(piece)
                if len(content) > bytes_max:
                    raise too_large
                if self._held_bytes > self.limits.body_bytes * self.limits.threads:
                    # Many clients that send slowly must not fill the memory together.
                    raise Refusal(
                        503, "too many bodies wait; try again in a moment", _LATER | _CLOSE
                    )

        content = bytearray()
        try:
            await asyncio.wait_for(read(content), self.limits.seconds)
        except TimeoutError:
            raise Refusal(408, "the body did not come in time", _CLOSE) from None
        finally:
            self._held_bytes -= len(content)
        return bytes(content)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Run work in a thread; refuse it where too much waits already, and stop waiting after the time limit."""
        if self._pending >= self.limits.threads * (1 + _WAITING_PER_THREAD):
            raise Refusal(503, "too many requests wait; try again in a moment", _LATER)
        self._pending += 1
        self.metrics.running.inc()
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(self._done)
        try:
            # A thread cannot be stopped: what it does goes on, and has one outcome.
            return await asyncio.wait_for(asyncio.shield(running), self.limits.seconds)
        except TimeoutError:
            if not running.done():
                raise Refusal(
                    500, "this takes longer than a request may; it goes on, so look for its result"
                ) from None
            raise

    def _done(self, running: "asyncio.Future[Any]") -> None:
        self._pending -= 1
        self.metrics.running.dec()
        if not running.cancelled():
            running.exception()  # asked for, so that an error without a waiting client is not logged as lost

    def _refused(self, exchange: Exchange, refusal: Refusal) -> Response:
        if exchange.protocol is None:
            return Response(f"{refusal.message}\n", refusal.status, refusal.headers, "text/plain")
        answer = exchange.protocol.error(
            refusal.status, refusal.message, None, exchange.operation, None
        )
        return _json_response(answer, refusal.status, refusal.headers)

    # ---- what is recorded -------------------------------------------------------------------------

    def _finish(self, exchange: Exchange, response: Response, seconds: float) -> None:
        """Count and log a request: never its query, its headers or its body, which may hold secrets."""
        request = exchange.request
        request_id = request.headers.get("x-request-id", "")
        if not re.fullmatch(r"[\w.:-]{1,64}", request_id, re.ASCII):
            request_id = secrets.token_hex(8)
        for name, value in (*_SECURE_HEADERS.items(), ("x-request-id", request_id)):
            response.headers.setdefault(name, value)
        self.metrics.requests.labels(exchange.label, str(response.status_code)).inc()
        self.metrics.seconds.labels(exchange.label).observe(seconds)
        if access_log.isEnabledFor(logging.INFO):
            entry = {
                "time_millis": self._clock.now_millis(),
                "request_id": request_id,
                "client": request.client.host if request.client else None,
                "method": request.method,
                "path": without_secrets(exchange.path),
                "operation": exchange.label,
                "status": response.status_code,
                "millis": round(seconds * 1000, 1),
                "reply_bytes": len(response.body),
                "access": exchange.access.value if exchange.access else None,
            }
            access_log.info("%s", json.dumps(entry))


_CLOSE = {"Connection": "close"}
_LATER = {"Retry-After": "1"}
ERROR_HEADER = "X-Lsm-Error"
"""By which clients of this engine raise the same error: its class and its kind."""


def _header_of(error: LsmError) -> dict[str, str]:
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == LsmError.__module__)
    return {ERROR_HEADER: f"{kind.__name__} {error.kind.value}"}


def _json_response(
    members: Mapping[str, Any] | None, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    if members is None:
        return Response(b"", status, headers, _JSON)
    text = json.dumps(members, ensure_ascii=False, default=str)
    return Response(text.encode("utf-8", "replace"), status, headers, _JSON)


def openapi_document(protocols: Iterable[Protocol]) -> dict[str, Any]:
    """Return the operations of the protocols as an OpenAPI document; bodies are those of their specifications."""
    paths: dict[str, dict[str, Any]] = {}
    for protocol in protocols:
        for operation in protocol.operations:
            parameters = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"\{(\w+)\}", operation.path)
            ]
            methods = paths.setdefault(protocol.root + operation.path, {})
            methods[operation.method.lower()] = {
                "operationId": f"{protocol.name}.{operation.name}",
                "summary": operation.summary,
                "tags": [protocol.name],
                "parameters": parameters,
                "responses": {"200": {"description": "the answer of the specification"}},
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "lsm serve", "version": VERSION},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


_OPERATION_COLUMNS = (
    Column(name="name", heading="operation"),
    Column(name="address", heading="address"),
    Column(name="access", heading="token"),
    Column(name="summary", heading="what it does"),
)


def operations_page(protocols: Iterable[Protocol]) -> str:
    """Return the page of the operations of the protocols, each with the token that it needs."""
    content: list[object] = [
        parts.element("p", parts.link("As an OpenAPI document", "/openapi.json"))
    ]
    for protocol in protocols:
        rows = [
            {
                "name": operation.name,
                "address": f"{operation.method} {protocol.root}{operation.path}",
                "access": "none" if operation.is_open else f"to {operation.access.value}",
                "summary": operation.summary,
            }
            for operation in protocol.operations
        ]
        heading = f"The REST catalog of {protocol.name.capitalize()}"
        content += [
            parts.element("h2", heading),
            parts.rows_table(_OPERATION_COLUMNS, rows, empty=""),
        ]
    return parts.page("Operations", *content)


# -- Connections -----------------------------------------------------------------------------------


class Connection(HttpToolsProtocol):
    """One connection, which is closed if the head of a request takes too long, or the client takes no answer.

    A head that is too large is refused, as the parser, which is C and takes a fourth of the time of h11, has no limit.
    """

    head_timer: asyncio.TimerHandle | None = None
    answer_timer: asyncio.TimerHandle | None = None
    bytes_beside_bodies = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and wait on while the head is incomplete."""
        self.bytes_beside_bodies += len(data)
        super().data_received(data)
        if self.bytes_beside_bodies > _HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"A head has at most {_HEAD_BYTES_MAX} bytes.")
        self._wait_for_head()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body: what is counted begins anew."""
        self.bytes_beside_bodies = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request: what is counted begins anew."""
        self.bytes_beside_bodies = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Begin to wait until the client has taken what is sent: an answer holds memory."""
        super().pause_writing()
        application: Application = self.config.app  # type: ignore[assignment]
        seconds = application.limits.seconds
        self.answer_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop waiting for the client."""
        super().resume_writing()
        if self.answer_timer is not None:
            self.answer_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        for timer in (self.head_timer, self.answer_timer):
            if timer is not None:
                timer.cancel()

    @property
    def _awaits_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is None or cycle.response_complete

    def _wait_for_head(self) -> None:
        """Keep one timer running from the first moment at which a head is incomplete."""
        if not self._awaits_head and self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
        elif self._awaits_head and self.head_timer is None:
            self.head_timer = self.loop.call_later(_HEADER_SECONDS, self._close_slow)

    def _close_slow(self) -> None:
        self.head_timer = None
        if self._awaits_head and not self.transport.is_closing():
            self.transport.close()


def uvicorn_config(application: Application, host: str, port: int) -> uvicorn.Config:
    """Return how uvicorn runs an application."""
    return uvicorn.Config(
        application,
        host=host,
        port=port,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=application.limits.connections,
        timeout_keep_alive=_HEADER_SECONDS,
        timeout_graceful_shutdown=int(application.limits.seconds),
    )


# -- The process -----------------------------------------------------------------------------------


def run(call: Call, options: Mapping[str, Any]) -> None:
    """Serve the catalog of a call until a signal; `options`: those of `lsm serve`, by their names."""
    tokens, new_token = _tokens(options["token_file"], options["read_token_file"])
    catalog = call.catalog(create=True)
    service = Service(catalog=catalog, prefix="lsm", has_external_tables=options["external"])
    limits = Limits(
        body_bytes=options["max_body"], seconds=options["timeout"], threads=options["threads"]
    )
    hosts = (*options["hosts"], options["host"])
    application = Application(service, Site(catalog, call.line), tokens, limits=limits, hosts=hosts)
    config = uvicorn_config(application, options["host"], options["port"])
    if not options["no_log"]:
        _log_to(sys.stderr)
    with listening(config) as listener:
        number = listener.getsockname()[1]
        url = f"http://{options['host']}:{number}"
        # Each request opens its table: what it decodes is there for the next one. A server that cannot start changes
        # nothing of its process.
        share_local()
        _share_arenas()
        _announce(call, url, new_token)
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            # uvicorn raises the signal again once it has stopped in order.
            call.out.note("")
        finally:
            application.close()


def _share_arenas() -> None:
    """Have all threads allocate from two arenas, as far as the C library is glibc.

    With an arena of its own each thread keeps what it frees between pieces of caches that live on, and the server grows for
    hours. Python's own lock lets one thread allocate at a time anyway.
    """
    # Other C libraries have no such function, and no such arenas.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def listening(config: uvicorn.Config) -> socket.socket:
    """Return the listening socket; InvalidOptionError if the port is taken."""
    try:
        listener = config.bind_socket()
        # A client that has read the address may connect at once.
        listener.listen(config.backlog)
        return listener
    except SystemExit:
        raise InvalidOptionError(
            f"port {config.port} of {config.host} cannot be used; --port 0 takes one that is free",
            port=config.port,
        ) from None


def _announce(call: Call, url: str, new_token: str | None) -> None:
    members = {"url": url} | ({} if new_token is None else {"token": new_token})
    if call.as_json:
        call.out.json_line(members)
    else:
        call.out.line(url)
        if new_token is not None:
            call.out.line(f"token {new_token}")
            call.out.line(f"pages {url}/?token={new_token}")
    sys.stdout.flush()
    call.out.note("Ctrl-C ends it")


def _tokens(write_file: TextIO | None, read_file: TextIO | None) -> tuple[Tokens, str | None]:
    """Return the tokens, and a new one if none that writes is configured."""
    write = _read_tokens(write_file, "LSM_SERVE_TOKEN")
    read = _read_tokens(read_file, "LSM_SERVE_READ_TOKEN")
    new_token = None
    if not write:
        new_token = base64.urlsafe_b64encode(secrets.token_bytes(24)).decode()
        write = (new_token,)
    return Tokens(write=write, read=read), new_token


def _read_tokens(file: TextIO | None, variable: str) -> tuple[str, ...]:
    text = os.environ.get(variable) if file is None else file.read()
    tokens = tuple((text or "").split())
    for token in tokens:
        if len(token) < _TOKEN_LENGTH_MIN or not token.isascii():
            raise InvalidOptionError(
                f"a token has at least {_TOKEN_LENGTH_MIN} characters of ASCII and no blanks",
                source=variable if file is None else file.name,
            )
    return tokens


def _log_to(stream: TextIO) -> None:
    """Log requests to a stream, apart from what the engine logs."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access_log.addHandler(handler)
    access_log.setLevel(logging.INFO)
    access_log.propagate = False
