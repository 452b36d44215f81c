"""Looking at tables and telling Dagster: survey a table, record a commit, pin an input."""
