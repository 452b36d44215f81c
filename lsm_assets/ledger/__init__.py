"""Between tables and Dagster: survey a table, record a commit, pin an input."""
