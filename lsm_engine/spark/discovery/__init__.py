"""How PySpark finds `format("lsm")` by itself: a module beside the package, and the build that puts it there."""
