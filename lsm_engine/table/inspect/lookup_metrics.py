"""What a table's lookup files were asked for in this process, file by file."""

import pyarrow as pa

from lsm_engine.io.cache_entries import CacheEntry
from lsm_engine.schema.type_text import columns_of_text
from lsm_engine.table.compact.lookup_levels import compaction_owner
from lsm_engine.table.find.lookup import process_cache
from lsm_engine.table.ground.session import TableSession

LOOKUP_METRICS = columns_of_text(
    "lookup_file STRING NOT NULL, used_by STRING NOT NULL, file_size_in_bytes BIGINT, "
    "request_count BIGINT, hit_count BIGINT, removal_cause STRING"
)


def lookup_metrics(session: TableSession) -> pa.Table:
    """Return one row per lookup file of a table, those removed lately (see DiskCache) first."""
    cache, compacting = process_cache(), compaction_owner(session.file_io)

    def used_by(entry: CacheEntry) -> str | None:
        if entry.owner == compacting:
            return "compaction"
        return "lookup" if entry.owner.rpartition("#")[0] == session.name else None

    rows = [
        {
            "lookup_file": entry.name,
            "used_by": user,
            "file_size_in_bytes": entry.size,
            "request_count": entry.request_count,
            "hit_count": entry.hit_count,
            "removal_cause": entry.removal_cause,
        }
        for entry in (*cache.removed(), *cache.entries())
        if (user := used_by(entry)) is not None
    ]
    return pa.Table.from_pylist(rows, schema=LOOKUP_METRICS)
