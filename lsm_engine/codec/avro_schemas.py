"""The Avro schemas of manifests, manifest lists and index manifests, as we write them.

They are those of format section 0: every reader that we know resolves them by field name. New fields
are unions with null, null first, default null. Schemas are plain JSON values, ready to be stored.
"""

from typing import Any

CHECKSUM = "_LSM_CHECKSUM"
FOOTER_CHECKSUM = "_LSM_FOOTER_CHECKSUM"
"""Fields of our own, which other readers pass over: they resolve fields by name."""
NAMESPACE = "org.apache.paimon.avro.generated"


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": f"{NAMESPACE}.{name}", "fields": list(fields)}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _stats(name: str) -> dict[str, Any]:
    return _record(
        name,
        _field("_MIN_VALUES", "bytes"),
        _field("_MAX_VALUES", "bytes"),
        _optional("_NULL_COUNTS", _array(["null", "long"])),
    )


MANIFEST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_TOTAL_BUCKETS", "int"),
    _field(
        "_FILE",
        _record(
            "record__FILE",
            _field("_FILE_NAME", "string"),
            _field("_FILE_SIZE", "long"),
            _field("_ROW_COUNT", "long"),
            _field("_MIN_KEY", "bytes"),
            _field("_MAX_KEY", "bytes"),
            _field("_KEY_STATS", _stats("record__FILE__KEY_STATS")),
            _field("_VALUE_STATS", _stats("record__FILE__VALUE_STATS")),
            _field("_MIN_SEQUENCE_NUMBER", "long"),
            _field("_MAX_SEQUENCE_NUMBER", "long"),
            _field("_SCHEMA_ID", "long"),
            _field("_LEVEL", "int"),
            _field("_EXTRA_FILES", _array("string")),
            # A plain long would stop Java 0.9, which expects a timestamp.
            _optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
            _optional("_DELETE_ROW_COUNT", "long"),
            _optional("_EMBEDDED_FILE_INDEX", "bytes"),
            _optional("_FILE_SOURCE", "int"),
            _optional("_VALUE_STATS_COLS", _array("string")),
            _optional("_EXTERNAL_PATH", "string"),
            _optional("_FIRST_ROW_ID", "long"),
            _optional("_WRITE_COLS", _array("string")),
            _optional(CHECKSUM, "long"),
            _optional(FOOTER_CHECKSUM, "long"),
        ),
    ),
)

MANIFEST_LIST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_NUM_ADDED_FILES", "long"),
    _field("_NUM_DELETED_FILES", "long"),
    _field("_PARTITION_STATS", _stats("record__PARTITION_STATS")),
    _field("_SCHEMA_ID", "long"),
    _optional("_MIN_BUCKET", "int"),
    _optional("_MAX_BUCKET", "int"),
    _optional("_MIN_LEVEL", "int"),
    _optional("_MAX_LEVEL", "int"),
    _optional("_MIN_ROW_ID", "long"),
    _optional("_MAX_ROW_ID", "long"),
    _optional("_TOTAL_BUCKETS", "int"),
    _optional("_EXTRA_FILES", _array("string")),
    _optional(CHECKSUM, "long"),
)

INDEX_MANIFEST = _record(
    "record",
    _field("_VERSION", "int"),
    _field("_KIND", "int"),
    _field("_PARTITION", "bytes"),
    _field("_BUCKET", "int"),
    _field("_INDEX_TYPE", "string"),
    _field("_FILE_NAME", "string"),
    _field("_FILE_SIZE", "long"),
    _field("_ROW_COUNT", "long"),
    _optional(
        "_DELETIONS_VECTORS_RANGES",
        _array(
            [
                "null",
                _record(
                    "record__DELETIONS_VECTORS_RANGES",
                    _field("f0", "string"),
                    _field("f1", "int"),
                    _field("f2", "int"),
                    _optional("_CARDINALITY", "long"),
                ),
            ]
        ),
    ),
    _optional("_EXTERNAL_PATH", "string"),
    _optional(CHECKSUM, "long"),
)
