"""Forget keys: find them, remove them, and search again to prove that they are absent."""
