"""Expiry keeps, where that is asked for, what Dagster has recorded and readers may ask for."""

from pathlib import Path

import dagster as dg
import pyarrow as pa

import lsm_engine as lsm
from lsm_assets.declaration import TableDeclaration
from lsm_assets.factory import lsm_table_assets
from lsm_assets.keys import AssetKind
from lsm_assets.partitions import oldest_required_snapshot
from lsm_assets.testing import warehouse_under_test
from tests.dagster.lake import KEYS, MARKS, Lake, rows

pytestmark = MARKS


def test_expiry_keeps_on_request_what_recorded_versions_still_need(lake: Lake) -> None:
    table = keep_one_snapshot(lake)
    job, plan = lake.repository.get_job(KEYS.op("expire")), KEYS.op("plan_expiry")

    def expire(*, keep: bool, dry: bool = False) -> list[int]:
        config = {"ops": {plan: {"config": {"keep_recorded": keep, "dry_run": dry}}}}
        assert job.execute_in_process(instance=lake.instance, run_config=config).success
        return [each.id for each in table.snapshots()]

    for number in (2, 3):
        table.upsert(rows(number))  # elsewhere, and Dagster has not heard of it yet
    assert expire(keep=True, dry=True) == [1, 2, 3]
    assert table.consumers() == []
    assert expire(keep=True) == [1, 2, 3]
    keepers = table.consumers()
    assert expire(keep=False, dry=True) == [1, 2, 3]
    assert table.consumers() == keepers != []
    assert expire(keep=True, dry=True) == [1, 2, 3]
    wanted = dg.AssetRecordsFilter(asset_key=KEYS.asset(AssetKind.FILES))
    told = lake.instance.fetch_observations(wanted, limit=1).records[0].asset_observation
    assert told.metadata["lsm/expires_next"].value == "nothing"
    assert "snapshot 1 on" in told.metadata["lsm/kept_for_readers"].value
    lake.sync()
    assert expire(keep=True) == [3]
    table.upsert(rows(4))
    assert expire(keep=True) == [3, 4]
    assert expire(keep=False) == [4]
    assert table.consumers() == []


def keep_one_snapshot(lake: Lake) -> lsm.Table:
    lake.write(rows(1))
    table = lake.lsm.existing_table("shop.orders")
    table.alter(
        lsm.SetOption("snapshot.num-retained.min", "1"),
        lsm.SetOption("snapshot.num-retained.max", "1"),
    )
    return table


def test_expiry_keeps_on_request_what_recorded_partitions_still_need(tmp_path: Path) -> None:
    days = dg.StaticPartitionsDefinition(["a", "b"])
    schema = pa.schema([pa.field("day", pa.string(), nullable=False), ("id", pa.int64())])
    declared = TableDeclaration(
        name="shop.days", schema=schema, primary_key=("day", "id"), partitioned_by=("day",),
        partitions_def=days, options={"bucket": "1", "write-only": "true"},
    )  # fmt: skip

    def write(context: dg.AssetExecutionContext, table: lsm.Table) -> pa.Table:
        return pa.table({"day": [context.partition_key], "id": [1]})

    with warehouse_under_test(tmp_path) as warehouse:
        asset = lsm_table_assets(declared, write).assets[0]
        for day in "ab":
            warehouse.materialize([asset], partition_key=day)
        table = warehouse.catalog.table("shop.days")
        lineage = warehouse.catalog.lineage

        def needed() -> int | None:
            return oldest_required_snapshot(warehouse.instance, declared, table, lineage)

        assert needed() is None
        table.upsert(pa.table({"day": ["b"], "id": [2]}))
        assert needed() == 2
        table.upsert(pa.table({"day": ["a"], "id": [2]}))
        assert needed() == 1
