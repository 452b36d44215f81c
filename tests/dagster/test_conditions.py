"""Automation conditions that know how tables change, as the daemon evaluates them."""

import dagster as dg

from lsm_assets.sensors import eager_with_compactions
from tests.dagster.lake import MARKS

pytestmark = MARKS

SUMS = dg.AssetKey(["shop", "sums"])
SALES, COMPACTION = dg.AssetKey(["shop", "sales"]), dg.AssetKey(["shop", "sales.compaction"])


def test_a_compaction_of_what_a_table_is_fed_from_asks_for_a_run() -> None:
    @dg.asset(key=SUMS, deps=[SALES], automation_condition=eager_with_compactions(SALES))
    def sums() -> None:
        """What is fed."""

    only = dg.AssetSelection.assets(SUMS)
    definitions = dg.Definitions(assets=[sums, dg.AssetSpec(SALES), dg.AssetSpec(COMPACTION)])
    instance = dg.DagsterInstance.ephemeral()
    dg.materialize([sums, dg.AssetSpec(SALES)], instance=instance, selection=[sums])
    first = dg.evaluate_automation_conditions(
        defs=definitions, instance=instance, asset_selection=only
    )
    assert first.total_requested == 0
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key=COMPACTION))
    after = dg.evaluate_automation_conditions(
        defs=definitions, instance=instance, asset_selection=only, cursor=first.cursor
    )
    assert after.get_requested_partitions(SUMS) == {None}
    again = dg.evaluate_automation_conditions(
        defs=definitions, instance=instance, asset_selection=only, cursor=after.cursor
    )
    assert again.total_requested == 0
