"""Registration of the format, its settings, the catalog and the procedures with a session."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.catalog.names import absolute_warehouse
from lsm_engine.spark.commands.procedures import register_procedures
from lsm_engine.spark.commands.statements import statements_of
from lsm_engine.spark.jvm import StatementParser
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
from lsm_engine.spark.statement import with_parameters


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
    source: type[LsmSource] = ClusterSource if runs_elsewhere(spark) else LsmSource
    storage = session_storage(spark)
    if storage:  # Spark's workers know nothing of the session: the class brings them along
        source = type(source.__name__, (source,), {"storage_of_session": storage})
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
