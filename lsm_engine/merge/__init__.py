"""Floor 3: what several versions of a key become. Arrow in, Arrow out; no I/O.

May import codec, kernels, meta, schema and base. Start reading at `function`, then `deduplicate`.
"""
