"""The schedule that creates a tag every day."""

from datetime import datetime

import dagster as dg

from lsm_assets.model.declaration import TableDeclaration
from lsm_assets.model.keys import AssetKind
from lsm_assets.model.partitions import partition_set_name, tag_partitions

DAILY = "5 0 * * *"


def tag_name(day: datetime) -> str:
    """Return the name of a day's tag: `2013-01-31`."""
    return day.strftime("%Y-%m-%d")


def tag_schedule(declaration: TableDeclaration) -> dg.ScheduleDefinition:
    """Return the schedule that tags a table's newest snapshot every day. It starts stopped."""
    keys = declaration.keys
    tags = keys.asset(AssetKind.TAGS)

    @dg.schedule(
        name=keys.op("tag_daily"),
        cron_schedule=DAILY,
        target=dg.AssetSelection.assets(tags),
        default_status=dg.DefaultScheduleStatus.STOPPED,
        required_resource_keys={"lsm"},
        description=f"Tag the newest snapshot of {declaration.name} every day.",
    )
    def daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        table = context.resources.lsm.existing_table(declaration.name)
        if table is None or table.latest_snapshot() is None:
            return dg.SkipReason(f"{declaration.name} has no snapshot to tag yet")
        name = tag_name(context.scheduled_execution_time)
        context.instance.add_dynamic_partitions(partition_set_name(tag_partitions(keys)), [name])
        return dg.RunRequest(run_key=f"tag-{keys.name}-{name}", partition_key=name)

    return daily
