"""Schema changes as values; schema/alteration.py applies them to a schema.

Nested fields are named by path, ("address", "zip").
"""

from typing import TypeAlias

import pyarrow as pa

from lsm_engine.base.record import record

Path: TypeAlias = str | tuple[str, ...]


@record
class AddColumn:
    """A new nullable column, last unless `first` or `after` another. `type`: Arrow, or SQL text."""

    name: Path
    type: pa.DataType | str
    comment: str | None = None
    first: bool = False
    after: str | None = None


@record
class DropColumn:
    """A column goes; a later one of the same name is another column."""

    name: Path


@record
class RenameColumn:
    """A column gets another name; options that name it follow."""

    name: Path
    new_name: str


@record
class ChangeType:
    """A column's values are read as another type from now on."""

    name: Path
    type: pa.DataType | str


@record
class SetNullable:
    """A column may hold nulls. The way back is refused: old files may hold some."""

    name: Path
    nullable: bool = True


@record
class SetColumnComment:
    """The column's comment; None removes it."""

    name: Path
    comment: str | None


@record
class SetColumnDefault:
    """What new rows get where they leave a column null, as text; None: null. Old rows keep theirs."""

    name: str
    value: str | None


@record
class MoveColumn:
    """A column's place among the others."""

    name: str
    first: bool = False
    after: str | None = None


@record
class SetOption:
    """A table option gets a value."""

    key: str
    value: object


@record
class RemoveOption:
    """A table option goes back to its default."""

    key: str


@record
class SetComment:
    """What the table is for."""

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
