"""Point reads: data files turned into local stores, and batches of keys sent through the levels.

May import floors below 6. Start with lookup_store.py (the protocol), then lookup_levels.py.
"""
