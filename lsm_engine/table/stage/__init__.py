"""Rows to files that nothing names yet: buckets are assigned, rows sorted and written to level 0."""
