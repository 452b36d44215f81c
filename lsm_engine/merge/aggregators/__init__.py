"""Aggregate functions over the versions of one column, and the registry of their names."""
