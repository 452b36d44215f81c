"""The code location of `tests.bench.fleet`, for Dagster's webserver: every table that its warehouse has."""

from lsm_assets.settings import current_settings
from tests.bench.fleet import definitions_of

definitions = definitions_of(current_settings())
