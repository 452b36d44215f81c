"""What does a fleet cost Dagster? 1,000 tables of 100 partitions behind one set of sensors, jobs and schedules.

    python -m tests.bench.fleet                        # makes the tables and measures
    python -m tests.bench.fleet --tables 100 --partitions 10 --keep /tmp/fleet

Tables are copies of one. Ticks run in this process, as in a code server; the first round meets every table for the
first time, the second one finds all of them quiet. Seconds are those of the CPU, also those that end a tick, so that
a busy machine gives the same figures. Pages are those of `lsm ui` and what Dagster's ask its webserver for.
"""

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.factory import lsm_table_assets
from lsm_assets.sensors import read_cursor, tables_in_turn
from lsm_assets.settings import EXECUTOR, WAREHOUSE, Settings, settings_from
from lsm_assets.warehouse_component import health_key, warehouse_definitions, watched_tables
from tests.bench.large_warehouse import asked, server

COLUMNS = pa.schema(
    [pa.field("day", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False)]
)


def fill(warehouse: Path, tables: int, partitions: int) -> None:
    """Make tables of so many partitions, one commit and a tag each, known to the catalog."""
    with lsm.open_catalog(warehouse) as catalog:
        first = catalog.create_table(
            "shop.t0000",
            COLUMNS,
            primary_key=["day", "id"],
            partitioned_by="day",
            options={"bucket": "1"},
        )
        days = list(range(partitions))
        first.upsert(pa.table({"day": days, "id": days}).cast(COLUMNS))
        first.create_tag("monday")
        for number in range(1, tables):
            # Links: files of a table are never changed in place.
            copy = Path(first.location).with_name(f"t{number:04}")
            shutil.copytree(first.location, copy, copy_function=os.link)
        catalog.rebuild()


_TICKS_MAX = 10_000
"""More than any round takes, also on a busy machine, where a tick looks at one table."""


@dataclass
class Ticks:
    """Rounds of one sensor: each until every table had its turn."""

    name: str
    seconds: list[float] = field(default_factory=list)
    cursor: str | None = None

    def round(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> int:
        """Tick until every table had its turn; return how many ticks that took."""
        sensor = definitions.get_repository_def().get_sensor_def(self.name)
        for count in range(1, _TICKS_MAX):
            with dg.build_sensor_context(
                instance=instance, cursor=self.cursor, definitions=definitions, sensor_name=self.name,
                resources={"lsm": (definitions.resources or {})["lsm"]},
            ) as context:  # fmt: skip
                begun = time.process_time()
                told: Any = sensor.evaluate_tick(context)
                self.seconds.append(time.process_time() - begun)
            for event in told.asset_events:
                instance.report_runless_asset_event(event)
            for request in told.dynamic_partitions_requests or []:
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    names = list(request.partition_keys)
                    instance.add_dynamic_partitions(request.partitions_def_name, names)
            before, self.cursor = _next(self.cursor), told.cursor
            if (
                _next(self.cursor) <= before
            ):  # ticks end wherever they are: it is past the last table
                return count
        raise AssertionError("the turn never came round")


def _next(cursor: str | None) -> str:
    """Return the table that the next tick begins with; names are in order, and none is less than any."""
    return str(read_cursor(cursor).get("", {}).get("next", ""))


def definitions_of(settings: Settings) -> dg.Definitions:
    """Return what looks after all tables."""
    declared = [
        lsm_table_assets(each, with_jobs=False) for each in watched_tables(settings, ["shop.*"])
    ]
    return warehouse_definitions(declared, settings)


def measure(warehouse: Path, home: Path) -> dict[str, Any]:
    """Return the figures."""
    settings = settings_from({WAREHOUSE: str(warehouse), EXECUTOR: "local"})
    begun = time.process_time()
    definitions = definitions_of(settings)
    repository = definitions.get_repository_def()
    found: dict[str, Any] = {
        "definitions load, s": time.process_time() - begun,
        "assets": len(repository.asset_graph.get_all_asset_keys()),
        "sensors, jobs, schedules": [
            len(repository.sensor_defs), len(repository.get_all_jobs()), len(repository.schedule_defs),
        ],
    }  # fmt: skip
    home.mkdir(exist_ok=True)
    with dg.DagsterInstance.from_config(_configured(home)) as instance:
        for name in ("lsm_sync", "lsm_compaction"):
            ticks = Ticks(name)
            first = ticks.round(definitions, instance)
            met = len(ticks.seconds)
            quiet = ticks.round(definitions, instance)
            found[name] = {
                "ticks of the first round": first,
                "longest, s": max(ticks.seconds[:met]),
                "ticks of a quiet round": quiet,
                "longest quiet, s": max(ticks.seconds[met:]),
                "cursor, bytes": len(ticks.cursor or ""),
            }
        job = repository.get_implicit_job_def_for_assets([health_key()])
        begun = time.process_time()
        assert job is not None
        assert job.execute_in_process(instance=instance, asset_selection=[health_key()]).success
        found["health, s"] = time.process_time() - begun
    found["memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    found["catalog, MB"] = (warehouse / "catalog.db").stat().st_size / 1e6
    found["Dagster's home, MB"] = (
        sum(each.stat().st_size for each in home.rglob("*") if each.is_file()) / 1e6
    )
    return found


PAGES = {
    "the list of tables": "/",
    "a search": "/?q=t00",
    "a table": "/t/shop.t0000",
    "its snapshots": "/t/shop.t0000/snapshots",
    "its tree": "/t/shop.t0000/tree",
    "the lineage of all tables": "/lineage",
    "the lineage of a table": "/lineage?table=shop.t0000",
}
_ASSET = "assetNodes(assetKeys: [{{path: {path}}}]) {{id staleStatus groupName description {more}}}"
QUERIES = {
    "the list of assets": "assetsOrError {... on AssetConnection {nodes {key {path} definition "
    "{groupName kinds description isMaterializable isPartitioned}}}}",
    "the graph of all assets": "assetNodes {assetKey {path} dependencyKeys {path} groupName kinds}",
    "an asset": _ASSET.format(
        path='["shop", "t0000"]', more="assetMaterializations(limit: 1) {metadataEntries {label}}"
    ),
    "its snapshots' partitions": _ASSET.format(
        path='["shop", "t0000.snapshots"]', more="partitionStats {numMaterialized numPartitions}"
    ),
    "sensors": "repositoriesOrError {... on RepositoryConnection {nodes {sensors {name sensorState "
    "{ticks(limit: 20) {status skipReason}}}}}}",
}
"""What Dagster's pages ask for, as far as it grows with tables."""


def pages(warehouse: Path, home: Path) -> dict[str, Any]:
    """Return what pages take by the clock, at the first request and at the second, and the CPU of these."""
    found: dict[str, Any] = {}
    with server(warehouse) as (url, pid):
        for name, path in PAGES.items():
            taken = [asked(url, path, pid) for _ in range(2)]
            found[f"lsm ui: {name}"] = [round(each.wall, 2) for each in taken]
        found["lsm ui: memory, MB"] = _memory(pid)
    with _webserver(warehouse, home) as (url, pid, started):
        found["Dagster: start, s"] = round(started, 1)
        for name, query in QUERIES.items():
            taken_by = []
            for _ in range(2):
                begun = time.perf_counter()
                told = _graphql(url, query)
                taken_by.append(round(time.perf_counter() - begun, 2))
            found[f"Dagster: {name}"] = [*taken_by, f"{len(told) / 1e6:.2f} MB"]
        found["Dagster: memory of the webserver, MB"] = _memory(pid)
    return found


def _graphql(url: str, query: str) -> bytes:
    request = urllib.request.Request(
        f"{url}/graphql",
        json.dumps({"query": f"{{{query}}}"}).encode(),
        {"Content-Type": "application/json"},
    )
    told: bytes = urllib.request.urlopen(request, timeout=600).read()
    assert b'"errors"' not in told[:200], told[:500]
    return told


@contextmanager
def _webserver(warehouse: Path, home: Path) -> Iterator[tuple[str, int, float]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of = {WAREHOUSE: str(warehouse), EXECUTOR: "local", "DAGSTER_HOME": str(home)}
    program = Path(sys.executable).with_name("dagster-webserver")
    begun = time.perf_counter()
    with subprocess.Popen(
        [str(program), "-m", "tests.bench.fleet_location", "-h", "127.0.0.1", "-p", str(port),
         "--code-server-log-level", "error"],
        env={**os.environ, **of}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    _graphql(url, "version")
                    break
                except urllib.error.URLError:
                    time.sleep(1)
            yield url, process.pid, time.perf_counter() - begun
        finally:
            process.terminate()


def _memory(pid: int) -> float:
    """Megabytes at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1e3)


def _configured(home: Path) -> str:
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return str(home)


def main() -> None:
    """Make a warehouse and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument(
        "--keep", type=Path, help="a folder to make them in, or to measure what it holds"
    )
    given = parser.parse_args()
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
    # Of the CPU, as a busy machine would look at few tables before the clock ends a tick.
    tables_in_turn.__kwdefaults__["clock"] = time.process_time
    with tempfile.TemporaryDirectory() as scratch:
        root = given.keep or Path(scratch)
        lake, home = root / "lake", root / "home"
        if not (lake / "catalog.db").exists():
            fill(lake, given.tables, given.partitions)
        if not home.exists():
            print(json.dumps(measure(lake, home), indent=1), flush=True)
        print(json.dumps(pages(lake, home), indent=1))


if __name__ == "__main__":
    main()
