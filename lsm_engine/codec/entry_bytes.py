"""Entries as manifests hold them (format section 5): facts → Avro."""

from collections.abc import Iterable
from typing import Any

from lsm_engine.codec.avro_container import ContainerEncoder
from lsm_engine.codec.avro_schemas import CHECKSUM, FOOTER_CHECKSUM, MANIFEST
from lsm_engine.codec.manifest_columns import ENTRY_VERSION
from lsm_engine.meta.manifest import ManifestEntry
from lsm_engine.meta.stats import SimpleStats

MANIFESTS = ContainerEncoder(MANIFEST)


def encode_manifest(entries: Iterable[ManifestEntry], *, codec: str = "zstandard") -> bytes:
    """Return a manifest of entries, in their order, with the columns of format section 0."""
    return MANIFESTS.file(map(entry_bytes, entries), codec=codec)


def entry_bytes(entry: ManifestEntry) -> bytes:
    """Return an entry as a block of a manifest holds it."""
    return MANIFESTS.record(_entry_record(entry))


def _entry_record(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "_VERSION": ENTRY_VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_record(file.key_stats),
            "_VALUE_STATS": stats_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": file.extra_files,
            "_CREATION_TIME": file.creation_millis,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": None if file.file_source is None else file.file_source.value,
            "_VALUE_STATS_COLS": file.value_stats_columns,
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": file.write_columns,
            CHECKSUM: file.checksum,
            FOOTER_CHECKSUM: file.footer_checksum,
        },
    }


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    """Return statistics as a metadata file holds them."""
    assert stats.min_values, "statistics without rows cannot be read by others; use null values"
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        # Java 0.9 fails where the array itself is null.
        "_NULL_COUNTS": stats.null_counts or (),
    }
