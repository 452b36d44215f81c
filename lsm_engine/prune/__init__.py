"""Floor 3: what need not be read. Predicates against partitions, buckets, keys and statistics.

May import codec, kernels, meta, schema and base. Every answer errs towards reading: a mask is
true, "may match", unless it is certain that nothing can. Start reading at `predicate`.
"""
