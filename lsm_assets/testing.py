"""Test assets that write tables: a temporary warehouse, a clock, and assertions on inputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.io_manager import LsmIOManager
from lsm_assets.resource import CLOCK, resources_from
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_engine import TableName, record


class SetClock:
    """A clock in milliseconds since 1970 that moves only by `advance` and `sleep_millis`."""

    def __init__(self, now_millis: int = 1_700_000_000_000) -> None:
        self.millis = now_millis

    def now_millis(self) -> int:
        """Return the time, which commits get as their time."""
        return self.millis

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """Return the time in UTC: year, month, day, hour, minute, second, nanosecond."""
        now = datetime.fromtimestamp(self.millis / 1000, UTC)
        return (
            now.year,
            now.month,
            now.day,
            now.hour,
            now.minute,
            now.second,
            self.millis % 1000 * 10**6,
        )

    def advance(self, millis: int) -> None:
        """Move the clock by some milliseconds."""
        self.millis += millis

    def sleep_millis(self, millis: int) -> None:
        """Move the clock by some milliseconds, in place of waiting."""
        self.millis += max(0, millis)


@record
class WarehouseUnderTest:
    """A temporary warehouse, a Dagster instance in memory, and the resources of runs."""

    catalog: lsm.Catalog
    resources: dict[str, Any]
    instance: dg.DagsterInstance
    clock: SetClock

    def materialize(self, assets: Sequence[Any], **arguments: Any) -> dg.ExecuteInProcessResult:
        """Materialise assets in this process, without Spark. Other arguments are those of `dagster.materialize`."""
        return dg.materialize(assets, instance=self.instance, resources=self.resources, **arguments)

    def inputs(self, table: str, snapshot_id: int | None = None) -> dict[str, int | None]:
        """Return the inputs of a snapshot (None: the newest): by dataset, the id of the snapshot that was read."""
        newest = self.catalog.table(table).latest_snapshot()
        assert newest is not None, f"{table} has no snapshot"
        rows = self.catalog.lineage.inputs_of_snapshot(
            TableName.parse(table), snapshot_id or newest.id
        ).to_pylist()
        return {row["dataset"]: row["input_snapshot_id"] for row in rows}

    def assert_made_from(self, table: str, **snapshot_ids: int) -> None:
        """Assert the inputs of the newest snapshot: ids by dataset, with `__` in place of the dot."""
        expected = {name.replace("__", "."): number for name, number in snapshot_ids.items()}
        inputs = self.inputs(table)
        assert inputs == expected, f"{table} was made from {inputs}, not from {expected}"


@contextmanager
def warehouse_under_test(directory: str | Path | None = None) -> Iterator[WarehouseUnderTest]:
    """Yield a warehouse for tests, in `directory` or in a temporary directory."""
    # Runs open the catalog by their own resource. They take this clock from the context variable.
    clock = SetClock()
    with TemporaryDirectory() as temporary, dg.DagsterInstance.ephemeral() as instance:
        settings = settings_from({WAREHOUSE: str(directory or temporary), EXECUTOR: "local"})
        resources = resources_from(settings)
        token = CLOCK.set(clock)
        try:
            with lsm.open_catalog(
                settings.catalog_url, warehouse=settings.warehouse, clock=clock
            ) as catalog:
                yield WarehouseUnderTest(
                    catalog=catalog,
                    resources={**resources, "io_manager": LsmIOManager(lsm=resources["lsm"])},
                    instance=instance,
                    clock=clock,
                )
        finally:
            CLOCK.reset(token)
