"""Floor 2: columns → columns. Arrow and NumPy in, Arrow and NumPy out; no words of the domain.

Imports `base` and the array libraries only. Start reading at `keys`, then `merge_runs` and `gather`.
What loops over rows is compiled by numba (`compiled`): once per machine, cached on disk, without the
GIL. Kernels take raw views of few types, so that each compiles once and a cold start stays short.
"""
