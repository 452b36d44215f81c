"""Automation conditions for assets that are fed from tables."""

from typing import Any

import dagster as dg

from lsm_assets.model.keys import AssetKind, table_keys


def eager_with_compactions(*upstream: dg.AssetKey) -> dg.AutomationCondition:
    """Return `eager` with runs after compactions of upstream tables.

    With the changelog producers `lookup` and `full-compaction` a compaction emits changes of rows that have been
    committed before. It does not change the data version, so that `eager` alone does not request a run.

    `upstream` are the asset keys of these tables.
    """
    condition = dg.AutomationCondition.eager()
    idle = ~dg.AutomationCondition.in_progress()
    for key in upstream:
        compacted: Any = dg.AutomationCondition.asset_matches(
            table_keys(key).asset(AssetKind.COMPACTION), dg.AutomationCondition.newly_updated()
        )
        condition |= compacted.since_last_handled() & idle
    return condition
