"""Composition only: what `workspace.yaml` points at."""

from lsm_assets.project import lsm_definitions
from lsm_assets.sample.assets import sample_assets
from lsm_assets.sample.jobs import sample_jobs
from lsm_assets.settings import current_settings

defs = lsm_definitions(sample_assets(), current_settings(), jobs=sample_jobs())
