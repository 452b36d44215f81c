"""The sensors of a set of tables."""

from collections.abc import Sequence

import dagster as dg

from lsm_assets.automation.compaction_sensor import compaction_sensor
from lsm_assets.automation.sync_sensor import sync_sensor
from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind


def table_sensors(
    declarations: Sequence[TableDeclaration], *, prefix: str = "lsm"
) -> list[dg.SensorDefinition]:
    """Return the three sensors of a set of tables: automation, compaction and sync."""
    watched = [
        declaration.keys.asset(kind)
        for declaration in declarations
        # Not the assets partitioned by snapshot: expiry deletes their partitions, which breaks the
        # automation pages of everything downstream of a condition on them.
        for kind in (AssetKind.TABLE, AssetKind.FILES, AssetKind.COMPACTION)
    ]
    automation = dg.AutomationConditionSensorDefinition(
        name=f"{prefix}_automation",
        target=dg.AssetSelection.assets(*watched),
        # The default automation sensor of Dagster starts stopped.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Acts on the automation conditions of tables and their compactions.",
    )
    return [
        automation,
        compaction_sensor(declarations, name=f"{prefix}_compaction"),
        sync_sensor(declarations, name=f"{prefix}_sync"),
    ]
