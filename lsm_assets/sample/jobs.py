"""The sample's jobs: load reference tables, replay days, apply changes of flights to totals."""

from typing import Any

import dagster as dg

from lsm_assets.model.keys import AssetKind
from lsm_assets.sample.release import KEY as RELEASE
from lsm_assets.sample.tables import CARRIER_DAYS, FED_TABLES, FLIGHTS, REFERENCE_TABLES, WEATHER

REFERENCES_JOB = "load_references"
DAYS_JOB = "load_days"
FEED_JOB = "feed_totals"


def sample_jobs() -> list[Any]:
    """Return the jobs that `lsm-sample` runs. Users can also run them from the UI."""
    references = [table.keys.asset(AssetKind.TABLE) for table in REFERENCE_TABLES]
    operations = [table.keys.asset(AssetKind.TABLE) for table in (WEATHER, FLIGHTS, CARRIER_DAYS)]
    fed = [table.keys.asset(AssetKind.TABLE) for table in FED_TABLES]
    return [
        dg.define_asset_job(
            REFERENCES_JOB,
            selection=dg.AssetSelection.assets(*references, RELEASE),
            description="Load the tables that rarely change, and release a correction of one.",
        ),
        dg.define_asset_job(
            DAYS_JOB,
            selection=dg.AssetSelection.assets(*operations),
            description="Replay days of operations, and compute their delay figures.",
        ),
        dg.define_asset_job(
            FEED_JOB,
            selection=dg.AssetSelection.assets(*fed),
            description="Carry over what compactions of flights have told since the last time.",
        ),
    ]
