"""SQL statements on Spark about lsm tables."""
