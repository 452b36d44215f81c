"""Makes PySpark know of `format("lsm")`; installed beside `lsm_engine` as the module `pyspark_lsm`.

PySpark imports every top-level module of a name that begins with `pyspark_`, in each session that uses a
Python data source. So nothing is loaded here before the format is asked for.
"""

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """The name of the format; making one makes the data source itself."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lsm"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        """Return a data source with these options; see `lsm_engine.spark.source.datasource.LsmSource`."""
        from lsm_engine.spark.source.datasource import LsmSource  # noqa: PLC0415

        return LsmSource(options)
