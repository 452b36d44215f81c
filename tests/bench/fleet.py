"""What does a fleet cost Dagster? 1,000 tables of 100 partitions behind one set of sensors, jobs and schedules.

    python -m tests.bench.fleet                        # makes the tables and measures
    python -m tests.bench.fleet --tables 100 --partitions 10

Tables are copies of one. Ticks run in this process, as in a code server; the first round meets every table for the
first time, the second one finds all of them quiet.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.assets.health import health_key
from lsm_assets.factory import lsm_table_assets
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_assets.warehouse_component import warehouse_definitions, watched

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
            shutil.copytree(first.location, Path(first.location).with_name(f"t{number:04}"))
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
        """Tick until the turn is at the beginning again; return how many ticks that took."""
        sensor = definitions.get_repository_def().get_sensor_def(self.name)
        for count in range(1, _TICKS_MAX):
            with dg.build_sensor_context(
                instance=instance, cursor=self.cursor, definitions=definitions, sensor_name=self.name,
                resources={"lsm": (definitions.resources or {})["lsm"]},
            ) as context:  # fmt: skip
                begun = time.perf_counter()
                told: Any = sensor.evaluate_tick(context)
                self.seconds.append(time.perf_counter() - begun)
            for event in told.asset_events:
                instance.report_runless_asset_event(event)
            for request in told.dynamic_partitions_requests or []:
                if isinstance(request, dg.AddDynamicPartitionsRequest):
                    names = list(request.partition_keys)
                    instance.add_dynamic_partitions(request.partitions_def_name, names)
            before, self.cursor = self.cursor, told.cursor
            if '"next"' not in (_plain(self.cursor)):
                return count
            assert before != self.cursor
        raise AssertionError("the turn never came round")


def _plain(cursor: str | None) -> str:
    from lsm_assets.automation.cursor import read_cursor

    return json.dumps(read_cursor(cursor).get("", {}))


def measure(warehouse: Path, home: Path) -> dict[str, Any]:
    """Return the figures."""
    settings = settings_from({WAREHOUSE: str(warehouse), EXECUTOR: "local"})
    begun = time.perf_counter()
    declared = [lsm_table_assets(each, with_jobs=False) for each in watched(settings, ["shop.*"])]
    definitions = warehouse_definitions(declared, settings)
    repository = definitions.get_repository_def()
    found: dict[str, Any] = {
        "definitions load, s": time.perf_counter() - begun,
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
        begun = time.perf_counter()
        assert job is not None
        assert job.execute_in_process(instance=instance, asset_selection=[health_key()]).success
        found["health, s"] = time.perf_counter() - begun
    found["catalog, MB"] = (warehouse / "catalog.db").stat().st_size / 1e6
    found["Dagster's home, MB"] = (
        sum(each.stat().st_size for each in home.rglob("*") if each.is_file()) / 1e6
    )
    return found


def _configured(home: Path) -> str:
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return str(home)


def main() -> None:
    """Make a warehouse and print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    given = parser.parse_args()
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")
    with tempfile.TemporaryDirectory() as root:
        fill(Path(root, "lake"), given.tables, given.partitions)
        print(json.dumps(measure(Path(root, "lake"), Path(root, "home")), indent=1))


if __name__ == "__main__":
    main()
