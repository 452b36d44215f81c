"""Nothing is shown as out of date or late without reason, and readers read what is recorded."""

from datetime import datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.pinning import input_snapshot
from lsm_assets.resource import CLOCK
from lsm_assets.testing import SetClock
from tests.dagster.lake import KEYS, MARKS, ORDERS, SCHEMA, Lake, rows, version_id

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]

COUNTS = TableDeclaration(
    name="shop.counts",
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("rows", pa.int64())]),
    primary_key=("id",),
    options={"bucket": "1"},
    deps=(KEYS.asset(AssetKind.TABLE),),
)


def count_orders(context: dg.AssetExecutionContext, table: object) -> pa.Table:
    pinned = input_snapshot(context, KEYS.asset(AssetKind.TABLE))
    orders = context.resources.lsm.table(ORDERS)
    count = orders.scan(snapshot_id=pinned).count()
    return pa.table({"id": [pinned], "rows": [count]}, schema=COUNTS.schema)


@pytest.fixture
def two_tables(lake: Lake) -> Lake:
    counts = lsm_table_assets(COUNTS, count_orders)
    return Lake(lake.warehouse, lake.instance, [*lake.tables, counts], lake.to_write)


def statuses(lake: Lake) -> dict[str, set[StaleStatus]]:
    """Return the status of every asset, or of each partition of it."""
    graph = lake.repository.asset_graph
    loading = LoadingContextForTest(lake.instance)
    resolver = CachingStaleStatusResolver(lake.instance, graph, loading)
    found = {}
    for node in graph.asset_nodes:
        partitions = (
            node.partitions_def.get_partition_keys(dynamic_partitions_store=lake.instance)
            if node.partitions_def
            else [None]
        )
        found[node.key.path[-1]] = {resolver.get_status(node.key, each) for each in partitions}
    return found


def read_orders(lake: Lake) -> None:
    key = COUNTS.keys.asset(AssetKind.TABLE)
    job = lake.repository.get_implicit_job_def_for_assets([key])
    job.execute_in_process(instance=lake.instance, asset_selection=[key])


def test_only_a_change_of_rows_makes_a_reader_stale(two_tables: Lake) -> None:
    lake = two_tables
    lake.write(*(rows(number) for number in range(3)))
    read_orders(lake)
    lake.add_tag_partition("v1")
    lake.materialise(AssetKind.TAGS, partition_key="v1")
    lake.materialise(AssetKind.COMPACTION)
    lake.materialise(AssetKind.MANIFEST_LISTS, AssetKind.SNAPSHOTS, partition_key="1")
    lake.materialise(AssetKind.MANIFEST_LISTS, partition_key="2")
    assert set().union(*statuses(lake).values()) <= {StaleStatus.FRESH, StaleStatus.MISSING}

    full = {"ops": {KEYS.op("compact"): {"config": {"full": True}}}}
    lake.materialise(AssetKind.COMPACTION, run_config=full)
    lake.lsm.existing_table("shop.orders").create_tag("v2")
    lake.sync()
    now = statuses(lake)
    assert set().union(*now.values()) <= {StaleStatus.FRESH, StaleStatus.MISSING}
    assert now["orders.tags"] == {StaleStatus.FRESH}

    lake.write(rows(9))
    now = statuses(lake)
    assert now.pop("counts") == {StaleStatus.STALE}
    assert set().union(*now.values()) <= {StaleStatus.FRESH, StaleStatus.MISSING}


def test_a_reader_reads_the_snapshot_that_is_recorded_as_its_input(two_tables: Lake) -> None:
    lake = two_tables
    lake.write(rows(1, 2))
    lake.lsm.existing_table("shop.orders").upsert(rows(3))  # committed, and not told to Dagster
    read_orders(lake)
    counts = lake.lsm.existing_table("shop.counts")
    assert counts.scan().to_arrow().to_pylist() == [{"id": 1, "rows": 2}]
    (event,) = lake.instance.fetch_materializations(
        COUNTS.keys.asset(AssetKind.TABLE), limit=1
    ).records
    tags = event.asset_materialization.tags
    assert version_id(tags["dagster/input_data_version/shop/orders"]) == 1
    inputs = counts.latest_snapshot().properties["lsm.inputs"]
    assert '"snapshot":1' in inputs


LATE = TableDeclaration(
    name="shop.days",
    schema=pa.schema([*SCHEMA, pa.field("day", pa.string(), nullable=False)]),
    primary_key=("id", "day"),
    partitioned_by=("day",),
    options={"bucket": "1"},
    partitions_def=dg.DailyPartitionsDefinition(start_date="2024-01-01"),
    fresh_within_minutes=90,
)


def test_a_day_that_is_not_written_in_time_is_red_until_it_is_written(tmp_path: Path) -> None:
    check = dg.AssetCheckKey(LATE.keys.asset(AssetKind.TABLE), "freshness")

    def write(context: dg.AssetExecutionContext, table: object) -> pa.Table:
        return rows(1).append_column("day", pa.array([context.partition_key]))

    with dg.DagsterInstance.ephemeral() as instance:
        lake = Lake(tmp_path / "lake", instance, [lsm_table_assets(LATE, write)])

        def colours(now: str) -> dict[str, str]:
            clock = SetClock(int(datetime.fromisoformat(f"{now}+00:00").timestamp() * 1000))
            token = CLOCK.set(clock)
            lake.sync()
            CLOCK.reset(token)
            infos = instance.event_log_storage.get_asset_check_partition_info([check])
            return {
                info.partition_key: info.latest_execution_status.value[:4]
                for info in infos
                if info.is_current
            }

        def run(day: str) -> None:
            job = lake.repository.get_implicit_job_def_for_assets([check.asset_key])
            chosen = {"asset_selection": [check.asset_key], "partition_key": day}
            assert job.execute_in_process(instance=instance, **chosen).success

        assert colours("2024-01-02 01:29") == {}
        assert colours("2024-01-02 01:30") == {"2024-01-01": "FAIL"}, "before the table is there"
        run("2024-01-02")
        assert colours("2024-01-03 01:30") == {"2024-01-01": "FAIL", "2024-01-02": "SUCC"}
        run("2024-01-01")
        lake.cursors.clear()
        assert set(colours("2024-01-04 02:00").items()) == {
            ("2024-01-01", "SUCC"),
            ("2024-01-02", "SUCC"),
            ("2024-01-03", "FAIL"),
        }
        table = lake.lsm.existing_table(LATE.name)
        table.upsert([{"id": 1, "name": "x", "day": "2024-01-03"}])
        colours("2024-01-04 03:00")
        assert "2024-01-03" not in colours("2024-01-04 03:01"), "written by another client since"
