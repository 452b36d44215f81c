"""What happens to snapshots and files after they were made: expiry, rollback, verification, repair."""
