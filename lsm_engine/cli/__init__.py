"""The command `lsm`: every verb of the engine from a shell. click and rich live here only.

Start with main.py. Below it: commands/ (one file per family of verbs), call.py (the options of one
invocation), output.py (tables and JSON).
May import the table floor and what lies below; nothing imports this room.
"""
