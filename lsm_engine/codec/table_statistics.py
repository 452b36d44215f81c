"""Table statistics, which ANALYZE leaves beside a snapshot (format section 2): JSON → facts."""

import json
from collections.abc import Mapping

from lsm_engine.base.record import record
from lsm_engine.codec.json_object import parse_object


@record
class TableStatistics:
    """What was found when a snapshot was analysed.

    `column_stats`: JSON text, as it was stored. `null_counts`: by column, of all that it has; None
    where it has no count.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None
    merged_record_size: int | None
    column_stats: str | None
    null_counts: Mapping[str, int | None]


def decode_statistics(data: bytes, *, file_name: str) -> TableStatistics:
    """Return the statistics in a file; raises CorruptFileError, naming it, for anything else."""
    document = parse_object(data, file_name=file_name)
    columns = document.object_map("colStats")
    return TableStatistics(
        snapshot_id=document.long("snapshotId"),
        schema_id=document.long("schemaId"),
        merged_record_count=document.optional_count("mergedRecordCount"),
        merged_record_size=document.optional_count("mergedRecordSize"),
        column_stats=None
        if columns is None
        else json.dumps(document.members["colStats"], ensure_ascii=False, default=str),
        null_counts={
            name: column.optional_count("nullCount") for name, column in (columns or {}).items()
        },
    )
