"""Registration of the format, its settings, the catalog and the procedures with a session."""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from lsm_engine.base.errors import InvalidOptionError, LsmError
from lsm_engine.catalog.names import absolute_warehouse
from lsm_engine.spark.commands.procedures import register_procedures
from lsm_engine.spark.commands.statements import statements_of
from lsm_engine.spark.jvm import StatementParser, plan_reads
from lsm_engine.spark.merge import prefilter_of
from lsm_engine.spark.parquet_rows import parquet_frame, scanned_frame
from lsm_engine.spark.session import (
    STATEMENTS,
    engine_settings,
    is_classic,
    runs_elsewhere,
    use_this_python,
)
from lsm_engine.spark.source.datasource import ClusterSource, LsmSource
from lsm_engine.spark.source.options import (
    CATALOG_SETTING,
    WAREHOUSE_SETTING,
    mask_options,
    session_storage,
)
from lsm_engine.spark.source.reader import LsmReader
from lsm_engine.spark.statement import with_parameters
from lsm_engine.spark.types import spark_schema


def register(
    spark: SparkSession,
    *,
    warehouse: str | None = None,
    catalog: str | None = None,
    sql: bool | None = None,
) -> None:
    """Make `spark.read.format("lsm")` and `df.write.format("lsm")` known to a session, if they are not.

    An installed package is found without it. Also sets `engine_settings`, without which Spark hands no
    filter to Python data sources, and registers the procedures as table functions. On a cluster paths of disks are refused, unless `spark.lsm.shared-disk` is true by now. `warehouse`
    and `catalog` (a database URL, by default the warehouse's own) are where `lsm_engine.spark.sql` and
    procedures look for tables by name: settings spark.lsm.warehouse and spark.lsm.catalog. Storage options
    that the session has by now, such as `spark.lsm.s3.endpoint`, hold for every table of the format.
    `sql`: whether `spark.sql` takes the statements of `lsm_engine.spark.sql`. None: where a parser can be put before
    Spark's own, in this session and in new ones of the application; True: elsewhere too, such as on Spark Connect,
    by a function in the place of `spark.sql` of this object; False: it does not. The setting spark.lsm.sql keeps it.
    """
    for key, value in engine_settings().items():
        spark.conf.set(key, value)
    mask_options(spark)
    use_this_python(spark)
    source = _source(spark)
    storage = source.storage_of_session
    try:
        spark.dataSource.register(source)
    except AnalysisException as found:
        # By itself, as `spark/discovery` installs it: Spark keeps that one.
        if found.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if storage:
            raise InvalidOptionError(
                "Spark has found the installed format by itself, which knows no settings of the session: "
                "give storage options by .option(…), or to executors as variables (LSM_STORAGE_…)",
                option=sorted(storage)[0],
            ) from found
    if is_classic(spark):
        plan_reads(spark, source.name(), lambda facts: _planned(spark, facts))
    if warehouse is not None:
        warehouse = absolute_warehouse(warehouse)
        spark.conf.set(WAREHOUSE_SETTING, warehouse)
    if catalog is not None:
        spark.conf.set(CATALOG_SETTING, catalog)
    register_procedures(spark)
    default = str(spark.conf.get(STATEMENTS, "true")).lower() == "true"
    is_asked = default if sql is None else sql
    spark.conf.set(STATEMENTS, str(is_asked).lower())
    if is_asked:
        _newest_place.update(warehouse=warehouse, catalog=catalog)
        is_taken = is_classic(spark) and StatementParser(_statements).inject(spark)
        if sql and not is_taken:
            _replace_sql(spark)


def _source(spark: SparkSession) -> type[LsmSource]:
    """Return the format with the storage options of a session, of which Spark's workers know nothing."""
    source: type[LsmSource] = ClusterSource if runs_elsewhere(spark) else LsmSource
    storage = session_storage(spark)
    return type(source.__name__, (source,), {"storage_of_session": storage}) if storage else source


def _planned(spark: SparkSession, facts: str) -> DataFrame | None:
    """Return the rows of a read of the format, of the columns that a query needs; see `jvm.plan_reads`.

    None where Spark had better read by the source itself: changes, system tables, and what would fail, so that it fails there.
    """
    read = json.loads(facts)
    schema = StructType.fromJson(json.loads(read["schema"]))
    try:
        reader = _source(spark)(CaseInsensitiveDict(read["options"])).reader(schema)
        if not isinstance(reader, LsmReader) or reader.takes_filters:
            return None
        names = read["columns"] or schema.names[:1]  # batches without columns lose their rows
        scan = reader.scan(names)
        columns = StructType([schema[name] for name in names])
        stored = spark_schema(scan.plan.source.context.schema.select_read(names))
        if [field.dataType for field in stored] != [field.dataType for field in columns]:
            return None
        prefilters = [prefilter_of(text, schema) for text in read["conditions"]]
        conditions = [prefilter for prefilter in prefilters if prefilter is not None]
        pruned = reader.scan(names, *conditions) if conditions else scan
        # Spark's own reader applies conditions to rows: tasks in Python, or the driver, to files first.
        is_selective = pruned.selected_bytes * _PRUNED_SHARE < scan.explain().size_bytes
        if pruned.names_keys or is_selective:
            frame = scanned_frame(pruned, columns, spark)
        else:
            stored_rows = parquet_frame(scan, columns, spark)
            frame = scanned_frame(pruned, columns, spark) if stored_rows is None else stored_rows
    except (LsmError, PySparkException):
        return None
    return frame if read["columns"] else frame.select()


_PRUNED_SHARE = 8
"""How many times fewer bytes a condition has to leave for tasks in Python to read them in less time than Spark's own reader."""
_newest_place: dict[str, str | None] = {}
"""The arguments of the newest `register` in this process: new sessions of the application get them."""


def _statements(spark: SparkSession) -> Callable[[str], DataFrame | None]:
    if spark.conf.get(STATEMENTS, None) is None:
        # A new session of the application has none of the settings that were made at run time.
        register(spark, **_newest_place, sql=True)
    return statements_of(spark)


def _replace_sql(spark: SparkSession) -> None:
    by_spark = spark.sql
    if getattr(by_spark, "__wrapped__", None) is not None:
        return
    take = statements_of(spark)

    @wraps(by_spark)
    def sql(sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:
        # Rows in the place of {names} are for Spark's own statements.
        text = with_parameters(sqlQuery, args) if args else sqlQuery
        frame = None if kwargs else take(text)
        return by_spark(sqlQuery, args, **kwargs) if frame is None else frame

    spark.sql = sql  # type: ignore[method-assign]
