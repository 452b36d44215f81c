"""Rows few enough for the driver: it collects them once, and neither workers nor a shuffle are started for them."""

from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.base.units import parse_bytes
from lsm_engine.spark.arrow_rows import arrow_schema_of
from lsm_engine.spark.failures import TaskFailedError
from lsm_engine.spark.jobs import collected_by
from lsm_engine.spark.session import is_classic
from lsm_engine.spark.shared_storage import DRIVER_BYTES, runs_elsewhere

_DEFAULT = "32mb"
_ESTIMATED = {
    "Aggregate", "ArrowEvalPython", "BatchEvalPython", "Distinct", "Filter", "GlobalLimit",
    "InMemoryRelation", "Join", "LocalLimit", "LocalRelation", "LogicalRelation", "Offset",
    "OneRowRelation", "Project", "Range", "Repartition", "RepartitionByExpression", "Sort",
    "SubqueryAlias", "Union", "Window",
}  # fmt: skip
"""Steps of a plan that Spark does not take for smaller than they are, as it does what explodes or maps."""
_ON_ONE_MACHINE = 8
_TOO_LARGE = "spark.driver.maxResultSize"


def driver_bytes(spark: SparkSession) -> int:
    """Return how many bytes the driver takes over from executors; 0 on Spark Connect, which is not asked."""
    if not is_classic(spark):
        return 0
    text = spark.conf.get(DRIVER_BYTES, _DEFAULT) or _DEFAULT
    try:
        return parse_bytes(text)
    except ValueError as cause:
        raise InvalidOptionError(
            'this setting is a size, such as "32mb", or "0"', key=DRIVER_BYTES, value=text
        ) from cause


def local_bytes(spark: SparkSession) -> int:
    """Return how many bytes of files the driver reads, or compacts, itself: more where its machine is the only one.

    What it does there takes no rows from the JVM, and memory that the table's options bound.
    """
    return driver_bytes(spark) * (1 if runs_elsewhere(spark) else _ON_ONE_MACHINE)


def few_rows(frame: DataFrame, *, label: str) -> pa.Table | None:
    """Return the rows of a DataFrame, evaluated once; None where they are, or may be, too many to be collected.

    Raises as `jobs.collected` does.
    """
    most = driver_bytes(frame.sparkSession)
    if not most or not is_plain(frame.schema):
        return None
    try:
        return collected_by(partial(_few, frame, most), frame.sparkSession, label=label)
    except TaskFailedError as error:
        if any(_TOO_LARGE in note for note in error.__notes__):
            return None
        raise


def is_plain(schema: StructType) -> bool:
    """Whether this process can take rows as Arrow: `toArrow`, since PySpark 4.0, fails at nulls in nested columns."""
    if not hasattr(DataFrame, "toArrow"):
        return False
    try:
        return not any(pa.types.is_nested(kind) for kind in arrow_schema_of(schema).types)
    except UnsupportedError:
        return False


def _few(frame: DataFrame, most: int) -> pa.Table | None:
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 -- no other way to its estimate
    if int(str(plan.stats().sizeInBytes())) > most or not _is_estimated(plan):
        return None
    return frame.toArrow()


def _is_estimated(plan: object) -> bool:
    """Whether Spark's estimate of a plan's size is at least about what comes out of it."""
    if plan.nodeName() not in _ESTIMATED:  # type: ignore[attr-defined]
        return False
    children = plan.children()  # type: ignore[attr-defined]
    return all(_is_estimated(children.apply(at)) for at in range(children.size()))
