"""Find rows by key: point lookups through lookup files, and the locations of incoming rows."""
