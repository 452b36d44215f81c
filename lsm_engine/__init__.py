"""An LSM storage engine for upsertable lake tables in the Apache Paimon format.

    import lsm_engine as lsm

    catalog = lsm.open_catalog("sqlite:///lake/catalog.db", warehouse="lake")
    table = catalog.create_table("shop.orders", schema, primary_key=["order_id"])
    table.upsert(rows)
    table.scan(where=lsm.col("price") > 5).to_arrow()

Everything works in one process on Arrow data; `lsm_engine.spark` runs it on Spark (docs/architecture.md).
"""

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm_engine.base import core_options
    from lsm_engine.base.errors import (
        AlreadyExistsError,
        CommitConflictError,
        CommitUnknownError,
        CorruptFileError,
        ErrorKind,
        ExpiredError,
        InvalidInputError,
        InvalidOptionError,
        LsmError,
        NotFoundError,
        StorageError,
        UnsafePathError,
        UnsupportedError,
    )
    from lsm_engine.base.instant import millis_of
    from lsm_engine.base.modes import CommitKind, RowKind
    from lsm_engine.base.record import record
    from lsm_engine.base.table_options import given_options, unsupported_options
    from lsm_engine.base.units import format_bytes, format_millis, parse_millis
    from lsm_engine.base.version import VERSION as __version__
    from lsm_engine.catalog.damage import set_damaged_file_aside
    from lsm_engine.catalog.lineage import Lineage
    from lsm_engine.catalog.lineage_origins import Origin as LineageOrigin
    from lsm_engine.catalog.lineage_page import lineage_page
    from lsm_engine.catalog.locations import LINEAGE_PAGE, absolute_warehouse, default_catalog_url
    from lsm_engine.catalog.names import TableName
    from lsm_engine.catalog.openlineage import NAMESPACE as OPENLINEAGE_NAMESPACE
    from lsm_engine.catalog.openlineage import run_events as openlineage_events
    from lsm_engine.catalog.provenance import RESTORED, RUN_DAGSTER_ID, provenance_properties
    from lsm_engine.catalog.provenance import Input as LineageInput
    from lsm_engine.catalog.provenance import Run as LineageRun
    from lsm_engine.io.clock import Clock, SystemClock, SystemIds
    from lsm_engine.io.process_directory import LeftFiles
    from lsm_engine.io.process_directory import default_root as default_cache_root
    from lsm_engine.io.process_directory import processes_of as processes_of_directory
    from lsm_engine.io.process_directory import sweep as sweep_process_directories
    from lsm_engine.io.shared_cache import ManifestCache, clear_manifest_cache, manifest_cache
    from lsm_engine.meta.commit_message import CommitMessage
    from lsm_engine.meta.compaction_metrics import CompactionMetrics, compaction_metrics_of
    from lsm_engine.meta.row_counts import RowCounts, row_counts_of
    from lsm_engine.meta.snapshot import SNAPSHOT_VERSION, Snapshot
    from lsm_engine.meta.tag import Tag
    from lsm_engine.meta.write_result import WriteResult
    from lsm_engine.plan.amplification import Amplification
    from lsm_engine.plan.explain import PruneCounts
    from lsm_engine.plan.file_history import Commit as FileCommit
    from lsm_engine.plan.file_history import FileExplanation
    from lsm_engine.plan.file_history import ranges as snapshot_ranges
    from lsm_engine.plan.health import HealthReport
    from lsm_engine.plan.incremental import ChangeMode
    from lsm_engine.plan.key_history import FACTS as KEY_VERSION_FACTS
    from lsm_engine.plan.proposal import CommitOptions
    from lsm_engine.plan.retention_pins import RetentionSimulation
    from lsm_engine.prune.where import Predicate, col
    from lsm_engine.schema.arrow_types import (
        arrow_fields,
        arrow_type,
        sql_field,
        type_of_field,
    )
    from lsm_engine.schema.changes import (
        AddColumn,
        ChangeType,
        DropColumn,
        MoveColumn,
        RemoveOption,
        RenameColumn,
        SchemaChange,
        SetColumnComment,
        SetColumnDefault,
        SetComment,
        SetNullable,
        SetOption,
    )
    from lsm_engine.schema.table_schema import ROW_ID, TableSchema
    from lsm_engine.schema.type_text import columns_of_text, type_of_text
    from lsm_engine.schema.types import DataField, ScalarType, type_text
    from lsm_engine.table.accessors import (
        Branches,
        Changes,
        Consumers,
        Inspect,
        Maintenance,
        Tags,
    )
    from lsm_engine.table.changes.follow import Follower, StartMode
    from lsm_engine.table.doctor import doctor
    from lsm_engine.table.find.lookup import FOUND as FOUND_COLUMN
    from lsm_engine.table.forget.forget import ForgetReport
    from lsm_engine.table.forget.forget_plan import ForgetPlan
    from lsm_engine.table.ground.bucket_context import Staging
    from lsm_engine.table.ground.executor import Discard, Executor, LocalExecutor
    from lsm_engine.table.ground.incoming import open_rows
    from lsm_engine.table.history.expire import ExpiryReport
    from lsm_engine.table.history.orphans import OrphanReport
    from lsm_engine.table.inspect.compare_snapshots import SnapshotDiff
    from lsm_engine.table.inspect.system_tables import TABLES as SYSTEM_TABLES
    from lsm_engine.table.inspect.system_tables import chosen as choose_rows
    from lsm_engine.table.inspect.tree import BucketTree, TreeRun
    from lsm_engine.table.integrity.findings import DamagedFile
    from lsm_engine.table.integrity.repair import RepairReport
    from lsm_engine.table.integrity.restore import RestoreReport
    from lsm_engine.table.integrity.verify_report import VerifyReport
    from lsm_engine.table.open_table import open_table
    from lsm_engine.table.read.scan import Scan
    from lsm_engine.table.table import Table
    from lsm_engine.table.warehouse import Catalog, open_catalog
    from lsm_engine.table.warehouse_tables import CATALOG_TABLES, SYSTEM_DATABASE
    from lsm_engine.table.write.stream_writer import StreamWriter

__all__ = [
    "CATALOG_TABLES", "FOUND_COLUMN", "KEY_VERSION_FACTS", "LINEAGE_PAGE", "OPENLINEAGE_NAMESPACE",
    "RESTORED", "ROW_ID", "RUN_DAGSTER_ID", "SNAPSHOT_VERSION", "SYSTEM_DATABASE", "SYSTEM_TABLES",
    "AddColumn", "AlreadyExistsError", "Amplification", "Branches", "BucketTree", "Catalog", "ChangeMode",
    "ChangeType", "Changes", "Clock", "CommitConflictError", "CommitKind", "CommitMessage", "CommitOptions",
    "CommitUnknownError", "CompactionMetrics", "Consumers", "CorruptFileError", "DamagedFile", "DataField",
    "Discard", "DropColumn", "ErrorKind", "Executor", "ExpiredError", "ExpiryReport", "FileCommit",
    "FileExplanation", "Follower", "ForgetPlan", "ForgetReport", "HealthReport", "Inspect",
    "InvalidInputError", "InvalidOptionError", "LeftFiles", "Lineage", "LineageInput", "LineageOrigin",
    "LineageRun", "LocalExecutor", "LsmError", "Maintenance", "ManifestCache", "MoveColumn",
    "NotFoundError", "OrphanReport", "Predicate", "PruneCounts", "RemoveOption", "RenameColumn",
    "RepairReport", "RestoreReport", "RetentionSimulation", "RowCounts", "RowKind", "ScalarType", "Scan",
    "SchemaChange", "SetColumnComment", "SetColumnDefault", "SetComment", "SetNullable", "SetOption",
    "Snapshot", "SnapshotDiff", "Staging", "StartMode", "StorageError", "StreamWriter", "SystemClock",
    "SystemIds", "Table", "TableName", "TableSchema", "Tag", "Tags", "TreeRun", "UnsafePathError",
    "UnsupportedError", "VerifyReport", "WriteResult", "__version__", "absolute_warehouse", "arrow_fields",
    "arrow_type", "choose_rows", "clear_manifest_cache", "col", "columns_of_text", "compaction_metrics_of",
    "core_options", "default_cache_root", "default_catalog_url", "doctor", "format_bytes", "format_millis",
    "given_options", "lineage_page", "manifest_cache", "millis_of", "open_catalog", "open_rows",
    "open_table", "openlineage_events", "parse_millis", "processes_of_directory", "provenance_properties",
    "record", "row_counts_of", "set_damaged_file_aside", "snapshot_ranges", "sql_field",
    "sweep_process_directories", "type_of_field", "type_of_text", "type_text", "unsupported_options",
]  # fmt: skip

_HOMES = {
    name: home
    for home, names in {
        "base.core_options": "core_options",
        "base.errors": """
            AlreadyExistsError CommitConflictError CommitUnknownError CorruptFileError ErrorKind
            ExpiredError InvalidInputError InvalidOptionError LsmError NotFoundError StorageError
            UnsafePathError UnsupportedError
        """,
        "base.instant": "millis_of",
        "base.modes": "CommitKind RowKind",
        "base.record": "record",
        "base.table_options": "given_options unsupported_options",
        "base.units": "format_bytes format_millis parse_millis",
        "base.version": "__version__",
        "catalog.damage": "set_damaged_file_aside",
        "catalog.lineage": "Lineage",
        "catalog.lineage_origins": "LineageOrigin",
        "catalog.lineage_page": "lineage_page",
        "catalog.locations": "LINEAGE_PAGE absolute_warehouse default_catalog_url",
        "catalog.names": "TableName",
        "catalog.openlineage": "OPENLINEAGE_NAMESPACE openlineage_events",
        "catalog.provenance": "LineageInput LineageRun RESTORED RUN_DAGSTER_ID provenance_properties",
        "io.clock": "Clock SystemClock SystemIds",
        "io.process_directory": """
            LeftFiles default_cache_root processes_of_directory sweep_process_directories
        """,
        "io.shared_cache": "ManifestCache clear_manifest_cache manifest_cache",
        "meta.commit_message": "CommitMessage",
        "meta.compaction_metrics": "CompactionMetrics compaction_metrics_of",
        "meta.row_counts": "RowCounts row_counts_of",
        "meta.snapshot": "SNAPSHOT_VERSION Snapshot",
        "meta.tag": "Tag",
        "meta.write_result": "WriteResult",
        "plan.amplification": "Amplification",
        "plan.explain": "PruneCounts",
        "plan.file_history": "FileCommit FileExplanation snapshot_ranges",
        "plan.health": "HealthReport",
        "plan.incremental": "ChangeMode",
        "plan.key_history": "KEY_VERSION_FACTS",
        "plan.proposal": "CommitOptions",
        "plan.retention_pins": "RetentionSimulation",
        "prune.where": "Predicate col",
        "schema.arrow_types": "arrow_fields arrow_type sql_field type_of_field",
        "schema.changes": """
            AddColumn ChangeType DropColumn MoveColumn RemoveOption RenameColumn SchemaChange
            SetColumnComment SetColumnDefault SetComment SetNullable SetOption
        """,
        "schema.table_schema": "ROW_ID TableSchema",
        "schema.type_text": "columns_of_text type_of_text",
        "schema.types": "DataField ScalarType type_text",
        "table.changes.follow": "Follower StartMode",
        "table.doctor": "doctor",
        "table.find.lookup": "FOUND_COLUMN",
        "table.forget.forget": "ForgetReport",
        "table.forget.forget_plan": "ForgetPlan",
        "table.ground.bucket_context": "Staging",
        "table.ground.executor": "Discard Executor LocalExecutor",
        "table.ground.incoming": "open_rows",
        "table.history.expire": "ExpiryReport",
        "table.history.orphans": "OrphanReport",
        "table.inspect.compare_snapshots": "SnapshotDiff",
        "table.inspect.system_tables": "SYSTEM_TABLES choose_rows",
        "table.inspect.tree": "BucketTree TreeRun",
        "table.integrity.findings": "DamagedFile",
        "table.integrity.repair": "RepairReport",
        "table.integrity.restore": "RestoreReport",
        "table.integrity.verify_report": "VerifyReport",
        "table.open_table": "open_table",
        "table.read.scan": "Scan",
        "table.accessors": "Branches Changes Consumers Inspect Maintenance Tags",
        "table.table": "Table",
        "table.warehouse": "Catalog open_catalog",
        "table.warehouse_tables": "CATALOG_TABLES SYSTEM_DATABASE",
        "table.write.stream_writer": "StreamWriter",
    }.items()
    for name in names.split()
}
"""Where each name lives. Nothing is loaded before it is asked for: a command that lists tables needs no
compiler, and whoever opens a table by its path needs no database."""

_NAMED_THERE = {
    "__version__": "VERSION",
    "FOUND_COLUMN": "FOUND",
    "FileCommit": "Commit",
    "KEY_VERSION_FACTS": "FACTS",
    "LineageInput": "Input",
    "LineageOrigin": "Origin",
    "LineageRun": "Run",
    "OPENLINEAGE_NAMESPACE": "NAMESPACE",
    "SYSTEM_TABLES": "TABLES",
    "choose_rows": "chosen",
    "default_cache_root": "default_root",
    "openlineage_events": "run_events",
    "processes_of_directory": "processes_of",
    "snapshot_ranges": "ranges",
    "sweep_process_directories": "sweep",
}
"""Names that say enough inside of their module and too little outside."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        names = import_module("lsm_engine.base.other_libraries")
        raise names.missing_attribute("module", name, names.MODULE)
    module = import_module(f"lsm_engine.{home}")
    value = module if name == "core_options" else getattr(module, _NAMED_THERE.get(name, name))
    if isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
        value = import_module("lsm_engine.base.arguments").checks_arguments(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
