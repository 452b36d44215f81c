"""Compiled loops over columns: Arrow and NumPy in, Arrow and NumPy out."""
