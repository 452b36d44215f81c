"""Read rows: scan, count, and why a scan reads what it reads."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import click
import pyarrow as pa

from lsm_engine import ErrorKind, InvalidInputError, PruneCounts, Scan, plain_rows, write_file
from lsm_engine.cli.call import (
    AS_OF_SNAPSHOT,
    AS_OF_TAG,
    COLUMNS,
    ROWS,
    STANDARD_STREAM,
    WHERE,
    Call,
    split_names,
)
from lsm_engine.cli.output import code, columns_of, words
from lsm_engine.cli.verb import table_verb

F = TypeVar("F", bound=Callable[..., Any])


def reading(function: F) -> F:
    """Add the options of every read: which rows, as of when."""
    for option in (
        click.option(
            "--as-of",
            metavar="TIME",
            help="As the table was at this time, UTC unless it has an offset.",
        ),
        AS_OF_TAG,
        AS_OF_SNAPSHOT,
        WHERE,
    ):
        function = option(function)
    return function


ORDER_BY = click.option("--order-by", metavar="COLUMNS",
                        help='Sort in memory by columns, such as "price desc, id"; nulls come last.')  # fmt: skip


def open_scan(
    call: Call,
    table: str,
    *,
    where: str | None,
    snapshot_id: int | None,
    tag: str | None,
    as_of: str | None,
    columns: str | None = None,
    order_by: str | None = None,
    limit: int | None = None,
) -> Scan:
    """Return the scan that a command line asks for, with the columns that its rows are sorted by."""
    target = call.table(table)
    names = split_names(columns)
    if order_by:
        sorted_names = (name for name, _ in _sort_keys(order_by))
        names = tuple(dict.fromkeys((*(names or target.schema.names), *sorted_names)))
    return target.scan(
        columns=names or None,
        where=where,
        snapshot_id=snapshot_id,
        tag=tag,
        as_of=as_of,
        limit=None if order_by else limit,
    )


def _sort_keys(order_by: str) -> list[tuple[str, str]]:
    keys = []
    for text in split_names(order_by):
        name, _, order = text.rpartition(" ")
        is_order = bool(name) and order.lower() in ("asc", "desc")
        descends = is_order and order.lower() == "desc"
        keys.append((name.strip() if is_order else text, "descending" if descends else "ascending"))
    return keys


def ordered(
    table_scan: Scan, columns: str | None, order_by: str | None, limit: int | None = None
) -> pa.RecordBatchReader:
    """Return the rows of a scan of `open_scan` in the order that a command line asks for, the first `limit`."""
    if not order_by:
        return table_scan.to_reader()
    try:
        rows = table_scan.to_arrow().sort_by(_sort_keys(order_by))
    except pa.ArrowException as cause:
        raise InvalidInputError(
            f"rows cannot be sorted by {order_by!r}: {cause}", kind=ErrorKind.INVALID_FILTER
        ) from cause
    rows = rows.slice(0, limit)
    return (rows.select(list(split_names(columns))) if columns else rows).to_reader()


@table_verb(
    "lsm scan shop.orders",
    "lsm scan shop.orders --columns order_id,price \\",
    "    --where \"price BETWEEN 5 AND 10 AND customer LIKE 'A%'\"",
    'lsm scan shop.orders --tag monday --order-by "price desc, order_id" --limit 5',
    "lsm scan shop.orders --json | jq .price",
)
@COLUMNS
@reading
@ORDER_BY
@ROWS
@click.option("--format", "file_format", type=click.Choice(("csv", "jsonl")),
              help="Print rows as such a file; lsm export has more options.")  # fmt: skip
def scan(
    call: Call, /, *, table: str, columns: str | None, limit: int | None, order_by: str | None,
    file_format: str | None, **options: Any,
) -> None:  # fmt: skip
    """Print rows, merged by key, in any order unless --order-by gives one.

    \b
    Filters are a small piece of SQL:
      column = value, also <> < <= > >=     AND  OR  NOT  ( )
      column IN (1, 2)                      column BETWEEN 1 AND 9
      column IS NULL                        column LIKE 'x%'
      'text'  12.5  true  DATE '2024-05-01'  TIMESTAMP '2024-05-01 08:00:00'
      "column with blanks"                  NOT goes before IN, BETWEEN and LIKE too
      upper(name) = 'A'                     year(day) = 2024 AND price * 2 > 5
    """
    default = None if file_format else call.rows_shown
    rows_max = default if limit is None else limit or None
    # One more than is shown: then it is known whether there are more.
    scan_limit = None if rows_max is None else rows_max + (limit is None)
    table_scan = open_scan(
        call, table, columns=columns, limit=scan_limit, order_by=order_by, **options
    )
    rows = ordered(table_scan, columns, order_by, scan_limit)
    if file_format:
        write_file(rows, STANDARD_STREAM, format=file_format)
        return
    cut_marks: list[bool] = []
    cut = rows_max if scan_limit != rows_max else None
    call.out.rows(columns_of(rows.schema), first_rows(rows, cut, cut_marks), empty="no rows")
    if cut_marks:
        call.out.note(f"the first {rows_max} rows; there are more: --limit 0 shows all")


def first_rows(
    batches: Iterable[pa.RecordBatch], cut: int | None, cut_marks: list[bool]
) -> Iterator[dict[str, Any]]:
    """Yield the first `cut` rows (None: all); `cut_marks` gets an entry if rows are left out."""
    remaining = cut
    for batch in batches:
        if remaining is not None:
            # The caller shows a note if rows were left out.
            if batch.num_rows > remaining:
                cut_marks.append(True)
            batch = batch.slice(0, remaining)
            remaining -= batch.num_rows
        yield from plain_rows(batch)
        if remaining == 0 and cut_marks:
            return


@table_verb("lsm count shop.orders", "lsm count shop.orders --where \"dt >= '2024-05-01'\"")
@reading
def count(call: Call, /, *, table: str, **options: Any) -> None:
    """Count rows as a reader sees them: merged, without deleted ones."""
    table_scan = open_scan(call, table, **options)
    number = table_scan.count()
    if call.as_json:
        snapshot_id = None if table_scan.snapshot is None else table_scan.snapshot.id
        call.out.facts({"rows": number, "snapshot_id": snapshot_id})
    else:
        call.out.text(str(number))


@table_verb(
    "lsm show scan shop.orders --where \"dt = '2024-05-01' AND price > 5\"",
    "lsm show scan shop.orders --splits",
)
@COLUMNS
@click.option("--splits", is_flag=True, help="List every split in a table.")
@reading
def explain(
    call: Call, /, *, table: str, columns: str | None, splits: bool, **options: Any
) -> None:
    """Show the files that a scan would read or prune, and why. Reads metadata only."""
    table_scan = open_scan(call, table, columns=columns, **options)
    explained = table_scan.explain()
    if not call.as_json:
        call.out.text(explained.text(split_lines_max=0 if splits else 20))
    rows = [
        {
            "bucket": split.bucket,
            "raw": split.raw,
            "files": len(split.files),
            "rows": split.row_count,
            "size_bytes": split.size_bytes,
            "reason": split.reason,
        }
        for split in explained.splits
    ]
    if call.as_json:
        facts = {
            "snapshot_id": explained.snapshot_id,
            "filter_below_merge": explained.pushed_filter,
            "filter_after_merge": explained.residual_filter,
            "manifests": _counts(explained.manifests),
            "files": _counts(explained.files),
            "rows": explained.row_count,
            "size_bytes": explained.size_bytes,
            "splits": rows,
        }
        call.out.facts(facts)
    elif splits:
        names = ("bucket", "files", "rows")
        call.out.rows([*map(code, names), words("reason")], rows, empty="no splits")


def _counts(counts: PruneCounts) -> dict[str, int]:
    return {
        "total": counts.total,
        "read": counts.kept,
        "pruned_by_partition": counts.by_partition,
        "pruned_by_bucket": counts.by_bucket,
        "pruned_by_key_range": counts.by_key_range,
        "pruned_by_statistics": counts.by_stats,
        "pruned_by_file_index": counts.by_file_index,
        "pruned_by_level": counts.by_level,
    }
