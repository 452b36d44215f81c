"""Random histories on a table of Java 0.9.0 and on one of ours: equal rows, equal changelogs, equal picks.

Merge engines as in test_merge_engines_lockstep, each with the changelog producers that it goes with,
with and without deletion vectors. ``LSM_CHANGELOG_LOCKSTEP`` says how many histories of each are
tried (default 0: one history of a few of them); 5 make more than 300.
"""

import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.lsm.levels import Levels
from lsm_engine.lsm.universal import ForceUpLevelZero, UniversalCompaction, pick_full
from lsm_engine.options.modes import CommitKind, EntryKind
from lsm_engine.table.merge_rules import looks_up_older_rows
from tests.interop.clients import Client, ClientError
from tests.interop.test_merge_engines_lockstep import PROFILES, Lockstep, Profile, reads

pytestmark = pytest.mark.interop

SEEDS = int(os.environ.get("LSM_CHANGELOG_LOCKSTEP", "0"))
SAMPLE = {
    ("deduplicate", "lookup", True),
    ("partial-update", "lookup", False),
    ("sequence-groups", "full-compaction", False),
    ("aggregation", "lookup", True),
}


def is_first_row(profile: Profile) -> bool:
    return profile.options.get("merge-engine") == "first-row"


# What Java 0.9.0 makes of some rows depends on whether their older rows are looked up or lie in the
# same compaction (docs/decisions/0018).
NOT_LOOKED_UP = ("aggregation-sequence", "sequence-groups-delete")


def combinations() -> list[tuple[str, str, bool]]:
    """Profile, producer, and with or without deletion vectors."""
    found = []
    for name, profile in PROFILES.items():
        producers = ["none", "input", "lookup", "full-compaction"]
        if is_first_row(profile):
            producers = ["none", "lookup"]
        for producer in producers if name != "rowkind-field" else ():
            if producer != "lookup" or name not in NOT_LOOKED_UP:
                found.append((name, producer, False))
            marks = producer != "full-compaction" and not is_first_row(profile)
            if marks and name not in NOT_LOOKED_UP:
                found.append((name, producer, True))
    return found


def with_changelog(
    profile: Profile, producer: str, dice: random.Random, *, vectors: bool
) -> Profile:
    """The profile of a table that makes a changelog."""
    options = profile.options | {
        "changelog-producer": producer,
        "num-sorted-run.compaction-trigger": str(dice.choice([2, 3, 5])),
    }
    if vectors:
        options["deletion-vectors.enabled"] = "true"
    if producer in ("lookup", "full-compaction") and dice.random() < 0.4:
        options["changelog-producer.row-deduplicate"] = "true"
    if producer in ("input", "full-compaction"):
        # Their sizes would decide when something reaches the last level.
        options["num-sorted-run.compaction-trigger"] = "100"
        options["num-levels"] = "4"
        options["write-only"] = "true"
    elif producer == "none" and not vectors and not is_first_row(profile):
        options["write-only"] = "true"
    else:
        options["write-only"] = "false"
    return Profile(
        columns=profile.columns,
        options=options,
        kinds=profile.kinds,
        clocks=profile.clocks,
        only_what_is_there=profile.only_what_is_there,
        null_share=profile.null_share,
        java_options={} if producer != "none" else profile.java_options,
    )


class WithChangelog(Lockstep):
    """A history whose changelogs are compared as well."""

    def __init__(self, profile: Profile, java: Client, folder: Path, dice: random.Random) -> None:
        super().__init__(profile, java, folder, dice)
        self.seen = {"java": 0, "ours": 0}
        self.picks = 0

    def _row(self) -> tuple[str, dict[str, Any]]:
        kind, row = super()._row()
        if "sequence.field" not in self.profile.options:
            # What becomes of a lone row with a null clock depends on how Java's rows lie in files.
            for name in self.profile.clocks:
                row[name] = self.dice.randint(0, 4) if row[name] is None else row[name]
        return kind, row

    def check(self) -> None:
        super().check()
        self.check_changes()
        self.check_picks()

    def check_changes(self) -> None:
        ours = self.changes("ours", self.ours)
        theirs = self.changes("java", lsm.open_table(str(self.theirs)))
        if self.profile.java_options:
            return  # a changelog that only Java was asked for
        if is_first_row(self.profile):
            # Java tells a new key as the kind of row that it came as; ours is always an insert.
            theirs = [("+I", row) for _, row in theirs]
        if self.profile.options["changelog-producer"] == "input":
            # Java puts rows of one commit and key in the order of the sequence field, not of arrival.
            ours, theirs = (sorted(each, key=repr) for each in (ours, theirs))
        assert ours == theirs, self.log

    def changes(self, side: str, table: lsm.Table) -> list[tuple[str, Any]]:
        """What the new snapshots of a table tell, as Java reads it."""
        found: list[tuple[str, Any]] = []
        for snapshot in self.new_snapshots(side, table):
            if snapshot.changelog_manifest_list is not None:
                changes = self.java.changes(table.location, snapshot.id)
                assert snapshot.changelog_record_count == len(changes), self.log
                found += changes
        return found

    def new_snapshots(self, side: str, table: lsm.Table) -> list[Snapshot]:
        new = [one for one in table.snapshots() if one.id > self.seen[side]]
        self.seen[side] = max((one.id for one in new), default=self.seen[side])
        return sorted(new, key=lambda one: one.id)

    def check_picks(self) -> None:
        """What Java has compacted, our strategies would have picked from the same files."""
        table = lsm.open_table(str(self.theirs))
        session = table.session
        options = session.options
        by_id = {one.id: one for one in table.snapshots()}
        for number in range(self.picks + 1, max(by_id, default=0) + 1):
            self.picks = number
            snapshot = by_id[number]
            if snapshot.commit_kind is not CommitKind.COMPACT:
                continue
            assert session.key_order is not None
            files = [entry.file for entry in session.live_entries(by_id[number - 1])]
            levels = Levels.from_files(
                files, level_count=options.level_count, key_order=session.key_order
            )
            delta = [
                entry
                for meta in session.manifests.read_list(snapshot.delta_manifest_list)
                for entry in session.manifests.read_entries(meta)
            ]
            taken = {entry.file.file_name for entry in delta if entry.kind is EntryKind.DELETE}
            made = {entry.file.level for entry in delta if entry.kind is EntryKind.ADD}
            if not delta:
                continue
            units = [pick_full(levels.runs, max_level=levels.max_level)]
            forced = looks_up_older_rows(options) or is_first_row(self.profile)
            strategy = (ForceUpLevelZero if forced else UniversalCompaction).from_options(
                options, hour=0
            )
            asked_fully = self.log and self.log[-1] == "compact full=True"
            if not asked_fully:
                units = [strategy.pick(levels.runs, max_level=levels.max_level)]
            (unit,) = units
            assert unit is not None, self.log
            moves = {file.file_name for file in unit.files if file.level != unit.output_level}
            assert moves <= taken <= {file.file_name for file in unit.files}, self.log
            assert made <= {unit.output_level}, self.log


def run(name: str, producer: str, seed: int, java: Client, folder: Path, *, vectors: bool) -> None:
    dice = random.Random(f"{name} {producer} {vectors} {seed}")
    profile = with_changelog(PROFILES[name], producer, dice, vectors=vectors)
    pair = WithChangelog(profile, java, folder, dice)
    try:
        for _ in range(dice.randint(4, 12)):
            pair.write()
            pair.check()
            if dice.random() < 0.35:
                pair.compact(full=dice.random() < 0.4)
                pair.check()
        pair.check_each_other()
    except ClientError as error:
        # Java 0.9.0 now and then writes a data file that no reader of Parquet can read, itself
        # included; its table ends there.
        if "ParquetDecodingException" not in str(error) or reads(pair.theirs):
            raise


def chosen() -> Iterable[Any]:
    return [
        pytest.param(*each, seed, id=f"{each[0]}-{each[1]}{'-vectors' * each[2]}-{seed}")
        for each in combinations()
        for seed in range(SEEDS or int(each in SAMPLE))
    ]


@pytest.mark.parametrize(("name", "producer", "vectors", "seed"), chosen())
def test_equal_rows_and_changes(
    name: str, producer: str, seed: int, java: Client, tmp_path: Path, *, vectors: bool
) -> None:
    run(name, producer, seed, java, tmp_path, vectors=vectors)
