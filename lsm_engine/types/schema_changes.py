"""Schema changes as values; types/alteration.py applies them to a schema.

A column is named by a text, a field within one by a path: "address.zip" or ("address", "zip"). Where a column's own
name has dots, the text has backquotes, "`a.b`", or the name is a tuple, ("a.b",); `column_path` has the rules.
"""

from dataclasses import dataclass
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
    """A column goes; a later one of the same name is another column."""

    name: Path


@_change
class RenameColumn:
    """A column gets another name; options that name it follow.

    `new_name` is one name and no path: with dots in it, it stands in backquotes.
    """

    name: Path
    new_name: str


@_change
class ChangeType:
    """A column's values are read as another type from now on."""

    name: Path
    type: pa.DataType | type | str


@_change
class SetNullable:
    """A column may hold nulls. The way back is refused: old files may hold some."""

    name: Path
    nullable: bool = True


@_change
class SetColumnComment:
    """The column's comment; None removes it."""

    name: Path
    comment: str | None


@_change
class SetColumnDefault:
    """What new rows get where they leave a column null, as text; None: null. Old rows keep theirs.

    Fields within columns have none.
    """

    name: Path
    value: str | None


@_change
class MoveColumn:
    """A column's place among the others; that of a field within a column, among its neighbours."""

    name: Path
    first: bool = False
    after: str | None = None


@_change
class SetOption:
    """A table option gets a value."""

    key: str
    value: object


@_change
class RemoveOption:
    """A table option goes back to its default."""

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
