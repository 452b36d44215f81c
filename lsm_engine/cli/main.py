"""The command `lsm`: its verbs, by what people want to do. A verb is loaded once it is asked for."""

import gc
import io
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
        "changelog": ("changes:changelog", "Print changes, oldest first."),
        "feed": ("changes:feed", "Upsert the changes of one table into another, each once."),
        "lookup": ("keys:lookup", "Print the newest row of each key."),
        "locate": ("keys:locate", "Show which rows an upsert would insert or replace."),
        "upsert": ("write:upsert", "Insert rows of files, or replace those of the same key."),
        "append": ("write:append", "Add rows to a table without a primary key."),
        "ingest": ("write:ingest", "Upsert a stream of rows in many commits."),
        "insert": ("keys:insert", "Insert rows whose keys do not exist."),
        "update": ("keys:update", "Replace rows whose keys exist."),
        "delete": ("write:delete", "Delete rows by key or by a filter."),
        "overwrite": ("write:overwrite", "Replace partitions, or the whole table."),
        "merge": ("transfer:merge", "MERGE files into a table: update, insert, delete."),
        "import": ("transfer:import_", "Take over a folder of Parquet files, or a Delta table."),
        "export": ("transfer:export", "Write rows to a Parquet, CSV, JSON lines or Arrow file."),
        "update-columns": ("write:update_columns", "Replace columns of rows by row id."),
    },
    "Inspect": {
        "show": ("system:show", "Show snapshots, files, keys and other parts of a table."),
        "ui": ("..ui.command:ui", "Show the warehouse in the browser."),
        "serve": (
            "..server.command:serve",
            "Serve the catalog to clients of REST catalogs.",
        ),
        "verify": ("look:verify", "Check that every snapshot and tag can be read."),
        "lineage": ("lineage:lineage", "Draw or export the lineage."),
    },
    "Maintenance": {
        "doctor": ("doctor:doctor", "List damage and debt, with the commands that mend them."),
        "compact": ("maintain:compact", "Merge sorted runs of due buckets."),
        "rescale": ("maintain:rescale", "Give a table another number of buckets."),
        "tag": ("history:tag", "Name snapshots, so that expiry keeps their files."),
        "branch": ("history:branch", "Create, rename, delete and fast-forward branches."),
        "rollback": ("history:rollback", "Go back to a former state."),
        "expire": ("maintain:expire", "Delete old snapshots, and files that only they name."),
        "expire-partitions": ("mend:expire_partitions", "Delete old partitions."),
        "orphans": ("mend:orphans", "Delete files that nothing names."),
        "consumer": ("history:consumer", "List and reset the readers that retain snapshots."),
        "commit-user": (
            "history:commit_user",
            "Show or set the last commit identifiers of writers.",
        ),
        "repair": ("mend:repair", "Repair a table whose files are damaged or missing."),
        "trash": ("mend:trash", "Undo maintenance, or empty the trash."),
        "forget": ("keys:forget", "Erase keys from data, history and catalog."),
        "iceberg": ("mend:iceberg", "Show and rebuild the Iceberg metadata of a table."),
        "cache": ("cache:cache", "Show the local files that lookups have built."),
        "catalog": ("catalog:names", "Rebuild the catalog; register and adopt tables."),
    },
    "About": {"version": ("about:version", "Print the versions of lsm, Python and libraries.")},
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
    bytes_out = getattr(sys.stdout, "buffer", None)  # a caller's stream of text has none
    if isinstance(bytes_out, io.RawIOBase):
        # With PYTHONUNBUFFERED a write may take a part of the bytes, and says so only by its result.
        stream = io.BufferedWriter(bytes_out)
        sys.stdout = io.TextIOWrapper(
            stream, sys.stdout.encoding, sys.stdout.errors, line_buffering=True
        )
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
