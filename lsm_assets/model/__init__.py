"""Convert facts of the engine to facts of Dagster: keys, partitions, metadata, versions, plans.

All functions are pure. They take no Dagster instance, no catalog and no files, so that tests call them with values.
"""
