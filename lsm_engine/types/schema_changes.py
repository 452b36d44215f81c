"""Schema changes as values; types/alteration.py applies them to a schema.

A column is named by a text, a field within one by a path: "address.zip" or ("address", "zip"). Where a column's own
name has dots, the text has backquotes, "`a.b`", or the name is a tuple, ("a.b",); `column_path` has the rules.
"""

from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import pyarrow as pa

from lsm_engine.base.arguments import checks_arguments

Path: TypeAlias = str | tuple[str, ...] | list[str]
T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def _change(cls: type[T]) -> type[T]:
    """Make a class a value as `record` does; its members may also be positional."""
    frozen_class: Any = dataclass(frozen=True, slots=True)(cls)
    frozen_class.__init__ = checks_arguments(frozen_class.__init__)
    return frozen_class  # type: ignore[no-any-return]


@_change
class AddColumn:
    """A new nullable column, last unless `first` or `after` another. `type`: Arrow's, Python's, or SQL text.

    A path adds a field to a structure. `after` is the name of a column, or of a field beside the new one.
    """

    name: Path
    type: pa.DataType | type | str
    comment: str | None = None
    first: bool = False
    after: str | None = None


@_change
class DropColumn:
    """Drops a column; a later column of the same name is another one."""

    name: Path


@_change
class RenameColumn:
    """Renames a column; options that name it follow.

    `new_name` is one name and no path: with dots in it, it stands in backquotes.
    """

    name: Path
    new_name: str


@_change
class ChangeType:
    """Changes the type of a column: its values are read as that type from now on."""

    name: Path
    type: pa.DataType | type | str


@_change
class SetNullable:
    """Allows nulls in a column. To forbid them in a column that allows them is refused: old files may have some."""

    name: Path
    nullable: bool = True


@_change
class SetColumnComment:
    """The column's comment; None removes it."""

    name: Path
    comment: str | None


@_change
class SetColumnDefault:
    """The default of a column, a value or its text, for nulls in new rows; None: null. Old rows keep their values.

    Fields within columns have none.
    """

    name: Path
    value: str | bool | int | float | Decimal | date | time | None


@_change
class MoveColumn:
    """Moves a column among the columns, or a field among those of its structure."""

    name: Path
    first: bool = False
    after: str | None = None


@_change
class SetOption:
    """Sets a table option."""

    key: str
    value: object


@_change
class RemoveOption:
    """Resets a table option to its default."""

    key: str


@_change
class SetComment:
    """The comment of the table."""

    comment: str | None


SchemaChange: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | SetNullable
    | SetColumnComment
    | SetColumnDefault
    | MoveColumn
    | SetOption
    | RemoveOption
    | SetComment
)
