"""One process of the nemesis race: it goes on until the gate closes, is stopped and is killed.

    python -m tests.race.nemesis_worker TABLE GATE LOG NUMBER ROLE KIND

A writer notes each commit in a file of its own, outside the table and durably: "trying" before, and
"acknowledged" or "failed" after, with the time in nanoseconds. Whoever rolls back notes "rolling", and
"rolled" with the uuids of what it took. Whoever is killed leaves its last one open.
"""

import os
import random
import sys
import time
from pathlib import Path

import pyarrow as pa

import lsm_engine as lsm
from lsm_engine.base.errors import CommitConflictError, CommitUnknownError, LsmError

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
        if role == "rollback":
            roll_back(table, Path(log))
            time.sleep(random.uniform(0.5, 2.0))
            continue
        try:
            act(table, role, turn)
        except LsmError as error:  # what goes under them is reported to them
            print(role, repr(error)[:200], flush=True)
        time.sleep(0.02)


def write(table: lsm.Table, log: Path, key: int, kind: str) -> None:
    """Commit one row of its own, and one that all add to."""
    rows = pa.table({"k": pa.array([key, SHARED], pa.int64()), "v": pa.array([1, 1], pa.int64())})
    note(log, f"trying {key} {time.time_ns()}")
    try:
        made = table.append(rows) if kind == "append" else table.upsert(rows)
    except CommitUnknownError:
        return
    except LsmError as error:
        note(log, f"failed {key} {error.kind.value}")
        return
    assert made is not None
    note(log, f"acknowledged {key} {time.time_ns()} {made.id} {made.uuid}")


def roll_back(table: lsm.Table, log: Path) -> None:
    """Return to one of the newest snapshots, or finish what was begun, by one that was killed."""
    target = unfinished_target(log.parent)
    if target is None:
        others = table.snapshots()[-4:-1]
        if not others:
            return
        target = random.choice(others).id
    note(log, f"rolling {target} {time.time_ns()}")
    try:
        taken = table.rollback_to(target).plan.snapshots
    except CommitConflictError as error:  # to be done again: it may be decided already
        print("rollback", repr(error)[:200], flush=True)
        return
    except LsmError as error:  # the target has gone
        print("rollback", repr(error)[:200], flush=True)
        note(log, f"gave-up {target} {time.time_ns()}")
        return
    note(log, f"rolled {target} {time.time_ns()} {' '.join(str(one.uuid) for one in taken)}")


def unfinished_target(folder: Path) -> int | None:
    """Return the target of the last rollback if it has not come to an end; there is one process at a time."""
    logs = [path for path in folder.glob("log-*") if path.read_text().startswith("rolling ")]
    if not logs:
        return None
    newest = max(logs, key=lambda path: int(path.name.removeprefix("log-")))
    word, target, *_ = newest.read_text().splitlines()[-1].split()
    return int(target) if word == "rolling" else None


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
            names = [tag.name for tag in table.tags() if tag.name.startswith("tag-")]
            if len(names) > 3:
                table.delete_tag(names[0])
            table.create_tag(f"tag-{time.time_ns()}")
        case "read":
            keys = [key for key in table.scan().to_arrow().column("k").to_pylist() if key != SHARED]
            assert len(keys) == len(set(keys)), "a reader sees a key twice"


if __name__ == "__main__":
    main()
