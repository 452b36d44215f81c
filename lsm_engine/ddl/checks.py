"""Definitions that contradict themselves: buckets, merge engines and row tracking."""

from typing import Any

from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.format.column_index import indexed_type
from lsm_engine.iceberg.metadata import format_version_of, option_problem
from lsm_engine.iceberg.schema import iceberg_schema
from lsm_engine.merge.function import build_merge_function, retract_rule
from lsm_engine.merge.record_expiry import RecordExpiry
from lsm_engine.options import core_options
from lsm_engine.options.modes import FileIndexType, MergeEngine
from lsm_engine.options.option import FieldOption, Option
from lsm_engine.options.table_options import TableOptions
from lsm_engine.planning.keys import check_moves_delete
from lsm_engine.types.table_schema import ROW_ID, SEQUENCE_NUMBER, TableSchema
from lsm_engine.types.types import TEXT, ScalarType, type_text

# -- Options that define how rows find their bucket ------------------------------------------------
#
# Refuse those that contradict the table's keys.

_NEEDS_KEY = (
    core_options.MERGE_ENGINE,
    core_options.SEQUENCE_FIELD,
    core_options.SEQUENCE_SNAPSHOT_ORDERING,
    core_options.ROWKIND_FIELD,
    core_options.IGNORE_DELETE,
    core_options.LOCAL_MERGE_BUFFER_SIZE,
    core_options.STREAMING_READ_OVERWRITE,
    core_options.COMPACTION_FORCE_REWRITE_ALL_FILES,
)
_DYNAMIC = (
    core_options.DYNAMIC_BUCKET_TARGET_ROW_NUM,
    core_options.DYNAMIC_BUCKET_INITIAL_BUCKETS,
    core_options.DYNAMIC_BUCKET_ASSIGNER_PARALLELISM,
    core_options.DYNAMIC_BUCKET_MAX_BUCKETS,
)
_POSTPONE = (
    core_options.POSTPONE_BATCH_WRITE_FIXED_BUCKET,
    core_options.POSTPONE_DEFAULT_BUCKET_NUM,
    core_options.POSTPONE_TARGET_SIZE_PER_BUCKET,
)


def check_buckets(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming the option and the remedy, for buckets that cannot be."""
    options = schema.options
    bucket = options[core_options.BUCKET]
    if bucket == 0:
        raise InvalidOptionError(
            "'bucket' is 1 or more, -1 (dynamic, or for an append table one that all rows share) or -2 "
            "(postponed)",
            key=core_options.BUCKET.key,
            value=bucket,
        )
    mode = schema.bucket_mode
    if not schema.has_primary_key:
        _check_append(schema)
    elif mode.policy.crosses_partitions:
        _check_cross_partition(options)
    if not mode.policy.assigns_keys:
        _refuse(options, _DYNAMIC, "needs 'bucket' = -1 and a primary key")
    if not mode.policy.is_postponed:
        _refuse(options, _POSTPONE, "needs 'bucket' = -2")
    if not mode.policy.is_fixed and core_options.BUCKET_KEY.key in options.texts:
        raise InvalidOptionError(
            "'bucket-key' needs a fixed number of buckets, 'bucket' = 1 or more; leave it out",
            key=core_options.BUCKET_KEY.key,
        )


def _check_append(schema: TableSchema) -> None:
    options = schema.options
    if not options[core_options.CHANGELOG_PRODUCER].policy.reads_delta:
        raise InvalidOptionError(
            "an append table has no 'changelog-producer': its rows are its changes, read them with "
            "changelog(); leave it out, or give the table a primary key",
            key=core_options.CHANGELOG_PRODUCER.key,
            value=options[core_options.CHANGELOG_PRODUCER].value,
        )
    _refuse(options, _NEEDS_KEY, "needs a primary key")
    for key in options.texts:
        option = core_options.find(key)
        if isinstance(option, FieldOption) and option.needs_key:
            raise InvalidOptionError(f"option {key!r} needs a primary key; leave it out", key=key)
    if not options[core_options.INDEX_TYPE].policy.uses_lookups:
        _refuse(options, (core_options.INDEX_TYPE,), "needs a primary key")
    if schema.bucket_count == -2:
        raise InvalidOptionError(
            "'bucket' = -2 needs a primary key; use -1, one bucket that all rows share",
            key=core_options.BUCKET.key,
        )
    if schema.bucket_count > 0 and not options[core_options.BUCKET_KEY]:
        raise InvalidOptionError(
            "an append table with a number of buckets needs a 'bucket-key', the columns whose hash "
            "chooses the bucket; or use 'bucket' = -1",
            key=core_options.BUCKET_KEY.key,
        )


def _check_cross_partition(options: TableOptions) -> None:
    if options[core_options.SEQUENCE_FIELD]:
        raise InvalidOptionError(
            "'sequence.field' does not go with a key that lacks partition columns: which of two "
            "partitions holds a key is decided by the order of arrival; add the partition columns to "
            "the primary key, or leave the option out",
            key=core_options.SEQUENCE_FIELD.key,
        )
    check_moves_delete(options)


def _refuse(options: TableOptions, keys: tuple[Option[Any], ...], why: str) -> None:
    for option in keys:
        if option.key in options.texts and options[option] != option.default:
            raise InvalidOptionError(f"option {option.key!r} {why}; leave it out", key=option.key)


# -- Options of the merge engines ------------------------------------------------------------------
#
# Refuse those that contradict each other, or the table's columns.

_ONLY_WITH = {
    core_options.PARTIAL_UPDATE_REMOVE_ON_DELETE.key: MergeEngine.PARTIAL_UPDATE,
    core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP.key: MergeEngine.PARTIAL_UPDATE,
    core_options.AGGREGATION_REMOVE_ON_DELETE.key: MergeEngine.AGGREGATION,
    core_options.WRITE_SKIP_UNCHANGED.key: MergeEngine.DEDUPLICATE,
}
_FUNCTION_OPTIONS = (
    "aggregate-function",
    "ignore-retract",
    "list-agg-delimiter",
    "distinct",
    "nested-key",
    "nested-sequence-field",
    "nested-key-null-strategy",
    "count-limit",
    "ts-field",
)


def check_engine(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming the option and the remedy, for what no merge supports."""
    engine = schema.options[core_options.MERGE_ENGINE]
    for key, needed in _ONLY_WITH.items():
        if key in schema.options.texts and engine != needed:
            raise InvalidOptionError(
                f"option {key!r} needs 'merge-engine' = {needed.value!r}; the table has "
                f"{engine.value!r}",
                key=key,
            )
    _check_removal(schema.options)
    _check_row_kind_field(schema)
    _check_snapshot_ordering(schema)
    _check_local_merge(schema.options)
    RecordExpiry.from_schema(schema, now_millis=0)
    _check_field_options(schema, engine)
    if engine.policy.keeps_first_row:
        _check_first_row(schema)
    _check_deletion_vectors(schema)
    if schema.has_primary_key:
        build_merge_function(schema)
        retract_rule(schema)


def _check_removal(options: TableOptions) -> None:
    if not options[core_options.AGGREGATION_REMOVE_ON_DELETE]:
        return
    for key, text in options.texts.items():
        if key.startswith("fields.") and key.endswith(".ignore-retract") and text.lower() == "true":
            raise InvalidOptionError(
                f"option {key!r} does not go with {core_options.AGGREGATION_REMOVE_ON_DELETE.key!r}: a -D "
                "that removes the row takes no value back; leave one of them out",
                key=key,
            )


def _check_deletion_vectors(schema: TableSchema) -> None:
    producer = schema.options[core_options.CHANGELOG_PRODUCER]
    if not schema.options[core_options.DELETION_VECTORS_ENABLED]:
        return
    if producer.policy.waits_for_full_compaction:
        raise InvalidOptionError(
            "'changelog-producer' = 'full-compaction' does not go with 'deletion-vectors.enabled', as "
            "rows are taken from files that no compaction rewrites; use 'lookup', 'input' or 'none'",
            key=core_options.CHANGELOG_PRODUCER.key,
            value=producer.value,
        )


def _check_snapshot_ordering(schema: TableSchema) -> None:
    key = core_options.SEQUENCE_SNAPSHOT_ORDERING.key
    if not schema.options[core_options.SEQUENCE_SNAPSHOT_ORDERING]:
        return
    if schema.sequence_fields:
        raise InvalidOptionError(
            f"{key!r} does not go with 'sequence.field': either snapshots decide which row of a "
            "key is newer, or a column does; leave one of them out",
            key=key,
        )
    if not schema.options[core_options.WRITE_ONLY]:
        raise InvalidOptionError(
            f"{key!r} needs 'write-only' = true: other clients would compact rows before a snapshot "
            "has given them their place; set it, and compact in a job of its own",
            key=key,
        )


def _check_local_merge(options: TableOptions) -> None:
    key = core_options.LOCAL_MERGE_BUFFER_SIZE.key
    logs_input = options[core_options.CHANGELOG_PRODUCER].policy.logs_input
    if key in options.texts and logs_input:
        raise InvalidOptionError(
            f"option {key!r} does not go with 'changelog-producer' = 'input', which emits every "
            "row that comes; leave one of them out",
            key=key,
        )


def _check_first_row(schema: TableSchema) -> None:
    options = schema.options
    if schema.sequence_fields:
        raise InvalidOptionError(
            "'sequence.field' does not go with 'merge-engine' = 'first-row', which keeps what came "
            "first; leave it out, or use 'deduplicate' with 'sequence.field.sort-order' = descending",
            key=core_options.SEQUENCE_FIELD.key,
        )
    if options[core_options.DELETION_VECTORS_ENABLED]:
        raise InvalidOptionError(
            "'deletion-vectors.enabled' does not go with 'merge-engine' = 'first-row', which never "
            "replaces a row; leave it out",
            key=core_options.DELETION_VECTORS_ENABLED.key,
        )
    producer = options[core_options.CHANGELOG_PRODUCER].policy
    if not (producer.reads_delta or producer.looks_up):
        raise InvalidOptionError(
            "'changelog-producer' of a first-row table is 'none' or 'lookup'",
            key=core_options.CHANGELOG_PRODUCER.key,
            value=options[core_options.CHANGELOG_PRODUCER].value,
        )


def _check_row_kind_field(schema: TableSchema) -> None:
    name = schema.options[core_options.ROWKIND_FIELD]
    if name is None:
        return
    key = core_options.ROWKIND_FIELD.key
    if name not in schema.names:
        raise InvalidOptionError(
            f"option {key!r} names column {name!r}, which the table does not have",
            key=key,
            column=name,
        )
    kind = schema.field(name).type
    if not isinstance(kind, ScalarType) or kind.root not in TEXT or name in schema.primary_keys:
        raise InvalidOptionError(
            f"option {key!r} takes a text column that is no key, to hold +I, -U, +U or -D",
            key=key,
            column=name,
        )


def _check_field_options(schema: TableSchema, engine: MergeEngine) -> None:
    """Options of columns name columns that there are, and an engine that reads them."""
    for key in schema.options.texts:
        option = core_options.find(key)
        if not isinstance(option, FieldOption):
            continue
        if option.suffix == "sequence-group" and not engine.policy.has_sequence_groups:
            raise InvalidOptionError(
                f"option {key!r} needs 'merge-engine' = 'partial-update'", key=key
            )
        if option.suffix not in _FUNCTION_OPTIONS:
            continue
        if not engine.policy.combines_versions:
            raise InvalidOptionError(
                f"option {key!r} needs 'merge-engine' = 'aggregation', or a sequence group of "
                "'partial-update'",
                key=key,
            )
        name = key.removeprefix("fields.").removesuffix("." + option.suffix)
        if name not in schema.names:
            raise InvalidOptionError(
                f"option {key!r} names column {name!r}, which the table does not have",
                key=key,
                column=name,
            )
        if name in schema.primary_keys and option.suffix == "aggregate-function":
            raise InvalidOptionError(
                f"key column {name!r} cannot have a function: it is the same in every version",
                key=key,
                column=name,
            )


# -- Options of row ids (docs/semantics.md, "Row ids") ---------------------------------------------

_TRACKING = core_options.ROW_TRACKING_ENABLED
_EVOLUTION = core_options.DATA_EVOLUTION_ENABLED


def check_row_tracking(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming option and remedy, for a new table that cannot be."""
    conflict = _conflict(schema)
    if conflict is not None:
        key, why = conflict
        raise InvalidOptionError(f"option {key!r} {why}", key=key)


def refuse_row_tracking(schema: TableSchema) -> None:
    """Raise UnsupportedError, naming the option, for a table of others that cannot be read right."""
    conflict = _conflict(schema)
    if conflict is not None:
        key, why = conflict
        raise UnsupportedError(
            f"this version does not support the table's option {key!r}, which {why}; nothing was read "
            "or written",
            option=key,
        )


def _conflict(schema: TableSchema) -> tuple[str, str] | None:
    options = schema.options
    tracks, evolves = options[_TRACKING], options[_EVOLUTION]
    if evolves and not tracks:
        return _EVOLUTION.key, f"needs {_TRACKING.key!r} = true"
    if evolves and options[core_options.DELETION_VECTORS_ENABLED]:
        return _EVOLUTION.key, "does not go with 'deletion-vectors.enabled' = true"
    if not tracks:
        return None
    if schema.has_primary_key:
        return _TRACKING.key, "is for tables without a primary key"
    if not schema.bucket_mode.policy.is_unaware:
        return _TRACKING.key, "needs 'bucket' = -1, one bucket that all rows share"
    if not {ROW_ID, SEQUENCE_NUMBER}.isdisjoint(schema.names):
        return (
            _TRACKING.key,
            f"needs the column names {ROW_ID!r} and {SEQUENCE_NUMBER!r} to be free",
        )
    return None


# -- Iceberg metadata ------------------------------------------------------------------------------


def check_iceberg(schema: TableSchema) -> None:
    """Raise InvalidOptionError or UnsupportedError where options or columns contradict Iceberg metadata."""
    options = schema.options
    if not (options.writes_iceberg or options[core_options.ICEBERG_COMPATIBILITY_ENABLED]):
        return
    problem = option_problem(schema)
    if problem is not None:
        key, why = problem
        cause = core_options.METADATA_ICEBERG_STORAGE.key
        if options[core_options.ICEBERG_COMPATIBILITY_ENABLED]:
            cause = core_options.ICEBERG_COMPATIBILITY_ENABLED.key
        raise InvalidOptionError(f"option {key!r} {why}; or leave {cause!r} out", key=key)
    iceberg_schema(schema)


def check_format_version(before: TableSchema, after: TableSchema) -> None:
    """Raise InvalidOptionError where Iceberg metadata that stays in its place would get an older format version."""
    storage = core_options.METADATA_ICEBERG_STORAGE
    location = before.options.iceberg_location
    stays = location is not None and location == after.options.iceberg_location
    version = format_version_of(before)
    # Older snapshots have manifests of their version, and row ids that are not given twice.
    if stays and format_version_of(after) < version:
        key = core_options.METADATA_ICEBERG_FORMAT_VERSION.key
        raise InvalidOptionError(
            f"option {key!r} cannot go below {version}, as Iceberg tables keep their version; "
            f"set {storage.key!r} to 'disabled' before, which deletes the metadata",
            key=key,
        )


# -- File indexes ----------------------------------------------------------------------------------


def check_file_indexes(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming the option, for columns that are not there or cannot have such an index."""
    listed = set()
    for column in schema.options.indexed_columns:
        listed.add((column.type, column.name))
        if column.name not in schema.names:
            raise InvalidOptionError(
                f"option {column.key!r} names column {column.name!r}, which the table does not have",
                key=column.key,
                column=column.name,
            )
        kind = schema.field(column.name).type
        if indexed_type(kind, column.type) is None:
            raise InvalidOptionError(
                f"option {column.key!r} names column {column.name!r}, and an index of type "
                f"{column.type.value} takes no {type_text(kind)}; leave it out, or use another type",
                key=column.key,
                column=column.name,
            )
    for key in schema.options.texts:
        option = core_options.find(key)
        if not isinstance(option, FieldOption) or not option.index_type:
            continue
        name = option.column_of(key)
        if (FileIndexType(option.index_type), name) not in listed:
            raise InvalidOptionError(
                f"option {key!r} is about an index that no column {name!r} has; list the column in "
                f"{f'{option.prefix}columns'!r}, or leave it out",
                key=key,
            )
