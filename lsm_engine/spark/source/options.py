"""The options of `format("lsm")`, and the storage options of a session."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from lsm_engine.ddl.open import open_session
from lsm_engine.spark.session import DRIVER_BYTES, READS_PARQUET, SHARED_DISK, STATEMENTS
from lsm_engine.storage.options import SentOptions, is_storage_option
from lsm_engine.table.session import TableSession

QUERY_ID = "sql.streaming.queryId"
"""The property by which Spark's tasks know their query; its id stays across restarts with one checkpoint."""
PATH = "path"
SNAPSHOT_ID = "snapshot-id"
TAG = "tag"
AS_OF = "as-of"
WHERE = "where"
PUSH_FILTERS = "push-filters"
COMMIT_USER = "commit-user"
COMMIT_IDENTIFIER = "commit-identifier"
CATALOG = "catalog"
WAREHOUSE = "warehouse"
BETWEEN = "incremental-between"
BETWEEN_TIMES = "incremental-between-timestamp"
BETWEEN_MODE = "incremental-between-scan-mode"
READ_CHANGELOG = "read.changelog"
SCAN_MODE = "scan.mode"
SCAN_SNAPSHOT_ID = "scan.snapshot-id"
SCAN_TIMESTAMP = "scan.timestamp-millis"
CONSUMER_ID = "consumer-id"
MAX_FILES = "maxfilespertrigger"
MAX_BYTES = "maxbytespertrigger"
MAX_SNAPSHOTS = "maxsnapshotspertrigger"
"""The last three in the lower case in which Spark hands all of them over."""
OPTIONS = (
    PATH, SNAPSHOT_ID, TAG, AS_OF, WHERE, PUSH_FILTERS, COMMIT_USER, COMMIT_IDENTIFIER, CATALOG, WAREHOUSE,
    BETWEEN, BETWEEN_TIMES, BETWEEN_MODE, READ_CHANGELOG, SCAN_MODE, SCAN_SNAPSHOT_ID, SCAN_TIMESTAMP,
    CONSUMER_ID, MAX_FILES, MAX_BYTES, MAX_SNAPSHOTS,
)  # fmt: skip
READS_A_PART = (SNAPSHOT_ID, TAG, AS_OF, WHERE, BETWEEN, BETWEEN_TIMES, READ_CHANGELOG)
"""Options that leave rows of the present state out, or show another."""


def asks_for_changes(options: Mapping[str, str]) -> bool:
    """Whether options of a read ask for changes and not for a state."""
    return (
        BETWEEN in options
        or BETWEEN_TIMES in options
        or options.get(READ_CHANGELOG, "false").lower() == "true"
    )


# -- Storage options of `format("lsm")` ------------------------------------------------------------
#
# Given as options of a read or a write, or in the session as `spark.lsm.<option>`.
#
# Who puts a secret there wants tasks to have it: it travels with them, as Hadoop's settings do.
# Spark's plans mask the values of options whose names its setting
# `spark.sql.redaction.options.regex` knows.

PREFIX = "spark.lsm."
CATALOG_SETTING = f"{PREFIX}catalog"
WAREHOUSE_SETTING = f"{PREFIX}warehouse"
_OTHERS = (
    SHARED_DISK,
    DRIVER_BYTES,
    READS_PARQUET,
    STATEMENTS,
    CATALOG_SETTING,
    WAREHOUSE_SETTING,
)
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
    options = {
        name.removeprefix(PREFIX): text
        for name, text in spark.conf.getAll.items()
        if name.startswith(PREFIX) and name not in _OTHERS
    }
    SentOptions(options)  # raises
    return options


def mask_options(spark: SparkSession) -> None:
    """Have plans and the UI mask the values of storage options that open something."""
    pattern = spark.conf.get(_REDACTION, "") or ""
    if _SECRETS not in pattern:
        spark.conf.set(_REDACTION, f"{pattern}|{_SECRETS}" if pattern else _SECRETS)
