"""Merging the versions of a key: merge functions and aggregators."""
