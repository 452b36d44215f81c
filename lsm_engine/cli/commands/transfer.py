"""Rows in and out as files, and MERGE: import, export, merge."""

import os
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from lsm_engine import (
    ErrorKind,
    FileOptions,
    InvalidInputError,
    LsmError,
    NotFoundError,
    RowFiles,
    UnsupportedError,
    read_files,
    row_counts_of,
    write_file,
)
from lsm_engine.cli.call import (
    COLUMNS,
    STANDARD_STREAM,
    Call,
    read_options,
    split_names,
    written_files,
)
from lsm_engine.cli.commands.catalog import pairs_of
from lsm_engine.cli.commands.read import ORDER_BY, open_scan, ordered, reading
from lsm_engine.cli.commands.write import committed, hint
from lsm_engine.cli.output import counted
from lsm_engine.cli.progress import row_progress, writing
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
    counts = row_counts_of(result.properties)
    merged_count = (
        count - counts.inserted - counts.updated - counts.skipped
        if counts and not counts.at_most
        else 0
    )
    merged = (
        f" ({counted(merged_count, 'row')} of them replaced by others of the same key)"
        if merged_count
        else ""
    )
    call.out.report(
        f"{counted(count, 'row')} imported{merged}{hint(result)}: snapshot {result.id} of {target.name}",
        facts,
    )


@table_verb(
    "lsm export shop.orders orders.parquet",
    'lsm export shop.orders monday.csv.gz --tag monday --where "price > 5" --date-format %d.%m.%Y',
    "lsm export shop.orders - --format jsonl | jq .price",
)
@click.argument("file", type=click.Path(dir_okay=False))
@COLUMNS
@reading
@ORDER_BY
@written_files
def export(
    call: Call,
    /,
    *,
    table: str,
    file: str,
    columns: str | None,
    order_by: str | None,
    **options: Any,
) -> None:
    """Write rows, merged by key, to a new Parquet, CSV, JSON lines or Arrow file: whole or not at all.

    Names that end in .gz, .bz2, .zst or .lz4 are compressed; - is standard output.
    """
    form = {name: options.pop(name) for name in FileOptions.__annotations__ if name in options}
    table_scan = open_scan(call, table, columns=columns, order_by=order_by, **options)
    count = write_file(ordered(table_scan, columns, order_by), file, **form)
    if file == STANDARD_STREAM:
        call.out.note(f"{counted(count, 'row')} of {table}")
        return
    facts = {"table": table, "file": file, "rows": count, "size_bytes": os.path.getsize(file)}
    call.out.report(f"{counted(count, 'row')} of {table} are in {file}", facts)


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
@read_options
def merge(
    call: Call, *, table: str, files: Sequence[str], on: str | None, delete: str | None, sets: Sequence[str],
    update_all: bool, insert_all: bool, delete_unmatched: str | None, **form: Any,
) -> None:  # fmt: skip
    """MERGE the rows of files into a table: the clauses apply in the order of the options below, in one commit.

    Filters and values are SQL; columns are called source.x and target.x, or plain where one side has
    them. The first clause whose condition holds decides about a row. FILES as for lsm upsert.
    """
    target = call.table(table)
    source = read_files(files, target, **form)
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


# -- Rows of a folder: Parquet files, or a Delta table as its log says -----------------------------

DELTA_LOG = "_delta_log"
_OTHER_LOGS = ("metadata", ".hoodie", "snapshot")


class FolderRows(NamedTuple):
    """The rows of a folder, and their number."""

    data: ds.Dataset
    row_count: int

    def source(self) -> RowFiles:
        """Return the rows in batches."""
        return RowFiles(self.data.scanner().to_reader(), self.row_count)

    def files(self, folder: str) -> list[str]:
        """Return where the files lie that hold them."""
        is_within = isinstance(self.data.filesystem, SubTreeFileSystem)
        return [str(Path(folder if is_within else "", path)) for path in self.data.files]

    def require_columns(self, names: Collection[str], folder: str) -> None:
        """Raise InvalidInputError for columns that a table of these names would leave out.

        Folders named column=value hold columns of which the files below them have nothing.
        """
        extra = [name for name in self.data.schema.names if name not in names]
        if extra:
            raise InvalidInputError(
                f"no column {extra[0]!r} in the table: add it with lsm alter, or leave what holds it out",
                kind=ErrorKind.INVALID_ROWS,
                folder=folder,
                columns=extra,
            )


def folder_rows(folder: str) -> FolderRows:
    """Return the rows of a folder; its files stay as they are.

    Those of a Delta table are those of its newest version. Else they are those of all Parquet files
    below the folder, with all columns that any of them has. Raises InvalidInputError for a table of
    another format, whose log says which of its files count; UnsupportedError without the extra
    `delta`, and for Delta tables with deletion vectors or mapped columns, which it does not read.
    """
    if Path(folder, DELTA_LOG).is_dir():
        return _delta_rows(folder)
    logs = [name for name in _OTHER_LOGS if Path(folder, name).is_dir()]
    if logs:
        raise InvalidInputError(
            f"{folder} is a table with a log of its own ({logs[0]}): some of its files may not count; export "
            "its rows with its own client, and import those",
            kind=ErrorKind.INVALID_NAME,
        )
    try:
        dataset = ds.dataset(folder, format="parquet", partitioning="hive")
        own = [fragment.physical_schema for fragment in dataset.get_fragments()]
        return _counted(dataset.replace_schema(pa.unify_schemas([dataset.schema, *own])))
    except pa.ArrowException as cause:
        raise InvalidInputError(f"cannot read {folder} as Parquet files: {cause}") from cause


def _delta_rows(folder: str) -> FolderRows:
    try:
        deltalake = import_module("deltalake")
        errors = import_module("deltalake.exceptions")
    except ImportError as cause:
        raise UnsupportedError(
            f"{folder} is a Delta table, whose log deltalake reads: pip install 'lsm-assets[delta]'",
            extra="delta",
        ) from cause
    try:
        # Its log alone by deltalake: files read through its own file system now and then end the
        # process by an abort.
        files = SubTreeFileSystem(folder, LocalFileSystem())
        return _counted(deltalake.DeltaTable(folder).to_pyarrow_dataset(filesystem=files))
    except (errors.DeltaError, pa.ArrowException, OSError) as cause:
        raise UnsupportedError(
            f"cannot read the Delta table {folder}: {cause}; export its rows with Spark, and import those"
        ) from cause


def _counted(data: ds.Dataset) -> FolderRows:
    return FolderRows(data, data.count_rows())
