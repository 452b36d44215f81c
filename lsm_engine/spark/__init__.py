"""The operations of a table, run by the executors of Spark. No other package imports PySpark.

Executors get values that pickle and share nothing but storage. The package uses DataFrame APIs alone, so that it
works on Spark Connect. Start reading at `executor`, then `staging`. A name is imported when it is first used,
because the processes in which Spark plans a read need few of them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("pyspark") is None:
    raise ImportError("Spark is not installed: pip install 'lsm-assets[spark]'")

if TYPE_CHECKING:
    from lsm_engine.spark.commands.statements import sql
    from lsm_engine.spark.executor import SparkExecutor
    from lsm_engine.spark.jobs import TaskFailedError
    from lsm_engine.spark.lookups import locate_dataframe, lookup_join
    from lsm_engine.spark.operations import (
        auto_cdc,
        auto_cdc_batches,
        changes_dataframe,
        create_auto_cdc_table,
        merge_dataframe,
        on_spark,
        upsert_batches,
        upsert_dataframe,
        upsert_files,
        verify_table,
    )
    from lsm_engine.spark.read import read_dataframe
    from lsm_engine.spark.registration import register
    from lsm_engine.spark.rows import FileRows, configured_local_bytes
    from lsm_engine.spark.session import check_java, engine_settings, local_session, local_settings
    from lsm_engine.spark.types import arrow_schema_of, spark_schema

__all__ = [
    "FileRows", "SparkExecutor", "TaskFailedError", "arrow_schema_of", "auto_cdc", "auto_cdc_batches", "changes_dataframe",
    "check_java", "configured_local_bytes", "create_auto_cdc_table", "engine_settings", "local_session", "local_settings", "locate_dataframe",
    "lookup_join", "merge_dataframe", "on_spark", "read_dataframe", "register", "spark_schema",
    "sql", "upsert_batches", "upsert_dataframe", "upsert_files", "verify_table",
]  # fmt: skip

_HOMES = {
    name: home
    for home, names in {
        "executor": "SparkExecutor",
        "jobs": "TaskFailedError",
        "lookups": "locate_dataframe lookup_join",
        "operations": """
            auto_cdc auto_cdc_batches changes_dataframe create_auto_cdc_table merge_dataframe on_spark upsert_batches upsert_dataframe
            upsert_files verify_table
        """,
        "read": "read_dataframe",
        "registration": "register",
        "rows": "FileRows configured_local_bytes",
        "session": "check_java engine_settings local_session local_settings",
        "commands.statements": "sql",
        "types": "arrow_schema_of spark_schema",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        attribute = getattr(import_module(f"lsm_engine.spark.{home}"), name)
    except ImportError as cause:
        # An import that fails inside the engine is a defect: only a missing part of PySpark gets advice.
        if not (cause.name or "").startswith("pyspark"):
            raise
        # Not by the package's name: pyspark-client and databricks-connect bring the module too.
        installed = import_module("pyspark").__version__
        raise ImportError(
            f"{name} needs PySpark 4.1 or newer, which lets Python read and write a format; {installed} is "
            "here, with which the functions for DataFrames work: upsert_dataframe, read_dataframe, merge_dataframe"
        ) from cause
    globals()[name] = attribute
    return attribute
