"""Layer 3: pruning. Predicates against partitions, buckets, keys and statistics.

May import codec, kernels, meta, schema and base. Every result errs towards reading: a mask is
true, "may match", unless it is certain that no row matches. Start reading at `predicate`.
"""
