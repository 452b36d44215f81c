"""Filters: one tree of predicates, the languages it is read from, and what it lets a scan skip."""
