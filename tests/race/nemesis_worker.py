"""One process of the nemesis race: it goes on until the gate closes, is stopped and is killed.

    python -m tests.race.nemesis_worker TABLE GATE LOG NUMBER ROLE KIND

A writer notes each commit in a file of its own, outside the table and durably: "trying" before, and
"acknowledged" or "failed" after. Whoever is killed leaves its last one open.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.base.errors import CommitUnknownError, LsmError

SHARED = 0


def main() -> None:
    """Act a role while the gate is there."""
    path, gate, log, number, role, kind = sys.argv[1:]
    table = lsm.open_table(path)
    turn = 0
    while Path(gate).exists():
        turn += 1
        if role == "write":
            write(table, Path(log), int(number) * 1_000_000 + turn, kind)
            continue
        try:
            act(table, role, turn)
        except LsmError as error:  # what goes under them is reported to them
            print(role, repr(error)[:200], flush=True)
        time.sleep(0.02)


def write(table: lsm.Table, log: Path, key: int, kind: str) -> None:
    """Commit one row of its own, and one that all add to."""
    rows = pa.table({"k": pa.array([key, SHARED], pa.int64()), "v": pa.array([1, 1], pa.int64())})
    note(log, f"trying {key}")
    try:
        made = table.append(rows) if kind == "append" else table.upsert(rows)
    except CommitUnknownError:
        return
    except LsmError as error:
        note(log, f"failed {key} {error.kind.value}")
        return
    note(log, f"acknowledged {key} {0 if made is None else made.id}")


def note(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def act(table: lsm.Table, role: str, turn: int) -> None:
    match role:
        case "compact":
            table.compact(full=turn % 3 == 2)
        case "expire":
            table.expire_snapshots(retain_min=1, retain_max=2, older_than="1 ms")
        case "orphans":
            table.remove_orphan_files(dry_run=False, older_than="1 d")
        case "tag":
            names = [tag.name for tag in table.tags()]
            if len(names) > 3:
                table.delete_tag(names[0])
            table.create_tag(f"tag-{time.time_ns()}")
        case "read":
            keys = [key for key in table.scan().to_arrow().column("k").to_pylist() if key != SHARED]
            assert len(keys) == len(set(keys)), "a reader sees a key twice"


if __name__ == "__main__":
    main()
