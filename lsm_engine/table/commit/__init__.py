"""The commit engine: plan on the newest snapshot, check for conflicts, publish once, and know the outcome."""
