"""The data source format("lsm"): reads, writes and streams."""
