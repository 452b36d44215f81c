"""Sensors, schedules and jobs: compaction, sync with commits of other clients, tags, expiry, verification."""
