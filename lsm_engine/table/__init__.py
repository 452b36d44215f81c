"""Floor 7: the verbs, one recipe per file. Each reads top to bottom in the order things happen.

May import every lower floor. Start reading at `table` (the facade) and follow a verb.
"""
