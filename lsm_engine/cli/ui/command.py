"""lsm ui: what `lsm` knows, in a browser on this machine."""

import os
import sys
import threading
import webbrowser
from urllib.parse import urlsplit

import click

from lsm_engine.cli.call import Call
from lsm_engine.cli.ui.routes import Site
from lsm_engine.cli.ui.server import PORT, PageServer
from lsm_engine.cli.verb import verb


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
    reaches it; whoever may log in here can read what you can. Pages have addresses to keep:

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
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
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
