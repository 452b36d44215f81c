"""The sample's two jobs: reference tables, and days of operations."""

from typing import Any

import dagster as dg

from lsm_assets.model.keys import AssetKind
from lsm_assets.sample.tables import CARRIER_DAYS, FLIGHTS, REFERENCE_TABLES, WEATHER

REFERENCES_JOB = "load_references"
DAYS_JOB = "load_days"


def sample_jobs() -> list[Any]:
    """Return the jobs that the entry point runs; the UI offers them as well."""
    references = [table.keys.asset(AssetKind.TABLE) for table in REFERENCE_TABLES]
    operations = [table.keys.asset(AssetKind.TABLE) for table in (WEATHER, FLIGHTS, CARRIER_DAYS)]
    return [
        dg.define_asset_job(
            REFERENCES_JOB,
            selection=dg.AssetSelection.assets(*references),
            description="Load the tables that rarely change.",
        ),
        dg.define_asset_job(
            DAYS_JOB,
            selection=dg.AssetSelection.assets(*operations),
            description="Replay days of operations, and compute their delay figures.",
        ),
    ]
