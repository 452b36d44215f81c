"""The command `lsm ui`: the web server and its connections."""

import logging
import os
import re
import sys
import threading
import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import click

from lsm_engine import InvalidOptionError
from lsm_engine.cli.call import Call
from lsm_engine.cli.verb import verb
from lsm_engine.ui.routes import Reply, Site

# -- The server behind `lsm ui` --------------------------------------------------------------------
#
# This machine's own addresses, reading only, one thread per connection.

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
        """Log the error that ended a connection, mostly a browser that did not wait."""
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
        # A page of another site whose name resolves to this machine must not read these pages.
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
        """Send a refusal as plain text: of malformed requests, and of all methods but GET and HEAD."""
        self.close_connection = True  # a body may follow, which this server does not read
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


# -- The command `lsm ui` --------------------------------------------------------------------------


@verb(
    "lsm ui",
    "lsm --warehouse s3://bucket/lake ui --no-browser",
    "ssh -L 8577:localhost:8577 server lsm --warehouse /data/lake ui --no-browser",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, metavar="N",
    help="Where to listen on 127.0.0.1; 0 takes any port that is free.",
)  # fmt: skip
@click.option(
    "--dagster", metavar="URL", callback=lambda _context, _option, url: _web_address(url),
    envvar="LSM_DAGSTER_URL", help="Dagster's webserver, to which runs and assets then lead.",
)  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Print the address only, and open nothing.")
def ui(call: Call, *, port: int, dagster: str | None, no_browser: bool) -> None:
    """Show tables, trees, histories, keys and lineage in the browser, until Ctrl-C.

    Prints its address, and opens it where there is a desktop. Nothing can be changed there. Only this machine
    reaches it; users who may log in here can read what you can. Pages have addresses to keep:

    \b
    /?q=orders                     tables with debt and health
    /t/shop.orders                 a table: health, columns, options
    /t/shop.orders/snapshots       snapshots and tags on a time line
    /t/shop.orders/snapshot/12     one snapshot, and the files it changed
    /t/shop.orders/tag/monday      a tag
    /t/shop.orders/tree            buckets, levels, sorted runs, files
    /t/shop.orders/key?order_id=2  every stored version of a key
    /lineage                       what was made from what; ?table=shop.orders&at=12 about a snapshot

    Ends with exit code 0 at Ctrl-C; 5 if the port is taken, 3 if there is neither a catalog nor a table.
    """
    catalog = call.catalog()
    with PageServer(Site(catalog, call.line, dagster), port) as server:
        if call.as_json:
            call.out.json_line({"url": server.url})
        else:
            call.out.line(server.url)
        sys.stdout.flush()
        call.out.note("Ctrl-C ends it")
        if not no_browser and _has_desktop():
            # A browser may take long to start, and the server must answer meanwhile.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            # Ctrl-C is the ordinary end, and the note ends the terminal's line.
            call.out.note("")


def _web_address(url: str | None) -> str | None:
    """Return the address of a web server without a slash at its end; click's error for others."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is none
        is_one = False
    if not is_one or parts.query or parts.fragment:
        raise click.BadParameter("has to be an address such as http://127.0.0.1:3000")
    return url.rstrip("/")


def _has_desktop() -> bool:
    """Whether a browser would open in a window, and not in this terminal."""
    shown = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return shown or sys.platform == "darwin"
