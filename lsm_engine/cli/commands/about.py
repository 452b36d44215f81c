"""lsm version: what runs here."""

import platform

import pyarrow as pa

from lsm_engine import SNAPSHOT_VERSION, __version__
from lsm_engine.cli.call import Call
from lsm_engine.cli.verb import verb


@verb("lsm version", "lsm version --json")
def version(call: Call) -> None:
    """Print the versions of lsm, Python and libraries."""
    facts = {
        "lsm": __version__,
        "snapshot_format": SNAPSHOT_VERSION,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }
    call.out.facts(facts)
