"""Data types, schemas, schema changes and casts, and the Arrow types that hold their values."""
