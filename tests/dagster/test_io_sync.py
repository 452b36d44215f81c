"""Commits of others to tables that the I/O manager alone keeps: they reach exactly the right readers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from lsm_assets.recording import recorded_versions
from lsm_assets.sensors import io_sync_sensor
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


def reader_of(partitions: dg.PartitionsDefinition, seen: list[int]) -> dg.AssetsDefinition:
    """A reader of the same partitions, which notes how many rows it was given."""

    @dg.asset(
        key=READER,
        partitions_def=partitions,
        metadata={"lsm/primary_key": "id"},
        ins={"orders": dg.AssetIn(key=ORDERS)},
    )
    def reader(orders: pa.Table) -> pa.Table:
        seen.append(orders.num_rows)
        return orders.select(["id"])

    return reader


def tick(
    warehouse: WarehouseUnderTest, cursor: str | None, definitions: dg.Definitions = DEFINITIONS
) -> Any:
    """Tick the sensor, and do what the daemon does with its answer."""
    sensor = definitions.get_repository_def().get_sensor_def("lsm_io_sync")
    with dg.build_sensor_context(
        instance=warehouse.instance,
        cursor=cursor,
        definitions=definitions,
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


TIMES = {"day": pa.date32(), "time": pa.timestamp("us"), "moment": pa.timestamp("us", "UTC")}
MONTHS = dg.MonthlyPartitionsDefinition(
    start_date="2024-01-01", end_date="2024-04-01", timezone="America/New_York"
)
JANUARY, FEBRUARY = "2024-01-01", "2024-02-01"


@pytest.mark.parametrize("in_directories", [True, False])
@pytest.mark.parametrize("column", TIMES)
def test_a_commit_within_the_span_of_a_partition_reaches_its_readers_alone(
    column: str, in_directories: bool
) -> None:
    """Directories of days or times fit no key of a month; readers of all months became stale."""
    kept: dict[str, Any] = {"lsm/primary_key": "id, at", "lsm/partition_columns": {"at": "{key}"}}
    kept |= {"lsm/partitioned_by": "at"} if in_directories else {}

    def rows(number: int, *at: datetime) -> pa.Table:
        times = (
            pa.array([one.astimezone(UTC) for one in at]) if column == "moment" else pa.array(at)
        )
        times = times.cast(TIMES[column], safe=False)
        return pa.table({"id": [number] * len(at), "at": times})

    def of_month(key: str) -> datetime:
        return MONTHS.time_window_for_partition_key(key).start.replace(day=15)

    def known(warehouse: WarehouseUnderTest) -> dict[str, int]:
        found = recorded_versions(warehouse.instance, ORDERS)
        return {key: version.snapshot_id for key, version in found.items()}

    @dg.asset(key=ORDERS, partitions_def=MONTHS, metadata=kept)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return rows(1, wall(of_month(context.partition_key)))

    def wall(moment: datetime) -> datetime:
        return moment if column == "moment" else moment.replace(tzinfo=None)

    seen: list[int] = []
    reader = reader_of(MONTHS, seen)
    definitions = dg.Definitions(
        [orders], sensors=[io_sync_sensor([orders])], resources={"lsm": None}
    )
    with warehouse_under_test() as warehouse:
        for month in (JANUARY, FEBRUARY):
            assert warehouse.materialize([orders], partition_key=month).success
        cursor = tick(warehouse, None, definitions).cursor
        assert known(warehouse) == {JANUARY: 1, FEBRUARY: 2}
        table = warehouse.catalog.table("shop.orders")
        # The last hour of January in New York; in UTC it is February.
        last = MONTHS.time_window_for_partition_key(JANUARY).end - timedelta(hours=1)
        table.upsert(rows(2, wall(last)))
        cursor = tick(warehouse, cursor, definitions).cursor
        assert known(warehouse) == {JANUARY: 3, FEBRUARY: 2}
        table.upsert(rows(3, wall(of_month("2024-03-01"))))
        cursor = tick(warehouse, cursor, definitions).cursor
        assert known(warehouse) == {JANUARY: 3, FEBRUARY: 2, "2024-03-01": 4}

        table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 ms", everything=True)
        tick(warehouse, None, definitions)
        selection = ["shop/reader"]
        done = warehouse.materialize([orders, reader], selection=selection, partition_key=JANUARY)
        assert done.success
        assert seen == [2]


WEEKS_OF_REGIONS = dg.MultiPartitionsDefinition(
    {
        "week": dg.WeeklyPartitionsDefinition(start_date="2024-01-07", end_date="2024-01-21"),
        "region": REGIONS,
    }
)


@pytest.mark.parametrize("directories", ["region", "region, at", ""])
def test_a_dimension_of_times_is_a_span_of_a_column(directories: str) -> None:
    """The column held the text of the key alone: no row but one of midnight was read."""

    def rows(region: str, *at: datetime) -> pa.Table:
        return pa.table({"at": at, "region": [region] * len(at), "id": range(len(at))})

    metadata = {
        "lsm/primary_key": "at, region, id",
        "lsm/partitioned_by": directories,
        "lsm/partition_columns": {"at": "{week}", "region": "{region}"},
    }

    @dg.asset(key=ORDERS, partitions_def=WEEKS_OF_REGIONS, metadata=metadata)
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        at = context.partition_key.keys_by_dimension
        first = datetime.fromisoformat(at["week"])
        return rows(at["region"], first, first + timedelta(days=6, hours=23))

    seen: list[int] = []
    reader = reader_of(WEEKS_OF_REGIONS, seen)
    keys = [str(key) for key in WEEKS_OF_REGIONS.get_partition_keys()]
    sensors = [io_sync_sensor([orders])]
    definitions = dg.Definitions([orders], sensors=sensors, resources={"lsm": None})
    with warehouse_under_test() as warehouse:
        for key in keys:
            assert warehouse.materialize([orders], partition_key=key).success
        cursor = tick(warehouse, None, definitions).cursor
        warehouse.catalog.table("shop.orders").upsert(rows("us", datetime(2024, 1, 15, 3)))  # noqa: DTZ001
        tick(warehouse, cursor, definitions)
        known = recorded_versions(warehouse.instance, ORDERS)
        moved = {key for key, version in known.items() if version.snapshot_id == 5}
        # Without directories a file is bounded by the least and the greatest time alone.
        week = {"eu|2024-01-14", "us|2024-01-14"}
        assert moved == (week if not directories else {"us|2024-01-14"})
        selection = ["shop/reader"]
        for key in ("us|2024-01-14", "eu|2024-01-07"):
            how = {"selection": selection, "partition_key": key}
            assert warehouse.materialize([orders, reader], **how).success
        assert seen == [3, 2]
