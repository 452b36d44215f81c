"""Look inside a table: schema, options, snapshots, manifests, files, the tree, its pressure, its health."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click
import pyarrow as pa

from lsm_engine import (
    Snapshot,
    Table,
    TableSchema,
    format_bytes,
    plain_rows,
    type_text,
    unsupported_options,
)
from lsm_engine.cli.call import DEEP, Call
from lsm_engine.cli.exit_codes import REFUSED
from lsm_engine.cli.output import Column, code, counted, draw_tree, largest_run, number, size, words
from lsm_engine.cli.progress import file_progress
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import table_verb

SNAPSHOT_OPTION = click.option(
    "--snapshot", "snapshot_id", type=int, metavar="ID", help="Of this snapshot.  [default: newest]"
)


def system_rows(table: pa.Table) -> Iterable[dict[str, Any]]:
    """Return a system table's rows; its timestamps are instants, of type UTC."""
    for position, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            instants = table.column(position).cast(pa.timestamp(field.type.unit, "UTC"))
            table = table.set_column(position, field.name, instants)
    return plain_rows(table)


def _show(
    call: Call, table: Table, name: str, columns: list[Column], snapshot_id: int | None = None
) -> None:
    rows = system_rows(table.system(name, snapshot_id=snapshot_id))
    call.out.rows(columns, rows, empty="nothing has been committed yet")


@table_verb("lsm show schema shop.orders", "lsm show schema lake/shop.db/orders --history")
@click.option("--history", is_flag=True, help="Every version of the schema, oldest first.")
def schema(call: Call, *, table: str, history: bool) -> None:
    """Show a table's columns, types and keys.

    Options that this version does not support are listed below, on stderr.
    """
    target = call.table(table)
    if history:
        columns = [
            code("schema_id", "schema"),
            words("update_time", "since (UTC)"),
            words("fields"),
        ]
        _show(call, target, "schemas", columns)
        return
    table_schema = target.schema
    rows = schema_rows(table_schema)
    described = [words("comment")] if any(row["comment"] for row in rows) else []
    call.out.rows(
        [code("id"), words("column"), words("type"), words("roles"), *described], rows, empty=""
    )
    for unsupported in unsupported_options(table_schema.options):
        call.out.note(str(unsupported))


def schema_rows(schema: TableSchema) -> list[dict[str, Any]]:
    """Return a schema's columns as rows: id, name, type, what it is for, comment."""
    rows = []
    for field in schema.fields:
        roles = [
            word
            for word, names in (
                ("primary key", schema.primary_keys),
                ("partition", schema.partition_keys),
                ("bucket key", schema.bucket_keys if schema.has_primary_key else ()),
                ("sequence", schema.sequence_fields),
            )
            if field.name in names
        ]
        rows.append(
            {
                "column": field.name,
                "type": type_text(field.type),
                "roles": ", ".join(roles),
                "id": field.id,
                "comment": field.description,
            }
        )
    return rows


@table_verb("lsm show snapshots shop.orders", "lsm show snapshots shop.orders --limit 5 --json")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N.")
def snapshots(call: Call, *, table: str, limit: int | None) -> None:
    """List a table's snapshots, newest first: who committed what and when."""
    newest_first = call.table(table).system("snapshots").sort_by([("snapshot_id", "descending")])
    rows = list(system_rows(newest_first[:limit]))
    if not call.as_json:
        for row in rows:
            row["files"] = _compacted_text(row)
    columns = [
        code("snapshot_id", "snapshot"),
        words("commit_time", "committed (UTC)"),
        words("operation"),
        number("rows_inserted", "inserted"),
        number("rows_updated", "updated"),
        number("rows_deleted", "deleted"),
        number("total_record_count", "rows in files"),
        words("files"),
        words("user_name", "by"),
    ]
    call.out.rows(columns, rows, empty="nothing has been committed yet")


def _compacted_text(row: dict[str, Any]) -> str | None:
    if row["files_before"] is None:
        return None
    return f"{row['files_before']:,} → {row['files_after']:,}, {format_bytes(row['bytes_after'])}"


@table_verb("lsm show snapshot shop.orders", "lsm show snapshot shop.orders 12 --json")
@click.argument("snapshot_id", type=int, required=False)
def snapshot(call: Call, *, table: str, snapshot_id: int | None) -> None:
    """Show one snapshot in detail, by default the newest: all its members and manifest lists."""
    target = call.table(table)
    table_snapshot = target.scan(snapshot_id=snapshot_id).snapshot
    if table_snapshot is None:
        call.out.note("nothing has been committed yet")
        return
    lists = list(plain_rows(target.system("manifest_lists", snapshot_id=table_snapshot.id)))
    facts = snapshot_facts(table_snapshot)
    facts["tags"] = [tag.name for tag in target.tags() if tag.snapshot.id == table_snapshot.id]
    if call.as_json:
        call.out.facts({**facts, "manifest_lists": lists})
        return
    shown = {
        "total_record_count": f"{table_snapshot.total_record_count or 0:,} (in files, before merging)",
        "delta_record_count": f"{table_snapshot.delta_record_count or 0:+,}",
        "tags": ", ".join(facts["tags"]) or "none",
    }
    call.out.facts(facts, shown)
    call.out.heading("manifest lists")
    call.out.rows(MANIFEST_LIST_COLUMNS[1:], lists, empty="")


def snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot's members by name, those that it has."""
    facts: dict[str, Any] = {
        "snapshot_id": snapshot.id,
        "committed": utc_text(snapshot.time_millis),
        "commit_kind": snapshot.commit_kind.value,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "schema_id": snapshot.schema_id,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
        "changelog_record_count": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
        "uuid": snapshot.uuid,
        "operation": snapshot.operation_name,
        "duration_millis": snapshot.duration_millis,
        "writer_version": snapshot.writer_version,
        "index_manifest": snapshot.index_manifest,
        "statistics": snapshot.statistics,
        "properties": dict(snapshot.properties) if snapshot.properties else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


FILE_COLUMNS = [
    words("partition"), code("bucket"), code("level"), number("record_count", "rows"),
    number("delete_row_count", "deletes"), size("file_size_in_bytes", "size"),
    words("min_key"), words("max_key"), words("creation_time", "written (UTC)"),
    words("file_path", "file"),
]  # fmt: skip
MANIFEST_LIST_COLUMNS = [
    code("snapshot_id", "snapshot"), words("kind"), number("manifest_count", "manifests"),
    number("num_added_files", "files added"), number("num_deleted_files", "files deleted"),
    size("file_size", "size"), words("file_name", "file"),
]  # fmt: skip
MANIFEST_COLUMNS = [
    words("file_name", "manifest"), size("file_size", "size"),
    number("num_added_files", "files added"), number("num_deleted_files", "files deleted"),
    code("schema_id", "schema"), code("min_bucket"), code("max_bucket"), code("min_level"),
    code("max_level"),
]  # fmt: skip
VIEWS = {
    "options": [words("key"), words("value")],
    "files": FILE_COLUMNS,
    "manifests": MANIFEST_COLUMNS,
    "manifest_lists": MANIFEST_LIST_COLUMNS,
}
"""The columns of wide system tables that are printed by default; --json and --columns have all of them."""


@table_verb("lsm show tree shop.orders", "lsm show tree shop.orders --bucket 0 --limit 0")
@click.option(
    "--partition",
    metavar="NAME",
    help="Only this partition, as its directory is called: dt=2024-05-01.",
)
@click.option("--bucket", type=click.IntRange(0), metavar="N", help="Only buckets of this number.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, metavar="N",
              help="Draw at most N buckets, those with most runs; 0 draws all.")  # fmt: skip
def tree(call: Call, *, table: str, partition: str | None, bucket: int | None, limit: int) -> None:
    """Draw a table's LSM trees: levels and sorted runs, newest on top, with sizes and rows.

    A read merges all runs of a bucket that share keys; compaction makes them fewer.
    """
    target = call.table(table)
    trees = [
        lsm_tree
        for lsm_tree in target.tree()
        if partition in (None, lsm_tree.partition) and bucket in (None, lsm_tree.bucket)
    ]
    if call.as_json:
        rows = [
            {
                "partition": lsm_tree.partition,
                "bucket": lsm_tree.bucket,
                "run": position,
                **_run(run),
            }
            for lsm_tree in trees
            for position, run in enumerate(lsm_tree.runs)
        ]
        call.out.rows([], rows, empty="")
        return
    if not trees:
        call.out.note("nothing has been committed yet, or no bucket is of that name")
        return
    newest = target.latest_snapshot()
    snapshot_text = "" if newest is None else f", snapshot {newest.id}"
    total = format_bytes(sum(lsm_tree.size_bytes for lsm_tree in trees))
    call.out.text(f"{target.name}{snapshot_text}: {counted(len(trees), 'bucket')}, {total}\n")
    drawn = trees
    # Buckets with the most runs cost reads the most, so they are drawn first.
    if limit and len(trees) > limit:
        most = sorted(trees, key=lambda bucket_tree: -len(bucket_tree.runs))[:limit]
        drawn = [lsm_tree for lsm_tree in trees if lsm_tree in most]
    largest = largest_run(drawn)
    for lsm_tree in drawn:
        call.out.text(draw_tree(lsm_tree, largest))
    if len(drawn) < len(trees):
        call.out.note(f"{counted(len(trees) - len(drawn), 'more bucket')}; --limit 0 draws all")


def _run(run: Any) -> dict[str, Any]:
    names = (
        "level", "file_count", "row_count", "delete_row_count", "size_bytes",
        "min_sequence_number", "max_sequence_number",
    )  # fmt: skip
    return {name: getattr(run, name) for name in names}


@table_verb("lsm show debt shop.orders", "lsm show debt shop.orders --due", name="debt")
@click.option("--due", is_flag=True, help="Only buckets whose compaction is due.")
def debt(call: Call, *, table: str, due: bool) -> None:
    """Show the compaction debt of each bucket, the greatest first, and when it is due at this pace.

    Writers wait where a bucket has more sorted runs than 'num-sorted-run.stop-trigger'.
    """
    target = call.table(table)
    rows = [
        _debt(target, bucket_forecast)
        for bucket_forecast in target.forecast()
        if bucket_forecast.pressure.compactable or not due
    ]
    columns = [
        words("partition"), code("bucket"), code("sorted_runs"), number("files"),
        size("size_bytes", "size"), size("debt_bytes", "to merge"), words("due_in", "due in"),
        words("stops_in", "writers wait in"), words("reason"),
    ]  # fmt: skip
    empty = "no bucket is due" if due else "nothing has been committed yet"
    call.out.rows(columns[not target.schema.partition_keys :], rows, empty=empty)


def _debt(table: Table, forecast: Any) -> dict[str, Any]:
    now = forecast.pressure
    return {
        "partition": table.partition_path(now.partition),
        "bucket": now.bucket,
        "sorted_runs": now.run_count,
        "level0_files": now.level0_file_count,
        "files": now.file_count,
        "size_bytes": now.size_bytes,
        "debt_bytes": now.debt_bytes,
        "deletes": now.delete_row_count,
        "due": now.compactable,
        "writers_wait": now.stopping,
        "read_amplification": forecast.read_amplification,
        "runs_per_hour": forecast.runs_per_hour,
        "bytes_per_hour": forecast.bytes_per_hour,
        "due_in_millis": forecast.due_in_millis,
        "stops_in_millis": forecast.stops_in_millis,
        "due_in": forecast.due_text,
        "stops_in": forecast.stops_text,
        "reason": forecast.reason,
    }


@table_verb(
    "lsm show amplification shop.orders", "lsm show amplification shop.orders --commits 100"
)
@click.option(
    "--commits", type=click.IntRange(1), help="The newest ones.  [default: all that are left]"
)
def amplification(call: Call, *, table: str, commits: int | None) -> None:
    """Show the cost of the tree: bytes written per byte, runs per read, bytes kept per byte."""
    factors = call.table(table).amplification(commits)
    columns = [
        words("what"), code("times"), words("because"),
    ]  # fmt: skip
    written, again = format_bytes(factors.written_bytes), format_bytes(factors.compacted_bytes)
    live, last = format_bytes(factors.live_bytes), format_bytes(factors.last_level_bytes)
    buckets = counted(len(factors.run_counts), "bucket")
    facts = [
        ("write", factors.write, f"writers wrote {written}, compactions {again}"),
        ("read", factors.read, f"{counted(sum(factors.run_counts), 'sorted run')} in {buckets}"),
        ("space", factors.space, f"{live} kept, {last} of it in the deepest runs"),
    ]
    rows = [
        {"what": name, "times": None if times is None else round(times, 2), "because": why}
        for name, times, why in facts
    ]
    call.out.rows(columns, rows, empty="nothing has been committed yet")


@table_verb(
    "lsm verify shop.orders",
    "lsm verify shop.orders --deep && echo sound",
    "lsm verify shop.orders --deep --incremental",
)
@SNAPSHOT_OPTION
@DEEP
@click.option(
    "--incremental", is_flag=True, help="With --deep: pass over files verified before, unchanged."
)
def verify(
    call: Call, *, table: str, snapshot_id: int | None, deep: bool, incremental: bool
) -> None:
    """Check that every snapshot and tag can be read: files, sizes, totals, levels, checksums.

    Reads metadata, and rows with --deep. Of each damaged file it reports the rows and keys it held, the
    snapshots, tags and branches concerned, and what could give it back (lsm repair TABLE restore).
    --incremental records the files that it finds sound beside the table's documents. Exit code 1 if
    anything is wrong.
    """
    target = call.table(table)
    with file_progress(call, "Verifying") as progress:
        report = target.verify(
            snapshot_id=snapshot_id, deep=deep, incremental=incremental, progress=progress
        )
    facts: Mapping[str, Any] = {
        "clean": report.is_clean,
        "problems": list(report.problems),
        "snapshots": report.snapshot_count,
        "tags": report.tag_count,
        "files": report.file_count,
        "files_read": report.read_count,
        "files_verified_before": report.skipped_count,
        "not_honoured": list(report.not_honoured),
        "warnings": list(report.warnings),
        "files_without_checksum": report.unchecked_count,
        "damaged_files": [asdict(file) for file in report.damaged_files],
    }
    if call.as_json:
        call.out.facts(facts)
    elif not (call.quiet and report.is_clean):
        call.out.text(str(report))
    if not report.is_clean:
        raise click.exceptions.Exit(REFUSED)
