"""Batch reads: pruning, splits, the merge of sorted runs, reading ahead."""
