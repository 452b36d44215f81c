"""Table statistics, which ANALYZE leaves beside a snapshot (format section 2): JSON → facts."""

import json

from lsm_engine.base.record import record
from lsm_engine.codec.json_object import parse_object


@record
class TableStatistics:
    """What was found when a snapshot was analysed. `column_stats`: JSON text, as it was stored."""

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None
    merged_record_size: int | None
    column_stats: str | None


def decode_statistics(data: bytes, *, file_name: str) -> TableStatistics:
    """Return the statistics in a file; raises CorruptFileError, naming it, for anything else."""
    found = parse_object(data, file_name=file_name)
    columns = found.members.get("colStats")
    return TableStatistics(
        snapshot_id=found.long("snapshotId"),
        schema_id=found.long("schemaId"),
        merged_record_count=found.optional_long("mergedRecordCount"),
        merged_record_size=found.optional_long("mergedRecordSize"),
        column_stats=None
        if columns is None
        else json.dumps(columns, ensure_ascii=False, default=str),
    )
