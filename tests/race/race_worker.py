"""One racer: commits to a table as fast as it can, and prints every commit that was acknowledged.

    python -m tests.race.race_worker TABLE GATE NUMBER COMMITS ROLE

Roles: write (own keys, and a few that all share), compact, tend (tags and expires), read (whole and filtered), and
parts of upkeep by themselves.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lsm_engine as lsm
from lsm_engine.base.errors import CommitConflictError, LsmError

SHARED_KEYS = 5


def main() -> None:
    """Wait for the gate, then race."""
    path, gate, number, commits, role = sys.argv[1:]
    table = lsm.open_table(path)
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(0.001)
    match role:
        case "write":
            write(table, int(number), int(commits))
        case "compact":
            compact(table, Path(gate))
        case "tend":
            tend(table, Path(gate), int(number))
        case "read":
            repeat(gate, role, lambda _: read_filtered(table))
        case "expire":
            repeat(gate, role, lambda _: expire(table))
        case "tag":
            tags: list[str] = []
            repeat(gate, role, lambda turn: move_tags(table, tags, turn))
        case "orphans":
            # A reader of old metadata may find it expired: nothing is deleted then.
            repeat(gate, role, lambda _: table.remove_orphan_files(dry_run=False, older_than="1 d"))
        case "rebuild":
            folder = Path(path).parents[1]
            with lsm.open_catalog(f"sqlite:///{folder}/catalog.db", warehouse=str(folder)) as books:
                repeat(gate, role, lambda _: books.rebuild())


def write(table: lsm.Table, number: int, commits: int) -> None:
    """Each commit writes one key of its own and a counter that every racer overwrites."""
    for count in range(commits):
        own = number * 1_000_000 + count
        rows = pa.table(
            {
                "k": pa.array([own, -1 - count % SHARED_KEYS], pa.int64()),
                "writer": pa.array([number, number], pa.int64()),
                "count": pa.array([count, count], pa.int64()),
            }
        )
        try:
            made = table.upsert(rows, commit_user=f"racer-{number}", commit_identifier=count + 1)
        except LsmError as error:
            print("failed", own, repr(error), flush=True)
            continue
        assert made is not None
        print("acknowledged", own, made.id, flush=True)


def compact(table: lsm.Table, gate: Path) -> None:
    """Compact until the gate closes; losing to others is no failure."""
    rounds = 0
    while gate.exists():
        try:
            table.compact(full=rounds % 3 == 2)
        except CommitConflictError:
            print("conflict", rounds, flush=True)
        rounds += 1
        time.sleep(0.05)
    print("compacted", rounds, flush=True)


def repeat(gate: str, role: str, act: Callable[[int], object]) -> None:
    """Act until the gate closes; what expired under a reader is told, anything else is a failure."""
    rounds = missed = 0
    while Path(gate).exists():
        rounds += 1
        try:
            act(rounds)
        except lsm.NotFoundError:
            missed += 1
        time.sleep(0.1)
    print(role, rounds, missed, flush=True)


def read_filtered(table: lsm.Table) -> None:
    """A filter finds in a snapshot what is in all of it."""
    newest = table.latest_snapshot()
    if newest is None:
        return
    whole = table.scan(snapshot_id=newest.id).to_arrow().sort_by("k")
    for where in (pc.field("writer") == 1, pc.field("k") < 0, pc.field("count") == 3):
        found = table.scan(snapshot_id=newest.id, where=where).to_arrow().sort_by("k")
        assert found.equals(whole.filter(where)), (newest.id, where)


def expire(table: lsm.Table) -> None:
    table.expire_snapshots(retain_min=20, retain_max=40, older_than="1 s")


def move_tags(table: lsm.Table, tags: list[str], turn: int) -> None:
    """Create, rename, move and delete tags of the newest snapshots."""
    if table.latest_snapshot() is None:
        return
    if tag(table, f"made-{turn}"):
        tags.append(table.rename_tag(f"made-{turn}", f"named-{turn}").name)
    if len(tags) > 1:
        table.replace_tag(tags[0])
    if len(tags) > 3:
        table.delete_tag(tags.pop(0))


def tend(table: lsm.Table, gate: Path, number: int) -> None:
    """Tag and expire until the gate closes."""
    tags: list[str] = []
    rounds = 0
    while gate.exists():
        if table.latest_snapshot() is not None:
            rounds += 1
            if tag(table, f"tag-{number}-{rounds}"):
                tags.append(f"tag-{number}-{rounds}")
            if len(tags) > 3:
                table.delete_tag(tags.pop(0))
            table.expire_snapshots(retain_min=20, retain_max=40, older_than="1 s")
        time.sleep(0.1)
    print("tended", rounds, flush=True)


def tag(table: lsm.Table, name: str) -> bool:
    """Tag the newest snapshot; False if so many others followed that it expired meanwhile."""
    try:
        table.create_tag(name)
    except lsm.NotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
