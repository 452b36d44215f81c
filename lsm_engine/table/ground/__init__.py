"""What every wing stands on: one table's stores, paths, schema, the rows that come in, and what work on a bucket needs."""
