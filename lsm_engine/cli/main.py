"""The command `lsm`: its verbs, by what people want to do. A verb is loaded once it is asked for."""

import gc
import os
import sys

import click

from lsm_engine import __version__
from lsm_engine.cli.exit_codes import INTERRUPTED
from lsm_engine.cli.verb import Lsm

# -- A process without pandas, for one whose work needs none of it ---------------------------------
#
# PyArrow loads pandas, where it is installed, for the first array made of a list: 0.15 s of CPU
# and 45 MB.


class _Absent:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Say that there is no pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("this process does not load pandas", name=name)


def load_no_pandas() -> None:
    """Have every import of pandas fail in this process, as where it is not installed."""
    sys.meta_path.insert(0, _Absent)


# -- The command `lsm` -----------------------------------------------------------------------------

SECTIONS = {
    "Tables": {
        "databases": ("catalog:databases", "List databases."),
        "tables": ("catalog:tables", "List tables with their newest snapshot."),
        "create": ("catalog:create", "Create a table; the catalog too if there is none."),
        "alter": ("alter:alter", "Change columns, options and comments."),
        "rename": ("catalog:rename", "Give a table another name or database."),
        "drop": ("catalog:drop", "Drop a table with its files, or a database."),
    },
    "Rows": {
        "scan": ("read:scan", "Print rows, merged by key."),
        "count": ("read:count", "Count rows as a reader sees them."),
        "changelog": ("changes:changelog", "Print what changed, oldest first."),
        "lookup": ("keys:lookup", "Print the newest row of each key."),
        "locate": ("keys:locate", "Show which rows would be inserted, and which replaced."),
        "upsert": ("write:upsert", "Insert rows of files, or replace those of the same key."),
        "append": ("write:append", "Add rows to a table without a primary key."),
        "ingest": ("write:ingest", "Upsert a stream of rows in many commits."),
        "insert": ("keys:insert", "Insert rows whose keys are not there yet."),
        "update": ("keys:update", "Replace rows whose keys are there."),
        "delete": ("write:delete", "Delete rows by key or by a filter."),
        "overwrite": ("write:overwrite", "Replace partitions, or the whole table."),
        "merge": ("transfer:merge", "MERGE files into a table: update, insert, delete."),
        "import": ("transfer:import_", "Take over a folder of Parquet files, or a Delta table."),
        "export": ("transfer:export", "Write rows to a Parquet, CSV, JSON lines or Arrow file."),
        "update-columns": ("write:update_columns", "Replace columns of rows by row id."),
    },
    "Insides": {
        "show": ("system:show", "Show what a table is made of, why, and from what."),
        "ui": ("..ui.command:ui", "Show all of it in the browser."),
        "verify": ("look:verify", "Check that every snapshot and tag can be read."),
        "lineage": ("lineage:lineage", "Draw or export where data came from and went."),
    },
    "Upkeep": {
        "doctor": ("doctor:doctor", "Find what is wrong, and the commands that mend it."),
        "compact": ("maintain:compact", "Merge sorted runs where that is due."),
        "rescale": ("maintain:rescale", "Give a table another number of buckets."),
        "tag": ("history:tag", "Name snapshots, so that they stay."),
        "branch": ("history:branch", "Let a table go several ways."),
        "rollback": ("history:rollback", "Go back to a former state."),
        "expire": ("maintain:expire", "Let old snapshots go, with what only they name."),
        "expire-partitions": ("mend:expire_partitions", "Drop old partitions."),
        "orphans": ("mend:orphans", "Delete files that nothing names."),
        "consumer": ("history:consumer", "Know the readers that keep snapshots."),
        "commit-user": ("history:commit_user", "Know writers by the numbers of their commits."),
        "repair": ("mend:repair", "Mend a table whose files are damaged or gone."),
        "trash": ("mend:trash", "Give back what maintenance took."),
        "forget": ("forget:forget", "Take keys out of all that a table has."),
        "iceberg": ("mend:iceberg", "Show and rebuild what readers of Iceberg see."),
        "cache": ("cache:cache", "Show the local files that lookups have built."),
        "catalog": ("catalog:names", "Rebuild the catalog; register and adopt tables."),
    },
    "About": {"version": ("about:version", "Print the version of lsm and of what it runs on.")},
}
"""By section the verbs, each with the place of its command and a line for the page of all."""

FORMER = {
    **{name: f"look:{name}" for name in (
        "schema", "tree", "snapshots", "snapshot", "debt", "amplification")},
    **{name: f"system:{name.replace('-', '_')}" for name in (
        "options", "files", "manifests", "manifest-lists", "system")},
    "explain": "explain:explain",
    "pressure": "look:debt",
}  # fmt: skip


@click.group(cls=Lsm, sections=SECTIONS, former=FORMER)
@click.version_option(__version__, prog_name="lsm")
def lsm() -> None:
    """Upsertable lake tables in the Apache Paimon format, from a shell.

    TABLE is a name in the catalog (shop.orders), or the path of any Paimon table directory, which
    needs no catalog: lsm show snapshots lake/shop.db/orders. Start with: lsm create --help.
    """


_COLLECTED_FROM = 50_000
"""Objects from which on garbage is looked for: that of a verb is little, and looking took a tenth of its time."""


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(_COLLECTED_FROM)
    load_no_pandas()
    try:
        lsm.main(sys.argv[1:])
    except SystemExit as done:
        if done.code != INTERRUPTED:
            raise
        # A thread may still wait for input that never comes; an orderly exit would wait with it, or
        # abort when it wakes up. Everything is closed, and all output is written.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
