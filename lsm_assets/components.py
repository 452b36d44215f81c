"""The components that `dg` lists and scaffolds, through the entry point `dagster_dg_cli.registry_modules`."""

from lsm_assets.component import LsmTableComponent
from lsm_assets.warehouse_component import LsmWarehouseComponent

__all__ = ["LsmTableComponent", "LsmWarehouseComponent"]
