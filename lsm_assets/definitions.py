"""Composition only: what `workspace.yaml` points at."""

from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.settings import current_settings

defs = sample_definitions(current_settings())
