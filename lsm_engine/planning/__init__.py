"""Decisions that span several files: facts in, a plan out; nothing is read or written."""
