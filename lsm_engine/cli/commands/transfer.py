"""Rows in and out as files, and MERGE: import, export, merge."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lsm_engine import (
    AlreadyExistsError,
    InvalidInputError,
    LsmError,
    NotFoundError,
    StorageError,
    row_counts_of,
)
from lsm_engine.cli.call import COLUMNS, FORMAT, Call
from lsm_engine.cli.commands.catalog import pairs_of, split_names
from lsm_engine.cli.commands.read import open_scan, reading
from lsm_engine.cli.commands.write import committed, hint, rows_of
from lsm_engine.cli.output import counted
from lsm_engine.cli.progress import row_progress, writing
from lsm_engine.cli.row_files import folder_rows, format_of
from lsm_engine.cli.safe_text import json_text
from lsm_engine.cli.values import plain_rows
from lsm_engine.cli.verb import table_verb


@table_verb(
    "lsm import shop.orders old/orders/ --primary-key order_id",
    "lsm import shop.clicks clicks/ --partitioned-by day --option bucket=-1",
    "lsm import shop.customers delta/customers --primary-key id",
    name="import",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--primary-key", metavar="COLUMNS", help="Of a new table: names, with commas between."
)
@click.option(
    "--partitioned-by", metavar="COLUMNS", help="Of a new table: names, with commas between."
)
@click.option("--option", "options", metavar="KEY=VALUE", multiple=True,
              help="An option of a new table; repeatable.")  # fmt: skip
@click.option("--link", is_flag=True,
              help="Take the files themselves, by hard links, and copy no row.")  # fmt: skip
def import_(
    call: Call, *, table: str, folder: str, primary_key: str | None, partitioned_by: str | None,
    options: Sequence[str], link: bool,
) -> None:  # fmt: skip
    """Import the rows of a folder in one commit; a missing table is created.

    The folder holds Parquet files, also in folders named column=value as Hive and Spark write them,
    or is a Delta table, whose newest version is read (extra delta). It is
    not changed. A folder of another format, such as Iceberg, is refused: its own log says which of
    its files are live.

    With --link the table has no key and no partitions, and lies on the disk of the folder. Do not
    change those files afterwards; deleting them leaves the table's links.
    """
    source, is_new = folder_rows(folder), False
    try:
        target = call.table(table)
    except NotFoundError:
        target = call.catalog(create=True).create_table(
            call.catalog_name(table),
            source.data.schema,
            primary_key=split_names(primary_key),
            partitioned_by=split_names(partitioned_by),
            options=pairs_of(options),
        )
        is_new = True
    count = source.row_count
    if link:
        source.require_columns(target.schema.names, folder)
        with writing(target, "import", [folder]) as identity:
            try:
                result = target.add_files(source.files(folder), **identity)
            except LsmError:
                # The table was made for this import, so it does not outlive the failure.
                if is_new and target.latest_snapshot() is None:
                    call.catalog().drop_table(target.name)
                raise
    else:
        verb = target.upsert if target.schema.has_primary_key else target.append
        with (
            writing(target, "import", [folder]) as identity,
            row_progress(call, source.source(), f"Importing into {table}") as rows,
        ):
            result = verb(rows.reader, **identity)
        count = rows.count
    facts = {"table": target.name, "rows": count, **committed(result)}
    if result is None:
        call.out.report("nothing to commit", facts)
        return
    call.out.report(
        f"{counted(count, 'row')} imported{hint(result)}: snapshot {result.id} of {target.name}",
        facts,
    )


@table_verb(
    "lsm export shop.orders orders.parquet",
    'lsm export shop.orders monday.csv --tag monday --where "price > 5"',
)
@click.argument("file", type=click.Path(dir_okay=False))
@COLUMNS
@reading
@FORMAT
def export(
    call: Call, /, *, table: str, file: str, columns: str | None, kind: str | None, **options: Any
) -> None:
    """Write rows, merged by key, to a new Parquet, CSV, JSON lines or Arrow file: whole or not at all."""
    chosen = kind or format_of(file)
    # An existing file is never overwritten.
    if os.path.lexists(file):
        raise AlreadyExistsError("the file is there; name another, or move it away", file=file)
    table_scan = open_scan(call, table, columns=columns, **options)
    count = 0
    try:
        with _written(file, chosen, table_scan.schema) as write:
            for batch in table_scan.to_batches():
                write(batch)
                count += batch.num_rows
    except pa.ArrowException as cause:
        raise InvalidInputError(f"these columns do not go into a {chosen} file: {cause}") from cause
    facts = {"table": table, "file": file, "rows": count, "size_bytes": os.path.getsize(file)}
    call.out.report(f"{counted(count, 'row')} of {table} are in {file}", facts)


@contextmanager
def _written(file: str, kind: str, schema: pa.Schema) -> Iterator[Any]:
    """Yield what writes a batch; the file gets its name at the end, and none if something fails."""
    part = f"{file}.part"
    try:
        with open(part, "wb") as sink:
            if kind == "jsonl":
                yield lambda batch: sink.writelines(
                    f"{json_text(row)}\n".encode() for row in plain_rows(batch)
                )
            else:
                make = {
                    "parquet": pq.ParquetWriter,
                    "csv": pa.csv.CSVWriter,
                    "arrow": pa.ipc.new_file,
                }[kind]
                with make(sink, schema) as writer:
                    yield writer.write_batch if kind == "parquet" else writer.write
        # The name appears only once the file is complete.
        os.rename(part, file)
    except OSError as cause:
        raise StorageError(f"cannot write {file}: {cause}") from cause
    finally:
        Path(part).unlink(missing_ok=True)


@table_verb(
    "lsm merge shop.orders changes.csv --update-all --insert-all",
    'lsm merge shop.orders changes.csv --delete "source.gone" --set price=source.price \\',
    "    --set \"note='seen'\" --insert-all",
)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--on",
    metavar="COLUMNS",
    help="Columns that have to be equal, with commas between.  [default: the key]",
)
@click.option(
    "--delete",
    "delete",
    metavar="FILTER",
    help="Delete rows that match a source row, where this holds.",
)
@click.option(
    "--set",
    "sets",
    metavar="COLUMN=SQL",
    multiple=True,
    help="Set a column of rows that match; repeatable.",
)
@click.option(
    "--update-all", is_flag=True, help="Set every column that the source has, in rows that match."
)
@click.option("--insert-all", is_flag=True, help="Insert rows of the source that match none.")
@click.option("--delete-unmatched", metavar="FILTER",
              help="Delete rows that no source row matches, where this holds; 'true': all of them.")  # fmt: skip
@FORMAT
def merge(
    call: Call, *, table: str, files: Sequence[str], on: str | None, delete: str | None, sets: Sequence[str],
    update_all: bool, insert_all: bool, delete_unmatched: str | None, kind: str | None,
) -> None:  # fmt: skip
    """MERGE the rows of files into a table: the clauses apply in the order above, in one commit.

    Filters and values are SQL; columns are called source.x and target.x, or plain where one side has
    them. The first clause whose condition holds decides about a row. FILES as for lsm upsert.
    """
    target = call.table(table)
    source = rows_of(target, files, kind)
    with (
        writing(target, "merge", files) as identity,
        row_progress(call, source, f"Merging into {table}") as rows,
    ):
        merging = target.merge(rows.reader.read_all(), split_names(on) or None, **identity)
        if delete is not None:
            merging = merging.when_matched_delete(delete)
        if sets:
            merging = merging.when_matched_update(pairs_of(sets))
        if update_all:
            merging = merging.when_matched_update_all()
        if insert_all:
            merging = merging.when_not_matched_insert_all()
        if delete_unmatched is not None:
            merging = merging.when_not_matched_by_source_delete(delete_unmatched)
        result = merging.execute()
    facts: dict[str, Any] = {"table": target.name, "rows": rows.count, **committed(result)}
    if result is None:
        call.out.report("no row changes", facts)
        return
    counts = row_counts_of(result.properties)
    call.out.report(
        f"{counted(rows.count, 'row')} merged{hint(result)}: snapshot {result.id} of {target.name}"
        + (f"; {counts.inserted:,} inserted, {'at most ' * counts.at_most}{counts.updated:,} updated, {counts.deleted:,} deleted" if counts else ""), facts,
    )  # fmt: skip
