"""Forget a key: where it is, how it goes, and the search that shows that it is absent."""
