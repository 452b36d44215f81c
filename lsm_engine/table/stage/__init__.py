"""Stage rows: assign buckets, sort rows and write them to level-0 files that no manifest names yet."""
