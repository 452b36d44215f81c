"""`lsm ui`: a local web server with pages of tables, LSM trees, snapshots, keys and lineage."""
