"""Alter a table: columns, options, comments, all of what one command line asks for, or nothing."""

import re
from collections.abc import Sequence

import click

from lsm_engine import (
    AddColumn,
    ChangeType,
    DropColumn,
    InvalidInputError,
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
from lsm_engine.cli.call import Call
from lsm_engine.cli.verb import table_verb


@table_verb(
    'lsm alter shop.orders --add "note STRING" --add "paid BOOLEAN" --drop discount',
    'lsm alter shop.orders --rename customer=buyer --type "price DECIMAL(12, 2)"',
    "lsm alter shop.orders --set num-sorted-run.compaction-trigger=8 --unset write-only",
    'lsm alter shop.orders --comment "one row per order" --column-comment buyer="who pays"',
)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Drop a column.")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Give a column another name.")
@click.option("--add", multiple=True, metavar="'NAME TYPE'", help="Add a column, last.")
@click.option("--type", "types", multiple=True, metavar="'NAME TYPE'",
              help="Read a column as another type; a lossy one is refused.")  # fmt: skip
@click.option("--nullable", multiple=True, metavar="COLUMN", help="Let a column hold nulls.")
@click.option("--default", "defaults", multiple=True, metavar="COLUMN=TEXT",
              help="The value of new rows that leave a column null; COLUMN= removes it.")  # fmt: skip
@click.option("--column-comment", "column_comments", multiple=True, metavar="COLUMN=TEXT",
              help="The comment of a column; COLUMN= removes it.")  # fmt: skip
@click.option("--first", multiple=True, metavar="COLUMN", help="Move a column to the front.")
@click.option(
    "--after", multiple=True, metavar="COLUMN=OTHER", help="Move a column behind another."
)
@click.option("--set", "options", multiple=True, metavar="KEY=VALUE", help="Set a table option.")
@click.option("--unset", multiple=True, metavar="KEY", help="Set an option back to its default.")
@click.option("--comment", metavar="TEXT", help="The comment of the table; '' removes it.")
def alter(
    call: Call,
    *,
    table: str,
    drop: Sequence[str],
    rename: Sequence[str],
    add: Sequence[str],
    types: Sequence[str],
    nullable: Sequence[str],
    defaults: Sequence[str],
    column_comments: Sequence[str],
    first: Sequence[str],
    after: Sequence[str],
    options: Sequence[str],
    unset: Sequence[str],
    comment: str | None,
) -> None:
    """Change a table's columns, options and comments, all in one commit.

    s.b names field b of column s; a column whose own name has dots is written in backquotes, '`a.b`'.
    No file is rewritten: columns are known by number, and older rows are read with the new columns.
    Changes are made in the order of the options above, whatever their order on the command line.
    """
    changes: list[SchemaChange] = [
        *(DropColumn(name) for name in drop),
        *(RenameColumn(old, new) for old, new in map(_pair, rename)),
        *(AddColumn(name, kind) for name, kind in map(_typed, add)),
        *(ChangeType(name, kind) for name, kind in map(_typed, types)),
        *(SetNullable(name) for name in nullable),
        *(SetColumnDefault(name, text or None) for name, text in map(_pair, defaults)),
        *(SetColumnComment(name, text or None) for name, text in map(_pair, column_comments)),
        *(MoveColumn(name, first=True) for name in first),
        *(MoveColumn(name, after=neighbour) for name, neighbour in map(_pair, after)),
        *(SetOption(key, text) for key, text in map(_pair, options)),
        *(RemoveOption(key) for key in unset),
        *([] if comment is None else [SetComment(comment or None)]),
    ]
    if not changes:
        raise click.UsageError("give at least one change, such as --add 'note STRING'")
    target = call.table(table)
    before = target.schema.id
    schema = target.alter(*changes)
    facts = {"table": target.name, "schema": schema.id, "was": before, "changes": len(changes)}
    call.out.report(
        f"{target.name} has schema {schema.id} now; lsm show schema {table} shows it", facts
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = _parts(text, "=")
    if not equals or not name:
        raise InvalidInputError(f"write it as name=value, not {text!r}", value=text)
    return name, value


def _typed(text: str) -> tuple[str, str]:
    name, _, kind = _parts(text.strip(), " ")
    if not kind:
        raise InvalidInputError(f"write a column as 'name TYPE', not {text!r}", value=text)
    return name, kind


def _parts(text: str, separator: str) -> tuple[str, str, str]:
    """Return what stands before a separator, the separator, and what stands behind it.

    A separator within quotes belongs to a name.
    """
    quoted = re.match(rf"""(?:`[^`]*`|"[^"]*"|[^`"{separator}])*""", text)
    end = quoted.end() if quoted else 0
    if text[end : end + 1] != separator:  # quotes that do not close are part of a name
        end = text.find(separator)
    # Without a separator the whole text is one part.
    if end < 0:
        return text.strip(), "", ""
    return text[:end].strip(), separator, text[end + 1 :].strip()
