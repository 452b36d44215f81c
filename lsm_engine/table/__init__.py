"""The verbs of a table, in wings that import each other only downwards.

Start reading at `table` (the facade) and follow a verb into its wing: write, read, find, compact, changes, history.
"""
