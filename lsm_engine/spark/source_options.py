"""The options of `format("lsm")`, and which of them ask for changes."""

from collections.abc import Mapping

QUERY_ID = "sql.streaming.queryId"
"""What Spark's tasks know of their query; its id stays across restarts with one checkpoint."""
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
