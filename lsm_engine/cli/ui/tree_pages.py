"""The tree of a table: buckets with their levels and sorted runs, and the files of one bucket."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsm_engine import BucketTree, TreeRun, record
from lsm_engine.cli.commands.look import FILE_COLUMNS
from lsm_engine.cli.output import counted, size_text
from lsm_engine.cli.tree_drawing import largest_run
from lsm_engine.cli.ui import parts
from lsm_engine.cli.ui.markup import Html, element, table_address

_COLOURS = 6


@record
class TreeFacts:
    """One page of a table's buckets, those with most runs first, out of `total`.

    `at`: the snapshot as words; `query`: what of the address names it.
    """

    table: str
    at: str
    query: Mapping[str, object]
    buckets: Sequence[BucketTree]
    total: int
    size_bytes: int
    page: int
    page_size: int


def tree_page(shown: TreeFacts) -> Html:
    """Return the page of a table's trees."""
    name = shown.table
    if not shown.buckets:
        text = element("p", "nothing has been committed yet, or no such page", class_="dim")
        return parts.table_page(name, "Tree", shown.at, text)
    largest = largest_run(shown.buckets)
    last = (shown.total - 1) // shown.page_size
    totals = f"{counted(shown.total, 'bucket')}, {size_text(shown.size_bytes)}"
    return parts.table_page(
        name,
        "Tree",
        shown.at,
        element("p", f"{totals}. A read merges all runs of a bucket that share keys; those with most come first.",
                class_="dim"),
        [_bucket(shown, bucket, largest) for bucket in shown.buckets],
        parts.pager(
            _page(shown, shown.page - 1) if shown.page else None,
            f"page {shown.page + 1} of {last + 1}",
            _page(shown, shown.page + 1) if shown.page < last else None,
            ("before", "after"),
        ),
    )  # fmt: skip


def _page(shown: TreeFacts, page: int) -> str:
    return table_address(shown.table, "tree", query={**shown.query, "page": page})


def bucket_address(name: str, partition: str, bucket: int, query: Mapping[str, object]) -> str:
    """Return the address of a bucket's files."""
    place = {"partition": partition, "bucket": bucket}
    return table_address(name, "tree", query={**query, **place})


def _bucket(shown: TreeFacts, tree: BucketTree, largest: int) -> Html:
    label = f"{tree.partition} bucket {tree.bucket}" if tree.partition else f"bucket {tree.bucket}"
    sums = f"{counted(len(tree.runs), 'sorted run')}, {size_text(tree.size_bytes)}, {counted(tree.row_count, 'row')}"
    url = bucket_address(shown.table, tree.partition, tree.bucket, shown.query)
    return element(
        "section",
        element("h3", parts.link(label, url), " ", element("small", sums, class_="dim")),
        element("ol", [_run(run, largest) for run in tree.runs], class_="runs"),
        class_="bucket",
    )


def _run(run: TreeRun, largest: int) -> Html:
    facts = [
        size_text(run.size_bytes),
        counted(run.row_count, "row"),
        counted(run.file_count, "file"),
    ]
    if run.delete_row_count:
        facts.append(counted(run.delete_row_count, "delete"))
    return element(
        "li",
        element("b", f"L{run.level}"),
        parts.bar(run.size_bytes, largest, f"level{min(run.level, _COLOURS - 1)}"),
        element("span", ", ".join(facts)),
    )


def files_page(
    name: str, state_text: str, place: str, files: Sequence[Mapping[str, Any]], total: int
) -> Html:
    """Return the page of a bucket's files, by level and key; `total` of them if not all are shown."""
    cut = f", {len(files):,} of {total:,}" if len(files) < total else ""
    return parts.table_page(
        name,
        "Tree",
        f"Files of {place}, {state_text}{cut}",
        parts.rows_table(
            FILE_COLUMNS,
            files,
            empty="no files in this bucket; the tree lists the buckets of each partition",
        ),
    )
