"""Options that define how rows find their bucket: refuse those that contradict the table's keys."""

from typing import Any

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.option import FieldOption, Option
from lsm_engine.base.table_options import TableOptions
from lsm_engine.plan.key_moves import check_moves_delete
from lsm_engine.schema.table_schema import TableSchema

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
        if isinstance(option, FieldOption) and option.suffix != "stats-mode":
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
