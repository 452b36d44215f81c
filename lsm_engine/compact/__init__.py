"""Compaction: what is picked, how it is rewritten, and the changelog that it makes."""
