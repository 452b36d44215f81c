"""System tables of a table, or of the whole catalog, by name."""

import click
import pyarrow as pa

from lsm_engine import CATALOG_TABLES, SYSTEM_DATABASE
from lsm_engine import SYSTEM_TABLES as TABLES
from lsm_engine import choose_rows as chosen
from lsm_engine.cli.call import Call, is_path, pass_call
from lsm_engine.cli.commands.look import SNAPSHOT_OPTION, system_rows
from lsm_engine.cli.output import Column, code, words
from lsm_engine.cli.verb import Verb


@click.command(
    cls=Verb,
    examples=[
        "lsm system shop.orders buckets",
        'lsm system shop.orders files --where "level = 0" --columns file_path,record_count',
        "lsm system shop.orders partitions --tag monday --json",
        "lsm system sys.tables",
    ],
)
@click.argument("table")
@click.argument("name", required=False)
@SNAPSHOT_OPTION
@click.option("--tag", metavar="NAME", help="Of the snapshot that a tag names.")
@click.option("--where", metavar="FILTER", help="Only rows that match, as in `lsm scan`.")
@click.option("--columns", metavar="NAMES", help="These columns, with commas between.")
@pass_call
def system(
    call: Call,
    *,
    table: str,
    name: str | None,
    snapshot_id: int | None,
    tag: str | None,
    where: str | None,
    columns: str | None,
) -> None:
    """Show a system table: of TABLE by NAME, or of the catalog: sys.tables, sys.partitions, …

    Without NAME, lists those there are.
    """
    if not is_path(table) and table.startswith(f"{SYSTEM_DATABASE}."):
        whole = call.catalog().system(table)
    elif name is None:
        call.table(table)
        known = [{"name": each, "of": "table"} for each in sorted(TABLES)]
        known += [{"name": f"{SYSTEM_DATABASE}.{each}", "of": "catalog"} for each in CATALOG_TABLES]
        call.out.rows([words("name"), words("of")], known, empty="")
        return
    else:
        whole = call.table(table).system(name, snapshot_id, tag=tag)
    names = None if columns is None else [each.strip() for each in columns.split(",")]
    found = chosen(whole, where, names)
    call.out.rows(_columns(found.schema), system_rows(found), empty="no rows")


def _columns(schema: pa.Schema) -> list[Column]:
    return [
        code(field.name, field.name)
        if pa.types.is_integer(field.type)
        else words(field.name, field.name)
        for field in schema
    ]
