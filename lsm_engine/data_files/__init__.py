"""Data files, read and written: Parquet, ORC and Avro, with their statistics."""
