"""lsm_definitions: the definitions of tables with their sensors and resources."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from lsm_assets.factory import LsmTableAssets
from lsm_assets.maintenance import lineage_page_job, lineage_page_schedule
from lsm_assets.resource import resources_from
from lsm_assets.sensors import table_sensors
from lsm_assets.settings import Settings


def lsm_definitions(
    tables: Sequence[LsmTableAssets], settings: Settings, *, jobs: Sequence[Any] = ()
) -> dg.Definitions:
    """Return the definitions of a code location whose tables are all in one warehouse.

    Args:
        tables: Tables, from `lsm_table_assets`.
        settings: Warehouse, catalog and executor.
        jobs: Further jobs.
    """
    page = lineage_page_job()
    return dg.Definitions.merge(
        *(table.definitions(settings.executor) for table in tables),
        dg.Definitions(
            jobs=[*jobs, page],
            schedules=[lineage_page_schedule(page)],
            sensors=table_sensors([table.declaration for table in tables]),
            resources=resources_from(settings),
            # One process per run, hence one JVM for all of its steps.
            executor=dg.in_process_executor,
        ),
    )
