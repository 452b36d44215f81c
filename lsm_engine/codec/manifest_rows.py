"""Manifest entries back into columns: what is searched by columns may come as objects, too."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lsm_engine.codec.avro_schemas import CHECKSUM, FOOTER_CHECKSUM
from lsm_engine.codec.manifest_columns import ENTRY_VERSION, MANIFEST_COLUMNS
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.stats import SimpleStats


def rows_of(entries: Sequence[ManifestEntry], *, with_stats: bool = False) -> pa.Table:
    """Return entries as the columns that `manifest.entries_of` takes.

    `with_stats`: as `manifest.decode_manifest` returns them; else all statistics are null.
    """
    files = [entry.file for entry in entries]
    members = {
        "_VERSION": [ENTRY_VERSION] * len(entries),
        "_KIND": [entry.kind.value for entry in entries],
        "_PARTITION": [entry.partition for entry in entries],
        "_BUCKET": [entry.bucket for entry in entries],
        "_TOTAL_BUCKETS": [entry.total_buckets for entry in entries],
        "_FILE._FILE_SOURCE": [
            None if f.file_source is None else f.file_source.value for f in files
        ],
    }
    if with_stats:
        members |= _stats_members("_FILE._KEY_STATS", [file.key_stats for file in files])
        members |= _stats_members("_FILE._VALUE_STATS", [file.value_stats for file in files])
    columns = []
    for name, column_type in MANIFEST_COLUMNS.items():
        if name in members:
            columns.append(pa.array(members[name], column_type.kind))
        elif name in _MEMBERS:
            columns.append(
                pa.array([getattr(file, _MEMBERS[name]) for file in files], column_type.kind)
            )
        else:
            columns.append(pa.nulls(len(entries), column_type.kind))
    return pa.Table.from_arrays(columns, names=list(MANIFEST_COLUMNS))


def _stats_members(prefix: str, stats: Sequence[SimpleStats]) -> dict[str, list[Any]]:
    return {
        f"{prefix}._MIN_VALUES": [stat.min_values for stat in stats],
        f"{prefix}._MAX_VALUES": [stat.max_values for stat in stats],
        f"{prefix}._NULL_COUNTS": [stat.null_counts for stat in stats],
    }


_MEMBERS = {
    "_FILE._FILE_NAME": "file_name",
    "_FILE._FILE_SIZE": "file_size",
    "_FILE._ROW_COUNT": "row_count",
    "_FILE._MIN_KEY": "min_key",
    "_FILE._MAX_KEY": "max_key",
    "_FILE._MIN_SEQUENCE_NUMBER": "min_sequence_number",
    "_FILE._MAX_SEQUENCE_NUMBER": "max_sequence_number",
    "_FILE._SCHEMA_ID": "schema_id",
    "_FILE._LEVEL": "level",
    "_FILE._EXTRA_FILES": "extra_files",
    "_FILE._CREATION_TIME": "creation_millis",
    "_FILE._DELETE_ROW_COUNT": "delete_row_count",
    "_FILE._EMBEDDED_FILE_INDEX": "embedded_index",
    "_FILE._VALUE_STATS_COLS": "value_stats_columns",
    "_FILE._EXTERNAL_PATH": "external_path",
    "_FILE._FIRST_ROW_ID": "first_row_id",
    "_FILE._WRITE_COLS": "write_columns",
    f"_FILE.{CHECKSUM}": "checksum",
    f"_FILE.{FOOTER_CHECKSUM}": "footer_checksum",
}
