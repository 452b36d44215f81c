"""Keys to rows: point lookups through lookup files, and the index that locates incoming rows."""
