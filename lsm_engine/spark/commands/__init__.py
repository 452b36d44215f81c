"""SQL statements on Spark that read and change lsm tables."""
