"""The definitions of the sample, which `workspace.yaml` loads."""

from lsm_assets.sample.definitions import sample_definitions
from lsm_assets.settings import current_settings

defs = sample_definitions(current_settings())
