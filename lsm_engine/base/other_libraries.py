"""Names of other libraries, for AttributeErrors with the name to use here ("Coming from …" in the docs)."""

from collections.abc import Mapping

_OPEN_CATALOG = "open_catalog(directory or database URL)"
_OPEN_TABLE = "open_table(path), or open_catalog(directory)['database.table']"
_UPSERT = "upsert(rows), or append(rows) without a key"
_LAZY = "to_polars() or to_duckdb(), which compute and sort"

MODULE: Mapping[str, str] = {
    **dict.fromkeys(("connect", "open", "load_catalog", "CatalogFactory"), _OPEN_CATALOG),
    **dict.fromkeys(
        ("DeltaTable", "dataset", "load_table", "read_delta", "read_table"), _OPEN_TABLE
    ),
    **dict.fromkeys(("scan_delta", "scan_iceberg"), "open_table(path).to_polars()"),
    **dict.fromkeys(("write_deltalake", "write_dataset"), f"{_OPEN_TABLE} and its {_UPSERT}"),
    **dict.fromkeys(("lit", "literal"), "the value as it is"),
    **dict.fromkeys(
        ("Schema", "types"), "a pyarrow.Schema, a frame, or {name: type} in create_table"
    ),
    **dict.fromkeys(("field", "column"), "col(name)"),
    "sql": "to_duckdb() or to_polars() of a table, or lsm_engine.spark.sql(spark, text)",
}
TABLE: Mapping[str, str] = {
    **dict.fromkeys(("write", "add", "merge_insert", "write_deltalake"), _UPSERT),
    **dict.fromkeys(
        ("vacuum", "cleanup_old_versions"),
        "maintenance.expire(...), maintenance.remove_orphan_files(...)",
    ),
    **dict.fromkeys(("optimize", "compact_files", "z_order"), "compact(), or compact(full=True)"),
    "restore": "rollback_to_as_latest(snapshot or tag)",
    **dict.fromkeys(("rollback", "undo"), "rollback_to(snapshot or tag)"),
    **dict.fromkeys(("versions", "list_versions"), "history()"),
    **dict.fromkeys(("version", "current_snapshot", "current_version"), "latest_snapshot()"),
    **dict.fromkeys(("snapshot_by_id", "snapshot_by_name"), "snapshot(id), or tags.get(name)"),
    "schemas": "inspect.schemas()",
    "refresh": "the table as it is: each call reads the newest snapshot",
    "transaction": "merge(...) or upsert(...): each call is one commit",
    "dynamic_partition_overwrite": "overwrite(rows), which replaces the partitions of the rows",
    **dict.fromkeys(
        ("as_of", "at", "checkout", "time_travel", "load_as_version"), "scan(version=...)"
    ),
    **dict.fromkeys(
        ("files", "partitions", "get_add_actions", "file_uris"),
        "inspect.files(), inspect.partitions()",
    ),
    **dict.fromkeys(
        ("refs", "list_tags", "manage_snapshots"),
        "tags.list(), branches.names(), tags.create(name)",
    ),
    **dict.fromkeys(("to_table", "to_pyarrow_table", "read", "collect"), "to_arrow()"),
    **dict.fromkeys(("to_batches", "iter_batches"), "to_reader()"),
    **dict.fromkeys(("to_pylist", "to_dicts", "rows"), "to_arrow().to_pylist()"),
    **dict.fromkeys(("filter", "where", "search"), "scan(where=...)"),
    "select": "scan(columns)",
    **dict.fromkeys(("limit", "first", "show", "take"), "head(n)"),
    **dict.fromkeys(("get", "loc"), "lookup(keys)"),
    **dict.fromkeys(("count_rows", "num_rows"), "count()"),
    **dict.fromkeys(("columns", "column_names"), "schema.names"),
    **dict.fromkeys(("table_uri", "uri", "path"), "location"),
    **dict.fromkeys(("properties", "configuration"), "options"),
    **dict.fromkeys(("metadata", "detail"), "schema, options and snapshots()"),
    **dict.fromkeys(("primary_key", "primary_keys"), "schema.primary_keys"),
    **dict.fromkeys(
        ("partition_by", "partition_columns", "partition_keys"), "schema.partition_keys"
    ),
    **dict.fromkeys(("add_column", "add_columns"), "alter(lsm.AddColumn(name, type))"),
    **dict.fromkeys(
        ("add_constraint", "drop_constraint", "constraints"),
        "scan(where=...) before a write: tables have no check constraints, only keys and NOT NULL",
    ),
    **dict.fromkeys(("drop_column", "drop_columns"), "alter(lsm.DropColumn(name))"),
    "rename_column": "alter(lsm.RenameColumn(old, new))",
    **dict.fromkeys(("update_schema", "alter_columns"), "alter(...)"),
    **dict.fromkeys(
        ("load_cdf", "stream", "diff"), "changes.to_arrow(after=...), or changes.read()"
    ),
    **dict.fromkeys(("watch", "subscribe"), "changes.follow(...)"),
    **dict.fromkeys(("sql", "join", "group_by", "sort", "agg"), _LAZY),
    "new_read_builder": "scan(...)",
    "drop": "drop_table(name) of its catalog",
    **dict.fromkeys(
        ("new_batch_write_builder", "new_stream_write_builder"), "upsert(rows), or writer()"
    ),
}
SCAN: Mapping[str, str] = {
    **dict.fromkeys(("to_polars", "to_duckdb", "to_dataset"), "the same method of the table"),
    **dict.fromkeys(("filter", "where", "select", "use_ref"), "scan(columns, where=, tag=)"),
    **dict.fromkeys(("collect", "to_table", "to_pyarrow_table"), "to_arrow()"),
    **dict.fromkeys(("to_arrow_batch_reader", "iter_batches"), "to_reader()"),
    "plan_files": "explain(), or inspect.files() of the table",
}
ACCESSORS: Mapping[str, Mapping[str, str]] = {
    "Inspect": {
        "history": "snapshots()",
        "refs": "tags(), branches()",
        **dict.fromkeys(("entries", "data_files", "all_data_files"), "files()"),
        **dict.fromkeys(("all_manifests", "manifest_files"), "manifests()"),
    },
    "Maintenance": {
        **dict.fromkeys(("expire_snapshots", "vacuum"), "expire(...)"),
        **dict.fromkeys(("optimize", "compact", "rewrite_data_files"), "table.compact()"),
        **dict.fromkeys(("delete_orphan_files", "remove_orphans"), "remove_orphan_files(...)"),
    },
}
ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("predicate", "filter", "filters", "row_filter", "overwrite_filter", "delete_filter"),
        "; a condition is where=, of a merge condition=, of an overwrite partition=",
    ),
    "where": "; an overwrite chooses rows by partition=, a delete and an update by where=",
    **dict.fromkeys(("updates", "values", "new_values"), "; new values are set={column: value}"),
    **dict.fromkeys(
        ("partition_by", "partition_spec", "partition_keys"),
        "; create_table has partitioned_by=[columns]",
    ),
    **dict.fromkeys(
        ("partitions", "partition_filters"),
        "; partitions are chosen by where=, of an overwrite by partition=",
    ),
    "schema_mode": "; altering(lsm.AddColumn(name, type)).upsert(rows) adds a column with its rows",
    "join_cols": "; upsert matches the primary key, merge(rows, on=[columns]) others",
    **dict.fromkeys(
        ("timestamp", "at", "as_of_timestamp", "datetime"), "; a point in time is as_of=datetime"
    ),
    "mode": "; append, upsert and overwrite are methods of their own",
    "branch": "; branch(name) opens a branch",
    "storage_options": "; options of a store are storage={name: value}",
    **dict.fromkeys(("selected_fields", "selected_columns"), "; columns are columns=[names]"),
    **dict.fromkeys(
        ("source_alias", "target_alias"), "; the sides of a merge are named source and target"
    ),
    **dict.fromkeys(
        ("retention_hours", "retain_last"), "; a retention is older_than='168 h' or retain_max=10"
    ),
}
"""The end of the message of a TypeError."""
CATALOG: Mapping[str, str] = {
    **dict.fromkeys(("load_table", "get_table", "open_table", "get"), "catalog['database.table']"),
    **dict.fromkeys(("tables", "list", "table_names"), "list_tables()"),
    **dict.fromkeys(("table_exists", "exists", "has_table"), "'database.table' in catalog"),
    **dict.fromkeys(("list_namespaces", "namespaces", "databases"), "list_databases()"),
    **dict.fromkeys(("create_namespace", "create_schema"), "create_database(name)"),
    **dict.fromkeys(("drop_namespace", "drop_schema"), "drop_database(name)"),
    "create_table_if_not_exists": "create_table(..., ignore_if_exists=True)",
    **dict.fromkeys(("purge_table", "delete_table"), "drop_table(name)"),
    **dict.fromkeys(
        ("sql", "execute", "query"), "table.to_duckdb(), or lsm_engine.spark.sql(spark, text)"
    ),
}


def unknown_argument(function: str, name: str) -> TypeError:
    """Return the TypeError for an argument that a function lacks, with what to use in its place."""
    hint = ARGUMENTS.get(name, "")
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def missing_attribute(owner: str, name: str, names: Mapping[str, str]) -> AttributeError:
    """Return the AttributeError for a name that an object lacks, with what to use in its place."""
    message = f"{owner!r} object has no attribute {name!r}"
    return AttributeError(f"{message}: use {names[name]}" if name in names else message)
