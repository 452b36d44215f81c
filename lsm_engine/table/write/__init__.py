"""Write operations: upsert, append, insert, update, delete, merge, overwrite."""
