"""Which files may hold records that have expired, by their statistics."""

from collections.abc import Callable, Iterable

from lsm_engine.merge.record_expiry import RecordExpiry
from lsm_engine.meta.data_file import DataFileMeta
from lsm_engine.prune.stored_stats import stored_bounds
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.table.ground.value_stats import stats_layouts


def files_with_expired(
    files: Iterable[DataFileMeta],
    expiry: RecordExpiry,
    schema: TableSchema,
    written_with: Callable[[int], TableSchema],
) -> frozenset[str]:
    """Return the names of files whose earliest time has expired.

    A file without statistics of its times is not among them: it would be rewritten each time.
    """
    found: set[str] = set()
    for layout in stats_layouts(files, schema, written_with):
        bounds = stored_bounds(layout.stats, layout.covered, [expiry.column]).get(expiry.column)
        if bounds is not None:
            expired = expiry.expired(bounds.mins)
            found |= {
                file.file_name
                for file, is_expired in zip(layout.files, expired, strict=True)
                if is_expired
            }
    return frozenset(found)
