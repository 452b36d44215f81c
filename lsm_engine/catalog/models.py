"""The catalog's tables: Paimon's own, under its names, and ours, which begin with `lsm_`.

Paimon's tables (format section 16) are shared with other clients, so nothing is added to them. Ours
hold lineage; times in them are milliseconds since 1970 UTC and come from the table's files. `views`
makes them readable for people.
"""

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    func,
    text,
)
from sqlalchemy.dialects import sqlite

METADATA = MetaData()


class _WholeSeconds(sqlite.DATETIME):
    """A TIMESTAMP as SQLite's own CURRENT_TIMESTAMP writes it: "2013-01-01 00:00:00"."""

    __visit_name__ = "TIMESTAMP"
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(truncate_microseconds=True)  # type: ignore[no-untyped-call]


PROPERTY_KEY_MAX = 255
PROPERTY_VALUE_MAX = 1000
"""Characters that the format's columns hold; SQLite would not mind more, other databases do."""

LIVE = "live"
EXPIRED = "expired"
"""States of a snapshot: its file exists; retention took it."""

DATA = "data"
CHANGELOG = "changelog"
"""The content of a file: rows of the table, or rows of its changelog."""


def _name(name: str, *, primary_key: bool = True) -> Column[str]:
    return Column(name, String(255), nullable=False, primary_key=primary_key)


# ---- Paimon's -----------------------------------------------------------------------------------

PAIMON_TABLES = Table(
    "paimon_tables", METADATA, _name("catalog_key"), _name("database_name"), _name("table_name")
)

PAIMON_DATABASE_PROPERTIES = Table(
    "paimon_database_properties",
    METADATA,
    _name("catalog_key"),
    _name("database_name"),
    _name("property_key"),
    Column("property_value", String(PROPERTY_VALUE_MAX)),
)

PAIMON_TABLE_PROPERTIES = Table(
    "paimon_table_properties",
    METADATA,
    _name("catalog_key"),
    _name("database_name"),
    _name("table_name"),
    _name("property_key"),
    Column("property_value", String(PROPERTY_VALUE_MAX)),
)

PAIMON_DISTRIBUTED_LOCKS = Table(
    "paimon_distributed_locks",
    METADATA,
    _name("lock_id"),
    Column(
        "acquired_at",
        TIMESTAMP().with_variant(_WholeSeconds(), "sqlite"),
        nullable=False,
        server_default=func.current_timestamp(),
    ),
    Column("expire_time_seconds", BigInteger, nullable=False, server_default=text("0")),
)

# ---- Iceberg's ----------------------------------------------------------------------------------
#
# The tables of Iceberg's JDBC catalog, made once a table has Iceberg metadata.

ICEBERG_METADATA = MetaData()

ICEBERG_TABLES = Table(
    "iceberg_tables",
    ICEBERG_METADATA,
    _name("catalog_name"),
    _name("table_namespace"),
    _name("table_name"),
    Column("metadata_location", String(PROPERTY_VALUE_MAX)),
    Column("previous_metadata_location", String(PROPERTY_VALUE_MAX)),
    Column("iceberg_type", String(5)),
)

ICEBERG_NAMESPACE_PROPERTIES = Table(
    "iceberg_namespace_properties",
    ICEBERG_METADATA,
    _name("catalog_name"),
    _name("namespace"),
    _name("property_key"),
    Column("property_value", String(PROPERTY_VALUE_MAX), nullable=False),
)

_OWN_TABLE = (
    "SELECT 1 FROM paimon_tables WHERE catalog_key = OLD.catalog_name "
    "AND database_name = OLD.table_namespace AND table_name = OLD.table_name"
)
_REFUSAL = "a Paimon table is only read through its Iceberg metadata; write it by lsm_engine, or by a client of Paimon"
ICEBERG_GUARDS = {
    "sqlite": (
        "CREATE TRIGGER IF NOT EXISTS lsm_iceberg_guard BEFORE UPDATE ON iceberg_tables "
        f"WHEN EXISTS ({_OWN_TABLE}) BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION lsm_iceberg_guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF EXISTS ({_OWN_TABLE}) THEN RAISE EXCEPTION '{_REFUSAL}'; END IF; RETURN NEW; END $$",
        "CREATE OR REPLACE TRIGGER lsm_iceberg_guard BEFORE UPDATE ON iceberg_tables "
        "FOR EACH ROW EXECUTE FUNCTION lsm_iceberg_guard()",
    ),
}
"""Statements, by dialect, by which the commit of another engine to one of the catalog's tables fails: it updates the row."""

# ---- ours ---------------------------------------------------------------------------------------

VERSIONS = Table(
    "lsm_catalog_versions",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("description", Text, nullable=False),
)

TABLES = Table(
    "lsm_tables",
    METADATA,
    Column("table_id", Integer, primary_key=True, autoincrement=True),
    _name("catalog_key", primary_key=False),
    _name("database_name", primary_key=False),
    _name("table_name", primary_key=False),
    _name("branch", primary_key=False),
    Index("lsm_tables_name", "catalog_key", "database_name", "table_name", "branch", unique=True),
)


def _table_id() -> Column[int]:
    key = ForeignKey(TABLES.c.table_id, ondelete="CASCADE")
    return Column("table_id", Integer, key, nullable=False, primary_key=True, autoincrement=False)


def _snapshot_id() -> Column[int]:
    return Column("snapshot_id", BigInteger, nullable=False, primary_key=True, autoincrement=False)


def _count(name: str, *, primary_key: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=False, primary_key=primary_key, autoincrement=False)


RUNS = Table(
    "lsm_runs",
    METADATA,
    Column("run_id", Text, primary_key=True),
    Column("asset_key", Text, primary_key=True),  # "" for none: a key may not be null
    Column("engine", Text),
    Column("kind", Text),
    Column("dagster_run_id", Text, index=True),
    Column("user_name", Text),
    Column("started_millis", BigInteger),  # as recorded; null: that of its first snapshot
)

SNAPSHOTS = Table(
    "lsm_snapshots",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("state", String(16), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("asset_key", Text, nullable=False),
    Column("version", Integer),
    _count("schema_id"),
    Column("base_manifest_list", Text, nullable=False),
    Column("base_manifest_list_size", BigInteger),
    Column("delta_manifest_list", Text, nullable=False),
    Column("delta_manifest_list_size", BigInteger),
    Column("changelog_manifest_list", Text),
    Column("changelog_manifest_list_size", BigInteger),
    Column("index_manifest", Text),
    Column("commit_user", Text, nullable=False),
    _count("commit_identifier"),
    Column("commit_kind", String(16), nullable=False),
    _count("time_millis"),
    Column("log_offsets", Text),  # JSON
    Column("total_record_count", BigInteger),
    Column("delta_record_count", BigInteger),
    Column("changelog_record_count", BigInteger),
    Column("watermark", BigInteger),
    Column("statistics", Text),
    Column("properties", Text),  # JSON
    Column("next_row_id", BigInteger),
    Column("uuid", Text),
    Column("operation", Text),
    Column("writer_version", Text),
    _count("files_added"),
    _count("files_deleted"),
    _count("bytes_added"),
    _count("bytes_deleted"),
    Index("lsm_snapshots_run", "run_id", "asset_key"),
    Index("lsm_snapshots_time", "time_millis"),
)

MANIFEST_LISTS = Table(
    "lsm_manifest_lists",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("kind", String(16), primary_key=True),  # base, delta, changelog
    Column("file_name", Text, nullable=False),
    Column("file_size", BigInteger),
    _count("manifest_count"),
    _count("added_file_count"),
    _count("deleted_file_count"),
)

MANIFESTS = Table(
    "lsm_manifests",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("kind", String(16), primary_key=True),
    _count("position", primary_key=True),
    Column("file_name", Text, nullable=False),
    _count("file_size"),
    _count("added_file_count"),
    _count("deleted_file_count"),
    _count("schema_id"),
    Column("min_bucket", Integer),
    Column("max_bucket", Integer),
    Column("min_level", Integer),
    Column("max_level", Integer),
    Index("lsm_manifests_file", "table_id", "file_name"),
)

STILL_LIVE = text("lsm_files.deleted_by IS NULL AND lsm_files.content = 'data'")
"""A query needs exactly this condition to be answered from the index of live files."""

_LIVE_FILES = "lsm_files_live"
_INDEXED_LIVE = text("deleted_by IS NULL AND content = 'data'")

FILES = Table(
    "lsm_files",
    METADATA,
    _table_id(),
    Column("file_name", Text, primary_key=True),
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("partition", LargeBinary, primary_key=True),  # stored row: the identity
    Column("partition_path", Text, nullable=False),  # "dt=2013-01-01/carrier=UA": for people
    Column("content", String(16), nullable=False),  # data, changelog
    _count("total_buckets"),
    _count("row_count"),
    Column("delete_row_count", BigInteger),
    _count("file_size"),
    Column("min_key", LargeBinary, nullable=False),
    Column("max_key", LargeBinary, nullable=False),
    _count("min_sequence_number"),
    _count("max_sequence_number"),
    _count("schema_id"),
    Column("creation_millis", BigInteger),
    Column("file_source", String(16)),
    Column("extra_files", Text),  # JSON
    Column("external_path", Text),
    Column("added_by", BigInteger),  # snapshot; null: before the oldest that is known
    Column("deleted_by", BigInteger),  # snapshot; null: still live
    Column("removed", Boolean, nullable=False, server_default=false()),  # maintenance deleted it
    Index("lsm_files_added", "table_id", "added_by"),
    Index(
        "lsm_files_bucket", "table_id", "partition_path", "bucket", "level", "min_sequence_number"
    ),
    Index("lsm_files_deleted", "table_id", "deleted_by"),
    Index(
        _LIVE_FILES,
        "table_id",
        "partition_path",
        "bucket",
        "level",
        "file_name",
        sqlite_where=_INDEXED_LIVE,
    ),
)

COMPACTIONS = Table(
    "lsm_compactions",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("partition", LargeBinary, primary_key=True),
    Column("partition_path", Text, nullable=False),
    Column("output_level", Integer),
    _count("files_read"),
    _count("files_written"),
    _count("files_upgraded"),
    _count("rows_read"),
    _count("rows_written"),
    _count("bytes_read"),
    _count("bytes_written"),
)

FILE_EDGES = Table(
    "lsm_file_edges",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("partition", LargeBinary, primary_key=True),
    Column("source_name", Text, primary_key=True),
    Column("source_level", Integer, primary_key=True, autoincrement=False),
    Column("target_name", Text, primary_key=True),
    Column("target_level", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),  # rewrite, upgrade
    Index("lsm_file_edges_source", "table_id", "source_name"),
    Index("lsm_file_edges_target", "table_id", "target_name"),
)

TAGS = Table(
    "lsm_tags",
    METADATA,
    _table_id(),
    Column("tag_name", Text, primary_key=True),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("created", Text),  # its maker's wall clock, "2013-01-01T00:00:00.000000000"
    Column("retained_millis", BigInteger),  # null: for ever
    Column("deleted", Boolean, nullable=False, server_default=false()),
    Index("lsm_tags_snapshot", "table_id", "snapshot_id"),
)

INPUTS = Table(
    "lsm_inputs",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("dataset", Text, nullable=False),
    Column("input_snapshot_id", BigInteger),
    Column("after_snapshot_id", BigInteger),  # null: the whole state was read, not its changes
    Column("input_version", Text),
    Column("role", Text, nullable=False),
    Index("lsm_inputs_dataset", "dataset", "input_snapshot_id"),
)

COLUMN_INPUTS = Table(
    "lsm_column_inputs",
    METADATA,
    _table_id(),
    _snapshot_id(),
    Column("position", Integer, primary_key=True, autoincrement=False),  # of the input
    Column("column_name", Text, primary_key=True),
    Column("input_column", Text, primary_key=True),
    Column("dataset", Text, nullable=False),
    Index("lsm_column_inputs_source", "dataset", "input_column"),
)

REMOVALS = Table(
    "lsm_removals",
    METADATA,
    _table_id(),
    Column("removal_id", String(64), primary_key=True),
    Column("kind", Text, nullable=False),  # expire-snapshots, delete-tag, rollback, ...
    Column("reason", Text, nullable=False),
    Column("at_millis", BigInteger, nullable=False),
    Column("snapshot_ids", Text, nullable=False),  # "3,4,5"
    Column("tags", Text, nullable=False),  # a name to a line
    Column("file_count", BigInteger, nullable=False),
    Column("freed_bytes", BigInteger, nullable=False),
    Index("lsm_removals_at", "table_id", "at_millis"),
)
"""Removals by maintenance, and their reasons. No file of a table has them, so that no rebuild restores them."""

OF_A_SNAPSHOT = (COLUMN_INPUTS, INPUTS, FILE_EDGES, COMPACTIONS, MANIFESTS, MANIFEST_LISTS)
"""Tables whose rows belong to one snapshot and go with it."""

OF_A_TABLE = (*OF_A_SNAPSHOT, TAGS, FILES, SNAPSHOTS)
"""All lineage tables that carry a `table_id`."""


def fit_to_postgresql() -> None:
    """Give the tables what only PostgreSQL needs; SQLAlchemy loads all of its drivers for that."""
    for index in FILES.indexes:
        if index.name == _LIVE_FILES:
            index.dialect_kwargs["postgresql_where"] = _INDEXED_LIVE
