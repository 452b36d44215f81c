"""Rows to files that no manifest names yet: buckets, buffers and writers."""
