"""How the values of one column add up: a class per kind of function, and the registry of names.

Start reading at `aggregator`, then `registry`.
"""
