"""The public objects: tables, their accessors, catalogs, and the functions that open them."""
