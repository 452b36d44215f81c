"""Engine facts → Dagster facts. Pure: no instance, no catalog, no disk; testable with plain values."""
