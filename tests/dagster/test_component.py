"""A table from a defs.yaml, and tables behind an I/O manager."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from lsm_assets.component import LsmTableComponent, load_writer
from lsm_assets.io_manager import LsmIOManager
from lsm_assets.resource import resources_from
from lsm_assets.settings import EXECUTOR, WAREHOUSE, settings_from
from lsm_engine.base.errors import InvalidInputError
from tests.dagster.lake import MARKS, version_id

pytestmark = [
    *MARKS,
    pytest.mark.filterwarnings("ignore::dagster.PreviewWarning"),
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
    # Dagster's own loader of YAML.
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),
]

ORDERS_YAML = {
    "type": "lsm_assets.component.LsmTableComponent",
    "attributes": {
        "table": "shop.orders",
        "comment": "Orders, one row each.",
        "columns": [
            {"name": "order_id", "type": "BIGINT NOT NULL", "comment": "who"},
            {"name": "dt", "type": "STRING NOT NULL"},
            {"name": "amount", "type": "DECIMAL(10, 2)"},
        ],
        "primary_key": ["order_id", "dt"],
        "partitioned_by": ["dt"],
        "options": {"bucket": 2, "write-only": True},
        "writer": "tests.dagster.orders_writer:two_orders",
        "tag_daily": True,
    },
}


def resources(tmp_path: Path) -> dict[str, Any]:
    return resources_from(settings_from({WAREHOUSE: str(tmp_path / "lake"), EXECUTOR: "local"}))


def test_a_defs_yaml_makes_a_whole_table(tmp_path: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LsmTableComponent, defs_path="orders", defs_yaml_contents=ORDERS_YAML
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, built):
            assert isinstance(component, LsmTableComponent)
            defs = dg.Definitions.merge(built, dg.Definitions(resources=resources(tmp_path)))
            keys = {key.path[-1] for key in defs.resolve_asset_graph().get_all_asset_keys()}
            assert keys == {
                "orders",
                "orders.files",
                "orders.manifest_lists",
                "orders.snapshots",
                "orders.tags",
                "orders.compaction",
            }
            repository = defs.get_repository_def()
            assert repository.has_sensor_def("shop__orders_sync")
            key = dg.AssetKey(["shop", "orders"])
            job = repository.get_implicit_job_def_for_assets([key])
            with dg.DagsterInstance.ephemeral() as instance:
                assert job.execute_in_process(instance=instance, asset_selection=[key]).success
    table = resources(tmp_path)["lsm"].existing_table("shop.orders")
    rows = table.scan().to_arrow().sort_by("order_id").to_pylist()
    assert rows[0] == {"order_id": 1, "dt": "2024-01-01", "amount": Decimal("1.00")}


@pytest.mark.parametrize(
    "path", ["nowhere", "no.such:writer", "json:no_such_function", ":x", "json:"]
)
def test_a_writer_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(InvalidInputError, match="writer"):
        load_writer(path)


def test_assets_hand_rows_to_each_other_through_tables(tmp_path: Path) -> None:
    seen = []

    @dg.asset(key=["shop", "orders"], metadata={"lsm/primary_key": ["id"]})
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2], "amount": [10, 20]})

    @dg.asset(key=["shop", "totals"], metadata={"lsm/primary_key": "id"}, ins={"orders": key_in()})
    def totals(orders: pa.Table) -> pa.Table:
        seen.append(orders.num_rows)
        return pa.table({"id": [1], "total": [sum(orders["amount"].to_pylist())]})

    wired = resources(tmp_path)
    io = {"io_manager": LsmIOManager(lsm=wired["lsm"]), **wired}
    with dg.DagsterInstance.ephemeral() as instance:
        first = dg.materialize([orders, totals], resources=io, instance=instance)
        table = wired["lsm"].existing_table("shop.orders")
        table.upsert(pa.table({"id": [3], "amount": [70]}))  # not told to Dagster
        second = dg.materialize(
            [orders, totals], resources=io, instance=instance, selection=[totals]
        )
        assert first.success
        assert second.success
        (event,) = second.asset_materializations_for_node("shop__totals")
    # The second run reads what the first one wrote: that is what it is recorded to have read.
    assert seen == [2, 2]
    assert version_id(event.tags["dagster/input_data_version/shop/orders"]) == 1
    assert version_id(event.tags["dagster/data_version"]) == 2
    assert event.metadata["dagster/row_count"].value == 1


def key_in() -> dg.AssetIn:
    return dg.AssetIn(key=["shop", "orders"])


def test_a_key_is_required_to_create_a_table(tmp_path: Path) -> None:
    @dg.asset(key=["shop", "orders"])
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    wired = resources(tmp_path)
    io = {"io_manager": LsmIOManager(lsm=wired["lsm"]), **wired}
    with pytest.raises(InvalidInputError, match="lsm/primary_key"):
        dg.materialize([orders], resources=io, instance=dg.DagsterInstance.ephemeral())
