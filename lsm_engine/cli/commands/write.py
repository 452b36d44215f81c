"""Write rows: upsert, append, delete, overwrite. Each is one commit, visible whole or not at all."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import pyarrow as pa

from lsm_engine import (
    ROW_ID,
    ErrorKind,
    InvalidInputError,
    Snapshot,
    StreamWriter,
    Table,
    WriteResult,
    core_options,
    read_files,
)
from lsm_engine.cli.call import Call, read_options
from lsm_engine.cli.output import counted
from lsm_engine.cli.progress import CountedRows, row_progress, writing
from lsm_engine.cli.verb import table_verb

F = TypeVar("F", bound=Callable[..., Any])


def numbered(function: F) -> F:
    """Add the options by which a write is recognised when it is sent again."""
    for option in (
        click.option("--commit-identifier", type=click.IntRange(0), metavar="N",
                     help="The number of this write: a number is applied once per --commit-user."),
        click.option("--commit-user", metavar="NAME", help="Who numbers writes; numbers only grow."),
    ):  # fmt: skip
        function = option(function)
    return function


@table_verb(
    "lsm upsert shop.orders monday.parquet tuesday.parquet",
    "lsm upsert shop.orders changes.csv --delimiter ';' --date-format %d.%m.%Y --null -",
    "lsm upsert shop.orders dirty.csv --on-error skip --rejects rejected.csv",
    "lsm upsert shop.orders batch-12.csv --commit-user nightly --commit-identifier 12",
    "curl -s https://example.com/orders.jsonl | lsm upsert shop.orders - --format jsonl",
)
@click.argument("files", nargs=-1, required=True)
@numbered
@read_options
def upsert(
    call: Call, *, table: str, files: Sequence[str], commit_user: str | None,
    commit_identifier: int | None, **form: Any,
) -> None:  # fmt: skip
    """Insert the rows of files, replacing those whose key is already there; one commit.

    FILES are Parquet, CSV, JSON lines, Arrow or (extra excel) Excel, also compressed; - is standard
    input, of CSV, JSON lines or Arrow. A column _row_kind may hold +I, -U, +U or -D per row. Of several rows of one key the last
    counts. Columns that a file lacks become null; lsm merge --update-all keeps what they hold.
    """
    target = call.table(table)
    with (
        writing(target, "upsert", files, commit_user, commit_identifier) as identity,
        row_progress(call, read_files(files, target, **form), f"Upserting {table}") as rows,
    ):
        result = target.upsert(rows.reader, **identity)
    _report(call, target, result, f"{counted(rows.count, 'row')} upserted", rows)


@table_verb(
    "lsm append shop.clicks monday.parquet tuesday.parquet",
    "lsm append shop.clicks - --format jsonl < clicks.jsonl",
)
@click.argument("files", nargs=-1, required=True)
@numbered
@read_options
def append(
    call: Call, *, table: str, files: Sequence[str], commit_user: str | None,
    commit_identifier: int | None, **form: Any,
) -> None:  # fmt: skip
    """Add the rows of files to a table without a primary key; one commit.

    FILES as for lsm upsert, which writes to tables with a key.
    """
    target = call.table(table)
    with (
        writing(target, "append", files, commit_user, commit_identifier) as identity,
        row_progress(call, read_files(files, target, **form), f"Appending to {table}") as rows,
    ):
        result = target.append(rows.reader, **identity)
    _report(call, target, result, f"{counted(rows.count, 'row')} appended", rows)


@table_verb(
    "zcat orders.jsonl.gz | lsm ingest shop.orders - --format jsonl --commit-rows 10000",
    "lsm ingest shop.orders 2024-05-*.parquet --commit-rows 1000000",
)
@click.argument("files", nargs=-1, required=True)
@click.option("--commit-rows", type=click.IntRange(1), default=100_000, show_default=True,
              metavar="N", help="Commit whenever so many rows have come.")  # fmt: skip
@read_options
def ingest(call: Call, *, table: str, files: Sequence[str], commit_rows: int, **form: Any) -> None:
    """Upsert (or append) a stream of rows: many commits, compaction in the background.

    FILES as for lsm upsert. Each commit is reported with how busy the compaction is
    (compaction_thread_busy: percent of the last minute; avg_compaction_time in ms; queued and completed
    buckets); lsm show compactions TABLE shows the same of the past. What was committed stays, also
    after Ctrl-C; lsm upsert makes one commit of all rows.
    """
    target = call.table(table)
    waiting = 0
    with (
        writing(target, "upsert", files) as identity,
        row_progress(call, read_files(files, target, **form), f"Ingesting into {table}") as rows,
        target.writer(**identity) as writer,
    ):
        for batch in rows.reader:
            for start in range(0, batch.num_rows, commit_rows):
                piece = batch.slice(start, commit_rows)
                writer.write(piece)
                waiting += piece.num_rows
                if waiting >= commit_rows:
                    _report_ingested(call, target, writer, waiting)
                    waiting = 0
        if waiting:
            _report_ingested(call, target, writer, waiting)
    if not rows.count:
        call.out.report("nothing to commit", {"table": target.name, "rows": 0, **committed(None)})


def _report_ingested(call: Call, table: Table, writer: StreamWriter, count: int) -> None:
    result = writer.commit()
    metrics = writer.compaction_metrics()
    facts = {"table": table.name, "rows": count, **committed(result)}
    facts |= {name: getattr(metrics, name) for name in _METRICS}
    call.out.report(
        f"{counted(count, 'row')} ingested{hint(result) if result else ''}: "
        f"snapshot {result.id if result else '-'} of {table.name}; compaction busy "
        f"{metrics.compaction_thread_busy:.0f} %, {metrics.compaction_queued_count} queued, "
        f"{metrics.compaction_completed_count} done",
        facts,
    )


_METRICS = (
    "compaction_thread_busy", "avg_compaction_time", "compaction_queued_count",
    "compaction_running_count", "compaction_completed_count", "compaction_total_count",
    "last_error",
)  # fmt: skip


@table_verb(
    "lsm scan shop.clicks --columns _ROW_ID,url --json > urls.jsonl",
    "lsm update-columns shop.clicks urls.jsonl",
)
@click.argument("files", nargs=-1, required=True)
@read_options
def update_columns(call: Call, *, table: str, files: Sequence[str], **form: Any) -> None:
    """Give rows that have ids new values in some columns; one commit, and no other column is rewritten.

    FILES, as for lsm upsert, have _ROW_ID and the columns to replace. The table has to have
    data-evolution.enabled; lsm scan --columns _ROW_ID,... shows the ids.
    """
    target = call.table(table)
    columns = pa.schema([*target.schema.arrow, (ROW_ID, pa.int64())])
    with (
        writing(target, "update-columns", files) as identity,
        row_progress(call, read_files(files, columns, **form), f"Updating {table}") as rows,
    ):
        result = target.update_columns(rows.reader, **identity)
    _report(call, target, result, f"columns of {counted(rows.count, 'row')} updated", rows)


@table_verb(
    'lsm delete shop.orders --where "order_id IN (17, 18)"', "lsm delete shop.orders cancelled.csv"
)
@click.argument("files", nargs=-1)
@click.option("--where", metavar="FILTER", help="Delete the rows that match; see lsm scan --help.")
@read_options
def delete(call: Call, *, table: str, files: Sequence[str], where: str | None, **form: Any) -> None:
    """Delete rows by key: the keys in files, or of the rows that match a filter; one commit.

    Files need the primary key columns only; in a table without a primary key, every row goes that
    equals one of theirs in all columns of the file. Missing keys are ignored. Older snapshots and
    tags keep the rows.
    """
    if bool(files) == (where is not None):
        raise click.UsageError("give either FILES with keys, or --where")
    target = call.table(table)
    with writing(target, "delete", files) as identity:
        if where is not None:
            result = target.delete(where=where, **identity)
            counts = None if result is None else result.row_counts
            count = 0 if counts is None else counts.deleted
            _report(call, target, result, f"{counted(count, 'row')} deleted", count)
            return
        with row_progress(
            call, read_files(files, target, **form), f"Deleting from {table}"
        ) as rows:
            result = target.delete(rows.reader, **identity)
    counts = None if result is None else result.row_counts
    if counts is None:
        text = f"{counted(rows.count, 'key')} deleted, where rows had them"
    else:
        text = f"{counted(counts.deleted, 'row')} of {counted(rows.count, 'key')} deleted"
    _report(call, target, result, text, rows)


@table_verb(
    "lsm overwrite shop.orders may.parquet --partition dt=2024-05-01",
    "lsm overwrite shop.rates rates.csv",
)
@click.argument("files", nargs=-1, required=True)
@click.option("--partition", "partition", metavar="COLUMN=VALUE", multiple=True,
              help="Replace this partition and nothing else; repeatable for several columns.")  # fmt: skip
@read_options
def overwrite(
    call: Call, *, table: str, files: Sequence[str], partition: Sequence[str], **form: Any
) -> None:
    """Replace rows by those of files; one commit.

    Without --partition the partitions that the rows touch are replaced, or the whole table if it has
    none. Older snapshots and tags keep the replaced rows.
    """
    target = call.table(table)
    values = partition_of(target, partition) if partition else None
    with (
        writing(target, "overwrite", files) as identity,
        row_progress(call, read_files(files, target, **form), f"Overwriting {table}") as rows,
    ):
        result = target.overwrite(rows.reader, values, **identity)
    _report(
        call,
        target,
        result,
        f"{counted(rows.count, 'row')} written in place of what was there",
        rows,
    )


def partition_of(table: Table, pairs: Sequence[str]) -> dict[str, str | None]:
    """Return a partition as the table understands it from column=value."""
    return partition_values(pairs, table.options[core_options.PARTITION_DEFAULT_NAME])


def _report(
    call: Call, table: Table, result: WriteResult | None, text: str, rows: CountedRows | int
) -> None:
    count = rows if isinstance(rows, int) else rows.count
    facts: dict[str, Any] = {"table": table.name, "rows": count, **committed(result)}
    if not isinstance(rows, int) and rows.rejected_count:
        facts["rejected_lines"] = rows.rejected_count
    if result is None:
        call.out.report("nothing to commit", facts)
    else:
        call.out.report(f"{text}{hint(result)}: snapshot {result.id} of {table.name}", facts)


def hint(result: WriteResult) -> str:
    """Return what to add where rows cannot be read yet."""
    return "" if result.visible else ", to be read after a compaction"


def committed(result: Snapshot | None) -> dict[str, Any]:
    """Return what programs want to know of a commit."""
    return {
        "snapshot_id": None if result is None else result.id,
        "commit_kind": None if result is None else result.commit_kind.value,
        "total_record_count": None if result is None else result.total_record_count,
    }


def partition_values(pairs: Sequence[str], default_name: str) -> dict[str, str | None]:
    """Return {"dt": "2024-05-01"} for ["dt=2024-05-01"]; the default partition's name means null."""
    values: dict[str, str | None] = {}
    for pair in pairs:
        for part in re.split(r",(?=[^,=]+=)", pair):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise InvalidInputError(
                    f"a partition is written column=value, such as dt=2024-05-01, not {part!r}",
                    kind=ErrorKind.INVALID_KEY,
                )
            values[name.strip()] = None if value == default_name else value
    return values
