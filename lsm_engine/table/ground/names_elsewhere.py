"""What other libraries call what `lsm_engine` itself has (`base/front_door.py`)."""

from lsm_engine.table.ground.verbs_elsewhere import FROM_ROWS

PACKAGES = {
    "spark": "import lsm_engine.spark",
    "catalog": "open_catalog(directory or database URL)",
    "table": "open_table(path), or open_catalog(directory)['database.table']",
    "schema": "a pyarrow.Schema, a frame, or {name: type} in create_table",
    "merge": "merge(rows) of a table",
}
"""Packages below lsm_engine, which are there once they are loaded."""
MODULE = {
    **dict.fromkeys(("connect", "open"), "open_catalog(directory or database URL)"),
    "load_catalog": "open_catalog(directory or database URL)",
    "CatalogFactory": "open_catalog(directory or database URL)",
    "convert_to_deltalake": "open_catalog(directory)['database.table'].add_files(paths)",
    "DeltaTable": "open_table(path), or open_catalog(directory)['database.table']",
    "dataset": "open_table(path), or open_catalog(directory)['database.table']",
    "read_table": "open_table(path).to_arrow()",
    **dict.fromkeys(
        ("scan_delta", "scan_iceberg", "scan_parquet", "scan_table"), "open_table(path).to_polars()"
    ),
    "write_deltalake": "open_catalog(directory)['database.table'].upsert(rows)",
    "write_dataset": "open_catalog(directory)['database.table'].upsert(rows)",
    "write_table": "open_catalog(directory)['database.table'].upsert(rows)",
    "Schema": "a pyarrow.Schema, a frame, or {name: type} in create_table",
    "types": "the types of pyarrow or Python, or text such as 'BIGINT'",
    **dict.fromkeys(("lit", "literal"), "the value as it is"),
    "version": "__version__",
    "sql": "to_duckdb() or to_polars() of a table, or lsm_engine.spark.sql(spark, text)",
    **dict.fromkeys(
        ("write", "upsert", "append"), "open_catalog(directory)['database.table'].upsert(rows)"
    ),
    **dict.fromkeys(("list_tables", "tables"), "open_catalog(directory).list_tables()"),
    "drop_table": "open_catalog(directory).drop_table(name)",
    "create_database": "open_catalog(directory).create_database(name)",
    **dict.fromkeys(("read_delta", "load_table", "LakeTable", "load", "read"), "open_table(path)"),
    **dict.fromkeys(
        ("delete", "update", "compact", "vacuum", "optimize"),
        "open_table(path), whose verbs change it",
    ),
    **dict.fromkeys(
        ("NoSuchTableError", "TableNotFoundError", "DatasetNotFoundError"), "NotFoundError"
    ),
    **dict.fromkeys(("CommitFailedError", "CommitFailedException"), "CommitConflictError"),
    "TableAlreadyExistsError": "AlreadyExistsError",
    "DeltaError": "LsmError",
    **dict.fromkeys(
        ("exceptions", "errors"), "LsmError, NotFoundError and others of lsm_engine itself"
    ),
    **dict.fromkeys(("Session", "Client"), "open_catalog(directory or database URL)"),
    "Writer": "writer() of a table",
    "c": "col(name)",
    "create_table": "open_catalog(directory).create_table(name, columns, primary_key=...)",
    **dict.fromkeys(
        ("EqualTo", "NotEqualTo", "GreaterThan", "LessThan", "In", "IsNull", "And", "Or", "Not"),
        "col(name) == value, and &, | and ~ between such predicates, or SQL text",
    ),
    **FROM_ROWS,
    **dict.fromkeys(("column", "Column"), "col(name)"),
    **dict.fromkeys(("AlterColumn", "UpdateColumn"), "ChangeType, RenameColumn or SetNullable"),
    "field": "col(name)",
}
