"""One process of the nemesis race: it goes on until the gate closes, is stopped and is killed.

    python -m tests.race.nemesis_worker TABLE GATE LOG NUMBER ROLE KIND

A writer notes each commit in a file of its own, outside the table and durably: "trying" before, and
"acknowledged" or "failed" after, with the time in nanoseconds. Whoever rolls back notes "rolling", and
"rolled" with the uuids of what it took. Whoever makes, renames or deletes a tag or branch notes that in the
same way: "naming", "named", "renaming", "renamed", "deleting", "deleted". Whoever is killed leaves its last one open.
"""

import hashlib
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        if role in NAMING:
            NAMING[role](Names(table, Path(log), f"{number}-{turn}"), kind)
            time.sleep(random.uniform(0.02, 0.2))
            continue
        try:
            act(table, role, turn)
        except LsmError as error:  # what goes under them is reported to them
            print(role, repr(error)[:200], flush=True)
        time.sleep(0.02)


def write(table: lsm.Table, log: Path, key: int, kind: str) -> None:
    """Commit one row of its own, and one that all add to."""
    note(log, f"trying {key} {time.time_ns()}")
    try:
        made = commit(table, key, kind)
    except CommitUnknownError:
        return
    except LsmError as error:
        note(log, f"failed {key} {error.kind.value}")
        return
    assert made is not None
    note(log, f"acknowledged {key} {time.time_ns()} {made.id} {made.uuid}")


def commit(table: lsm.Table, key: int, kind: str) -> Any:
    rows = pa.table({"k": pa.array([key, SHARED], pa.int64()), "v": pa.array([1, 1], pa.int64())})
    return table.append(rows) if kind == "append" else table.upsert(rows)


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


class Names:
    """Makes, renames and deletes tags and branches of a table, and notes what was acknowledged."""

    def __init__(self, table: lsm.Table, log: Path, suffix: str) -> None:
        self.table = table
        self.suffix = suffix
        self._log = log

    def noted(self, begun: str, done: str, text: str, act: Callable[[], object]) -> bool:
        """Act between two notes; return whether it was acknowledged. The second is left out where nobody knows."""
        note(self._log, f"{begun} {text}")
        try:
            act()
        except CommitUnknownError:
            return False
        except LsmError as error:
            note(self._log, f"failed-{begun} {text}")
            print(begun, text, repr(error)[:200], flush=True)
            return False
        note(self._log, f"{done} {text}")
        return True

    def delete_surplus(self, kind: str, names: list[str], delete: Callable[[str], object]) -> None:
        """Delete one of several names at random."""
        if len(names) > KEPT_NAMES:
            name = random.choice(names)
            self.noted("deleting", "deleted", f"{kind} {name}", lambda: delete(name))


KEPT_NAMES = 4


def name_tags(names: Names, kind: str) -> None:
    """Make a tag of the newest snapshot, note what it names, prolong one, delete one."""
    del kind
    table, name = names.table, f"tag-{names.suffix}"
    if names.noted("naming", "named", f"tag {name}", lambda: table.create_tag(name)):
        try:
            note(names._log, f"content {name} {digest(table, name)}")
        except LsmError as error:  # it was renamed or deleted already
            print("content", name, repr(error)[:200], flush=True)
    mine = [one for one in table.tag_names() if one.startswith(("tag-", "renamed-"))]
    if mine:
        prolonged = random.choice(mine)
        try:
            table.replace_tag(prolonged, table.tag(prolonged).snapshot.id, "9 d")
        except LsmError as error:
            print("prolong", prolonged, repr(error)[:200], flush=True)
    names.delete_surplus("tag", mine, table.delete_tag)


def digest(table: lsm.Table, tag: str) -> str:
    """Return what tells apart the rows of a tag."""
    keys = sorted(table.scan(tag=tag).to_arrow().column("k").to_pylist())
    return hashlib.sha256(repr(keys).encode()).hexdigest()[:16]


def name_branches(names: Names, kind: str) -> None:
    """Make a branch of a tag, commit on some branch, delete one."""
    table, name = names.table, f"branch-{names.suffix}"
    tags = [one for one in table.tag_names() if one.startswith(("tag-", "renamed-"))]
    if tags and len(table.branches()) <= KEPT_NAMES:
        tag = random.choice(tags)
        names.noted("naming", "named", f"branch {name}", lambda: table.create_branch(name, tag))
    there = table.branches()
    for chosen in random.sample(there, min(2, len(there))):
        key = 500_000_000 + random.randrange(400_000_000)
        act = lambda chosen=chosen, key=key: commit(table.branch(chosen), key, kind)  # noqa: E731
        names.noted("committing", "committed", f"branch {chosen} {key}", act)
    names.delete_surplus("branch", there, table.delete_branch)


def rename(names: Names, kind: str) -> None:
    """Rename a tag and a branch."""
    del kind
    table = names.table
    tags = [one for one in table.tag_names() if one.startswith(("tag-", "renamed-"))]
    for which, there, act in (
        ("tag", tags, table.rename_tag),
        ("branch", table.branches(), table.rename_branch),
    ):
        if there:
            old, new = random.choice(there), f"renamed-{names.suffix}"
            change = lambda act=act, old=old, new=new: act(old, new)  # noqa: E731
            names.noted("renaming", "renamed", f"{which} {old} {new}", change)


NAMING = {"name tags": name_tags, "name branches": name_branches, "rename": rename}


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
