"""Real processes on one table, stopped and continued, killed and started again, while snapshots expire
as fast as they can. Writers note what was acknowledged outside of the table: all of it is there, once.
Beside rollbacks: all but what a rollback took, and nothing of that.

Tags and branches that were acknowledged are there in the end, under their last name, and hold what they held.

CI runs some kinds for seconds; the full race, 150 s for each of thirteen kinds, without and with rollbacks, and
with makers and renamers of tags and branches:

    LSM_NEMESIS_SECONDS=150 python -m pytest tests/race/test_nemesis_race.py -q -s
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import lsm_engine as lsm
from tests.fault.test_nemesis import KINDS as KINDS_OF_SCHEDULES
from tests.race.nemesis_worker import SHARED, digest, roll_back, unfinished_target

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("LSM_NEMESIS_SECONDS", "1"))
KINDS: dict[str, dict[str, str]] = {
    **KINDS_OF_SCHEDULES,
    "lookup changelog": {"bucket": "2", "changelog-producer": "lookup"},
    "full-compaction changelog": {"bucket": "1", "changelog-producer": "full-compaction"},
    "written changelog": {"bucket": "1", "changelog-producer": "input"},
    "bitmap64 vectors": {
        "bucket": "1", "deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true",
    },
    "trash": {"bucket": "1", "maintenance.trash-retained": "1 h"},
}  # fmt: skip
IN_CI = ("append", "aggregation")
ROLLED_BACK_IN_CI = ("partial-update",)
NAMED_IN_CI = ("fixed",)
ROLES = ["write", "write", "write", "compact", "expire", "orphans", "tag", "read"]
TAGGING_ROLES = ["write", "compact", "expire", "orphans", "name tags", "name tags", "rename"]
NAMING_ROLES = [*TAGGING_ROLES, "name branches", "name branches"]

pytestmark = pytest.mark.race


class Racers:
    """The processes, by place; one that was killed is followed by another with a number of its own."""

    def __init__(self, location: str, folder: Path, kind: str, roles: list[str]) -> None:
        self.roles = roles
        self._command = [sys.executable, "-m", "tests.race.nemesis_worker", location]
        self._folder, self._kind = folder, kind
        self.gate = folder / "gate"
        self.gate.touch()
        self._count = 0
        self.all: dict[int, subprocess.Popen[bytes]] = {}
        self.said = (folder / "said").open("wb")
        for place in range(len(roles)):
            self.start(place)

    def start(self, place: int) -> None:
        self._count += 1
        log = self._folder / f"log-{self._count}"
        given = [str(self.gate), str(log), str(self._count), self.roles[place], self._kind]
        self.all[place] = subprocess.Popen(
            [*self._command, *given], stdout=self.said, stderr=self.said, cwd=ROOT
        )

    def wait_for_commits(self) -> None:
        """Return when every writer has committed: on a busy machine they take their time to start."""
        last = time.monotonic() + 120
        count = self.roles.count("write")
        logs = [self._folder / f"log-{place + 1}" for place in range(count)]
        while time.monotonic() < last:
            if all(log.exists() and "acknowledged" in log.read_text() for log in logs):
                return
            time.sleep(0.1)

    def kill(self, place: int) -> None:
        self.all[place].kill()
        self.all[place].wait()

    def end(self, location: str) -> list[int]:
        """Close the gate; a rollback that died is finished, as writers wait for it."""
        self.gate.unlink()
        for racer in self.all.values():
            racer.send_signal(signal.SIGCONT)
        if "rollback" in self.roles:
            self.all[self.roles.index("rollback")].wait(timeout=120)
        while unfinished_target(self._folder) is not None:
            roll_back(lsm.open_table(location), self._folder / "log-1000000")
        codes = [racer.wait(timeout=120) for racer in self.all.values()]
        self.said.close()
        return codes


def race(location: str, folder: Path, kind: str, seconds: float, roles: list[str] = ROLES) -> None:
    """Stop and continue, now and then kill, by a dice that is thrown the same each time."""
    dice = random.Random(kind)
    racers = Racers(location, folder, kind, roles)
    try:
        racers.wait_for_commits()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            places = dice.sample(range(len(roles)), dice.randint(1, 3))
            for place in places:
                racers.all[place].send_signal(signal.SIGSTOP)
            time.sleep(dice.choice([0.05, 0.2, 0.6, 1.5]))
            if dice.random() < 0.1:
                racers.kill(places[0])
                racers.start(places[0])
            for place in places:
                racers.all[place].send_signal(signal.SIGCONT)
            time.sleep(dice.choice([0.0, 0.05, 0.3]))
        codes = racers.end(location)
        assert codes == [0] * len(roles), (folder / "said").read_text()[-2000:]
    finally:
        for racer in racers.all.values():
            racer.kill()
            racer.wait()


@dataclass
class Noted:
    """What the processes noted; times in nanoseconds."""

    tried: dict[int, int] = field(default_factory=dict)  # when each key was begun
    known: dict[int, tuple[int, int, str]] = field(default_factory=dict)  # key: when, id, uuid
    failed: set[int] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)  # uuids of what rollbacks reported as gone
    open: list[tuple[int, int, int]] = field(
        default_factory=list
    )  # target, from, to: died or failed
    done: list[tuple[int, int]] = field(default_factory=list)  # target, when it was begun

    @property
    def survivors(self) -> set[int]:
        """Acknowledged keys that no rollback can have taken."""
        return {
            key
            for key, (_, number, uuid) in self.known.items()
            if uuid not in self.taken
            and not any(number > target and self.tried[key] < end for target, _, end in self.open)
        }

    @property
    def gone(self) -> set[int]:
        """Acknowledged keys that a rollback took for certain."""
        return {
            key
            for key, (when, number, uuid) in self.known.items()
            if uuid in self.taken
            or any(number > target and when < begun for target, begun in self.done)
        }


def noted(folder: Path) -> Noted:
    found = Noted()
    rollbacks: list[tuple[int, str, int]] = []
    for log in folder.glob("log-*"):
        for line in log.read_text().splitlines():
            match line.split():
                case ["trying", key, when]:
                    found.tried[int(key)] = int(when)
                case ["acknowledged", key, when, number, uuid]:
                    found.known[int(key)] = (int(when), int(number), uuid)
                case ["failed", key, *_]:
                    found.failed.add(int(key))
                case ["rolling" | "rolled" | "gave-up" as word, target, when, *uuids]:
                    found.taken.update(uuids)
                    rollbacks.append((int(when), word, int(target)))
    begun: list[tuple[int, int]] = []  # (target, when) of those that have not come to an end
    for when, word, target in sorted(rollbacks):
        if word == "rolling":
            begun.append((target, when))
            continue
        if word == "rolled":
            found.done.append(begun.pop())
        found.open += [(target, since, when) for target, since in begun]
        begun = []
    assert not begun, "the last rollback is finished before"
    return found


def run(warehouse: str, folder: Path, kind: str, seconds: float, roles: list[str] = ROLES) -> None:
    """Race on a new table of a kind, and check what is left of it against what the writers noted."""
    options = {"commit.max-retries": "1000", **KINDS[kind]}
    with lsm.open_catalog(f"sqlite:///{folder}/c.db", warehouse=warehouse) as catalog:
        columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
        key = [] if kind == "append" else ["k"]
        location = catalog.create_table("db.t", columns, primary_key=key, options=options).location
    race(location, folder, kind, seconds, roles)
    check(kind, location, folder)


def check(kind: str, location: str, folder: Path) -> None:
    notes = noted(folder)
    assert notes.known, (folder / "said").read_text()[-2000:]
    table = lsm.open_table(location)
    report = table.verify()
    ghosts = [one for one in report.problems if "never counted" in one]
    assert list(report.problems) == ghosts, report.problems
    table.compact(full=True)
    rows = lsm.open_table(location).scan().to_arrow().to_pylist()
    keys = [row["k"] for row in rows if row["k"] != SHARED]
    there, known = set(keys), notes.survivors
    print(
        f"{kind}: {len(notes.known)} acknowledged of {len(notes.tried)}, {len(notes.done)} rollbacks and "
        f"{len(notes.open)} that died or failed, {len(notes.gone)} taken, {len(known)} have to be there, "
        f"{len(keys)} there, {len(ghosts)} ghosts"
    )
    assert len(keys) == len(there), "doubled"
    assert known <= there, f"lost {sorted(known - there)[:10]} of {len(known)}"
    # The result of a write with postponed buckets is the compaction that gives them.
    assert kind == "postponed" or not there & notes.gone, "there, and rolled back"
    assert not there & notes.failed, "there, and reported as failed"
    assert there <= notes.tried.keys()
    if kind == "aggregation":
        assert [row["v"] for row in rows if row["k"] == SHARED] == [len(keys)]
    check_names(table, folder)
    for tag in table.tags():
        tagged = set(table.scan(tag=tag.name).to_arrow().column("k").to_pylist()) - {SHARED}
        assert tagged <= (notes.tried.keys() if notes.done or notes.open else there), tag.name
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert lsm.open_table(location).verify().is_clean


@dataclass
class NamedThings:
    """What was noted of the tags, or of the branches."""

    made: set[str] = field(default_factory=set)
    renames: list[tuple[str, str]] = field(default_factory=list)  # acknowledged, or nobody knows
    failed: list[tuple[str, str]] = field(default_factory=list)  # of these
    deletions: set[str] = field(default_factory=set)  # acknowledged, or nobody knows
    deleted: set[str] = field(default_factory=set)
    commits: list[tuple[str, int]] = field(default_factory=list)

    def names_of(self, name: str) -> set[str]:
        """Return every name that something may have been given since it had this one."""
        names = {name}
        while True:
            more = {new for old, new in self.renames if old in names} - names
            if not more:
                return names
            names |= more


def noted_names(folder: Path) -> tuple[dict[str, NamedThings], dict[str, str]]:
    """Return what was noted of tags and branches, and the contents of tags."""
    things = {"tag": NamedThings(), "branch": NamedThings()}
    contents: dict[str, str] = {}
    for log in folder.glob("log-*"):
        lines = [line.split() for line in log.read_text().splitlines()]
        # What a process was told has failed, another one may have done: failures count in their own log.
        for words, next_words in pairwise([*lines, []]):
            has_failed = next_words == [f"failed-{words[0]}", *words[1:]]
            match words:
                case ["named", kind, name]:
                    things[kind].made.add(name)
                case ["renaming", kind, old, new] if not has_failed:
                    things[kind].renames.append((old, new))
                case ["deleting", kind, name] if not has_failed:
                    things[kind].deletions.add(name)
                case ["deleted", kind, name]:
                    things[kind].deleted.add(name)
                case ["committed", kind, name, key]:
                    things[kind].commits.append((name, int(key)))
                case ["content", name, content]:
                    contents[name] = content
    return things, contents


def check_names(table: lsm.Table, folder: Path) -> None:
    """Every tag and branch that was acknowledged is there, unless it was deleted, and holds what it held."""
    things, contents = noted_names(folder)
    there = {"tag": set(table.tag_names()), "branch": set(table.branches())}
    for kind, noted_ones in things.items():
        for name in noted_ones.made:
            names = noted_ones.names_of(name)
            if not names & noted_ones.deletions:
                assert names & there[kind], f"{kind} {name} is lost: {sorted(names)}"
        assert not noted_ones.deleted & there[kind], "deleted, and there again"
    for name, content in contents.items():
        for now in things["tag"].names_of(name) & there["tag"]:
            assert digest(table, now) == content, f"tag {name}, now {now}, holds other rows"
    rows = {
        name: set(table.branch(name).scan().to_arrow().column("k").to_pylist())
        for name in there["branch"]
    }
    for name, key in things["branch"].commits:
        names = things["branch"].names_of(name)
        if not names & things["branch"].deletions:
            assert any(key in rows[now] for now in names & rows.keys()), f"{key} of {name} is lost"
    made = {kind: len(noted_ones.made) for kind, noted_ones in things.items()}
    renamed = {kind: len(noted_ones.renames) for kind, noted_ones in things.items()}
    print(f"made {made}, renamed {renamed}, {len(things['branch'].commits)} commits on branches")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost_or_doubled(kind: str, tmp_path: Path) -> None:
    if kind not in IN_CI and "LSM_NEMESIS_SECONDS" not in os.environ:
        pytest.skip("of the full race, see above")
    run(str(tmp_path), tmp_path, kind, SECONDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollback_takes_what_it_reports_and_nothing_else(kind: str, tmp_path: Path) -> None:
    """A process rolls back all the time, is killed over it, and the next one finishes that."""
    if kind not in ROLLED_BACK_IN_CI and "LSM_NEMESIS_SECONDS" not in os.environ:
        pytest.skip("of the full race, see above")
    run(str(tmp_path), tmp_path, kind, SECONDS, [*ROLES, "rollback"])


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_what_was_acknowledged(kind: str, tmp_path: Path) -> None:
    """Processes make, prolong, rename and delete tags, and are killed over it, beside expiry."""
    if kind not in NAMED_IN_CI and "LSM_NEMESIS_SECONDS" not in os.environ:
        pytest.skip("of the full race, see above")
    run(str(tmp_path), tmp_path, kind, SECONDS, TAGGING_ROLES)


@pytest.mark.parametrize("kind", KINDS)
def test_tags_and_branches_are_what_was_acknowledged(kind: str, tmp_path: Path) -> None:
    """The same with makers of branches, which commit on them while they are renamed."""
    if "LSM_NEMESIS_SECONDS" not in os.environ:
        pytest.skip("of the full race, see above")
    run(str(tmp_path), tmp_path, kind, SECONDS, NAMING_ROLES)
