"""Commits of others to tables that the I/O manager alone keeps: they reach exactly the right readers."""

from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from lsm_assets.automation.sync_sensor import io_sync_sensor
from lsm_assets.testing import WarehouseUnderTest, warehouse_under_test
from tests.dagster.lake import MARKS, answer

pytestmark = MARKS

REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])
ORDERS, READER = dg.AssetKey(["shop", "orders"]), dg.AssetKey(["shop", "reader"])
KEPT = {"lsm/primary_key": "region, id", "lsm/partitioned_by": "region"}
STALE, FRESH = StaleStatus.STALE, StaleStatus.FRESH


def of(region: str, *ids: int) -> pa.Table:
    return pa.table({"region": [region] * len(ids), "id": pa.array(ids, pa.int64())})


@dg.asset(key=ORDERS, partitions_def=REGIONS, metadata=KEPT)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    return of(context.partition_key, 1, 2)


@dg.asset(key=READER, partitions_def=REGIONS, metadata=KEPT, ins={"orders": dg.AssetIn(key=ORDERS)})
def reader(orders: pa.Table) -> pa.Table:
    return orders


DEFINITIONS = dg.Definitions(
    assets=[orders, reader], sensors=[io_sync_sensor([orders, reader])], resources={"lsm": None}
)


def tick(warehouse: WarehouseUnderTest, cursor: str | None) -> Any:
    """Tick the sensor, and do what the daemon does with its answer."""
    sensor = DEFINITIONS.get_repository_def().get_sensor_def("lsm_io_sync")
    with dg.build_sensor_context(
        instance=warehouse.instance,
        cursor=cursor,
        definitions=DEFINITIONS,
        sensor_name=sensor.name,
        resources={"lsm": warehouse.resources["lsm"]},
    ) as context:
        told: Any = sensor.evaluate_tick(context)
    answer(warehouse.instance, told)
    return told


def statuses(warehouse: WarehouseUnderTest) -> dict[str, StaleStatus]:
    graph = DEFINITIONS.get_repository_def().asset_graph
    loading = LoadingContextForTest(warehouse.instance)
    resolver = CachingStaleStatusResolver(warehouse.instance, graph, loading)
    return {region: resolver.get_status(READER, region) for region in ("eu", "us")}


def test_commits_of_others_reach_the_readers_of_their_partitions() -> None:
    with warehouse_under_test() as warehouse:
        for region in ("eu", "us"):
            assert warehouse.materialize([orders, reader], partition_key=region).success
        first = tick(warehouse, None)
        assert first.asset_events == []
        assert statuses(warehouse) == {"eu": FRESH, "us": FRESH}

        warehouse.catalog.table("shop.orders").upsert(of("us", 3))
        second = tick(warehouse, first.cursor)
        assert {each.asset_key for each in second.asset_events} == {ORDERS}
        assert statuses(warehouse) == {"eu": FRESH, "us": STALE}
        selection = ["shop/reader"]
        done = warehouse.materialize([orders, reader], selection=selection, partition_key="us")
        assert done.success
        assert warehouse.catalog.table("shop.reader").count() == 5
        assert statuses(warehouse) == {"eu": FRESH, "us": FRESH}
        assert tick(warehouse, second.cursor).asset_events == []

        warehouse.catalog.table("shop.orders").compact(full=True)
        assert tick(warehouse, second.cursor).asset_events == []
        warehouse.catalog.table("shop.orders").rollback_to(1)
        tick(warehouse, second.cursor)
        assert statuses(warehouse) == {"eu": FRESH, "us": STALE}
