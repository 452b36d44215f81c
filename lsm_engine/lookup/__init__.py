"""Keys to rows: data files as local stores, point lookups, and the search that locates rows."""
