"""The sample as one code location."""

import dagster as dg

from lsm_assets.project import lsm_definitions
from lsm_assets.sample.assets import sample_assets
from lsm_assets.sample.jobs import sample_jobs
from lsm_assets.sample.release import airports_release
from lsm_assets.settings import Settings


def sample_definitions(settings: Settings) -> dg.Definitions:
    """Return the sample's tables, its jobs, and the release of airports."""
    tables = lsm_definitions(sample_assets(), settings, jobs=sample_jobs())
    return dg.Definitions.merge(tables, dg.Definitions(assets=[airports_release]))
