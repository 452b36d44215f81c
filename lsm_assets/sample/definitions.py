"""The definitions of the sample's code location."""

import dagster as dg

from lsm_assets.maintenance import lineage_page_job, lineage_page_schedule
from lsm_assets.sample.assets import sample_assets
from lsm_assets.sample.release import airports_release, sample_jobs
from lsm_assets.sample.tables import offered_days
from lsm_assets.settings import Settings
from lsm_assets.warehouse_component import warehouse_definitions


def sample_definitions(settings: Settings) -> dg.Definitions:
    """Return the sample's tables with one set of sensors and jobs, its own jobs, and the release of airports."""
    page = lineage_page_job()
    own = dg.Definitions(
        assets=[airports_release],
        jobs=[*sample_jobs(), page],
        schedules=[lineage_page_schedule(page)],
    )
    tables = sample_assets(offered_days(settings))
    return dg.Definitions.merge(warehouse_definitions(tables, settings), own)
