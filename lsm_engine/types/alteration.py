"""Schema changes, applied: the next version of a schema, or the error that refuses it.

The id identifies a column: a renamed column keeps it, and a column that is dropped and added again gets another one.
This module reads no data: the caller passes whether the table has any.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from lsm_engine.base.errors import (
    AlreadyExistsError,
    ErrorKind,
    InvalidInputError,
    InvalidOptionError,
)
from lsm_engine.options import core_options
from lsm_engine.options.option import Option
from lsm_engine.options.table_options import TableOptions, given_options, with_implied_options
from lsm_engine.types.arrow_types import (
    FieldIds,
    default_of,
    nested_fields,
    require_own_ids,
    type_from_arrow,
    with_ids,
)
from lsm_engine.types.casts import check_cast, keeps_order, may_lose_values
from lsm_engine.types.column_path import (
    Fields,
    Steps,
    edited,
    existing_path,
    index_of,
    names_column,
    new_path,
    orders_by_column,
    path_text,
    relies_on,
    single_name,
    with_name,
)
from lsm_engine.types.columns import given_type
from lsm_engine.types.schema_changes import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetColumnComment,
    SetColumnDefault,
    SetComment,
    SetNullable,
    SetOption,
)
from lsm_engine.types.table_schema import TableSchema
from lsm_engine.types.type_text import type_of_column
from lsm_engine.types.types import (
    DataField,
    DataType,
    type_text,
)

_FieldChange: TypeAlias = ChangeType | SetNullable | SetColumnComment | SetColumnDefault


def apply_changes(
    schema: TableSchema, changes: Sequence[SchemaChange], *, has_data: bool, now_millis: int
) -> TableSchema:
    """Return the next version of a schema; the checks of a new table still have to pass on it.

    Raises NotFoundError and AlreadyExistsError for names, InvalidInputError for changes that keys or
    old files forbid and for two fields of one id, InvalidOptionError for options that cannot change once a
    table `has_data`, UnsupportedError for a table with columns that are not read.
    """
    schema.options.require_whole_schema()
    ids = FieldIds(schema.highest_field_id)
    for change in changes:
        schema = _apply(schema, change, ids, has_data=has_data)
    require_own_ids(schema.fields)
    return replace(schema, id=schema.id + 1, highest_field_id=ids.highest, time_millis=now_millis)


def _apply(
    schema: TableSchema, change: SchemaChange, ids: FieldIds, *, has_data: bool
) -> TableSchema:
    match change:
        case SetOption() | RemoveOption():
            return _with_option(schema, change, has_data=has_data)
        case SetComment():
            return replace(schema, comment=change.comment)
        case RenameColumn():
            return _renamed(schema, existing_path(schema.fields, change.name), change.new_name)
        case MoveColumn():
            path = existing_path(schema.fields, change.name)
            return _within(schema, path, lambda siblings: _moved(siblings, path[-1], change))
        case AddColumn():
            path = new_path(schema.fields, change.name)
            return _within(schema, path, lambda siblings: _added(siblings, path[-1], change, ids))
        case DropColumn():
            path = existing_path(schema.fields, change.name)
            _require_free(schema, path, "dropped")
            return _within(schema, path, lambda siblings: _without(siblings, path))
        case ChangeType() | SetNullable() | SetColumnComment() | SetColumnDefault():
            return _with_field(schema, existing_path(schema.fields, change.name), change, ids)
        case _:  # what a program passes that no checker has seen
            raise InvalidInputError(
                "alter takes changes one after another, such as alter(lsm.AddColumn('note', 'STRING'), "
                "lsm.DropColumn('old'))",
                kind=ErrorKind.INVALID_SCHEMA,
                given=repr(change),
            )


# --- columns -------------------------------------------------------------------------------------


def _within(schema: TableSchema, path: Steps, edit: Callable[[Fields], Fields]) -> TableSchema:
    return replace(schema, fields=edited(schema.fields, path[:-1], edit))


def _is_among(path: Steps, columns: Sequence[str]) -> bool:
    """Whether a path is one of the columns, and no field within one."""
    return len(path) == 1 and path[0] in columns


def _added(fields: Fields, name: str, change: AddColumn, ids: FieldIds) -> Fields:
    if any(field.name == name for field in fields):
        raise AlreadyExistsError(f"column {name!r} exists; choose another name", column=name)
    own = ids.next()
    kind = _type(change.type, name, ids)
    if not kind.nullable:
        # Files of older schemas lack the column, and reads fill it with nulls.
        raise InvalidInputError(
            f"a new column must be nullable, as older rows have no value for {name!r}",
            kind=ErrorKind.INVALID_SCHEMA,
            column=name,
        )
    field = DataField(id=own, name=name, type=kind, description=change.comment)
    return _placed(fields, field, first=change.first, after=change.after)


def _type(declared: pa.DataType | type | str, column: str, ids: FieldIds) -> DataType:
    # Text can declare a length, which Arrow types cannot hold.
    if isinstance(declared, str):
        return with_ids(type_of_column(column, declared), ids)
    kind = type_from_arrow(given_type(declared, column), nullable=True, column=column, ids=ids)
    for path, field in nested_fields([DataField(id=0, name=column, type=kind)]):
        if field.default_value is not None:
            raise _within_a_column(path_text(path))
    return kind


def _placed(fields: Fields, field: DataField, *, first: bool, after: str | None) -> Fields:
    if first and after is not None:
        raise InvalidInputError("a column goes first or after another, not both", after=after)
    index = 0 if first else len(fields)
    if after is not None:
        own = any(sibling.name == after for sibling in fields)
        index = index_of(fields, after if own else single_name(after, "after")) + 1
    return (*fields[:index], field, *fields[index:])


def _moved(fields: Fields, name: str, change: MoveColumn) -> Fields:
    index = index_of(fields, name)
    remaining = (*fields[:index], *fields[index + 1 :])
    return _placed(remaining, fields[index], first=change.first, after=change.after)


def _without(fields: Fields, path: Steps) -> Fields:
    index = index_of(fields, path[-1])
    if len(fields) == 1:
        raise InvalidInputError(
            "the last column cannot be dropped",
            kind=ErrorKind.INVALID_SCHEMA,
            column=path_text(path),
        )
    return (*fields[:index], *fields[index + 1 :])


def _with_field(
    schema: TableSchema, path: Steps, change: _FieldChange, ids: FieldIds
) -> TableSchema:
    def edit(fields: Fields) -> Fields:
        index = index_of(fields, path[-1])
        altered = _altered(schema, fields[index], path, change, ids)
        default_of(altered)  # has to be a value of the type that the column has now
        return (*fields[:index], altered, *fields[index + 1 :])

    return replace(schema, fields=edited(schema.fields, path[:-1], edit))


def _default_text(value: object) -> str | None:
    """Return a default as schemas store it."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _altered(
    schema: TableSchema,
    field: DataField,
    path: Steps,
    change: _FieldChange,
    ids: FieldIds,
) -> DataField:
    name = path_text(path)
    match change:
        case SetColumnComment():
            return replace(field, description=change.comment)
        case SetColumnDefault():
            default = _default_text(change.value)
            check_default(schema, path, default)
            return replace(field, default_value=default)
        case SetNullable():
            if not change.nullable and field.type.nullable:
                # A schema change rewrites no file, and nothing proves that no file has a null.
                raise InvalidInputError(
                    f"column {name!r} allows nulls, and files that are there may have some, so it cannot refuse them "
                    "now; make a new table with the column NOT NULL, and append the rows",
                    kind=ErrorKind.INVALID_SCHEMA,
                    column=name,
                )
            if change.nullable and _is_among(path, schema.primary_keys):
                raise InvalidInputError(
                    f"key column {name!r} cannot hold nulls",
                    kind=ErrorKind.INVALID_SCHEMA,
                    column=name,
                )
            return replace(field, type=replace(field.type, nullable=change.nullable))
        case ChangeType():
            # Another type hashes and sorts differently, so rows would be in the wrong bucket or order.
            keys = (*schema.primary_keys, *schema.partition_keys, *schema.bucket_keys)
            if _is_among(path, keys):
                raise InvalidInputError(
                    f"{name!r} is a key, bucket or partition column: its type places rows and cannot change",
                    kind=ErrorKind.INVALID_SCHEMA,
                    column=name,
                )
            # `SetNullable` is the only change of what may be null.
            kind = replace(_type(change.type, name, ids), nullable=field.type.nullable)
            check_cast(name, field.type, kind)
            _check_type(schema, path, field.type, kind)
            return replace(field, type=kind)


def check_default(schema: TableSchema, path: Steps, default: str | None) -> None:
    """Refuse a default where no row could get it, or where null has a meaning of its own."""
    name = path_text(path)
    if len(path) > 1:
        raise _within_a_column(name)
    if _is_among(path, schema.primary_keys):
        raise InvalidInputError(
            f"key column {name!r} cannot have a default: a row without a key is no row",
            kind=ErrorKind.INVALID_SCHEMA,
            column=name,
        )
    engine = schema.options[core_options.MERGE_ENGINE]
    if default is not None and engine.policy.combines_versions:
        raise InvalidInputError(
            f"column {name!r} cannot have a default: to this table's merge engine null means "
            "that a row leaves the column as it is",
            kind=ErrorKind.INVALID_SCHEMA,
            column=name,
        )


def _within_a_column(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name!r} is a field within a column, and only a whole column has a default; give "
        "the value with the rows",
        kind=ErrorKind.INVALID_SCHEMA,
        column=name,
    )


def _check_type(schema: TableSchema, path: Steps, source: DataType, target: DataType) -> None:
    """Refuse a type change that alters the order or the values of a column if an option forbids it or depends on them."""
    column = path_text(path)
    # The order is checked first: it matters even where no value is lost.
    if not keeps_order(source, target):
        why = f"column {column!r} gets another order as {type_text(target)}, and"
        _refuse_options(schema, path, orders_by_column, why, "goes by it; add a new column")
    # A wider type keeps every value, so no option can object.
    if not may_lose_values(source, target):
        return
    change = f"column {column!r} may lose something from {type_text(source)} to {type_text(target)}"
    key = core_options.DISABLE_EXPLICIT_TYPE_CASTING.key
    if schema.options[core_options.DISABLE_EXPLICIT_TYPE_CASTING]:
        raise InvalidOptionError(
            f"{change}, which option {key!r} forbids; add a new column and copy the values",
            key=key,
            column=column,
        )
    _refuse_options(
        schema, path, relies_on, f"{change}, and", "relies on its values; add a new column"
    )


def _refuse_options(
    schema: TableSchema,
    path: Steps,
    names: Callable[[str, str, Steps], bool],
    why: str,
    remedy: str,
) -> None:
    """Raise InvalidOptionError for the first option that `names` finds a column in."""
    for option, text in schema.options.texts.items():
        if names(option, text, path):
            message = f"{why} option {option!r} {remedy}".lstrip()
            raise InvalidOptionError(message, key=option, column=path_text(path))


def _require_free(schema: TableSchema, path: Steps, action: str) -> None:
    """Raise an error for a column that keys or options name."""
    column = path_text(path)
    if _is_among(path, (*schema.primary_keys, *schema.partition_keys)):
        raise InvalidInputError(
            f"{column!r} is a key or partition column and cannot be {action}",
            kind=ErrorKind.INVALID_SCHEMA,
            column=column,
        )
    remedy = f"names column {column!r}; remove the option first"
    _refuse_options(schema, path, names_column, "", remedy)


def _renamed(schema: TableSchema, path: Steps, new_name: str) -> TableSchema:
    old, new = path[-1], single_name(new_name, "new_name")

    def edit(fields: Fields) -> Fields:
        index = index_of(fields, old)
        if any(field.name == new for field in fields):
            raise AlreadyExistsError(f"column {new!r} exists; choose another name", column=new)
        return (*fields[:index], replace(fields[index], name=new), *fields[index + 1 :])

    fields = edited(schema.fields, path[:-1], edit)
    # Options name columns in keys and values; a rename that missed one would switch the option off.
    pairs = (with_name(key, text, path, new) for key, text in schema.options.texts.items())
    options = TableOptions(texts=dict(pairs))
    # Keys and partitions are columns of the table, never fields of a structure.
    if len(path) > 1:
        return replace(schema, fields=fields, options=options)
    # The directories of old partitions would keep the old name.
    if old in schema.partition_keys:
        raise InvalidInputError(
            f"{old!r} is a partition column: directories carry its name, so it cannot change",
            kind=ErrorKind.INVALID_SCHEMA,
            column=old,
        )
    return replace(
        schema,
        fields=fields,
        primary_keys=tuple(new if name == old else name for name in schema.primary_keys),
        options=options,
    )


# --- options -------------------------------------------------------------------------------------


def _with_option(
    schema: TableSchema, change: SetOption | RemoveOption, *, has_data: bool
) -> TableSchema:
    texts = dict(schema.options.texts)
    texts.pop(change.key, None)
    if isinstance(change, SetOption):
        texts |= given_options({change.key: change.value}).texts
    changed_options = TableOptions(texts=texts)
    options = with_implied_options(changed_options, has_primary_key=schema.has_primary_key)
    option = core_options.find(change.key)
    vectors = core_options.DELETION_VECTORS_ENABLED
    if has_data and options[vectors] != changed_options[vectors]:
        raise InvalidOptionError(
            f"option {change.key!r} needs {vectors.key!r} = true, which is fixed once a table holds data; create a new "
            f"table with it and copy the rows, or set {core_options.METADATA_ICEBERG_STORAGE.key!r} with "
            f"{core_options.METADATA_ICEBERG_MAX_LAG.key!r}, which shows full compactions",
            kind=ErrorKind.IMMUTABLE_OPTION,
            key=change.key,
        )
    # Files of rows without a key are read alike with and without it: no vector is there that marks replaced rows.
    is_free = option is vectors and options[vectors] and not schema.has_primary_key
    if (
        has_data
        and not is_free
        and isinstance(option, Option)
        and _is_fixed(option, schema.options, options)
    ):
        counts = (schema.options[core_options.BUCKET], options[core_options.BUCKET])
        remedy = "create a new table with it and copy the rows"
        # Only between fixed numbers of buckets can an operation move the rows.
        if option is core_options.BUCKET and min(counts) > 0:
            remedy = f"call table.rescale({counts[1]}), which moves the rows"
        raise InvalidOptionError(
            f"option {change.key!r} is fixed once a table holds data; {remedy}",
            kind=ErrorKind.IMMUTABLE_OPTION,
            key=change.key,
        )
    return replace(schema, options=options)


def _is_fixed(option: Option[Any], before: TableOptions, after: TableOptions) -> bool:
    # An option may be set again to the value that it has.
    if before[option] == after[option]:
        return False
    # Deletes that were ignored are not in the files: they cannot be obeyed from now on.
    if option is core_options.IGNORE_DELETE and before[option] is True:
        return True
    return option.immutable or (
        option is core_options.CHANGELOG_PRODUCER and _levels_mean_more(before, after)
    )


def _levels_mean_more(before: TableOptions, after: TableOptions) -> bool:
    """Whether rows above level 0 stand for those below them on one side, and not on the other.

    A lookup merges what leaves level 0 with the older row. Merged once more, sums would double.
    """
    looks_up = [
        options[core_options.CHANGELOG_PRODUCER].policy.looks_up for options in (before, after)
    ]
    engine = before[core_options.MERGE_ENGINE]
    merges = engine.policy.combines_versions or (
        engine.policy.keeps_newest_row and bool(before[core_options.SEQUENCE_FIELD])
    )
    return merges and any(looks_up) and not before[core_options.DELETION_VECTORS_ENABLED]
