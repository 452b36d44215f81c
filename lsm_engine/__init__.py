"""An LSM storage engine for upsertable lake tables in the Apache Paimon format.

    import lsm_engine as lsm

    catalog = lsm.open_catalog("sqlite:///lake/catalog.db", warehouse="lake")
    table = catalog.create_table("shop.orders", schema, primary_key=["order_id"])
    table.upsert(rows)
    table.scan(where=lsm.col("price") > 5).to_arrow()

Everything works in one process on Arrow data; `lsm_engine.spark` runs it on Spark (docs/architecture.md).
"""

from importlib import import_module
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
    "CATALOG_TABLES",
    "FOUND_COLUMN",
    "KEY_VERSION_FACTS",
    "LINEAGE_PAGE",
    "OPENLINEAGE_NAMESPACE",
    "RESTORED",
    "ROW_ID",
    "RUN_DAGSTER_ID",
    "SNAPSHOT_VERSION",
    "SYSTEM_DATABASE",
    "SYSTEM_TABLES",
    "AddColumn",
    "AlreadyExistsError",
    "Amplification",
    "BucketTree",
    "Catalog",
    "ChangeMode",
    "ChangeType",
    "Clock",
    "CommitConflictError",
    "CommitKind",
    "CommitMessage",
    "CommitUnknownError",
    "CompactionMetrics",
    "CorruptFileError",
    "DamagedFile",
    "DataField",
    "Discard",
    "DropColumn",
    "ErrorKind",
    "Executor",
    "ExpiredError",
    "ExpiryReport",
    "FileCommit",
    "FileExplanation",
    "Follower",
    "ForgetPlan",
    "ForgetReport",
    "HealthReport",
    "InvalidInputError",
    "InvalidOptionError",
    "LeftFiles",
    "Lineage",
    "LineageInput",
    "LineageOrigin",
    "LineageRun",
    "LocalExecutor",
    "LsmError",
    "MoveColumn",
    "NotFoundError",
    "OrphanReport",
    "Predicate",
    "PruneCounts",
    "RemoveOption",
    "RenameColumn",
    "RepairReport",
    "RestoreReport",
    "RetentionSimulation",
    "RowCounts",
    "RowKind",
    "ScalarType",
    "Scan",
    "SchemaChange",
    "SetColumnComment",
    "SetColumnDefault",
    "SetComment",
    "SetNullable",
    "SetOption",
    "Snapshot",
    "SnapshotDiff",
    "Staging",
    "StartMode",
    "StorageError",
    "StreamWriter",
    "SystemClock",
    "SystemIds",
    "Table",
    "TableName",
    "TableSchema",
    "Tag",
    "TreeRun",
    "UnsafePathError",
    "UnsupportedError",
    "VerifyReport",
    "WriteResult",
    "__version__",
    "absolute_warehouse",
    "arrow_fields",
    "arrow_type",
    "choose_rows",
    "col",
    "columns_of_text",
    "compaction_metrics_of",
    "core_options",
    "default_cache_root",
    "default_catalog_url",
    "doctor",
    "format_bytes",
    "format_millis",
    "given_options",
    "lineage_page",
    "millis_of",
    "open_catalog",
    "open_rows",
    "open_table",
    "openlineage_events",
    "parse_millis",
    "processes_of_directory",
    "provenance_properties",
    "record",
    "row_counts_of",
    "set_damaged_file_aside",
    "snapshot_ranges",
    "sql_field",
    "sweep_process_directories",
    "type_of_field",
    "type_of_text",
    "type_text",
    "unsupported_options",
]

_HOMES = {
    "__version__": "base.version",
    "AddColumn": "schema.changes",
    "AlreadyExistsError": "base.errors",
    "Amplification": "plan.amplification",
    "BucketTree": "table.inspect.tree",
    "CATALOG_TABLES": "table.warehouse_tables",
    "Catalog": "table.warehouse",
    "ChangeMode": "plan.incremental",
    "ChangeType": "schema.changes",
    "Clock": "io.clock",
    "CommitConflictError": "base.errors",
    "CommitKind": "base.modes",
    "CommitMessage": "meta.commit_message",
    "CommitUnknownError": "base.errors",
    "CompactionMetrics": "meta.compaction_metrics",
    "CorruptFileError": "base.errors",
    "DataField": "schema.types",
    "Discard": "table.ground.executor",
    "DropColumn": "schema.changes",
    "ErrorKind": "base.errors",
    "Executor": "table.ground.executor",
    "ExpiredError": "base.errors",
    "ExpiryReport": "table.history.expire",
    "FOUND_COLUMN": "table.find.lookup",
    "FileCommit": "plan.file_history",
    "FileExplanation": "plan.file_history",
    "Follower": "table.changes.follow",
    "ForgetPlan": "table.forget.forget_plan",
    "ForgetReport": "table.forget.forget",
    "HealthReport": "plan.health",
    "InvalidInputError": "base.errors",
    "InvalidOptionError": "base.errors",
    "KEY_VERSION_FACTS": "plan.key_history",
    "LINEAGE_PAGE": "catalog.locations",
    "LeftFiles": "io.process_directory",
    "Lineage": "catalog.lineage",
    "LineageInput": "catalog.provenance",
    "LineageOrigin": "catalog.lineage_origins",
    "LineageRun": "catalog.provenance",
    "LocalExecutor": "table.ground.executor",
    "LsmError": "base.errors",
    "MoveColumn": "schema.changes",
    "NotFoundError": "base.errors",
    "OPENLINEAGE_NAMESPACE": "catalog.openlineage",
    "OrphanReport": "table.history.orphans",
    "Predicate": "prune.where",
    "PruneCounts": "plan.explain",
    "RESTORED": "catalog.provenance",
    "RUN_DAGSTER_ID": "catalog.provenance",
    "RemoveOption": "schema.changes",
    "RenameColumn": "schema.changes",
    "DamagedFile": "table.integrity.findings",
    "RepairReport": "table.integrity.repair",
    "RestoreReport": "table.integrity.restore",
    "VerifyReport": "table.integrity.verify_report",
    "RetentionSimulation": "plan.retention_pins",
    "ROW_ID": "schema.table_schema",
    "RowCounts": "meta.row_counts",
    "RowKind": "base.modes",
    "SNAPSHOT_VERSION": "meta.snapshot",
    "SYSTEM_DATABASE": "table.warehouse_tables",
    "SYSTEM_TABLES": "table.inspect.system_tables",
    "ScalarType": "schema.types",
    "SchemaChange": "schema.changes",
    "Scan": "table.read.scan",
    "SetColumnComment": "schema.changes",
    "SetColumnDefault": "schema.changes",
    "SetComment": "schema.changes",
    "SetNullable": "schema.changes",
    "SetOption": "schema.changes",
    "Snapshot": "meta.snapshot",
    "SnapshotDiff": "table.inspect.compare_snapshots",
    "Staging": "table.ground.bucket_context",
    "StartMode": "table.changes.follow",
    "StorageError": "base.errors",
    "StreamWriter": "table.write.stream_writer",
    "SystemClock": "io.clock",
    "SystemIds": "io.clock",
    "Table": "table.table",
    "TableName": "catalog.names",
    "TableSchema": "schema.table_schema",
    "Tag": "meta.tag",
    "TreeRun": "table.inspect.tree",
    "UnsafePathError": "base.errors",
    "UnsupportedError": "base.errors",
    "WriteResult": "meta.write_result",
    "arrow_fields": "schema.arrow_types",
    "arrow_type": "schema.arrow_types",
    "choose_rows": "table.inspect.system_tables",
    "col": "prune.where",
    "columns_of_text": "schema.type_text",
    "compaction_metrics_of": "meta.compaction_metrics",
    "core_options": "base.core_options",
    "absolute_warehouse": "catalog.locations",
    "default_cache_root": "io.process_directory",
    "default_catalog_url": "catalog.locations",
    "doctor": "table.doctor",
    "format_bytes": "base.units",
    "format_millis": "base.units",
    "given_options": "base.table_options",
    "lineage_page": "catalog.lineage_page",
    "millis_of": "base.instant",
    "open_catalog": "table.warehouse",
    "open_rows": "table.ground.incoming",
    "open_table": "table.open_table",
    "openlineage_events": "catalog.openlineage",
    "parse_millis": "base.units",
    "processes_of_directory": "io.process_directory",
    "provenance_properties": "catalog.provenance",
    "record": "base.record",
    "row_counts_of": "meta.row_counts",
    "set_damaged_file_aside": "catalog.damage",
    "snapshot_ranges": "plan.file_history",
    "sql_field": "schema.arrow_types",
    "sweep_process_directories": "io.process_directory",
    "type_of_field": "schema.arrow_types",
    "type_of_text": "schema.type_text",
    "type_text": "schema.types",
    "unsupported_options": "base.table_options",
}
"""Where each name lives. Nothing is loaded before it is asked for: a command that lists tables needs no
compiler, and whoever opens a table by its path needs no database."""

_MODULES = ("core_options",)

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
        habits = import_module("lsm_engine.base.habits")
        elsewhere = import_module("lsm_engine.table.ground.verbs_elsewhere").MODULE
        raise AttributeError(habits.no_such(__name__, name, elsewhere, __all__))
    module = import_module(f"lsm_engine.{home}")
    found = module if name in _MODULES else getattr(module, _NAMED_THERE.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
