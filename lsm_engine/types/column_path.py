"""Column paths: the notation of schema changes and options for a column, or a field within one.

A change gives a text, or a sequence of names.

`s.b` is field `b` of column `s`. A name that has dots itself stands in backquotes or double quotes (`` `a.b` ``), or is
a part of a sequence (`("a.b",)`, `("s", "b")`). A text that is the name of a column needs no quotes, unless it is also
the path of a field. Python, the command line and errors use this one notation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from lsm_engine.base.errors import ErrorKind, InvalidInputError, NotFoundError
from lsm_engine.base.names import no_column
from lsm_engine.options import core_options
from lsm_engine.options.option import FieldOption
from lsm_engine.types.types import ArrayType, DataField, DataType, MapType, RowType

Fields: TypeAlias = tuple[DataField, ...]
Steps: TypeAlias = tuple[str, ...]

_STATS = ".stats-mode"
_FILE_INDEX = "file-index."
_LISTS = (
    core_options.BUCKET_KEY.key,
    core_options.SEQUENCE_FIELD.key,
    core_options.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS.key,
    core_options.PARTIAL_UPDATE_REMOVE_ON_GROUP.key,
    core_options.FILE_INDEX_BLOOM_FILTER_COLUMNS.key,
    core_options.FILE_INDEX_BITMAP_COLUMNS.key,
    core_options.FILE_INDEX_BSI_COLUMNS.key,
    core_options.FILE_INDEX_RANGE_BITMAP_COLUMNS.key,
)
_SINGLES = (core_options.ROWKIND_FIELD.key, core_options.RECORD_LEVEL_TIME_FIELD.key)
_PREFIX = "fields."
_GROUP = ".sequence-group"
_OF_FIELDS = ("nested-key", "nested-sequence-field", "ts-field")
_BY_FIELDS = _OF_FIELDS[1:]
"""Options whose text names fields within the column of their key, and those of them that are orders."""
_EXTREMES = ("max", "min")
_PART = re.compile(r'`((?:[^`]|``)+)`|"((?:[^"]|"")+)"|([^.`"][^.]*)')


def path_text(path: Sequence[str]) -> str:
    """Return a path as text that `existing_path` takes."""
    return ".".join(
        part if _parsed(part) == (part,) else "`" + part.replace("`", "``") + "`" for part in path
    )


def existing_path(fields: Fields, name: object) -> Steps:
    """Return the path of a column, or of a field within one, that a change names.

    Raises InvalidInputError for what is no name and for a text with two meanings, NotFoundError where
    there is no such column or field.
    """
    # A tuple has one meaning, and its names may hold dots.
    if not isinstance(name, str):
        return _steps(name)
    # A text with dots may be the name of a column or a path to a field.
    readings = dict.fromkeys(path for path in ((name,), _parsed(name)) if path)
    fits = [path for path in readings if _type_at(fields, path) is not None]
    if len(fits) > 1:
        # A change of the wrong column cannot be undone, so neither reading is preferred.
        raise _ambiguous(name, fits)
    # Without a match the parsed path gives the better error.
    return fits[0] if fits else list(readings)[-1]


def new_path(fields: Fields, name: object) -> Steps:
    """Return the path of a column, or of a field within one, that a change adds.

    Raises InvalidInputError for what is no name and for a text with two meanings, NotFoundError where no
    structure can hold the field.
    """
    if not isinstance(name, str):
        return _steps(name)
    path = _require_parsed(name)
    if len(path) == 1:
        return path
    own = (name,)
    # A column with this very name exists, so the text has two meanings.
    if _type_at(fields, own) is not None:
        raise _ambiguous(name, [own, path])
    if not isinstance(_type_at(fields, path[:-1]), RowType):
        hint = no_column(path[0], [field.name for field in fields])
        raise NotFoundError(
            f"no structure {path_text(path[:-1])!r} to hold field {path[-1]!r}{hint}; to add a column of this "
            f"name, write {path_text(own)} in backquotes, or the tuple {own!r}",
            kind=ErrorKind.NO_SUCH_COLUMN,
            column=name,
        )
    return path


def single_name(name: object, argument: str) -> str:
    """Return a name that is no path, without its quotes; InvalidInputError naming the argument otherwise."""
    steps = _require_parsed(name) if isinstance(name, str) else _steps(name)
    if len(steps) > 1:
        raise InvalidInputError(
            f"{argument} is one name and no path; write {path_text((str(name),))} in backquotes for a name with dots",
            kind=ErrorKind.INVALID_NAME,
            **{argument: name},
        )
    return steps[0]


def edited(fields: Fields, path: Steps, edit: Callable[[Fields], Fields]) -> Fields:
    """Return fields with those of the structure at `path` edited."""
    # The end of the path is reached, and the edit applies here.
    if not path:
        return edit(fields)
    index = index_of(fields, path[0])
    kind = _edited_type(fields[index].type, path[1:], edit, path)
    return (*fields[:index], replace(fields[index], type=kind), *fields[index + 1 :])


def _edited_type(
    kind: DataType, inner_path: Steps, edit: Callable[[Fields], Fields], path: Steps
) -> DataType:
    match kind:
        case RowType():
            return replace(kind, fields=edited(kind.fields, inner_path, edit))
        case ArrayType() if inner_path[:1] == ("element",):
            return replace(kind, element=_edited_type(kind.element, inner_path[1:], edit, path))
        case MapType() if inner_path[:1] == ("value",):
            return replace(kind, value=_edited_type(kind.value, inner_path[1:], edit, path))
        case _:
            raise NotFoundError(
                f"{path_text(path)!r} is no structure with fields",
                kind=ErrorKind.NO_SUCH_COLUMN,
                column=path_text(path),
            )


def index_of(fields: Fields, name: str) -> int:
    """Return the index of a column or field by its own name; NotFoundError naming those that exist."""
    for index, field in enumerate(fields):
        if field.name == name:
            return index
    names = [field.name for field in fields]
    raise NotFoundError(
        f"no column {name!r}; there are {', '.join(names)}{no_column(name, names)}",
        kind=ErrorKind.NO_SUCH_COLUMN,
        column=name,
    )


def _parsed(text: str) -> Steps | None:
    """Return the parts of a text without their quotes; None where the quotes or dots do not fit."""
    steps, end = [], -1
    while end < len(text):
        part = _PART.match(text, end + 1)
        # A part has to end at a dot or at the end of the text.
        if part is None or text[part.end() : part.end() + 1] not in ("", "."):
            return None
        in_backquotes, in_quotes, unquoted = part.groups()
        if in_backquotes is not None:
            steps.append(in_backquotes.replace("``", "`"))
        elif in_quotes is not None:
            steps.append(in_quotes.replace('""', '"'))
        else:
            steps.append(unquoted)
        end = part.end()
    return tuple(steps)


def _require_parsed(text: str) -> Steps:
    steps = _parsed(text)
    if steps is None:
        raise InvalidInputError(
            "a column is named by a name, by a path such as s.b, or by a name with dots in backquotes",
            kind=ErrorKind.INVALID_NAME,
            column=text,
        )
    return steps


def _steps(name: object) -> Steps:
    # An empty path would name the whole table.
    if isinstance(name, tuple | list) and name and all(isinstance(part, str) for part in name):
        return tuple(name)
    raise InvalidInputError(
        "a column is named by a text, or by a tuple of texts for a field within it",
        kind=ErrorKind.INVALID_NAME,
        column=repr(name),
    )


def _type_at(fields: Fields, path: Steps) -> DataType | None:
    """Return the type of the column or field at a path; None where there is none."""
    types = {field.name: field.type for field in fields}
    kind = types.get(path[0])
    for step in path[1:]:
        match kind:
            case RowType():
                kind = _type_at(kind.fields, (step,))
            case ArrayType() if step == "element":
                kind = kind.element
            case MapType() if step in ("key", "value"):
                kind = kind.key if step == "key" else kind.value
            case _:
                return None
    return kind


def _ambiguous(name: str, readings: Sequence[Steps]) -> InvalidInputError:
    own, path = readings
    return InvalidInputError(
        f"{name!r} may be a column of this name or a field within a column; write the tuple {own!r}, or "
        f"{path_text(own)} in backquotes, for the column, and the tuple {path!r} for the field",
        kind=ErrorKind.INVALID_NAME,
        column=name,
    )


def names_column(key: str, text: str, path: Sequence[str]) -> bool:
    """Whether an option names a column, or a field within one, in its key or in its value.

    `path`: the column, and behind it the names of fields, such as ("lines", "element", "id").
    """
    return with_name(key, text, path, "\0") != (key, text)


def relies_on(key: str, text: str, path: Sequence[str]) -> bool:
    """Whether an option derives something from the values of a column; statistics and file indexes do not count.

    A scan ignores those of files that were written with another type.
    """
    is_of_files = key.endswith(_STATS) or key.startswith(_FILE_INDEX)
    return names_column(key, text, path) and not is_of_files


def orders_by_column(key: str, text: str, path: Sequence[str]) -> bool:
    """Whether an option chooses a row, or a value, by the order of a column's values."""
    if key == core_options.SEQUENCE_FIELD.key:
        return names_column(key, text, path)
    if key == core_options.DEFAULT_AGGREGATE_FUNCTION.key:
        return text in _EXTREMES
    if key.endswith(_BY_FIELDS):
        return names_column(key, text, path)
    # A name that no column has shows whether the option is about this one.
    is_of_column = with_name(key, "", path, "\0")[0] != key
    return is_of_column and (key.endswith(_GROUP) or text in _EXTREMES)


def with_name(key: str, text: str, path: Sequence[str], new: str) -> tuple[str, str]:
    """Return an option with `new` in place of the last name of a path, where it names that column or field."""
    if len(path) > 1:  # a column whose own name has dots is another one
        return key, _with_field(key, text, path, new)
    (old,) = path
    if key in _SINGLES:
        return key, new if text == old else text
    if key in _LISTS:
        return key, _in_list(text, old, new)
    option = core_options.find(key)
    if isinstance(option, FieldOption) and option.index_type:
        is_named = option.column_of(key) == old
        return f"{option.prefix}{new}.{option.suffix}" if is_named else key, text
    # An option of the table itself names no columns in its key.
    if not key.startswith(_PREFIX) or key.count(".") < 2:
        return key, text
    columns, suffix = key[len(_PREFIX) :].rsplit(".", 1)
    renamed = f"{_PREFIX}{_in_list(columns, old, new)}.{suffix}"
    return renamed, _in_list(text, old, new) if key.endswith(_GROUP) else text


def _with_field(key: str, text: str, path: Sequence[str], new: str) -> str:
    """Return an option's value with another name of a field that aggregates read."""
    column, *steps, field = path
    keys = [f"{_PREFIX}{column}.{suffix}" for suffix in _OF_FIELDS]
    names_field = key in keys and steps in (["element"], ["value"])
    return _in_list(text, field, new) if names_field else text


def _in_list(text: str, old: str, new: str) -> str:
    parts = text.split(",")
    return ",".join(new if part.strip() == old else part for part in parts)
