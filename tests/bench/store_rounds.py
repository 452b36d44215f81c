"""Requests and rounds on one S3 server beside lance, delta-rs, pyiceberg and pypaimon, counted by a proxy.

    python -m tests.bench.store_rounds

Each engine has an environment of its own, made on first use, and a table of its own on one S3Proxy behind one
proxy, which delays each request by 50 ms while it counts. A round is a request that had to wait for the answer
of another one. Counted are an upsert of 10 rows into a table of a few, and a plan and a scan after 100 such
upserts, each in a new process that opens the table for it. Requests that are sent behind a commit count as
requests and not as rounds.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.contenders import HERE, PYTHON_PATH, REQUIREMENTS, made
from tests.interop.clients import Client
from tests.interop.environments import Environment, environment
from tests.stores.chaos_proxy import ChaosProxy, Faults, chaos_proxy
from tests.stores.meters import Cost, ProxyMeter
from tests.stores.servers import StoreServer, s3proxy

DELAY = 0.05
OURS = "this engine"
TITLES = {
    "ours": OURS,
    "lance": "lance 14.0.2",
    "deltalake": "delta-rs 1.6.6",
    "pyiceberg": "pyiceberg 0.12.0, SQL catalog",
    "pypaimon": "pypaimon 2.1.0",
}
BEHIND = 0.5  # seconds that a process lives on after its last commit: it is killed then
WARM_UPS = 3  # upserts before the one that is counted


class StoreClient(Client):
    """One engine on the server, in a process that lives for one call or a few."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]
        super().__init__(timeout_seconds=1_800)

    def program(self) -> tuple[Environment, Path]:
        python = Path(sys.executable)
        if self.name == "pypaimon":
            python = environment("pypaimon").python
        elif self.name in REQUIREMENTS:
            python = made(self.name) / "venv" / "bin" / "python"
        variables = {"PYTHONPATH": PYTHON_PATH, "BENCH_ENGINE": self.name}
        home = Environment(name=self.name, python=python, variables=variables)
        return home, HERE / "driver_stores.py"

    def ask(self, what: str, **given: Any) -> Any:
        return self._call(what, **given)


def where_of(server: StoreServer, name: str, folder: Path) -> dict[str, str]:
    """What a driver has to know."""
    return {
        "endpoint": server.endpoint,
        "bucket": server.bucket,
        "path": f"rounds/{name}",
        "key": server.access_key,
        "secret": server.secret_key,
        "folder": str(folder),
    }


def counted(proxy: ChaosProxy, name: str, what: str, **given: Any) -> tuple[Cost, Any]:
    """What one call costs in a process that has asked nothing before."""
    answers: list[Any] = []
    with StoreClient(name) as client:
        client.ask("ready")
        cost = ProxyMeter(proxy, DELAY).measure(
            lambda: answers.append(client.ask(what, **given)), behind=BEHIND
        )
    return cost, answers[0]


def measured(
    proxy: ChaosProxy, name: str, folder: Path, upserts: int
) -> dict[str, tuple[Cost, Any]]:
    """The three costs of one engine, with what the calls returned."""
    where = where_of(proxy.server, name, folder)
    with StoreClient(name) as client:
        client.ask("create", where=where)
        client.ask("upsert", where=where, first=0, count=WARM_UPS)
        time.sleep(BEHIND)
    found = {"upsert": counted(proxy, name, "upsert", where=where, first=WARM_UPS, count=1)}
    with StoreClient(name) as client:
        client.ask("upsert", where=where, first=WARM_UPS + 1, count=upserts - WARM_UPS - 1)
        time.sleep(BEHIND)
    for what in ("plan", "scan"):
        found[what] = counted(proxy, name, what, where=where)
    rows = found["scan"][1]
    assert rows == (upserts + 1) * 5, f"{name} has {rows} rows after {upserts} upserts"
    return found


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upserts", type=int, default=100, help="before the plan and the scan")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    given = parser.parse_args()
    print("| requests / rounds, seconds | upsert | plan | scan |\n|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory(prefix="bench-rounds-") as scratch,
        s3proxy(Path(scratch) / "store") as server,
        chaos_proxy(server, Faults()) as proxy,
    ):
        for name in given.only:
            started = time.monotonic()
            costs = measured(proxy, name, Path(scratch), given.upserts)
            shown = [
                f"{requests} / {rounds}, {seconds:.2f} s"
                for (requests, rounds, seconds), _ in costs.values()
            ]
            print(f"| {TITLES[name]} | {' | '.join(shown)} |", flush=True)
            print(f"{name} took {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
