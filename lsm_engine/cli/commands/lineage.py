"""Lineage: which run made what, from which files and inputs, what was made from it, and where rows come from."""

from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa

from lsm_engine import OPENLINEAGE_NAMESPACE as NAMESPACE
from lsm_engine import Lineage, TableName, lineage_page, plain_rows
from lsm_engine import LineageOrigin as Origin
from lsm_engine import openlineage_events as run_events
from lsm_engine.cli.call import AS_OF_SNAPSHOT, AS_OF_TAG, Call
from lsm_engine.cli.commands.explain import key_of
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
        ("snapshot", "of_snapshot"), ("file", "of_file"), ("downstream", "downstream"), ("recent", "recent"),
        ("row", "of_row"), ("tag", "of_tag"), ("origin", "of_origin"), ("impact", "impact"),
        ("column", "of_column"))},
    "rebuild": "catalog:rebuild",
}  # fmt: skip


@click.group(
    cls=VerbGroup,
    homes={"export": "lineage:export"},
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


# -- Origins of rows, tags and columns -------------------------------------------------------------

_COMMITS = [
    code("snapshot_id", "snapshot"), words("commit_kind", "kind"), words("committed", "committed (UTC)"),
    number("delta_record_count", "change"), words("state"), words("asset_key", "asset"),
    words("run_id", "run"),
]  # fmt: skip
_MADE = [
    words("file_name", "file"), code("level"), words("partition_path", "partition"), code("bucket"),
    number("row_count", "rows"), size("file_size", "size"), code("added_by", "added by snapshot"),
    words("written"),
]  # fmt: skip
_COLUMNS = [
    code("depth"), words("table_name", "table"), words("column_name", "column"),
    words("dataset", "computed from"), words("input_column", "its column"),
    code("last_snapshot_id", "last by snapshot"),
]  # fmt: skip


def _origin(call: Call, origin: Origin, **extra: Any) -> None:
    commits, inputs, files = (
        fact_rows(origin.commits),
        fact_rows(origin.inputs),
        fact_rows(origin.files),
    )
    if call.as_json:
        call.out.facts({**extra, "commits": commits, "inputs": inputs, "files": files})
        return
    part(call, "commits that are in it", _COMMITS, commits, "none is known")
    part(call, "from", WALK, inputs, "no inputs were recorded")
    if files:
        part(call, "files that went into it", _MADE, files, "")


@table_verb("lsm show row shop.orders order_id=2", "lsm show row a.b id=1 --tag x", name="row")
@click.argument("key", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@AS_OF_SNAPSHOT
@AS_OF_TAG
def of_row(
    call: Call, *, table: str, key: Sequence[str], snapshot_id: int | None, tag: str | None
) -> None:
    """Show which runs and input snapshots a row is made of, version by version."""
    catalog = call.catalog()
    name = call.catalog_name(table)
    origin = catalog.explain_row(name, key_of(catalog.table(name), key), snapshot_id, tag)
    if not call.as_json:
        call.out.text(origin.explanation.text())
    _origin(call, origin.origin, verdict=origin.explanation.verdict)


@table_verb("lsm show tag shop.orders monday", name="tag")
@click.argument("tag")
def of_tag(call: Call, *, table: str, tag: str) -> None:
    """Show which runs and input snapshots a tag is made of, deleted tags too."""
    lineage, name = lineage_of(call, table)
    _origin(call, lineage.origin_of_tag(name, tag), tag=tag)


@table_verb("lsm show origin shop.orders data-5f5c…-0.parquet", name="origin")
@click.argument("file")
def of_origin(call: Call, *, table: str, file: str) -> None:
    """Show the origin of a data file: through compactions back to the commits that wrote."""
    lineage, name = lineage_of(call, table)
    _origin(call, lineage.origin_of_file(name, file.rpartition("/")[2]), file=file)


@table_verb("lsm show impact shop.orders 12", name="impact")
@click.argument("snapshot_id", type=int)
def impact(call: Call, *, table: str, snapshot_id: int) -> None:
    """Show what would break if a snapshot expired: readers, and files that only it holds."""
    lineage, name = lineage_of(call, table)
    effects = lineage.impact_of_expiry(name, snapshot_id)
    readers, files = fact_rows(effects.readers), fact_rows(effects.files)
    tags = effects.tags.column("tag_name").to_pylist()
    if call.as_json:
        facts = {"live": effects.is_live, "verdict": effects.verdict, "tags": tags}
        call.out.facts({**facts, "readers": readers, "files": files})
        return
    call.out.text(effects.verdict)
    part(call, "commits that read it", WALK, readers, "none is known")
    part(call, "files that only it holds", FILES[1:], files, "none")


@table_verb(
    "lsm show column air.carrier_days worst_arr_delay",
    "lsm show column a.b c --downstream",
    name="column",
)
@click.argument("column")
@click.option("--downstream", is_flag=True, help="What was computed from it.")
def of_column(call: Call, *, table: str, column: str, downstream: bool) -> None:
    """Show the columns that a column was computed from, through all tables, as commits declared it."""
    lineage, name = lineage_of(call, table)
    call.catalog().table(name.text).schema.field(column)  # a name that is none fails here
    rows = fact_rows(lineage.columns(name, column, downstream=downstream))
    call.out.rows(_COLUMNS, rows, empty="no commit declared columns of it")


@verb(
    "lsm lineage export > events.jsonl",
    "lsm lineage export shop.orders --namespace prod",
    name="export",
)
@click.argument("table", required=False)
@click.option("--namespace", default=NAMESPACE, show_default=True, metavar="NAME",
              help="Stands before the names of jobs and datasets.")  # fmt: skip
def export(call: Call, *, table: str | None, namespace: str) -> None:
    """Print the lineage as OpenLineage run events, one JSON object per commit."""
    name = None if table is None else TableName.parse(call.catalog_name(table))
    for event in run_events(call.catalog().lineage, name, namespace=namespace):
        call.out.json_line(event)
