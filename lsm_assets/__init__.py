"""Dagster assets, checks, sensors, jobs, components and an I/O manager for tables of `lsm_engine`.

    import lsm_assets

    defs = lsm_assets.lsm_definitions(lsm_assets.lsm_table_assets(...))

`factory.py` builds the definitions of one table: start reading there. Each module is a noun of Dagster
(resource, component, I/O manager, partitions, checks, sensors) or of what an asset records (versions,
metadata, commits).
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lsm_engine.base.former_modules import alias_former_modules

if find_spec("dagster") is None:
    raise ImportError("Dagster is not installed: pip install 'lsm-assets[dagster]'")

if TYPE_CHECKING:
    from lsm_assets.component import LsmTableComponent
    from lsm_assets.declaration import TableDeclaration
    from lsm_assets.factory import lsm_definitions, lsm_table_assets
    from lsm_assets.feed import changes_to_feed
    from lsm_assets.io_manager import LsmIOManager
    from lsm_assets.pinning import input_snapshot
    from lsm_assets.sensors import eager_with_compactions, io_sync_sensor
    from lsm_assets.settings import current_settings
    from lsm_assets.staleness import inputs_changed, reader_definitions
    from lsm_assets.translator import LsmTranslator
    from lsm_assets.versions import Delete, Overwrite, Upsert
    from lsm_assets.warehouse_component import LsmWarehouseComponent, warehouse_definitions

__all__ = [
    "Delete", "LsmIOManager", "LsmTableComponent", "LsmTranslator", "LsmWarehouseComponent", "Overwrite",
    "TableDeclaration", "Upsert", "changes_to_feed", "current_settings", "eager_with_compactions", "input_snapshot",
    "inputs_changed", "io_sync_sensor", "lsm_definitions", "lsm_table_assets", "reader_definitions", "warehouse_definitions",
]  # fmt: skip

_MODULES = {
    "Delete": "versions",
    "LsmIOManager": "io_manager",
    "LsmTableComponent": "component",
    "LsmTranslator": "translator",
    "LsmWarehouseComponent": "warehouse_component",
    "Overwrite": "versions",
    "TableDeclaration": "declaration",
    "Upsert": "versions",
    "changes_to_feed": "feed",
    "current_settings": "settings",
    "eager_with_compactions": "sensors",
    "input_snapshot": "pinning",
    "inputs_changed": "staleness",
    "io_sync_sensor": "sensors",
    "lsm_definitions": "factory",
    "lsm_table_assets": "factory",
    "reader_definitions": "staleness",
    "warehouse_definitions": "warehouse_component",
}
"""Where each name lives; nothing is loaded before it is asked for."""

alias_former_modules(
    __name__,
    {
        "automation.conditions": "sensors",
        "automation.sync_sensor": "sensors",
        "ledger.feed": "feed",
        "ledger.pinning": "pinning",
        "model.changes": "versions",
        "model.declaration": "declaration",
        "model.sql_lineage": "sql_lineage",
        "model.translator": "translator",
        "resources": "resource",
        "table_io": "io_manager",
    },
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"lsm_assets.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
