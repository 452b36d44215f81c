"""The command `lsm serve`."""

from importlib import import_module
from typing import Any

import click

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.cli.call import Call
from lsm_engine.cli.verb import verb

LOOPBACK = "127.0.0.1"
PORT = 8578
_EXTRA = ("starlette", "uvicorn", "prometheus_client", "h11", "anyio")


@verb(
    "lsm serve --port 8578",
    "lsm --catalog postgresql://lake@db/lake --warehouse s3://bucket/lake serve --host 0.0.0.0 \\",
    "    --allow-host lake.example.org --token-file /etc/lsm/token --read-token-file /etc/lsm/reader",
)
@click.option(
    "--host", default=LOOPBACK, show_default=True, metavar="ADDRESS", help="Where to listen."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="The port; 0 takes any that is free.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients call this server, besides localhost; repeat it for more.",
)
@click.option(
    "--token-file",
    type=click.File(),
    metavar="FILE",
    help="Tokens that read and write, one a line.  [default: $LSM_SERVE_TOKEN, else a new one is printed]",
)
@click.option(
    "--read-token-file",
    type=click.File(),
    metavar="FILE",
    help="Tokens that read alone, one a line.  [default: $LSM_SERVE_READ_TOKEN]",
)
@click.option(
    "--external",
    is_flag=True,
    help="Tell clients that tables are external: Java then commits in the storage itself.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    metavar="N",
    help="Requests that are carried out together; 16 times as many may wait.",
)
@click.option(
    "--max-body",
    type=click.IntRange(1),
    default=16 << 20,
    show_default=True,
    metavar="BYTES",
    help="The largest body of a request.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may take.",
)
@click.option("--no-log", is_flag=True, help="Log no requests.")
def serve(call: Call, **options: Any) -> None:
    """Serve the catalog to clients of the REST catalogs of Paimon and Iceberg, and its pages, until Ctrl-C.

    Prints its address. Every client needs a token: one that reads and writes, or one that reads alone. Requests are logged
    on stderr, a JSON object a line, without tokens.

    \b
    /v1/…            Paimon's REST catalog: metastore=rest, uri=http://HOST:PORT, token.provider=bear
    /iceberg/v1/…    Iceberg's REST catalog, to read: uri=http://HOST:PORT/iceberg, token
    /                the pages of `lsm ui`; /?token=TOKEN lets a browser in
    /health          whether the catalog answers; needs no token
    /metrics         counts and times of requests, for Prometheus
    /operations      the operations; as an OpenAPI document: /openapi.json

    Ends at SIGINT or SIGTERM once the running requests are answered. Exit code 5 if the port is taken.
    """
    try:
        application = import_module("lsm_engine.server.application")
    except ModuleNotFoundError as missing:
        # Help and completion work without the extra; anything else that is missing is a defect.
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise InvalidOptionError(
            "the server is not installed: pip install 'lsm-assets[serve]'", missing=missing.name
        ) from missing
    application.run(call, options)
