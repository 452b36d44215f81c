"""`lsm show`: all there is to know of a table, one verb for each question, and any system table by its name."""

from typing import Any

import click
import pyarrow as pa
from click.shell_completion import CompletionItem

from lsm_engine import CATALOG_TABLES, SYSTEM_DATABASE
from lsm_engine import SYSTEM_TABLES as TABLES
from lsm_engine import choose_rows as chosen
from lsm_engine.cli.call import COLUMNS, WHERE, Call, is_path
from lsm_engine.cli.commands.look import SNAPSHOT_OPTION, VIEWS, system_rows
from lsm_engine.cli.output import Column, code, words
from lsm_engine.cli.verb import Verb, VerbGroup, table_verb

_OF_CATALOG = tuple(f"{SYSTEM_DATABASE}.{name}" for name in CATALOG_TABLES)


class ShowGroup(VerbGroup):
    """Verbs that look; the name of a system table is one of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb of a name, or one that shows the system table of that name."""
        command = super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        return (
            verb_of(name)
            if command is None and (name in _OF_CATALOG or name in TABLES)
            else command
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs and the system tables that go on as what was typed."""
        other_names = [name for name in (*TABLES, *_OF_CATALOG) if name not in self.homes]
        tables = [CompletionItem(name) for name in other_names if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *tables]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write which other system tables there are."""
        other_names = [name for name in sorted(TABLES) if name not in self.homes]
        with formatter.section("Any other system table, with --where and --columns"):
            formatter.write_text(", ".join([*other_names, *_OF_CATALOG]))


@click.group(
    cls=ShowGroup,
    homes={
        **{name: f"look:{name}" for name in (
            "schema", "tree", "snapshots", "snapshot", "debt", "amplification")},
        "scan": "read:explain",
        **{name: f"explain:{name}" for name in ("key", "file", "retention", "diff")},
        "inputs": "lineage:of_snapshot",
        "life": "lineage:of_file",
        "downstream": "lineage:downstream",
        "commits": "lineage:recent",
        "row": "lineage:of_row",
        "tag": "lineage:of_tag",
        "origin": "lineage:of_origin",
        "impact": "lineage:impact",
        "column": "lineage:of_column",
    },
)  # fmt: skip
def show() -> None:
    """Show the parts of a table, their origin and history: lsm show files shop.orders.

    Reads metadata only, and changes nothing. --json prints one object per row.
    """


@table_verb(
    "lsm show buckets shop.orders",
    'lsm show files shop.orders --where "level = 0" --columns file_path,record_count',
    "lsm show sys.tables",
)
@click.argument("name", required=False)
@SNAPSHOT_OPTION
@click.option("--tag", metavar="NAME", help="Of the snapshot that a tag names.")
@WHERE
@COLUMNS
def system(call: Call, /, *, table: str, name: str | None, **options: Any) -> None:
    """Show a system table: of TABLE by NAME, or of the catalog: sys.tables, sys.partitions, …

    Without NAME, lists those there are.
    """
    if not is_path(table) and table.startswith(f"{SYSTEM_DATABASE}."):
        _show(call, None, table, **options)
    elif name is not None:
        _show(call, table, name, **options)
    else:
        call.table(table)
        names = [{"name": table_name, "of": "table"} for table_name in sorted(TABLES)]
        names += [{"name": table_name, "of": "catalog"} for table_name in _OF_CATALOG]
        call.out.rows([words("name"), words("of")], names, empty="")


def verb_of(name: str) -> click.Command:
    """Return the verb `lsm show NAME TABLE`."""

    @click.pass_context
    def callback(context: click.Context, /, table: str | None = None, **options: Any) -> None:
        _show(context.ensure_object(Call), table, name, **options)

    own = [
        parameter
        for parameter in system.params
        if parameter.name in ("snapshot_id", "tag", "where", "columns")
    ]
    argument = [] if name in _OF_CATALOG else [click.Argument(["table"])]
    example = f"lsm show {name}{'' if name in _OF_CATALOG else ' shop.orders'}"
    text = f"Show the system table {name}; docs/system-tables.md has its columns."
    return Verb(name, callback=callback, params=[*argument, *own], help=text, examples=[example])


def _show(
    call: Call,
    table: str | None,
    name: str,
    *,
    snapshot_id: int | None,
    tag: str | None,
    where: str | None,
    columns: str | None,
) -> None:
    view: list[Column] | None = None
    if table is None:
        all_rows = call.catalog().system(name)
    else:
        target = call.table(table)
        all_rows = target.system(name, snapshot_id, tag=tag)
        hidden = () if target.schema.partition_keys else ("partition",)
        view = [column for column in VIEWS.get(name, ()) if column.name not in hidden]
    names = None if columns is None else [part.strip() for part in columns.split(",")]
    rows = chosen(all_rows, where, names)
    shown = view if view and names is None else _columns(rows.schema)
    call.out.rows(shown, system_rows(rows), empty="no rows")


def _columns(schema: pa.Schema) -> list[Column]:
    return [
        code(field.name, field.name)
        if pa.types.is_integer(field.type)
        else words(field.name, field.name)
        for field in schema
    ]


options, files, manifests, manifest_lists = map(verb_of, VIEWS)
"""Verbs that stood beside `lsm show` before."""
