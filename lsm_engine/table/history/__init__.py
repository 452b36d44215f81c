"""Roll back, restore, fast-forward, expire: what happens to snapshots after they were made."""
