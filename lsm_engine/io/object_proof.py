"""That the store of a warehouse keeps conditional creates: found out before this process creates the first file.

The marker of an earlier probe is looked for while the data files of a commit are under way.
"""

import threading
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress

from lsm_engine.base.errors import LsmError
from lsm_engine.io.in_flight import begin
from lsm_engine.io.object_clients import Clients
from lsm_engine.io.object_requests import Requests
from lsm_engine.io.publish_probe import Probed, is_marked, require_one_winner

_proving = threading.Lock()


def look_for_proof(requests: Requests, probed: Callable[[], Probed]) -> None:
    """Begin to look for the marker of a warehouse, unless that has been done; `probed` opens it."""
    clients, warehouse = requests.clients, requests.location.warehouse
    with _proving:
        if warehouse not in clients.proven and warehouse not in clients.looked_for:
            clients.looked_for[warehouse] = begin(_look, (clients, warehouse, probed))


def _look(of: tuple[Clients, str, Callable[[], Probed]]) -> None:
    clients, warehouse, probed = of
    with suppress(LsmError):  # who creates a file meets it again
        if is_marked(probed()):
            clients.proven.add(warehouse)


def require_proof(requests: Requests, probed: Callable[[], Probed]) -> None:
    """Return once a warehouse is known to keep conditional creates; raises as `require_one_winner`."""
    clients, warehouse = requests.clients, requests.location.warehouse
    if warehouse in clients.proven:
        return
    looked = clients.looked_for.get(warehouse)
    if looked is not None:
        wait([looked])
    with _proving:
        if warehouse not in clients.proven:
            require_one_winner(probed(), requests.ids.new_id())
            clients.proven.add(warehouse)
