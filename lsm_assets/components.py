"""What `dg` lists and scaffolds: the entry point of dagster_dg_cli.registry_modules names this module."""

from lsm_assets.component import LsmTableComponent
from lsm_assets.warehouse_component import LsmWarehouseComponent

__all__ = ["LsmTableComponent", "LsmWarehouseComponent"]
