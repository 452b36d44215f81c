"""Helpers to test assets that keep tables: a warehouse that is gone afterwards, a clock, what was read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

import lsm_engine as lsm
from lsm_assets.resources import CLOCK, resources_from
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_assets.table_io import LsmIOManager
from lsm_engine import TableName, record


class SetClock:
    """A clock that stands still until it is moved; milliseconds since 1970."""

    def __init__(self, now_millis: int = 1_700_000_000_000) -> None:
        self.millis = now_millis

    def now_millis(self) -> int:
        """The time that commits are stamped with."""
        return self.millis

    def local_time(self) -> tuple[int, int, int, int, int, int, int]:
        """The same as a wall clock in UTC."""
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
        """Let time pass."""
        self.millis += millis

    def sleep_millis(self, millis: int) -> None:
        """Let time pass at once."""
        self.millis += max(0, millis)


@record
class WarehouseUnderTest:
    """A warehouse in a folder of its own, a Dagster instance in memory, and the resources that runs get."""

    catalog: lsm.Catalog
    resources: dict[str, Any]
    instance: dg.DagsterInstance
    clock: SetClock

    def materialize(self, assets: Sequence[Any], **arguments: Any) -> dg.ExecuteInProcessResult:
        """Run assets in this process, without Spark; arguments are those of `dagster.materialize`."""
        return dg.materialize(assets, instance=self.instance, resources=self.resources, **arguments)

    def inputs(self, table: str, snapshot_id: int | None = None) -> dict[str, int | None]:
        """Return what a snapshot (None: the newest) was made from: by dataset, the snapshot that was read."""
        newest = self.catalog.table(table).latest_snapshot()
        assert newest is not None, f"{table} has no snapshot"
        rows = self.catalog.lineage.inputs_of_snapshot(
            TableName.parse(table), snapshot_id or newest.id
        ).to_pylist()
        return {row["dataset"]: row["input_snapshot_id"] for row in rows}

    def assert_made_from(self, table: str, **snapshot_ids: int) -> None:
        """Check which snapshots the newest one was made from; `__` in a name stands for the dot."""
        expected = {name.replace("__", "."): number for name, number in snapshot_ids.items()}
        inputs = self.inputs(table)
        assert inputs == expected, f"{table} was made from {inputs}, not from {expected}"


@contextmanager
def warehouse_under_test(directory: str | Path | None = None) -> Iterator[WarehouseUnderTest]:
    """Yield a warehouse to test assets on; in a folder that is deleted afterwards if none is given."""
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
