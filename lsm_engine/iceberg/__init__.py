"""Iceberg metadata of a table, as values: schemas, manifests, files of deleted rows and table metadata. Nothing here reads or writes."""
