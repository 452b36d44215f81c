"""The data source `format("lsm")`: batch reads, writes and streams."""
