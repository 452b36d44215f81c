"""The server behind `lsm ui`: this machine's own addresses, reading only, one thread per connection."""

import logging
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lsm_engine import InvalidOptionError
from lsm_engine.cli.ui.routes import Reply, Site

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
PORT = 8577
_IDLE_SECONDS = 60
_HOST = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
"""What a browser on this machine calls it, by whatever port (a tunnel may have its own)."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PLAIN = "text/plain; charset=utf-8"


class PageServer(ThreadingHTTPServer):
    """Serves the pages of a site on this machine; `serve_forever` until `shutdown`."""

    daemon_threads = True

    def __init__(self, site: Site, port: int = PORT) -> None:
        self.site = site
        try:
            super().__init__((LOOPBACK, port), PageRequest)
        except OSError as error:
            raise InvalidOptionError(
                f"port {port} cannot be used ({error.strerror}); --port 0 takes one that is free",
                port=port,
            ) from None

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def server_close(self) -> None:
        """Stop listening, and reading."""
        super().server_close()
        self.site.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what ended a connection: mostly a browser that did not wait."""
        log.debug("a connection from %s ended early", client_address)


class PageRequest(BaseHTTPRequestHandler):
    """One connection: GET and HEAD are answered, for a Host that is this machine."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lsm", ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Send a page."""
        self._send(self._reply())

    def do_HEAD(self) -> None:
        """Send the headers of a page."""
        self._send(self._reply())

    def _reply(self) -> Reply:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and _HOST.fullmatch(hosts[0].strip()):
            return self.server.site.reply(self.path)
        # A page elsewhere whose name resolves to this machine must not read what is here.
        self.close_connection = True
        text = f"This server answers as {self.server.url} or http://localhost alone.\n"
        return Reply(status=421, body=text.encode(), content_type=_PLAIN)

    def _send(self, reply: Reply, extra: tuple[tuple[str, str], ...] = ()) -> None:
        self.send_response(reply.status)
        headers = {
            **_HEADERS,
            "Content-Type": reply.content_type,
            "Content-Length": str(len(reply.body)),
            "Content-Security-Policy": reply.policy,
        }
        if reply.location is not None:
            headers["Location"] = reply.location
        for name, value in (*headers.items(), *extra):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a refusal as plain text: of what is no request, and of every method but GET and HEAD."""
        self.close_connection = True  # a body may follow, which nobody reads
        refused = code == HTTPStatus.NOT_IMPLEMENTED
        text = "Pages are read only: GET and HEAD." if refused else HTTPStatus(code).phrase
        reply = Reply(
            status=405 if refused else code,
            body=f"{text}\n".encode(),
            content_type=_PLAIN,
        )
        self._send(reply, (("Allow", "GET, HEAD"),) if refused else ())

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request for --debug."""
        log.debug("%r", format % args)
