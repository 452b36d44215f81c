"""Alter a table: derive the next schema and create its file atomically; retry if another writer was first."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

import pyarrow as pa
import pyarrow.compute as pc

from lsm_engine.base.errors import (
    CommitConflictError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedError,
)
from lsm_engine.base.units import counted
from lsm_engine.data_files.reader import DataFileReader
from lsm_engine.ddl.checks import check_format_version
from lsm_engine.ddl.create import check_columns, check_keys, check_options
from lsm_engine.filter.expression import from_expression
from lsm_engine.format.manifest import ManifestEntry
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.merge.function import column_rule_texts
from lsm_engine.merge.partial_update import group_options
from lsm_engine.options import core_options
from lsm_engine.read.scan_plan import prune_files
from lsm_engine.table.session import PlannedSchema, TableSession
from lsm_engine.table.staging import bucket_levels
from lsm_engine.types.alteration import apply_changes
from lsm_engine.types.arrow_types import arrow_type
from lsm_engine.types.casts import WHOLE, loses_somewhere
from lsm_engine.types.column_path import names_column
from lsm_engine.types.declared_lengths import unpadded_count
from lsm_engine.types.mapping import map_fields
from lsm_engine.types.schema_changes import ChangeType, RemoveOption, SchemaChange, SetOption
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.types import DataField, ScalarType, type_text

_RACES = 20
_OBEYED = (
    core_options.IGNORE_DELETE,
    core_options.AGGREGATION_REMOVE_ON_DELETE,
    core_options.PARTIAL_UPDATE_REMOVE_ON_DELETE,
    core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP,
)
"""Options by which -U and -D rows in files count."""
_RULES = ("aggregate-function", "sequence-group")
_DETAILS = (
    ".nested-key", ".nested-sequence-field", ".ts-field", ".distinct", ".list-agg-delimiter",
)  # fmt: skip
_COMBINE = (*_RULES, *_DETAILS)
"""How options end by which several versions of a key become one."""
_IGNORE = "ignore-retract"
_ICEBERG_NAMES = (core_options.METADATA_ICEBERG_DATABASE, core_options.METADATA_ICEBERG_TABLE)


def alter(session: TableSession, changes: Sequence[SchemaChange]) -> TableSchema:
    """Publish the next schema of a table and return it; without changes, return the current one.

    Changes apply to the newest schema in order, all or none. Raises what `types/alteration.apply_changes` and
    `require_values_kept` raise, InvalidOptionError if stored rows would be merged differently, and
    CommitConflictError if other writers always publish first.
    """
    for _ in range(_RACES):
        newest, pending = _pending_changes(session, changes)
        if not pending:
            return newest.schema
        if published := newest.publish_schema(_altered(newest, pending)):
            _move_iceberg(newest, newest.with_schema(published))
            return published
    raise CommitConflictError(
        "others keep changing the schema of this table; try again",
        kind=ErrorKind.RETRIES_EXHAUSTED,
        table=session.name,
    )


def _move_iceberg(before: TableSession, after: TableSession) -> None:
    """Have the Iceberg metadata follow a change of schema; where it has another place, or none, the former one is deleted."""
    if before.paths.branch_name:
        return
    if before.options.writes_iceberg:
        iceberg = import_module("lsm_engine.table.iceberg")
        if before.options.iceberg_location != after.options.iceberg_location:
            iceberg.remove(before)
        elif any(before.options[name] != after.options[name] for name in _ICEBERG_NAMES):
            iceberg.notify(before, None)
    after.follow_iceberg()


def altering(session: TableSession, changes: Sequence[SchemaChange]) -> TableSession:
    """Return the table with the next schema, which its first commit publishes; raises as `alter` does."""
    newest, pending = _pending_changes(session, changes)
    if not pending:
        return newest
    base = newest.snapshots.latest()
    planned = newest.with_schema(_altered(newest, pending))
    planned.planned = PlannedSchema(
        newest.schema, pending, base, partial(_altered, newest, pending)
    )
    return planned


def _pending_changes(
    session: TableSession, changes: Sequence[SchemaChange]
) -> tuple[TableSession, Sequence[SchemaChange]]:
    """Return the session of the newest schema and the pending changes; planned ones come first."""
    newest = session.schemas.latest() or session.in_force.schema
    pending = session.planned.changes if session.planned and session.is_planned else ()
    return session.with_schema(newest), (*pending, *changes)


def _altered(session: TableSession, changes: Sequence[SchemaChange]) -> TableSchema:
    """Return the next schema after the session's, once the stored rows are known to fit it."""
    newest = session.schema
    schema = apply_changes(
        newest,
        changes,
        has_data=session.snapshots.latest_id() is not None,
        now_millis=session.clock.now_millis(),
    )
    check_columns(schema, newest.names)
    check_keys(schema)
    check_options(schema)
    check_format_version(newest, schema)
    for change in changes:
        if isinstance(change, SetOption | RemoveOption) and _obeys(change.key, newest, schema):
            _require_no_deletes(session, change.key)
            if change.key.endswith(_COMBINE):
                _require_merged(session, change.key)
    padded = newest.unpadded_keys - schema.unpadded_keys
    if padded:
        _require_padded(session, padded)
    if any(isinstance(change, ChangeType) for change in changes):
        _check_older_files(session, schema)
        require_values_kept(session, schema)
    return schema


def _obeys(key: str, before: TableSchema, after: TableSchema) -> bool:
    """Whether a changed option would merge stored rows differently, in columns that remain."""
    option = core_options.find(key)
    if option in _OBEYED:
        return bool(before.options[option] != after.options[option])
    if not key.endswith((*_COMBINE, _IGNORE)):
        return False
    # Without any group, a -D that was written is one that the table does not take.
    if key.endswith("sequence-group") and group_options(before) and not group_options(after):
        return True
    was, now = _counts_by(key, before), _counts_by(key, after)
    names = {field.id: field.name for field in after.fields}
    stay = [(column.name, names[column.id]) for column in before.fields if column.id in names]
    texts = f"{before.options.texts.get(key)},{after.options.texts.get(key)}"
    return any(
        option is core_options.DEFAULT_AGGREGATE_FUNCTION or names_column(key, texts, (name,))
        for pair in stay
        if was.get(pair[0]) != now.get(pair[1])
        for name in pair
    )


def _counts_by(key: str, schema: TableSchema) -> dict[str, str]:
    """Return, per column, the merge rule that an option affects."""
    rules = column_rule_texts(schema)
    if key.endswith(_RULES):
        return rules
    suffix = key.rpartition(".")[2]
    is_flag = key.endswith((_IGNORE, ".distinct"))
    texts = {name: schema.options.of_field(name, suffix) or "false" for name in rules}
    return {name: text.lower() if is_flag else text for name, text in texts.items()}


def _require_no_deletes(session: TableSession, key: str) -> None:
    """Refuse to reinterpret stored deletes: deleted rows would reappear, or live rows vanish."""
    latest = session.snapshots.latest()
    live = [] if latest is None else session.live_entries(latest)
    holding = [entry.file.file_name for entry in live if entry.file.may_hold_deletes]
    if session.schema.has_primary_key and holding:
        raise InvalidOptionError(
            f"{len(holding)} files may hold -U and -D rows, which would do something else with another "
            f"{key!r}: deleted rows would be back, or others go; call table.compact(full=True) first, "
            "which leaves none",
            key=key,
            file=holding[0],
            table=session.name,
        )


def _require_merged(session: TableSession, key: str) -> None:
    """Refuse to merge older rows by other rules: compaction has merged an unknown part of them already."""
    counts = bucket_levels(session, session.snapshots.latest()).run_counts()
    # Rows without a bucket (below 0) are merged with those that have one.
    waiting = sum(1 for (_, bucket), count in counts.items() if count > (bucket >= 0))
    if session.schema.has_primary_key and waiting:
        raise InvalidOptionError(
            f"rows of {counted(waiting, 'bucket')} are not merged yet, and another {key!r} would merge "
            "them otherwise than those that compactions have merged already; call table.compact(full=True) "
            "first: what is there counts as the first value then",
            key=key,
            table=session.name,
        )


def _require_padded(session: TableSession, names: frozenset[str]) -> None:
    """Refuse to take for padded what has keys without their blanks: a row would be looked for in another place."""
    latest = session.snapshots.latest()
    fields = [field for field in session.schema.fields if field.name in names]
    for entry in () if latest is None else session.live_entries(latest):
        context = session.context((entry.file.schema_id,))
        with context.open_file(
            (entry.partition, entry.bucket), entry.file, tuple(field.name for field in fields)
        ) as reader:
            for rows, field in itertools.product(reader.batches(), fields):
                assert isinstance(field.type, ScalarType)
                count = unpadded_count(field.type, rows.column(field.name))
                if count:
                    raise InvalidOptionError(
                        f"{counted(count, 'key')} of column {field.name!r} are stored without the blanks of "
                        f"{type_text(field.type.with_nullable(nullable=True))}: with them they would be rows of their own; copy the rows into a "
                        "new table, which has the option from the start",
                        key=core_options.CHAR_KEYS_PADDED.key,
                        file=entry.file.file_name,
                        table=session.name,
                    )


def _check_older_files(session: TableSession, schema: TableSchema) -> None:
    """Refuse a type that files of a former schema cannot be cast to, whatever schemas lie between."""
    for former in session.schemas.all():
        map_fields(former.fields, schema.fields)


def require_values_kept(session: TableSession, schema: TableSchema) -> None:
    """Refuse a narrower type that live values do not fit, unless 'alter-column.lossy-casts' allows it.

    The values of all live data files count, including replaced versions, as merges read them too. Files
    whose statistics rule misfits out are not opened. Raises InvalidInputError, kind LOSSY_CAST.
    """
    base = session.snapshots.latest()
    if base is None or schema.options[core_options.ALTER_COLUMN_LOSSY_CASTS]:
        return
    formers = {former_schema.id: former_schema for former_schema in session.schemas.all()}
    for field in schema.fields:
        before = [
            old.type for former in formers.values() for old in former.fields if old.id == field.id
        ]
        if not any(loses_somewhere(old, field.type) for old in before):
            continue
        lost = sum(
            _lost_in(session, entry, schema, field) for entry in _candidates(session, base, field)
        )
        if lost:
            raise InvalidInputError(
                f"{counted(lost, 'value')} of column {field.name!r} would not fit {type_text(field.type)}; nothing "
                f"was changed: correct them, add a new column, or set "
                f"{core_options.ALTER_COLUMN_LOSSY_CASTS.key!r} = true to cut them as Java does",
                kind=ErrorKind.LOSSY_CAST,
                column=field.name,
                values=lost,
            )


def _candidates(session: TableSession, base: Snapshot, field: DataField) -> Sequence[ManifestEntry]:
    """Return the live files that may hold a value outside a whole type's range, by statistics."""
    now = next((old for old in session.schema.fields if old.id == field.id), None)
    ranged = (
        now is not None
        and isinstance(now.type, ScalarType)
        and isinstance(field.type, ScalarType)
        and now.type.root in WHOLE
        and field.type.root in WHOLE
    )
    if now is None or not ranged:
        return list(session.live_entries(base))
    half = 1 << (arrow_type(field.type).bit_width - 1)
    column = pc.field(now.name)
    outside = (column < pa.scalar(-half, pa.int64())) | (column >= pa.scalar(half, pa.int64()))
    predicate = from_expression(outside, session.schema.arrow)
    return prune_files(session, base, predicate, predicate).matching


def _lost_in(
    session: TableSession, entry: ManifestEntry, schema: TableSchema, field: DataField
) -> int:
    context = session.context((entry.file.schema_id,))
    stored = context.schemas[entry.file.schema_id]
    old = next((column.type for column in stored.fields if column.id == field.id), None)
    if old is None or not loses_somewhere(old, field.type):
        return 0
    own = replace(context, schema=schema)
    with own.open_file((entry.partition, entry.bucket), entry.file, (field.name,)) as reader:
        return sum(_lost_in_group(reader, group) for group in range(reader.row_group_count))


def _lost_in_group(reader: DataFileReader, group: int) -> int:
    try:
        reader.read([group])
    except UnsupportedError as refused:
        if refused.kind is not ErrorKind.LOSSY_CAST:
            raise
        return int(str(refused.facts["values"]))
    return 0
