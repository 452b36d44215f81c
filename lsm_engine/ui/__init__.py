"""`lsm ui`: pages of tables, trees, histories, keys and lineage for a browser on this machine."""
