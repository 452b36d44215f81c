"""Options of the changelog: refuse those by which nothing would be emitted."""

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.schema.table_schema import TableSchema


def check_changelog(schema: TableSchema) -> None:
    """Raise InvalidOptionError, naming the option and the remedy."""
    options = schema.options
    producer = options[core_options.CHANGELOG_PRODUCER]
    if options[core_options.CHANGELOG_ROW_DEDUPLICATE] and not producer.policy.compares:
        raise InvalidOptionError(
            f"{core_options.CHANGELOG_ROW_DEDUPLICATE.key!r} needs 'changelog-producer' = 'lookup' or "
            f"'full-compaction', which know the row before; the table has {producer.value!r}",
            key=core_options.CHANGELOG_ROW_DEDUPLICATE.key,
        )
    ignored = options[core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS]
    key = core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS.key
    if ignored and not options[core_options.CHANGELOG_ROW_DEDUPLICATE]:
        raise InvalidOptionError(
            f"option {key!r} needs {core_options.CHANGELOG_ROW_DEDUPLICATE.key!r} = true", key=key
        )
    unknown = [name for name in ignored if name not in schema.names]
    if unknown:
        raise InvalidOptionError(
            f"option {key!r} names columns that the table does not have", key=key, columns=unknown
        )
    reads = core_options.STREAMING_READ_OVERWRITE.key
    if options[core_options.STREAMING_READ_OVERWRITE] and producer.policy.compares:
        raise InvalidOptionError(
            f"option {reads!r} does not go with 'changelog-producer' = {producer.value!r}, whose next "
            "compaction emits the rows of an overwrite once more; use 'input' or 'none'",
            key=reads,
        )
