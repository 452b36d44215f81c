"""Commits: planned on the newest snapshot, checked for conflicts, published once, with a known outcome."""
