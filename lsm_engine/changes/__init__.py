"""The changelog as rows: ranges of snapshots, splits of changes, and following a table."""
