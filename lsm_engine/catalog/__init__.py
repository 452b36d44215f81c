"""Names of databases and tables, and lineage, in a SQL database."""
