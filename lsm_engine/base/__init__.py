"""Floor 0: words. Records, errors, closed vocabularies, units and the table options.

Imports the standard library only. Start reading at `record` and `errors`.
"""
