"""The sync sensor beside tables that trouble it: one repartitioned, one broken, slow ones, and very old ones."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_assets import sensors
from lsm_assets.commits import EMPTY_VERSION, data_version
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.sample.replay import replay
from lsm_assets.sample.tables import FLIGHTS
from lsm_assets.sensors import FEW_SECONDS, TICK_SECONDS, tables_in_turn
from lsm_assets.testing import WarehouseUnderTest, warehouse_under_test
from lsm_assets.versions import Pin, resolve_pin, version_from_snapshot
from tests.dagster.lake import MARKS, ORDERS, Lake, rows

pytestmark = MARKS

BY_DAY = TableDeclaration(
    name="shop.days",
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())]),
    primary_key=("id", "day"),
    partitioned_by=("day",),
    options={"bucket": "1"},
    partitions_def=dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2024-01-09"),
    partition_columns={"day": "{key}"},
)
HIDING = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"}


@pytest.mark.parametrize(
    "changed",
    [
        dg.StaticPartitionsDefinition(["a", "b"]),
        dg.MonthlyPartitionsDefinition(start_date="2024-01-01"),
        dg.MultiPartitionsDefinition(
            {"day": dg.StaticPartitionsDefinition(["x"]), "r": dg.StaticPartitionsDefinition(["y"])}
        ),
        None,
    ],
)
def test_an_asset_that_was_partitioned_anew_stops_nobody(
    tmp_path: Path, changed: dg.PartitionsDefinition | None
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(BY_DAY)])
        table = lake.lsm.table(BY_DAY)
        table.upsert([{"id": 1, "day": "2024-01-02"}])
        lake.sync()
        key = BY_DAY.keys.asset(AssetKind.TABLE)
        assert instance.get_materialized_partitions(key) == {"2024-01-02"}
        columns = {} if changed is None else {"day": "{day}" if "|" in str(changed) else "x"}
        anew = replace(BY_DAY, partitions_def=changed, partition_columns=columns)
        if isinstance(changed, dg.MonthlyPartitionsDefinition):
            anew = replace(anew, partition_columns={"day": "{key:%Y-%m-%d}"})
        assets = [lsm_table_assets(anew), lsm_table_assets(ORDERS)]
        after = Lake(tmp_path / "lake", instance, assets, cursors=lake.cursors)
        table.rollback_to_as_latest(1)
        table.upsert([{"id": 2, "day": "2024-01-03"}])
        after.lsm.table(ORDERS).upsert(rows(1))
        told = after.sync()
        assert "cannot look" not in told.skip_message
        assert after.snapshots == ["1"]


def test_a_bug_met_in_one_table_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["shop.orders", "shop.b"]
    assets = [lsm_table_assets(replace(ORDERS, name=name)) for name in reversed(names)]
    look = sensors.compare_table

    def looks(instance: Any, declaration: TableDeclaration, *others: Any) -> Any:
        if declaration.name == "shop.b":
            raise ValueError("not expected by anybody")
        return look(instance, declaration, *others)

    monkeypatch.setattr(sensors, "compare_table", looks)
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, assets)
        for name in names:
            lake.lsm.table(replace(ORDERS, name=name)).upsert(rows(1))
        assert "cannot look at shop.b" in lake.sync().skip_message
        assert lake.snapshots == ["1"]


@pytest.mark.parametrize(
    ("count", "each_seconds", "longest"), [(10, 12.0, FEW_SECONDS), (100, 0.3, TICK_SECONDS)]
)
def test_a_tick_over_slow_tables_ends_in_time_and_the_next_goes_on(
    count: int, each_seconds: float, longest: float
) -> None:
    declarations = [replace(ORDERS, name=f"shop.t{number}") for number in range(count)]
    states: dict[str, dict[str, Any]] = {}
    now, seen = [0.0], []
    while len(seen) < count:
        began, before = now[0], len(seen)
        for each in tables_in_turn(declarations, states, clock=lambda: now[0]):
            seen.append(each.name)
            now[0] += each_seconds
        assert before < len(seen)
        assert now[0] - began <= longest + each_seconds
    assert seen[:count] == [each.name for each in declarations]


def hiding(warehouse: WarehouseUnderTest, count: int) -> lsm.Table:
    """Return a table of writes that no reader sees until a compaction has taken them up."""
    warehouse.catalog.create_database("shop", ignore_if_exists=True)
    columns = {"id": int, "price": int}
    table = warehouse.catalog.create_table("shop.t", columns, primary_key="id", options=HIDING)
    for number in range(count):
        table.upsert([{"id": number, "price": 1}])
    return table


def test_the_version_of_a_table_of_which_nothing_was_ever_seen_is_none() -> None:
    with warehouse_under_test() as warehouse:
        table, lineage = hiding(warehouse, 4), warehouse.catalog.lineage
        assert table.count() == 0
        assert data_version(table, lineage) == EMPTY_VERSION
        table.expire_snapshots(retain_max=2, retain_min=1)
        assert table.snapshot_ids() == [3, 4]
        assert data_version(table, lineage) == EMPTY_VERSION
        table.compact(full=True)
        assert data_version(table, lineage).snapshot_id == 5
        pin = resolve_pin(EMPTY_VERSION, live={})
        assert not isinstance(pin, Pin)


def test_a_quiet_tick_looks_at_no_commit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with warehouse_under_test() as warehouse:
        table, lineage = hiding(warehouse, 5), warehouse.catalog.lineage
        asked: list[int] = []
        read = lsm.Table.changed_partitions

        def noted(self: lsm.Table, snapshot: lsm.Snapshot) -> frozenset[str] | None:
            asked.append(snapshot.id)
            return read(self, snapshot)

        monkeypatch.setattr(lsm.Table, "changed_partitions", noted)
        version = data_version(table, lineage)
        assert asked == [5, 4, 3, 2, 1]
        looked = version_from_snapshot(table.snapshot(5))
        table.upsert([{"id": 9, "price": 1}])
        asked.clear()
        assert data_version(table, lineage, (looked, version)) == version
        assert asked == [6]


def test_a_commit_of_another_client_moves_the_days_that_it_has_written(tmp_path: Path) -> None:
    """Days of a month share its directory: without the column `day` a commit moved 31 of them."""
    key, first, second = FLIGHTS.keys.asset(AssetKind.TABLE), date(2013, 1, 1), date(2013, 1, 2)
    schedules = [next(replay([day])) for day in (first, second)]
    arrivals = next(change for change in replay([second]) if change.label.startswith("arrivals"))
    moved = []
    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(FLIGHTS)])
        for change in (*schedules, arrivals):
            lake.lsm.table(FLIGHTS).upsert(change.rows)
            events = lake.sync().asset_events
            moved.append([event.partition for event in events if event.asset_key == key])
    assert moved == [["2013-01-01"], ["2013-01-02"], ["2013-01-02"]]
