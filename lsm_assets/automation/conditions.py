"""Automation conditions that know how tables change."""

from typing import Any

import dagster as dg

from lsm_assets.model.keys import AssetKind, table_keys


def eager_with_compactions(*upstream: dg.AssetKey) -> dg.AutomationCondition:
    """Return `eager`, which also asks for a run when a table that an asset is fed from was compacted.

    With the changelog producers `lookup` and `full-compaction` a compaction may tell changes that moved
    the table's data version before. `upstream`: the keys of those tables.
    """
    condition = dg.AutomationCondition.eager()
    idle = ~dg.AutomationCondition.in_progress()
    for key in upstream:
        compacted: Any = dg.AutomationCondition.asset_matches(
            table_keys(key).asset(AssetKind.COMPACTION), dg.AutomationCondition.newly_updated()
        )
        condition |= compacted.since_last_handled() & idle
    return condition
