"""Databases and tables by name: list, create, rename, drop."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import InvalidOptionError, absolute_warehouse, columns_of_text, read_files
from lsm_engine.cli.call import YES, Call, read_options, split_names
from lsm_engine.cli.output import code, counted, listed, number, words
from lsm_engine.cli.verb import VerbGroup, confirm, table_verb, verb


@verb("lsm databases", "lsm databases --warehouse /data/lake")
def databases(call: Call) -> None:
    """List the databases of the catalog."""
    catalog = call.catalog()
    rows = [
        {"database": name, "tables": len(catalog.list_tables(name))}
        for name in catalog.list_databases()
    ]
    call.out.rows([words("database"), number("tables")], rows, empty="no databases yet")


@verb("lsm tables", "lsm tables shop --json")
@click.argument("database", required=False)
def tables(call: Call, database: str | None) -> None:
    """List tables with their newest snapshot, of all databases or of one.

    Rows are those of the newest snapshot's files, before merging; `lsm count` counts exactly.
    """
    catalog = call.catalog()
    within = [database] if database is not None else catalog.list_databases()
    names = [
        f"{database_name}.{table}"
        for database_name in within
        for table in catalog.list_tables(database_name)
    ]
    rows = []
    for state in catalog.newest_states(names):
        row: dict[str, object] = {"table": state.name}
        if state.table is None or state.problem is not None:
            # One table that this version refuses must not hide the others.
            rows.append({**row, "problem": state.problem and state.problem.message})
            continue
        table, newest = state.table, state.newest
        row |= {
            "snapshot_id": None if newest is None else newest.id,
            "rows": 0 if newest is None else newest.total_record_count,
            "primary_key": list(table.schema.primary_keys),
            "partitioned_by": list(table.schema.partition_keys),
            "location": table.location,
        }
        rows.append(row)
    # A real catalog lists its own names, so only found tables can be left out.
    for path, why in catalog.unnameable_tables().items() if catalog.is_in_memory else ():
        call.out.note(f"left out: {path}, as {why}; verbs take it by its path")
    columns = [words("table"), code("snapshot_id", "snapshot"), number("rows", "rows in files")]
    keys = [listed("primary_key"), listed("partitioned_by")]
    problems = [words("problem")] if any("problem" in row for row in rows) else []
    call.out.rows([*columns, *keys, *problems], rows, empty="no tables yet; lsm create makes one")


@table_verb(
    "lsm create shop.orders --from orders.parquet --primary-key order_id",
    'lsm create shop.orders --columns "order_id BIGINT, dt DATE, price DECIMAL(10, 2)" \\',
    "    --primary-key order_id,dt --partitioned-by dt --option bucket=4",
)
@click.option("--columns", metavar="LIST", help="Columns as 'name TYPE [NOT NULL], …'.")
@click.option(
    "--from", "source", metavar="FILE", help="Take the columns of a file; no rows are read."
)
@read_options
@click.option(
    "--primary-key",
    metavar="COLUMNS",
    help="Names, with commas between.  [default: none, for lsm append]",
)
@click.option("--partitioned-by", metavar="COLUMNS", help="Names, with commas between.")
@click.option(
    "--option", "options", metavar="KEY=VALUE", multiple=True, help="A table option; repeatable."
)
@click.option("--comment", metavar="TEXT", help="A comment on the table.")
@click.option("--if-not-exists", is_flag=True, help="Leave a table of this name as it is.")
def create(
    call: Call,
    *,
    table: str,
    columns: str | None,
    source: str | None,
    primary_key: str | None,
    partitioned_by: str | None,
    options: Sequence[str],
    comment: str | None,
    if_not_exists: bool,
    **form: Any,
) -> None:
    """Create a table, and the catalog and its database if they do not exist.

    Types: BOOLEAN INT BIGINT FLOAT DOUBLE DECIMAL(p, s) STRING BYTES DATE TIME TIMESTAMP(p)
    TIMESTAMP_LTZ(p) ARRAY<…> MAP<…, …> ROW<name TYPE, …>.
    """
    if (columns is None) == (source is None):
        raise click.UsageError("give either --columns or --from")
    schema = (
        columns_of_text(columns)
        if columns is not None
        else read_files(str(source), **form).reader.schema
    )
    created = call.catalog(create=True).create_table(
        call.catalog_name(table),
        schema,
        primary_key=split_names(primary_key),
        partitioned_by=split_names(partitioned_by),
        options=pairs_of(options),
        comment=comment,
        ignore_if_exists=if_not_exists,
    )
    facts = {"table": created.name, "location": created.location}
    call.out.report(f"{created.name} is in {created.location}", facts)


def pairs_of(options: Sequence[str]) -> dict[str, str]:
    """Return what is written as key=value."""
    pairs = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise InvalidOptionError(f"an option is written key=value, not {option!r}")
        pairs[key.strip()] = value.strip()
    return pairs


@table_verb("lsm rename shop.orders shop.orders_2024")
@click.argument("new_name")
def rename(call: Call, *, table: str, new_name: str) -> None:
    """Give a table another name, or move it to another database."""
    renamed = call.catalog().rename_table(call.catalog_name(table), call.catalog_name(new_name))
    facts = {"table": renamed.name, "was": table, "location": renamed.location}
    call.out.report(f"{table} is now {renamed.name}, in {renamed.location}", facts)


@verb("lsm drop shop.orders", "lsm drop shop --cascade --yes")
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop a database's tables with it.")
@YES
def drop(call: Call, *, name: str, cascade: bool, yes: bool) -> None:
    """Drop a table (database.table) with all its files, or a database.

    It cannot be undone: snapshots and tags are deleted, too. Asks before it acts.
    """
    catalog = call.catalog()
    if "." in call.catalog_name(name):
        location = catalog.table(name).location
        confirm(f"Delete {name} and all files in {location}?", yes=yes)
        catalog.drop_table(name)
    else:
        count = len(catalog.list_tables(name))
        also = (
            f" and its {counted(count, 'table')} with all their files" if count and cascade else ""
        )
        confirm(f"Drop database {name}{also}?", yes=yes)
        catalog.drop_database(name, cascade=cascade)
    call.out.report(f"{name} is gone", {"dropped": name})


@click.group("catalog", cls=VerbGroup)
def names() -> None:
    """Repair the catalog: rebuild it from the files; register, adopt and unregister tables.

    The files of tables are the truth. A catalog that is lost or damaged comes back by lsm catalog
    rebuild; Java and pypaimon tables of the warehouse need no catalog at all.
    """


@verb("lsm catalog rebuild", "lsm catalog rebuild shop.orders", name="rebuild", group=names)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def rebuild(call: Call, *, tables: Sequence[str]) -> None:
    """Rebuild the catalog from files: names of tables and their lineage. May be run at any time.

    Without TABLE: of every table in the warehouse, also those that the catalog has lost, or never
    knew because other clients made them. A damaged catalog file is moved aside first.
    """
    table_names = [call.catalog_name(table) for table in tables]
    catalog, aside = call.catalog_to_rebuild()
    if aside is not None:
        call.out.note(f"the catalog was damaged; its file is {aside} now")
    recorded = (
        catalog.rebuild_lineage(table_names) if table_names and aside is None else catalog.rebuild()
    )
    rows = [{"table": name, "snapshots": count} for name, count in recorded.items()]
    call.out.rows(
        [words("table"), number("snapshots", "snapshots recorded")], rows, empty="no tables yet"
    )


@verb("lsm catalog sync", "lsm catalog sync shop.orders", name="sync", group=names)
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
def sync(call: Call, *, tables: Sequence[str]) -> None:
    """Record commits and tags that the lineage lacks, before the views of the catalog are read by SQL.

    Questions by lsm show, Dagster and maintenance do it by themselves. Without TABLE: of every table of the catalog.
    """
    table_names = [call.catalog_name(table) for table in tables]
    recorded = call.catalog().sync_lineage(table_names or None)
    rows = [{"table": name, "commits": count} for name, count in recorded.items()]
    call.out.rows(
        [words("table"), number("commits", "commits recorded")], rows, empty="no tables yet"
    )


@table_verb("lsm catalog register shop.orders", name="register", group=names)
def register(call: Call, *, table: str) -> None:
    """Name a table whose directory is in the warehouse already, at DATABASE.db/TABLE."""
    registered = call.catalog(create=True).register_table(call.catalog_name(table))
    facts = {"table": registered.name, "location": registered.location}
    call.out.report(f"the catalog knows {registered.name}, in {registered.location}", facts)


@table_verb("lsm catalog unregister shop.orders", name="unregister", group=names)
def unregister(call: Call, *, table: str) -> None:
    """Remove a name and its lineage from the catalog; files stay, so that it may be registered again."""
    call.catalog().unregister_table(call.catalog_name(table))
    call.out.report(f"the catalog does not know {table} any more", {"unregistered": table})


@verb("lsm catalog adopt /data/old/orders shop.orders", name="adopt", group=names)
@click.argument("path")
@click.argument("table")
def adopt(call: Call, *, path: str, table: str) -> None:
    """Move a table's directory from elsewhere on this disk into the warehouse, and name it."""
    adopted = call.catalog(create=True).adopt_table(
        absolute_warehouse(path), call.catalog_name(table)
    )
    facts = {"table": adopted.name, "was": path, "location": adopted.location}
    call.out.report(f"{path} is {adopted.name} now, in {adopted.location}", facts)
