"""Discovery of `format("lsm")` by PySpark: the module that PySpark imports, and the build backend that adds it."""
