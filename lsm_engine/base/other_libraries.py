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
    **dict.fromkeys(("restore", "rollback", "undo"), "rollback_to(snapshot or tag)"),
    **dict.fromkeys(("versions", "list_versions"), "history()"),
    **dict.fromkeys(("version", "current_snapshot", "current_version"), "latest_snapshot()"),
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
    **dict.fromkeys(("properties", "configuration", "metadata"), "options"),
    **dict.fromkeys(("primary_key", "primary_keys"), "schema.primary_keys"),
    **dict.fromkeys(
        ("partition_by", "partition_columns", "partition_keys"), "schema.partition_keys"
    ),
    **dict.fromkeys(("add_column", "add_columns"), "alter(lsm.AddColumn(name, type))"),
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
ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("predicate", "filter", "row_filter", "overwrite_filter", "delete_filter"),
        "; a condition is where=, of a merge condition=, of an overwrite partition=",
    ),
    **dict.fromkeys(("updates", "values", "new_values"), "; new values are set={column: value}"),
    "partition_by": "; a table has its partitions from create_table",
}
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


def missing_attribute(owner: str, name: str, names: Mapping[str, str]) -> AttributeError:
    """Return the AttributeError for a name that an object lacks, with what to use in its place."""
    message = f"{owner!r} object has no attribute {name!r}"
    return AttributeError(f"{message}: use {names[name]}" if name in names else message)
