"""Maintenance of tables: expiry, rollback, trash, verification, repair, forgetting."""
