"""What reads and changes a table, for tests of disks that refuse; a program that runs it where it may not write.

python -m tests.unit.table.refused_operations TABLE FOLDER [TABLE FOLDER …]
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import lsm_engine as lsm

Act = Callable[[lsm.Table], object]
EXPIRED = {"older_than": "0 s", "retain_min": 1, "retain_max": 1}
READS: Mapping[str, Act] = {
    "scan": lambda table: table.to_arrow().num_rows,
    "lookup": lambda table: table.lookup([{"k": 1}]).num_rows,
    "scan of a tag": lambda table: table.to_arrow(tag="kept").num_rows,
    "scan of a branch": lambda table: table.branch("beside").to_arrow().num_rows,
    "verify": lambda table: table.maintenance.verify(deep=True).problems,
    "tags": lambda table: table.tags.names(),
    "history": lambda table: table.history().num_rows,
    "orphans": lambda table: table.inspect.system("files").num_rows,
}
CHANGES: Mapping[str, Act] = {
    "upsert": lambda table: table.upsert([{"k": 7, "v": "new"}]),
    "delete": lambda table: table.delete([{"k": 1}]),
    "compact": lambda table: table.compact(full=True),
    "alter": lambda table: table.alter(lsm.AddColumn("w", "INT")),
    "create a tag": lambda table: table.tags.create("new"),
    "rename a tag": lambda table: table.tags.rename("kept", "renamed"),
    "delete a tag": lambda table: table.tags.delete("other"),
    "create a branch": lambda table: table.branches.create("new", "old"),
    "rename a branch": lambda table: table.branches.rename("beside", "moved"),
    "delete a branch": lambda table: table.branches.delete("second"),
    "write to a branch": lambda table: table.branch("third").upsert([{"k": 7, "v": "new"}]),
    "set a consumer": lambda table: table.consumers.reset("reader", 3),
    "restore": lambda table: table.rollback_to_as_latest(3),
    "rollback": lambda table: table.rollback_to(tag="old"),
    "rescale": lambda table: table.maintenance.rescale(2),
    "remove orphans": lambda table: table.maintenance.remove_orphan_files(
        dry_run=False, older_than="1 d"
    ),
    "expire": lambda table: table.maintenance.expire(**EXPIRED),
}  # fmt: skip


def create_table(warehouse: Path) -> lsm.Table:
    """Make a table with four snapshots, tags, branches, a changelog, a consumer, and an orphan file."""
    columns = {"k": "BIGINT", "v": "STRING"}
    options = {"bucket": "1", "changelog-producer": "input"}
    with lsm.open_catalog(warehouse) as catalog:
        table = catalog.create_table("d.t", columns, primary_key="k", options=options)
        for number in range(4):
            table.upsert([{"k": key, "v": str(number)} for key in range(5)])
        for tag, snapshot in (("kept", 1), ("old", 2), ("other", 3)):
            table.tags.create(tag, snapshot)
        for branch in ("beside", "second", "third"):
            table.branches.create(branch, "old")
        table.consumers.reset("first", 2)
        orphan = Path(table.location, "bucket-0", "data-0000-0.parquet")
        orphan.write_bytes(b"x")
        os.utime(orphan, (1e9, 1e9))
        return lsm.open_table(table.location)


def attempt(act: Act, table: lsm.Table) -> dict[str, str] | None:
    """Return the error that an operation ends with, as text; None for one that is done."""
    try:
        act(table)
    except lsm.LsmError as error:
        facts = {name: str(value) for name, value in error.facts.items()}
        return {**facts, "type": type(error).__name__, "message": error.message}
    return None


def forbid(folder: Path, *, writing: bool) -> None:
    """Make directories and files of a folder read-only, or give the owner back what was taken."""
    for path in [folder, *folder.rglob("*")]:
        mode = path.stat().st_mode
        path.chmod(mode | 0o200 if writing else mode & ~0o222)


def outcomes(location: str, folder: Path) -> dict[str, dict[str, str] | None]:
    """Do everything to a table while a folder of it is read-only; return the error of each operation."""
    forbid(folder, writing=False)
    try:
        return {
            name: attempt(act, lsm.open_table(location))
            for name, act in {**READS, **CHANGES}.items()
        }
    finally:
        forbid(folder, writing=True)


def main() -> None:
    words = sys.argv[1:]
    for location, folder in zip(words[::2], words[1::2], strict=True):
        print(json.dumps(outcomes(location, Path(folder))))


if __name__ == "__main__":
    main()
