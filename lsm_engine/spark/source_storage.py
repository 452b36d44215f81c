"""Storage options of `format("lsm")`: given as options of a read or a write, or in the session as `spark.lsm.<option>`.

Who puts a secret there wants tasks to have it: it travels with them, as Hadoop's settings do. Spark's plans mask the
values of options whose names its setting `spark.sql.redaction.options.regex` knows.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from lsm_engine.io.storage_options import SentOptions, is_storage_option
from lsm_engine.spark.shared_storage import DRIVER_BYTES, SHARED_DISK
from lsm_engine.table.ddl.open_session import open_session
from lsm_engine.table.ground.session import TableSession

PREFIX = "spark.lsm."
CATALOG_SETTING = f"{PREFIX}catalog"
WAREHOUSE_SETTING = f"{PREFIX}warehouse"
_OTHERS = (SHARED_DISK, DRIVER_BYTES, CATALOG_SETTING, WAREHOUSE_SETTING)
_REDACTION = "spark.sql.redaction.options.regex"
_SECRETS = "(?i)access.?key|account.?key|secret|token|password|credential"


def storage_of(options: Mapping[str, str]) -> SentOptions:
    """Return the storage options among those of a source."""
    return SentOptions({name: text for name, text in options.items() if is_storage_option(name)})


def open_source(path: str, options: Mapping[str, str]) -> TableSession:
    """Open a table with the storage options among those of a source."""
    return open_session(path, storage=storage_of(options))


def session_storage(spark: SparkSession) -> dict[str, str]:
    """Return the storage options that a session has. Raises InvalidOptionError for an unknown one."""
    given = {
        name.removeprefix(PREFIX): text
        for name, text in spark.conf.getAll.items()
        if name.startswith(PREFIX) and name not in _OTHERS
    }
    SentOptions(given)  # raises
    return given


def mask_options(spark: SparkSession) -> None:
    """Have plans and the UI mask the values of storage options that open something."""
    known = spark.conf.get(_REDACTION, "") or ""
    if _SECRETS not in known:
        spark.conf.set(_REDACTION, f"{known}|{_SECRETS}" if known else _SECRETS)
