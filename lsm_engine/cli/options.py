"""Options that several verbs have: each is declared once, and means the same everywhere."""

import click

FORMATS = ("parquet", "csv", "jsonl", "arrow")
"""Formats of files of rows, as options name them."""
ROWS_SHOWN = 100
"""Rows that are printed where nobody says how many."""

YES = click.option("--yes", is_flag=True, help="Do not ask.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
DEEP = click.option("--deep", is_flag=True, help="Also read every page of every data file.")
COLUMNS = click.option(
    "--columns", metavar="NAMES", help="These columns, with commas between.  [default: all]"
)
WHERE = click.option(
    "--where",
    metavar="FILTER",
    help="Only rows that match, such as \"price > 5 AND dt = '2024-05-01'\".",
)
ROWS = click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"At most N rows; 0: all.  [default: {ROWS_SHOWN}, with --json all]",
)
AS_OF_SNAPSHOT = click.option(
    "--snapshot", "snapshot_id", type=int, metavar="ID", help="As of this snapshot."
)
AS_OF_TAG = click.option("--tag", metavar="NAME", help="As the tag has it.")
PARTITIONS = click.option(
    "--partition",
    "partitions",
    metavar="COLUMN=VALUE,…",
    multiple=True,
    help="Only this partition; repeat it for more partitions.",
)
FORMAT = click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Format of the files.  [default: by extension]",
)
RETAIN_MIN = click.option(
    "--retain-min",
    type=click.IntRange(1),
    metavar="N",
    help="Keep at least the newest N.  [default: the table's]",
)
RETAIN_MAX = click.option(
    "--retain-max",
    type=click.IntRange(1),
    metavar="N",
    help="Keep at most the newest N.  [default: the table's]",
)
