"""Batch reads: time travel, pruning, splits, the merge of sorted runs, reading ahead."""
