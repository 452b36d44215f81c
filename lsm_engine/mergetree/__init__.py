"""Floor 3: the shape of one bucket. Files → runs → levels → what to compact next, and how.

Pure decisions over facts: no I/O, no rows. May import codec, kernels, meta, schema and base. Start
reading at `levels`, then `universal` and `rewrite_plan`.
"""
