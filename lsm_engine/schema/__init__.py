"""Floor 1: what a table is. Types, fields, keys; how one schema becomes the next.

May import `base`, PyArrow and the standard library's pure parts. Start reading at `table_schema`.
"""
