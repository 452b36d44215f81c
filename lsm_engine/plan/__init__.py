"""Floor 4: decisions that span several nouns. Facts in, a plan out; nothing is touched.

May import everything below: prune, mergetree, merge, codec, kernels, meta, schema, base. Start
reading at `commit`.
"""
