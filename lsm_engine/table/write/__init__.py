"""The verbs that write: upsert, append, insert, update, delete, overwrite."""
