"""Lineage: which run made what, from which files and inputs, and what was made from it."""

from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa

from lsm_engine import Lineage, TableName, lineage_page, plain_rows
from lsm_engine.cli.call import Call
from lsm_engine.cli.output import Column, code, number, size, words
from lsm_engine.cli.safe_text import utc_text
from lsm_engine.cli.verb import VerbGroup, table_verb, verb

_RUNS = [
    words("run_id", "run"), words("kind"), words("engine"), words("asset_key", "asset"),
    words("user_name", "user"), words("started", "started (UTC)"),
]  # fmt: skip
WALK = [
    code("depth"), words("table_name", "table"), code("snapshot_id", "snapshot"),
    words("dataset", "made from"), code("input_snapshot_id", "at snapshot"),
    code("after_snapshot_id", "changes after"), words("role"), words("run_id", "run"),
]  # fmt: skip
FILES = [
    words("change"), words("partition_path", "partition"), code("bucket"), code("level"),
    number("row_count", "rows"), size("file_size", "size"), words("file_name", "file"),
]  # fmt: skip
_STAGES = [
    code("level"), words("partition_path", "partition"), code("bucket"),
    number("row_count", "rows"), size("file_size", "size"), code("added_by", "added by snapshot"),
    code("deleted_by", "deleted by"), words("removed"),
]  # fmt: skip
_EDGES = [
    code("snapshot_id", "by snapshot"), words("kind"), words("source_name", "from file"),
    code("source_level", "level"), words("target_name", "to file"), code("target_level", "level "),
]  # fmt: skip
_ACTIVITY = [
    words("committed", "committed (UTC)"), words("table_name", "table"),
    code("snapshot_id", "snapshot"), words("commit_kind", "kind"),
    number("delta_record_count", "change"), number("files_added"), number("files_deleted"),
    words("state"), words("run_id", "run"),
]  # fmt: skip


# Names that verbs of `lsm show` had, when each was found in a place of its own.
_FORMER = {
    **{name: f"lineage:{verb}" for name, verb in (
        ("snapshot", "of_snapshot"), ("file", "of_file"), ("downstream", "downstream"), ("recent", "recent"))},
    **{name: f"origins:{verb}" for name, verb in (
        ("row", "of_row"), ("tag", "of_tag"), ("origin", "of_origin"), ("impact", "impact"),
        ("column", "of_column"))},
    "rebuild": "catalog:rebuild",
}  # fmt: skip


@click.group(
    cls=VerbGroup,
    homes={"export": "origins:export"},
    former=_FORMER,
    invoke_without_command=True,
)
@click.option(
    "--html",
    "page",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write one page with the whole graph, to search, zoom and follow in a browser.",
)
@click.option("--table", "only", multiple=True, metavar="TABLE", help="On the page: only these.")
@click.pass_context
def lineage(context: click.Context, page: str | None, only: Sequence[str]) -> None:
    """Where data came from and where it went; --html FILE draws all of it on one page."""
    # A subcommand does the work itself.
    if context.invoked_subcommand is not None:
        return
    # Without a page and a subcommand only the help makes sense.
    if page is None:
        click.echo(context.get_help())
        return
    call = context.ensure_object(Call)
    catalog = call.catalog()
    names = [TableName.parse(call.catalog_name(name)) for name in only] or None
    text = lineage_page(catalog.lineage, names)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
    call.out.report(f"wrote {page}: open it in a browser", {"page": page, "bytes": len(text)})


def fact_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as facts: instants as text, partitions by their path."""
    rows = []
    for row in plain_rows(table):
        for name in [
            name for name in row if name.endswith("_millis") and name != "retained_millis"
        ]:
            row[{"time_millis": "committed"}.get(name, name.removesuffix("_millis"))] = utc_text(
                row.pop(name)
            )
        row.pop("partition", None)
        row.pop("properties", None)
        rows.append(row)
    return rows


def part(
    call: Call, heading: str, columns: list[Column], rows: list[dict[str, Any]], empty: str
) -> None:
    """Show one table of an answer under a heading."""
    call.out.heading(heading)
    if rows:
        call.out.rows(columns, rows, empty="")
    else:
        call.out.text(empty)


def lineage_of(call: Call, table: str) -> tuple[Lineage, TableName]:
    """Return the lineage and the name of a table, which has to be there."""
    catalog = call.catalog()
    name = call.catalog_name(table)
    catalog.table(name)  # a name that is none fails here, with what it may have meant
    return catalog.lineage, TableName.parse(name)


def _newest(call: Call, table: str) -> int | None:
    newest = call.catalog().table(table).latest_snapshot()
    return None if newest is None else newest.id


@table_verb(
    "lsm show inputs shop.orders", "lsm show inputs shop.orders 12 --history", name="snapshot"
)
@click.argument("snapshot_id", type=int, required=False)
@click.option(
    "--history", is_flag=True, help="Of all commits whose rows are in it, not only its own."
)
def of_snapshot(call: Call, *, table: str, snapshot_id: int | None, history: bool) -> None:
    """Show the run, inputs and files of a snapshot, by default the newest."""
    lineage, name = lineage_of(call, table)
    number_ = snapshot_id if snapshot_id is not None else _newest(call, table)
    if number_ is None:
        call.out.note("nothing has been committed yet")
        return
    runs = fact_rows(lineage.runs_of_snapshot(name, number_, history=history))
    inputs = fact_rows(lineage.upstream_of(name, number_, history=history))
    files = fact_rows(lineage.files_of_snapshot(name, number_))
    if call.as_json:
        call.out.facts(
            {"table": table, "snapshot_id": number_, "runs": runs, "inputs": inputs, "files": files}
        )
        return
    part(call, f"snapshot {number_} of {table} was made by", _RUNS, runs, "no run is known")
    part(call, "from", WALK, inputs, "no inputs were recorded")
    part(call, "files that it added and deleted", FILES, files, "none")


@table_verb("lsm show life shop.orders data-5f5c…-0.parquet", name="file")
@click.argument("file")
def of_file(call: Call, *, table: str, file: str) -> None:
    """Show the life of a data file: who added it, what it became, which tags keep it."""
    lineage, name = lineage_of(call, table)
    life = lineage.life_of_file(name, file.rpartition("/")[2])
    stages, made_from = fact_rows(life.stages), fact_rows(life.made_from)
    became, pinned = fact_rows(life.became), fact_rows(life.pinned_by)
    if call.as_json:
        call.out.facts(
            {"stages": stages, "made_from": made_from, "became": became, "pinned_by": pinned}
        )
        return
    part(call, "where it lay", _STAGES, stages, "nowhere")
    part(call, "made from", _EDGES, made_from, "rows that were written")
    part(call, "became", _EDGES, became, "it has not been compacted")
    part(
        call,
        "kept by tags",
        [words("tag_name", "tag"), code("snapshot_id", "snapshot")],
        pinned,
        "none",
    )


@table_verb("lsm show downstream shop.orders 12", name="downstream")
@click.argument("snapshot_id", type=int, required=False)
@click.option("--history", is_flag=True, help="Also what read later states that hold its rows.")
def downstream(call: Call, *, table: str, snapshot_id: int | None, history: bool) -> None:
    """Show the tables made from a snapshot, by default the newest."""
    lineage, name = lineage_of(call, table)
    number_ = snapshot_id if snapshot_id is not None else _newest(call, table)
    rows = (
        [] if number_ is None else fact_rows(lineage.downstream_of(name, number_, history=history))
    )
    call.out.rows(WALK, rows, empty="nothing is known to be made from it")


@verb("lsm show commits", "lsm show commits shop.orders --limit 5", name="recent")
@click.argument("table", required=False)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="How many."
)
def recent(call: Call, *, table: str | None, limit: int) -> None:
    """List the newest commits of all tables, or of one."""
    if table is None:
        lineage, name = call.catalog().lineage, None
    else:
        lineage, name = lineage_of(call, table)
    rows = fact_rows(lineage.recent_activity(limit=limit, table=name))
    call.out.rows(_ACTIVITY, rows, empty="no commits were recorded")
