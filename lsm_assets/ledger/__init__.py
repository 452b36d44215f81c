"""Between tables and Dagster: inspect a table, record a commit, pin an input, read a change feed."""
