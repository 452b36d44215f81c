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

from lsm_engine.base.former_modules import alias_former_modules

if TYPE_CHECKING:
    from lsm_engine.api.accessors import (
        Branches,
        Changes,
        Consumers,
        Inspect,
        Maintenance,
        Tags,
    )
    from lsm_engine.api.catalog import Catalog, open_catalog
    from lsm_engine.api.catalog_tables import CATALOG_TABLES, SYSTEM_DATABASE
    from lsm_engine.api.doctor import doctor
    from lsm_engine.api.open_table import open_table
    from lsm_engine.api.row_files import FileOptions, RowFiles, read_files, write_file
    from lsm_engine.api.table import Table
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
    from lsm_engine.base.record import record
    from lsm_engine.base.units import format_bytes, format_millis, parse_millis
    from lsm_engine.base.version import VERSION as __version__
    from lsm_engine.cache.shared import ManifestCache, clear_manifest_cache, manifest_cache
    from lsm_engine.catalog.lineage.lineage import Lineage
    from lsm_engine.catalog.lineage.openlineage import NAMESPACE as OPENLINEAGE_NAMESPACE
    from lsm_engine.catalog.lineage.openlineage import run_events as openlineage_events
    from lsm_engine.catalog.lineage.page import lineage_page
    from lsm_engine.catalog.lineage.queries import Origin as LineageOrigin
    from lsm_engine.catalog.migrations import set_damaged_file_aside
    from lsm_engine.catalog.names import (
        LINEAGE_PAGE,
        TableName,
        absolute_warehouse,
        default_catalog_url,
    )
    from lsm_engine.catalog.provenance import RESTORED, RUN_DAGSTER_ID, provenance_properties
    from lsm_engine.catalog.provenance import Input as LineageInput
    from lsm_engine.catalog.provenance import Run as LineageRun
    from lsm_engine.changes.follow import Follower, StartMode
    from lsm_engine.dml.stream_writer import StreamWriter
    from lsm_engine.filter.where import Predicate, col
    from lsm_engine.format.commit_message import CommitMessage, WriteResult
    from lsm_engine.format.snapshot import (
        SNAPSHOT_VERSION,
        CompactionMetrics,
        RowCounts,
        Snapshot,
        compaction_metrics_of,
        row_counts_of,
    )
    from lsm_engine.format.tag import Tag
    from lsm_engine.inspect.snapshots import SnapshotDiff
    from lsm_engine.inspect.system_tables import TABLES as SYSTEM_TABLES
    from lsm_engine.inspect.system_tables import chosen as choose_rows
    from lsm_engine.inspect.tree import BucketTree, TreeRun
    from lsm_engine.kernels.machine_code import CompiledLoops, compile_loops
    from lsm_engine.lookup.lookup import FOUND as FOUND_COLUMN
    from lsm_engine.maintenance.expire import ExpiryReport
    from lsm_engine.maintenance.findings import DamagedFile, VerifyReport
    from lsm_engine.maintenance.forget import ForgetReport
    from lsm_engine.maintenance.forget_plan import ForgetPlan
    from lsm_engine.maintenance.orphans import OrphanReport
    from lsm_engine.maintenance.repair import RepairReport, RestoreReport
    from lsm_engine.options import core_options
    from lsm_engine.options.modes import CommitKind, RowKind
    from lsm_engine.options.table_options import given_options, unsupported_options
    from lsm_engine.planning.compaction import Amplification
    from lsm_engine.planning.health import HealthReport
    from lsm_engine.planning.history import FACTS as KEY_VERSION_FACTS
    from lsm_engine.planning.history import Commit as FileCommit
    from lsm_engine.planning.history import FileExplanation, RetentionSimulation
    from lsm_engine.planning.history import ranges as snapshot_ranges
    from lsm_engine.planning.incremental import ChangeMode
    from lsm_engine.planning.proposal import CommitOptions
    from lsm_engine.planning.scan import PruneCounts
    from lsm_engine.read.scan import Scan
    from lsm_engine.storage.clock import Clock, SystemClock, SystemIds
    from lsm_engine.storage.local_state import LeftFiles
    from lsm_engine.storage.local_state import default_root as default_cache_root
    from lsm_engine.storage.local_state import processes_of as processes_of_directory
    from lsm_engine.storage.local_state import sweep as sweep_process_directories
    from lsm_engine.table.bucket_context import Staging
    from lsm_engine.table.components import Discard, Executor, LocalExecutor
    from lsm_engine.table.iceberg_state import IcebergState
    from lsm_engine.table.incoming import open_rows
    from lsm_engine.types.arrow_types import (
        arrow_fields,
        arrow_type,
        sql_field,
        type_of_field,
    )
    from lsm_engine.types.schema_changes import (
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
    from lsm_engine.types.table_schema import ROW_ID, TableSchema
    from lsm_engine.types.text_columns import parse_texts, plain_rows, plain_values
    from lsm_engine.types.type_text import columns_of_text, type_of_text
    from lsm_engine.types.types import DataField, ScalarType, type_text

__all__ = [
    "CATALOG_TABLES", "FOUND_COLUMN", "KEY_VERSION_FACTS", "LINEAGE_PAGE",
    "OPENLINEAGE_NAMESPACE", "RESTORED", "ROW_ID", "RUN_DAGSTER_ID", "SNAPSHOT_VERSION",
    "SYSTEM_DATABASE", "SYSTEM_TABLES", "AddColumn", "AlreadyExistsError", "Amplification", "Branches",
    "BucketTree", "Catalog", "ChangeMode", "ChangeType", "Changes", "Clock", "CommitConflictError",
    "CommitKind", "CommitMessage", "CommitOptions", "CommitUnknownError", "CompactionMetrics", "CompiledLoops", "Consumers",
    "CorruptFileError", "DamagedFile", "DataField", "Discard", "DropColumn", "ErrorKind", "Executor",
    "ExpiredError", "ExpiryReport", "FileCommit", "FileExplanation", "FileOptions", "Follower",
    "ForgetPlan", "ForgetReport", "HealthReport", "IcebergState", "Inspect", "InvalidInputError",
    "InvalidOptionError", "LeftFiles", "Lineage", "LineageInput", "LineageOrigin", "LineageRun",
    "LocalExecutor", "LsmError", "Maintenance", "ManifestCache", "MoveColumn", "NotFoundError",
    "OrphanReport", "Predicate", "PruneCounts", "RemoveOption", "RenameColumn", "RepairReport",
    "RestoreReport", "RetentionSimulation", "RowCounts", "RowFiles", "RowKind", "ScalarType", "Scan",
    "SchemaChange", "SetColumnComment", "SetColumnDefault", "SetComment", "SetNullable", "SetOption",
    "Snapshot", "SnapshotDiff", "Staging", "StartMode", "StorageError", "StreamWriter", "SystemClock",
    "SystemIds", "Table", "TableName", "TableSchema", "Tag", "Tags", "TreeRun", "UnsafePathError",
    "UnsupportedError", "VerifyReport", "WriteResult", "__version__", "absolute_warehouse", "arrow_fields",
    "arrow_type", "choose_rows", "clear_manifest_cache", "col", "columns_of_text", "compaction_metrics_of",
    "compile_loops",
    "core_options", "default_cache_root", "default_catalog_url", "doctor", "format_bytes", "format_millis",
    "given_options", "lineage_page", "manifest_cache", "millis_of", "open_catalog",
    "open_rows", "open_table", "openlineage_events", "parse_millis", "parse_texts", "plain_rows",
    "plain_values", "processes_of_directory", "provenance_properties", "read_files", "record",
    "row_counts_of", "set_damaged_file_aside", "snapshot_ranges", "sql_field", "sweep_process_directories",
    "type_of_field", "type_of_text", "type_text", "unsupported_options", "write_file",
]  # fmt: skip

_HOMES = {
    name: home
    for home, names in {
        "api.accessors": "Branches Changes Consumers Inspect Maintenance Tags",
        "api.catalog": "Catalog open_catalog",
        "api.catalog_tables": "CATALOG_TABLES SYSTEM_DATABASE",
        "api.doctor": "doctor",
        "api.open_table": "open_table",
        "api.row_files": "FileOptions RowFiles read_files write_file",
        "api.table": "Table",
        "base.errors": """
            AlreadyExistsError CommitConflictError CommitUnknownError CorruptFileError ErrorKind
            ExpiredError InvalidInputError InvalidOptionError LsmError NotFoundError
            StorageError UnsafePathError UnsupportedError
        """,
        "base.instant": "millis_of",
        "base.record": "record",
        "base.units": "format_bytes format_millis parse_millis",
        "base.version": "__version__",
        "cache.shared": "ManifestCache clear_manifest_cache manifest_cache",
        "catalog.lineage.lineage": "Lineage",
        "catalog.lineage.openlineage": "OPENLINEAGE_NAMESPACE openlineage_events",
        "catalog.lineage.page": "lineage_page",
        "catalog.lineage.queries": "LineageOrigin",
        "catalog.migrations": "set_damaged_file_aside",
        "catalog.names": "LINEAGE_PAGE TableName absolute_warehouse default_catalog_url",
        "catalog.provenance": """
            RESTORED RUN_DAGSTER_ID LineageInput LineageRun provenance_properties
        """,
        "changes.follow": "Follower StartMode",
        "dml.stream_writer": "StreamWriter",
        "filter.where": "Predicate col",
        "format.commit_message": "CommitMessage WriteResult",
        "format.snapshot": """
            SNAPSHOT_VERSION CompactionMetrics RowCounts Snapshot compaction_metrics_of
            row_counts_of
        """,
        "format.tag": "Tag",
        "inspect.snapshots": "SnapshotDiff",
        "inspect.system_tables": "SYSTEM_TABLES choose_rows",
        "inspect.tree": "BucketTree TreeRun",
        "kernels.machine_code": "CompiledLoops compile_loops",
        "lookup.lookup": "FOUND_COLUMN",
        "maintenance.expire": "ExpiryReport",
        "maintenance.findings": "DamagedFile VerifyReport",
        "maintenance.forget": "ForgetReport",
        "maintenance.forget_plan": "ForgetPlan",
        "maintenance.orphans": "OrphanReport",
        "maintenance.repair": "RepairReport RestoreReport",
        "options.core_options": "core_options",
        "options.modes": "CommitKind RowKind",
        "options.table_options": "given_options unsupported_options",
        "planning.compaction": "Amplification",
        "planning.health": "HealthReport",
        "planning.history": """
            KEY_VERSION_FACTS FileCommit FileExplanation RetentionSimulation snapshot_ranges
        """,
        "planning.incremental": "ChangeMode",
        "planning.proposal": "CommitOptions",
        "planning.scan": "PruneCounts",
        "read.scan": "Scan",
        "storage.clock": "Clock SystemClock SystemIds",
        "storage.local_state": """
            LeftFiles default_cache_root processes_of_directory sweep_process_directories
        """,
        "table.bucket_context": "Staging",
        "table.components": "Discard Executor LocalExecutor",
        "table.iceberg_state": "IcebergState",
        "table.incoming": "open_rows",
        "types.arrow_types": "arrow_fields arrow_type sql_field type_of_field",
        "types.schema_changes": """
            AddColumn ChangeType DropColumn MoveColumn RemoveOption RenameColumn SchemaChange
            SetColumnComment SetColumnDefault SetComment SetNullable SetOption
        """,
        "types.table_schema": "ROW_ID TableSchema",
        "types.text_columns": "parse_texts plain_rows plain_values",
        "types.type_text": "columns_of_text type_of_text",
        "types.types": "DataField ScalarType type_text",
    }.items()
    for name in names.split()
}
"""Where each name lives. Nothing is loaded before it is asked for: a command that lists tables needs no
compiler, and opening a table by its path needs no database."""

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


alias_former_modules(
    __name__,
    {
        "io.file_io": "storage.file_io",
        "io.one_by_one": "storage.bulk",
        "io.stores": "storage.warehouse",
    },
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        names = import_module("lsm_engine.base.other_libraries")
        raise names.missing_attribute("module", name, names.MODULE)
    module = import_module(f"lsm_engine.{home}")
    value = module if name == "core_options" else getattr(module, _NAMED_THERE.get(name, name))
    if isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
        value = import_module("lsm_engine.base.arguments").checks_arguments(value)
        if hasattr(value, "__wrapped__"):
            # It is pickled by the name under which users have it.
            value.__module__, value.__qualname__ = __name__, name
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
