"""Iceberg metadata of a table, as values: schemas, manifests, Puffin files and table metadata. Nothing here reads or writes."""
