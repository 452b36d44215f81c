"""What PyArrow loads late, loaded while the answers of a far store are on their way.

PyArrow imports pandas, where it is installed, for the first value that it makes of one of Python's: 0.2 s of CPU.
"""

import os
from concurrent.futures import Future, wait
from typing import Any

import pyarrow as pa

from lsm_engine.io.in_flight import begin

_begun: "list[Future[Any]]" = []


def load_beside() -> None:
    """Begin it, once in a process; a fork waits for its end, as an import that a fork cuts off never ends."""
    if not _begun:
        _begun.append(begin(pa.scalar, 0))


def _wait() -> None:
    wait(_begun)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait)
