"""What other libraries call what tables, catalogs, scans and merges do here (`base/habits.py`)."""

from lsm_engine.base.habits import PATH

ALTER_VERBS = {
    **dict.fromkeys(("add_column", "add_columns"), "alter(lsm.AddColumn(name, type))"),
    **dict.fromkeys(("drop_column", "drop_columns"), "alter(lsm.DropColumn(name))"),
    "rename_column": "alter(lsm.RenameColumn(old, new))",
    **dict.fromkeys(("set_properties", "set_table_properties"), "alter(lsm.SetOption(key, value))"),
}
FROM_ROWS = dict.fromkeys(
    (
        *("read_parquet", "read_csv", "from_arrow", "from_pandas", "from_pydict"),
        *("from_polars", "from_dicts", "from_pylist", "from_records"),
    ),
    "create_table(name, rows, primary_key=...) of a catalog, and upsert(rows)",
)
TABLE = {
    **FROM_ROWS,
    **dict.fromkeys(("load", "for_path", "from_files"), "open_table(path)"),
    **dict.fromkeys(("checkout_branch", "switch_branch"), "branch(name)"),
    **dict.fromkeys(("snapshot_by_id", "snapshot_as_of", "get_snapshot"), "snapshot(snapshot_id)"),
    "rollback_to_snapshot": "rollback_to(snapshot_id)",
    **dict.fromkeys(
        ("create_index", "create_scalar_index", "list_indices"),
        "lookup(keys), which needs none; option index.type for locate(rows)",
    ),
    **dict.fromkeys(
        ("reload", "update_incremental"), "the table as it is, which sees every commit"
    ),
    **dict.fromkeys(("fetchone", "fetch_one", "iloc", "loc"), "head(n), or lookup(keys)"),
    "sort_order": "schema.primary_keys, by which files are sorted",
    "vacuum": "expire_snapshots(...) lets old snapshots go, remove_orphan_files(...) what nobody names",
    "cleanup_old_versions": "expire_snapshots(...)",
    "optimize": "compact(), or compact(full=True)",
    "compact_files": "compact()",
    "z_order": "compact(full=True); files are sorted by the primary key",
    "restore": "rollback_to(snapshot or tag), or rollback_to_as_latest(...)",
    "rollback": "rollback_to(snapshot or tag)",
    **dict.fromkeys(("at", "load_as_version", "checkout"), "scan(version=...), or branch(name)"),
    "as_of": "scan(as_of=...)",
    **dict.fromkeys(("versions", "list_versions"), "history()"),
    "version": "latest_snapshot().id",
    "current_snapshot": "latest_snapshot()",
    **dict.fromkeys(("time_travel", "version_as_of"), "scan(version=...)"),
    "undo": "rollback_to(snapshot or tag)",
    **dict.fromkeys(("diff", "compare"), "changelog(after=...), or diff_snapshots(old, new)"),
    **dict.fromkeys(("watch", "subscribe", "listen"), "follow(...)"),
    "inspect": "system(name)",
    "schemas": "system('schemas')",
    **dict.fromkeys(("files", "file_uris", "get_add_actions"), "system('files')"),
    "partitions": "system('partitions')",
    "manage_snapshots": "create_tag(name), create_branch(name), rollback_to(...)",
    "list_tags": "tags()",
    "refs": "tags() and branches()",
    **dict.fromkeys(("convert", "register_files", "import_files"), "add_files(paths)"),
    "add": "append(rows), or upsert(rows) where there is a key",
    "write": "upsert(rows), or append(rows) without a key",
    "write_deltalake": "upsert(rows), append(rows) or overwrite(rows)",
    "merge_insert": "upsert(rows); insert(rows, existing='skip') keeps what is there",
    **dict.fromkeys(("to_pyarrow_table", "to_table", "arrow", "read_all"), "to_arrow()"),
    **dict.fromkeys(("to_batches", "iter_batches", "to_record_batches", "batches"), "to_reader()"),
    **dict.fromkeys(
        ("to_pylist", "to_dicts", "to_list", "to_dict", "rows", "iter_rows", "fetchall"),
        "to_arrow().to_pylist()",
    ),
    **dict.fromkeys(("to_ray", "to_daft", "to_lance", "to_pyarrow_dataset"), "to_dataset()"),
    **dict.fromkeys(("df", "to_df", "to_numpy", "values", "index", "T"), "to_pandas()"),
    "pl": "to_polars()",
    "fetch_df": "to_pandas()",
    "collect": "to_arrow(), or to_polars() for a lazy query",
    "read": "to_arrow(), or scan(...)",
    "search": "scan(where=...), or lookup(keys)",
    "filter": "scan(where=...), or to_polars().filter(...)",
    "where": "scan(where=...)",
    "select": "scan(columns), or to_polars().select(...)",
    **dict.fromkeys(("limit", "first"), "head(n)"),
    "take": "head(n), or lookup(keys)",
    "show": "head(n)",
    "explain": "scan(...).explain(), or explain_key(key)",
    "health": "system('health')",
    "repair": "verify(), then remove_unexisting_files() or restore_files()",
    **dict.fromkeys(
        ("copy", "clone", "shallow_clone", "deep_clone"), "create_branch(name, tag=...)"
    ),
    **dict.fromkeys(
        ("transaction", "begin", "commit"),
        "one call: each write is a commit; writer() gathers several",
    ),
    "refresh": "the table as it is: every read sees the newest snapshot",
    "merge_branch": "fast_forward(branch)",
    "sample": "head(n)",
    "tail": "to_polars().tail(n)",
    "get": "lookup(keys)",
    **dict.fromkeys(("count_rows", "num_rows", "nrows", "size", "is_empty", "empty"), "count()"),
    **dict.fromkeys(("nbytes", "estimated_size"), "to_arrow().nbytes, or system('files')"),
    "shape": "count() and schema.names",
    **dict.fromkeys(("columns", "column_names"), "schema.names"),
    "dtypes": "schema.arrow",
    **dict.fromkeys(("location_uri", "path", "uri", "table_uri"), "location"),
    **dict.fromkeys(("properties", "table_properties", "configuration"), "options"),
    **dict.fromkeys(("primary_key", "primary_keys", "keys"), "schema.primary_keys"),
    **dict.fromkeys(
        ("partition_by", "partition_columns", "partition_keys", "spec"), "schema.partition_keys"
    ),
    **dict.fromkeys(
        (
            *("info", "stats", "statistics", "protocol", "detail", "id", "size_in_bytes"),
            *("comment", "metadata", "details", "describe"),
        ),
        "schema, options and system(name)",
    ),
    **dict.fromkeys(("identifier", "full_name", "table_name", "database"), "name"),
    "exists": "'database.table' in catalog",
    **dict.fromkeys(("remove", "clear", "pop"), "delete(keys), or delete(where=...)"),
    "extend": "append(rows), or upsert(rows) where there is a key",
    **dict.fromkeys(("print_schema", "printSchema"), "schema.arrow"),
    "system_tables": "system(name); an unknown name lists them all",
    **dict.fromkeys(("current_version", "latest_version"), "latest_snapshot().id"),
    "sql": "to_duckdb() or to_polars(), or lsm_engine.spark.sql(spark, text)",
    "rename": "alter(lsm.RenameColumn(old, new)), or rename_table(old, new) of the catalog",
    "with_columns": "update(set={column: value})",
    "to_json": "to_arrow().to_pylist()",
    **dict.fromkeys(("to_csv", "write_csv"), "to_polars() and its sink_csv"),
    **dict.fromkeys(("to_parquet", "write_parquet"), "to_polars() and its sink_parquet"),
    **dict.fromkeys(
        (
            *("join", "union", "sort", "order_by", "group_by", "groupby", "agg", "plot"),
            *("sum", "min", "max", "mean", "unique", "distinct", "drop_duplicates", "value_counts"),
            *("apply", "map", "pipe", "assign", "eval", "pivot"),
        ),
        "to_polars() or to_duckdb()",
    ),
    **ALTER_VERBS,
    "alter_columns": "alter(lsm.RenameColumn(old, new)), or alter(lsm.ChangeType(name, type))",
    **dict.fromkeys(
        ("update_schema", "evolve_schema", "alter_column", "alter_table"), "alter(...)"
    ),
    "delete_where": "delete(where=...)",
    "truncate": "delete(where='true')",
    "close": "close() of the catalog; a table holds nothing open",
    "stream": "changelog(after=...), or changes()",
    "upsert_all": "upsert(rows)",
    "load_cdf": "changelog(after=...)",
    "new_read_builder": "scan(...)",
    "new_batch_write_builder": "upsert(rows)",
    "new_stream_write_builder": "writer()",
    "create_snapshot": "create_tag(name)",
    "drop": "drop_table(name) of the catalog",
    PATH: "to_dataset(), which is a pyarrow dataset; location is its directory",
}
CATALOG = {
    "load_table": "catalog['database.table']",
    "get_table": "catalog['database.table']",
    "open_table": "catalog['database.table']",
    "tables": "list_tables()",
    **dict.fromkeys(("list", "table_names"), "list_tables()"),
    **dict.fromkeys(("table_exists", "exists", "has_table"), "'database.table' in catalog"),
    "get": "catalog['database.table']",
    **dict.fromkeys(("keys", "values", "items"), "list_tables(), and catalog['database.table']"),
    **dict.fromkeys(("pop", "delete_table"), "drop_table(name)"),
    "add_table": "adopt_table(path, name)",
    **dict.fromkeys(("databases", "namespaces", "schemas"), "list_databases()"),
    **dict.fromkeys(("path", "location", "uri"), "warehouse, or url of its database"),
    **dict.fromkeys(("read", "scan", "schema", "describe_table"), "catalog['database.table']"),
    **dict.fromkeys(("write", "upsert", "append"), "catalog['database.table'].upsert(rows)"),
    "move": "rename_table(old, new)",
    **dict.fromkeys(("list_namespaces", "list_schemas"), "list_databases()"),
    **dict.fromkeys(("create_namespace", "create_schema"), "create_database(name)"),
    **dict.fromkeys(("drop_namespace", "drop_schema"), "drop_database(name)"),
    "create_table_if_not_exists": "create_table(..., ignore_if_exists=True)",
    **dict.fromkeys(
        ("refresh", "commit", "flush"), "nothing: each write is a commit, and every read looks anew"
    ),
    "purge_table": "drop_table(name)",
    "doctor": "lsm.doctor(catalog)",
    **dict.fromkeys(
        ("sql", "execute", "query", "cursor"),
        "table.to_duckdb() or table.to_polars(), or lsm_engine.spark.sql(spark, text)",
    ),
}
CHANGES = {
    **dict.fromkeys(("to_pandas", "df"), "to_arrow().to_pandas()"),
    **dict.fromkeys(("to_polars", "pl"), "polars.DataFrame of it, or to_arrow()"),
    "to_duckdb": "duckdb.sql('from changes'), where a variable holds it",
    **dict.fromkeys(("to_pylist", "to_list", "fetchall"), "to_arrow().to_pylist()"),
    **dict.fromkeys(("read", "collect", "execute", "read_all"), "to_arrow()"),
    **dict.fromkeys(("count", "num_rows"), "to_arrow().num_rows"),
    **dict.fromkeys(("filter", "where", "select"), "where= and columns= of table.changes(...)"),
}
WRITER = {
    **dict.fromkeys(
        (
            *("upsert", "append", "insert", "write_arrow", "write_pandas", "write_batch"),
            *("write_table", "send"),
        ),
        "write(rows), then commit()",
    ),
    **dict.fromkeys(("flush", "prepare_commit", "finish"), "commit()"),
    "delete": "write(rows) with '-D' in a column _row_kind",
    **dict.fromkeys(
        ("rollback", "abort", "cancel"),
        "an exception in the `with` block, which drops what is not committed",
    ),
}
SCAN = {
    "to_polars": "table.to_polars(...), with the arguments of this scan",
    "to_duckdb": "table.to_duckdb(...), with the arguments of this scan",
    "to_dataset": "table.to_dataset(...), with the arguments of this scan",
    "to_arrow_batch_reader": "to_reader()",
    **dict.fromkeys(("to_pylist", "to_list", "to_dicts"), "to_arrow().to_pylist()"),
    "collect": "to_arrow()",
    "execute": "to_arrow()",
    "plan_files": "splits()",
    "filter": "table.scan(where=...)",
    "where": "table.scan(where=...)",
    "select": "table.scan(columns)",
    "limit": "table.scan(limit=...)",
    "head": "table.head(n)",
    "show": "table.head(n)",
    "num_rows": "count()",
    "count_rows": "count()",
    "use_ref": "table.scan(version='tag')",
    PATH: "table.to_dataset(...), which is a pyarrow dataset",
}
MERGE = {
    "whenMatchedUpdate": "when_matched_update(...)",
    "whenMatchedUpdateAll": "when_matched_update_all()",
    "whenMatchedDelete": "when_matched_delete()",
    "whenNotMatchedInsert": "when_not_matched_insert(...)",
    "whenNotMatchedInsertAll": "when_not_matched_insert_all()",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update(...)",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete()",
    **dict.fromkeys(
        ("when_matched", "whenMatched"), "when_matched_update(...) or when_matched_delete()"
    ),
    **dict.fromkeys(("when_not_matched", "whenNotMatched"), "when_not_matched_insert(...)"),
    **dict.fromkeys(("merge", "commit", "run", "upsert"), "execute()"),
}
_CONDITION = dict.fromkeys(
    ("filter", "filters", "predicate", "row_filter", "delete_filter", "expr"), "where="
)
READ_ARGUMENTS = {
    **_CONDITION,
    **dict.fromkeys(("selected_fields", "select", "column", "cols"), "columns="),
    **dict.fromkeys(("snapshot", "version_as_of"), "version="),
    **dict.fromkeys(("timestamp", "timestamp_as_of", "time", "asof"), "as_of="),
    **dict.fromkeys(("order_by", "sort_by", "sort"), "to_polars().sort(...)"),
    **dict.fromkeys(("offset", "skip_rows"), "to_polars().slice(...)"),
    **dict.fromkeys(("batch_size", "max_chunksize"), "to_reader(), which comes in batches"),
    **dict.fromkeys(("lazy", "streaming"), "to_polars(), which is lazy, and collect() of it"),
    "index": "to_pandas().set_index(name)",
    **dict.fromkeys(("dtype_backend", "types_mapper"), "to_arrow().to_pandas(types_mapper=...)"),
    **dict.fromkeys(("n_rows", "nrows", "n", "num_rows"), "limit="),
    **dict.fromkeys(("branch", "ref"), "table.branch(name), which is read as a table"),
}
CHANGE_ARGUMENTS = {
    **_CONDITION,
    **dict.fromkeys(("updates", "new_values", "values"), "set={column: value}"),
}
MERGE_ARGUMENTS = {
    "predicate": "on=, and condition= for what else has to hold",
    "source_alias": "source.column in conditions and values",
    "target_alias": "target.column in conditions and values",
    "join_cols": "on=",
    "left_on": "on={table's: source's}",
    "right_on": "on={table's: source's}",
}
WRITE_ARGUMENTS = {
    **dict.fromkeys(
        ("on", "key", "keys", "primary_key", "join_cols", "keys_columns"),
        "the rows alone, as they go by the primary key; merge(rows, on=...) by other columns",
    ),
    "mode": "upsert(rows), append(rows) or overwrite(rows)",
    **dict.fromkeys(
        ("schema_mode", "merge_schema", "overwrite_schema", "schema"),
        "alter(lsm.AddColumn(name, type)) before it",
    ),
    "partition_by": "partitioned_by= in create_table",
    "partition_filter": "overwrite(rows, partition={column: value}), or a filter",
    "overwrite_filter": "overwrite(rows, partition={column: value}), or a filter",
    **dict.fromkeys(("data", "df", "table", "source"), "the rows as the first argument"),
    "when_matched_update_all": "upsert(rows); insert(rows, existing='skip') keeps what is there",
    "commit_properties": "properties=",
    "snapshot_properties": "properties=",
    **dict.fromkeys(
        ("on_conflict", "if_exists", "overwrite", "ignore"),
        "upsert(rows), or insert(rows, existing='skip'), which keeps what is there",
    ),
    "where": "delete(where=...), then upsert(rows); of partitions overwrite(rows, partition=filter)",
}
COMPACT_ARGUMENTS = {
    **dict.fromkeys(
        ("partition_filters", "partition_filter", "where"), "partitions=[{column: value}]"
    ),
    **dict.fromkeys(
        ("target_size", "target_file_size", "max_file_size"), "the option 'target-file-size'"
    ),
    "z_order_by": "full=True; files are sorted by the primary key",
}
EXPIRE_ARGUMENTS = {
    **dict.fromkeys(("retain_last", "keep_last", "min_snapshots_to_keep", "retain"), "retain_min="),
    **dict.fromkeys(("retention_hours", "retention", "older_than_ms"), "older_than='7 d'"),
}
ROLLBACK_ARGUMENTS = {
    **dict.fromkeys(("version", "snapshot"), "snapshot_id= or tag="),
    **dict.fromkeys(("as_of", "timestamp", "time"), "as_of_millis=lsm.millis_of(time)"),
}
ALTER_ARGUMENTS = {
    **dict.fromkeys(("add", "add_column", "add_columns"), "alter(lsm.AddColumn(name, type))"),
    **dict.fromkeys(("drop", "drop_column", "drop_columns"), "alter(lsm.DropColumn(name))"),
    **dict.fromkeys(("rename", "rename_column"), "alter(lsm.RenameColumn(old, new))"),
    **dict.fromkeys(("options", "properties", "set"), "alter(lsm.SetOption(key, value))"),
    "comment": "alter(lsm.SetComment(text))",
}
TAGS_VERBS = {
    "create": "create_tag(name, snapshot_id=)",
    "delete": "delete_tag(name)",
    "update": "replace_tag(name, snapshot_id=)",
    "get": "tag(name)",
    "list": "tags()",
}
BRANCHES_VERBS = {
    "create": "create_branch(name, tag=)",
    "delete": "delete_branch(name)",
    **dict.fromkeys(("get", "checkout"), "branch(name)"),
    "list": "branches()",
}
TAG_ARGUMENTS = {
    **dict.fromkeys(("version", "snapshot"), "snapshot_id="),
    **dict.fromkeys(("retention", "max_ref_age_ms", "time_retained"), "retained='7 d'"),
}
CLAUSE_ARGUMENTS = {
    **dict.fromkeys(("predicate", "condition"), "where="),
    **dict.fromkeys(("updates", "new_values"), "set={column: value}, or values= of an insert"),
}
RANGE_ARGUMENTS = {
    **_CONDITION,
    **dict.fromkeys(
        ("start", "since", "begin", "starting_version", "starting_timestamp"), "after="
    ),
    "limit": "to_arrow().slice(0, n)",
    **dict.fromkeys(("end", "until", "to", "ending_version", "ending_timestamp"), "upto="),
}
CREATE_ARGUMENTS = {
    **dict.fromkeys(
        ("partition_by", "partition_columns", "partition_keys", "partition_spec"), "partitioned_by="
    ),
    **dict.fromkeys(("primary_keys", "primarykey", "key", "keys", "pk"), "primary_key="),
    **dict.fromkeys(
        ("if_not_exists", "exist_ok", "exists_ok", "ignore_if_exist"), "ignore_if_exists=True"
    ),
    **dict.fromkeys(("properties", "configuration", "table_properties"), "options="),
    **dict.fromkeys(("columns", "fields"), "schema="),
    "description": "comment=",
    **dict.fromkeys(("bucket", "buckets", "num_buckets"), "options={'bucket': 4}"),
    **dict.fromkeys(("mode", "overwrite"), "ignore_if_exists=True, or drop_table(name) before it"),
    **dict.fromkeys(
        ("location", "path", "table_uri"),
        "nothing: it lies below the warehouse; adopt_table(path, name) takes one elsewhere",
    ),
    **dict.fromkeys(("data", "rows", "df"), "schema=, and upsert(rows) afterwards"),
}
DROP_ARGUMENTS = dict.fromkeys(
    ("ignore_if_not_exists", "if_exists", "missing_ok", "purge"), "ignore_if_missing=True"
)
OPEN_CATALOG_ARGUMENTS = {
    **dict.fromkeys(("name", "type"), "open_catalog(directory or database URL)"),
    **dict.fromkeys(("uri", "path", "db_uri"), "open_catalog(directory or database URL)"),
    **dict.fromkeys(("storage_options", "properties", "options", "conf"), "storage="),
}
OPEN_TABLE_ARGUMENTS = {
    **dict.fromkeys(
        ("version", "as_of", "snapshot", "snapshot_id", "tag"), "open_table(path).scan(version=...)"
    ),
    **dict.fromkeys(("storage_options", "options"), "storage="),
}
