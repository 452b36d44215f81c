"""Assets that return and take Spark DataFrames, kept by the I/O manager."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from lsm_assets.io_manager import LsmIOManager
from lsm_assets.resource import resources_from
from lsm_assets.settings import WAREHOUSE, settings_from

pytestmark = [
    pytest.mark.spark,
    pytest.mark.dagster,
    # Dagster calls what it has deprecated itself.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning"),
]
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
KEYED = {"lsm/primary_key": "id"}


def test_data_frames_both_ways(tmp_path: Path, spark: Any) -> None:
    seen: list[list[int]] = []

    @dg.asset(key=["shop", "orders"], metadata=KEYED)
    def orders() -> DataFrame:
        return spark.createDataFrame(ROWS)

    @dg.asset(
        key=["shop", "names"],
        metadata=KEYED,
        ins={"orders": dg.AssetIn(key=["shop", "orders"], metadata={"lsm/where": "id > 1"})},
    )
    def names(orders: DataFrame) -> DataFrame:
        seen.append(sorted(row["id"] for row in orders.collect()))
        return orders.limit(0)

    wired = resources_from(settings_from({WAREHOUSE: str(tmp_path / "lake")}))
    io = {"io_manager": LsmIOManager(lsm=wired["lsm"]), **wired}
    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([orders, names], resources=io, instance=instance).success
    table = wired["lsm"].existing_table("shop.orders")
    assert table.scan().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    assert seen == [[2, 3]]
