"""More questions to the lineage: of a row, a tag, a file, a column; what expiry breaks; exports."""

from collections.abc import Sequence
from typing import Any

import click

from lsm_engine import OPENLINEAGE_NAMESPACE as NAMESPACE
from lsm_engine import LineageOrigin as Origin
from lsm_engine import TableName
from lsm_engine import openlineage_events as run_events
from lsm_engine.cli.call import AS_OF_SNAPSHOT, AS_OF_TAG, Call
from lsm_engine.cli.commands.explain import key_of
from lsm_engine.cli.commands.lineage import FILES, WALK, fact_rows, lineage_of, part
from lsm_engine.cli.output import code, number, size, words
from lsm_engine.cli.verb import table_verb, verb

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
