"""Create a table: check everything, then publish schema-0."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
    NotFoundError,
)
from lsm_engine.data_files.formats import check_formats
from lsm_engine.ddl.checks import (
    check_buckets,
    check_engine,
    check_file_indexes,
    check_iceberg,
    check_row_tracking,
)
from lsm_engine.metadata.schemas import SchemaStore
from lsm_engine.metadata.snapshots import SnapshotStore
from lsm_engine.options import core_options
from lsm_engine.options.modes import SortOrder
from lsm_engine.options.table_options import given_options, with_implied_options
from lsm_engine.storage.clock import Clock
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import BEING_DROPPED, EARLIEST, LATEST, ROOT_DIRECTORIES, TablePaths
from lsm_engine.table.incoming import ROW_KIND_COLUMN
from lsm_engine.types.alteration import check_default
from lsm_engine.types.arrow_types import (
    FieldIds,
    doubled_names,
    field_from_arrow,
    nested_fields,
)
from lsm_engine.types.table_schema import (
    KEY_PREFIX,
    ROW_ID,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    TableSchema,
    char_keys,
)
from lsm_engine.types.types import ArrayType, DataField, MapType, RowType

log = logging.getLogger(__name__)

_RESERVED = (
    ROW_ID, SEQUENCE_NUMBER, VALUE_KIND, ROW_KIND_COLUMN, "rowkind",
    "_found", "_snapshot_id",  # what lookups and changes add to a table's columns
)  # fmt: skip


def create_table(
    file_io: FileIO,
    columns: pa.Schema,
    *,
    primary_key: tuple[str, ...],
    partitioned_by: tuple[str, ...],
    options: Mapping[str, object],
    comment: str | None,
    clock: Clock,
    is_unknown: Callable[[], bool] = lambda: False,
) -> TableSchema:
    """Write schema-0 of a new table and return it; nothing is written if a check fails.

    `is_unknown`: whether no catalog knows the table. An equal table without a snapshot is then reused: a
    creation failed before it was registered. The caller that registers the table calls
    `refuse_beside_drop` once more.

    Raises InvalidInputError for columns and keys, InvalidOptionError and UnsupportedError for
    options, AlreadyExistsError if the table exists.
    """
    texts = dict(given_options(options).texts)
    primary_key = _primary_key(primary_key, texts)
    if primary_key and core_options.BUCKET.key not in texts:
        texts[core_options.BUCKET.key] = "1"
    stored_options = with_implied_options(given_options(texts), has_primary_key=bool(primary_key))
    texts = dict(stored_options.texts)
    # Some readers of Iceberg refuse a column with the id 0.
    ids = FieldIds(0 if stored_options.writes_iceberg else -1)
    fields = tuple(_not_null(field_from_arrow(field, ids), primary_key) for field in columns)
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=ids.highest,
        partition_keys=partitioned_by,
        primary_keys=primary_key,
        options=stored_options,
        comment=comment,
        time_millis=clock.now_millis(),
    )
    if char_keys(schema) and core_options.CHAR_KEYS_PADDED.key not in texts:
        # No row is there, so that none is stored otherwise.
        texts[core_options.CHAR_KEYS_PADDED.key] = "true"
        schema = replace(schema, options=given_options(texts))
    check_columns(schema)
    check_keys(schema)
    check_options(schema)
    for path, field in nested_fields(schema.fields):
        if field.default_value is not None:
            check_default(schema, path, field.default_value)
    schemas = SchemaStore(file_io, TablePaths())
    if schemas.latest() is None:
        hints = refuse_beside_drop(file_io)
        if hints:
            file_io.delete_many(hints)  # they name snapshots that the new table would be missing
        if published := schemas.publish(schema):
            return published
    leftover = _left_behind(file_io, schema)
    if leftover is not None and is_unknown():
        return leftover
    raise AlreadyExistsError(
        "a table is already in this directory; open it by catalog['database.table'] or open_table, "
        "or give ignore_if_exists=True"
    )


def refuse_beside_drop(file_io: FileIO, *, is_made: bool = False) -> list[str]:
    """Raise AlreadyExistsError if a table is being dropped, or unless `is_made` if a drop left references.

    `is_made`: a table is there; NotFoundError if a drop has deleted it.
    Data files and manifests of a refused writer are unreferenced and harmless. Its hints are returned: a new
    table would lack the snapshots that they name.
    """
    hints: list[str] = []
    entries = file_io.list("")
    if is_made and not entries:
        raise NotFoundError(
            "the table was dropped meanwhile; create it again", kind=ErrorKind.NO_SUCH_TABLE
        )
    for entry in entries:
        path: str | None = None
        if entry.name.startswith(BEING_DROPPED):
            path = entry.path
        elif entry.name in ROOT_DIRECTORIES and not is_made:
            files = list(file_io.list_files(entry.path))
            path = next((file.path for file in files if not _is_nobodys(file.name)), None)
            hints += [file.path for file in files if file.name in (EARLIEST, LATEST)]
        if path is not None:
            raise AlreadyExistsError(
                "a table is being dropped in this directory, or its drop was cut off; try again in a "
                "moment, or delete the directory if no process is dropping it",
                path=path,
            )
    return hints


def _is_nobodys(name: str) -> bool:
    """Whether a file is a hint, which a refused writer may leave, or a temporary file of a dead process."""
    return name in (EARLIEST, LATEST) or name.startswith(".")


def _left_behind(file_io: FileIO, requested: TableSchema) -> TableSchema | None:
    """Return the schema of an existing table, if it equals the requested one and has no snapshot."""
    stored = SchemaStore(file_io, TablePaths()).latest()
    if stored is None or replace(stored, time_millis=requested.time_millis) != requested:
        return None
    return stored if SnapshotStore(file_io, TablePaths()).latest_id() is None else None


def _primary_key(argument: tuple[str, ...], texts: dict[str, str]) -> tuple[str, ...]:
    """Return the key, which may also come as an option; the schema holds it, not the options."""
    option = core_options.PRIMARY_KEY
    option_key = option.parsed(texts.pop(option.key, ""))
    if argument and option_key and argument != option_key:
        raise InvalidOptionError(
            f"option {option.key!r} and primary_key= differ; give one of them",
            option=option_key,
            argument=argument,
        )
    return argument or option_key


def check_columns(schema: TableSchema, existing: Collection[str] = ()) -> None:
    """Refuse column names that files, results or other clients cannot hold, except `existing` ones."""
    if not schema.fields:
        raise InvalidInputError("a table needs at least one column", kind=ErrorKind.INVALID_SCHEMA)
    doubled = sorted(doubled_names(schema.fields))
    if doubled:
        raise InvalidInputError(
            "two columns, or two fields of a column, share a name",
            kind=ErrorKind.INVALID_SCHEMA,
            columns=doubled,
        )
    for name in schema.names:
        if name not in existing and (name in _RESERVED or name.startswith(KEY_PREFIX)):
            raise InvalidInputError(
                f"column name {name!r} is reserved for what the format and results add; choose another",
                kind=ErrorKind.INVALID_NAME,
                column=name,
            )
        if not name.strip() or any(ord(letter) < 32 or _is_surrogate(letter) for letter in name):
            raise InvalidInputError(
                "a column name must not be blank or hold control characters or lone surrogates",
                kind=ErrorKind.INVALID_NAME,
                column=name,
            )
        if len(name.encode("utf-8", "surrogatepass")) > 255:
            raise InvalidInputError(
                "a column name is at most 255 bytes long",
                kind=ErrorKind.INVALID_NAME,
                column=name[:40] + "…",
            )


def _is_surrogate(letter: str) -> bool:
    return "\ud800" <= letter <= "\udfff"


def check_keys(schema: TableSchema) -> None:
    """Refuse keys and partition columns that are missing, doubled, nested or contradict each other."""
    for label, keys in (
        ("primary key", schema.primary_keys),
        ("partition", schema.partition_keys),
        ("bucket key", schema.options[core_options.BUCKET_KEY]),
        ("sequence.field", schema.sequence_fields),
    ):
        _check_names(schema, label, keys)
    if not schema.has_primary_key:
        return
    outside = [name for name in schema.partition_keys if name not in schema.primary_keys]
    if outside and not schema.bucket_mode.policy.crosses_partitions:
        raise InvalidInputError(
            "the primary key has to include the partition columns, so that a key has one place; "
            "'bucket' = -1 takes a key that moves from partition to partition",
            kind=ErrorKind.INVALID_SCHEMA,
            missing=outside,
        )
    if not [name for name in schema.primary_keys if name not in schema.partition_keys]:
        raise InvalidInputError(
            "the primary key needs a column that is not a partition column",
            kind=ErrorKind.INVALID_SCHEMA,
            primary_key=schema.primary_keys,
        )
    wrong = [name for name in schema.bucket_keys if name not in schema.trimmed_primary_keys]
    if wrong:
        raise InvalidOptionError(
            "'bucket-key' has to be part of the primary key, partition columns aside",
            columns=wrong,
        )


def _check_names(schema: TableSchema, label: str, keys: tuple[str, ...]) -> None:
    missing = [name for name in keys if name not in schema.names]
    if missing:
        is_computed = any("(" in name for name in missing)
        hint = "; partitions are values of a column: add a column with the computed value"
        raise InvalidInputError(
            f"{label} names columns that the table does not have{hint if is_computed else ''}",
            kind=ErrorKind.NO_SUCH_COLUMN,
            columns=missing,
            known=schema.names,
        )
    if len(set(keys)) < len(keys):
        raise InvalidInputError(
            f"{label} names a column twice", kind=ErrorKind.INVALID_SCHEMA, columns=keys
        )
    nested = [
        name for name in keys if isinstance(schema.field(name).type, ArrayType | MapType | RowType)
    ]
    if nested:
        raise InvalidInputError(
            f"{label} cannot be of a nested type", kind=ErrorKind.INVALID_SCHEMA, columns=nested
        )


def check_options(schema: TableSchema) -> None:
    """Refuse options that contradict each other or the table's kind."""
    options = schema.options
    check_buckets(schema)
    check_row_tracking(schema)
    keys = [name for name in schema.sequence_fields if name in schema.primary_keys]
    if keys:
        raise InvalidOptionError(
            "a 'sequence.field' cannot be a key column: it is the same in every version of a key",
            columns=keys,
        )
    if options[core_options.SEQUENCE_FIELD_SORT_ORDER] is SortOrder.DESCENDING:
        _require(
            bool(schema.sequence_fields), "'sequence.field.sort-order' needs a 'sequence.field'"
        )
    check_engine(schema)
    check_changelog(schema)
    check_formats(schema)
    check_iceberg(schema)
    check_file_indexes(schema)
    smallest = options[core_options.SNAPSHOT_NUM_RETAINED_MIN]
    _require(
        smallest <= options[core_options.SNAPSHOT_NUM_RETAINED_MAX],
        "'snapshot.num-retained.min' must not be above 'snapshot.num-retained.max'",
    )
    for key in (
        core_options.SCAN_SNAPSHOT_ID,
        core_options.SCAN_TAG_NAME,
        core_options.SCAN_TIMESTAMP_MILLIS,
    ):
        _require(
            key.key not in options.texts, f"{key.key!r} belongs to one read: pass it to scan()"
        )


def _require(holds: bool, message: str) -> None:  # noqa: FBT001 -- reads as a sentence
    if not holds:
        raise InvalidOptionError(message)


def _not_null(field: DataField, primary_key: tuple[str, ...]) -> DataField:
    if field.name not in primary_key:
        return field
    kind = field.type
    if isinstance(kind, ArrayType | MapType | RowType):
        return field  # refused with the other keys
    return replace(field, type=kind.with_nullable(nullable=False))


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
