"""What other libraries call what a table does here: for the error of who types that from habit."""

_VERBS = {
    "vacuum": "expire_snapshots(...) lets old snapshots go, remove_orphan_files(...) what nobody names",
    "cleanup_old_versions": "expire_snapshots(...)",
    "optimize": "compact(), or compact(full=True)",
    "z_order": "compact(full=True); files are sorted by the primary key",
    "restore": "rollback_to(snapshot or tag), or rollback_to_as_latest(...)",
    "rollback": "rollback_to(snapshot or tag)",
    "checkout": "scan(version=...), or branch(name)",
    "as_of": "scan(as_of=...)",
    "versions": "history()",
    "list_versions": "history()",
    "version": "latest_snapshot().id",
    "current_snapshot": "latest_snapshot()",
    "inspect": "system(name)",
    "metadata": "schema, options and system(name)",
    "add": "append(rows), or upsert(rows) where there is a key",
    "write": "upsert(rows), or append(rows) without a key",
    "write_deltalake": "upsert(rows), append(rows) or overwrite(rows)",
    "merge_insert": "upsert(rows); insert(rows, existing='skip') keeps what is there",
    "to_pyarrow_table": "to_arrow()",
    "to_pyarrow_dataset": "to_dataset()",
    "to_table": "to_arrow()",
    "to_lance": "to_dataset()",
    "read": "to_arrow(), or scan(...)",
    "read_all": "to_arrow()",
    "search": "scan(where=...), or lookup(keys)",
    "get": "lookup(keys)",
    "count_rows": "count()",
    "num_rows": "count()",
    "column_names": "schema.names",
    "columns": "schema.names",
    "dtypes": "schema.arrow",
    "add_columns": "alter(lsm.AddColumn(name, type))",
    "drop_columns": "alter(lsm.DropColumn(name))",
    "update_schema": "alter(...)",
    "delete_where": "delete(where=...)",
    "load_cdf": "changelog(after=...)",
    "new_read_builder": "scan(...)",
    "new_batch_write_builder": "upsert(rows)",
    "create_snapshot": "create_tag(name)",
}


def no_such_verb(name: str) -> str:
    """Return the message for an attribute that a table lacks."""
    instead = _VERBS.get(name)
    if instead is None:
        return f"a table has no {name!r}; help(table) lists what it has"
    return f"a table has no {name!r}: use {instead}"
