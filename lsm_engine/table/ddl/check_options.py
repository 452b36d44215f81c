"""Options of the merge engines: refuse those that contradict each other, or the table's columns."""

from lsm_engine.base import core_options
from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.modes import MergeEngine
from lsm_engine.base.option import FieldOption
from lsm_engine.base.table_options import TableOptions
from lsm_engine.merge.function import build_merge_function
from lsm_engine.merge.record_expiry import RecordExpiry
from lsm_engine.merge.retracts import retract_rule
from lsm_engine.schema.table_schema import TableSchema
from lsm_engine.schema.types import TEXT, ScalarType

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
