"""The module `pyspark_lsm`, installed beside `lsm_engine`: it registers `format("lsm")` with PySpark.

Each session that uses a Python data source imports every top-level module whose name begins with `pyspark_`. So
this module imports the engine only when the format is used.
"""

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """The data source by its name; an instance is one of `LsmSource`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lsm"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        """Return a data source with these options; see `lsm_engine.spark.source.datasource.LsmSource`."""
        from lsm_engine.spark.source.datasource import LsmSource  # noqa: PLC0415

        return LsmSource(options)
