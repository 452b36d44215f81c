"""Tables of a few rows on a store in memory, and a process that has read nothing of them yet."""

from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.metadata import manifests, snapshots
from lsm_engine.storage.object_store import forget_documents

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
QUIET = {"bucket": "1", "num-sorted-run.compaction-trigger": "100"}


def small_table(directory: Path, commits: int) -> lsm.Table:
    """A table of one row a commit."""
    where = f"memory://{directory.name.replace('_', '-')}/lake"
    with lsm.open_catalog(f"sqlite:///{directory}/c.db", warehouse=where) as catalog:
        made = catalog.create_table("a.t", SCHEMA, primary_key=["k"], options=QUIET)
    for number in range(commits):
        upsert(made, number)
    return made


def upsert(table: lsm.Table, number: int) -> None:
    table.upsert(pa.table({"k": [number], "v": [number]}, schema=SCHEMA))


def forget_all() -> None:
    """Make this process one that has read nothing yet."""
    manifests.forget_shared()
    snapshots._newest_known.clear()
    forget_documents()
