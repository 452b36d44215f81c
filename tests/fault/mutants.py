"""Mutants of the engine, and which suite has to notice each: a suite that lets one live is blind.

    python -m tests.fault.mutants                 every mutant
    python -m tests.fault.mutants "bucket"        those whose name holds the text

Each mutant replaces a function in the running process, by dotted name, and is hunted by a small piece
of one suite. test_mutants.py hunts them in CI.
"""

import contextlib
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsm_engine.base.errors import LsmError, NotFoundError, StorageError
from lsm_engine.lsm.levels import SortedRun
from lsm_engine.options.modes import SortOrder
from lsm_engine.planning.ownership import PublishOutcome
from lsm_engine.table import bucket_context
from lsm_engine.table.components import LocalExecutor
from tests.fault import (
    test_branch_names,
    test_commit_crash,
    test_lies,
    test_power_cut,
    test_schedules,
)
from tests.fault.recording_file_io import When
from tests.fault.remembered_reads import forget_reads
from tests.fault.scenarios import SCENARIOS, _checked, outcome
from tests.model import test_stories
from tests.unit.compact import test_changelog_compaction

Hunt = Callable[[], None]


# --- hunts ----------------------------------------------------------------------------------------


def story(name: str) -> Hunt:
    """A short history against the dictionary."""
    return getattr(test_stories, name)


def tagger() -> None:
    test_schedules.test_a_tagger_and_an_expiry("all")


def killed(name: str, when: When = When.AFTER, extent: str = "sample") -> Hunt:
    return lambda: test_commit_crash.test_killed(SCENARIOS[name], when, extent)


def unanswered(name: str) -> Hunt:
    return lambda: test_commit_crash.test_a_lost_reply(SCENARIOS[name], "sample")


def unknown(name: str) -> Hunt:
    return lambda: test_commit_crash.test_an_unknown_outcome_deletes_nothing(SCENARIOS[name])


def lied_to(name: str, how: str) -> Hunt:
    return lambda: test_lies.test_a_wrong_answer_costs_no_live_file(SCENARIOS[name], how, "all")


def refused(name: str) -> Hunt:
    return lambda: test_commit_crash.test_an_error(SCENARIOS[name], "EIO", "sample")


def reader() -> None:
    test_schedules.test_a_reader_and_an_expiry("all")


def maker() -> None:
    test_branch_names.test_f01_a_maker_that_is_stopped_leaves_the_branch_of_another_alone(
        "sample", test_branch_names.with_leftovers, test_branch_names.make
    )


def renamer() -> None:
    test_branch_names.test_f05_a_commit_beside_a_rename_is_there_or_fails("sample")


def forwarder() -> None:
    test_branch_names.test_f09_a_forced_fast_forward_is_done_or_leaves_main_as_it_was(
        "sample", test_branch_names.delete_and_clean
    )


def unreadable_for_good(name: str) -> Hunt:
    test = test_lies.test_what_stays_unreadable_costs_no_live_file
    return lambda: test(SCENARIOS[name], "all")


def unreadable(name: str) -> Hunt:
    return lambda: test_commit_crash.test_a_read_that_fails(SCENARIOS[name], "all")


def power_cut(name: str) -> Hunt:
    def hunt() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test_power_cut.test_no_power_cut_tears_a_table(name, Path(folder))

    return hunt


def two_writers(ours: str, theirs: str) -> Hunt:
    acts = vars(test_schedules)
    return lambda: test_schedules.test_two_writers(acts[ours], acts[theirs], "sample")


# --- mutants --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """What is broken, where, and who has to notice. `change` makes the new value from the old one."""

    name: str
    target: str
    change: Callable[[Any], Any]
    hunt: Hunt


def instead(value: Any) -> Callable[[Any], Any]:
    """A replacement that does not ask what was there."""
    return lambda _: value


def keyword(**forced: Any) -> Callable[[Any], Any]:
    """The same function, with some arguments forced."""
    return lambda function: lambda *given, **named: function(*given, **{**named, **forced})


def returning(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same function, with its answer changed."""
    return lambda function: lambda *given, **named: change(function(*given, **named))


def overwriting_publish(_: Any) -> Any:
    def publish(self: Any, path: str, data: bytes) -> bool:
        self.replace(path, data)
        return True

    return publish


def signed_bucket(_: Any) -> Any:
    return lambda hashes, count: (hashes.astype(np.int64) % count).astype(np.int32)


def each_file_alone(_: Any) -> Any:
    return lambda files, key_order: [[SortedRun.of_one(file)] for file in files]


def snapshots_first(carry_out: Any) -> Any:
    def mutated(session: Any, plan: Any) -> None:
        for snapshot in plan.expired:
            session.snapshots.delete(snapshot.id)
        carry_out(session, plan)

    return mutated


def hint_only(_: Any) -> Any:
    return lambda self: self.find(self._hint("LATEST") or 0)


def values_first(plan: Any) -> Any:
    """Files without a match are left out before overlapping files are merged."""

    def mutated(self: Any, live: Any) -> Any:
        match = self.value_match or (lambda file: True)
        return plan(self, [entry for entry in live if match(entry.file)])

    return mutated


def of_the_old_base(propose: Any) -> Any:
    """An overwrite takes away what it saw when it began."""

    def mutated(session: Any, proposal: Any, *given: Any) -> Any:
        if proposal.choose is not None:
            chosen = proposal.choose(proposal.planned_on)
            proposal = replace(proposal, choose=lambda _: chosen)
        return propose(session, proposal, *given)

    return mutated


M = "lsm_engine."
MUTANTS = (
    # Merging.
    Mutant("the oldest row wins", M + "merge.selection.last_of_each", instead(lambda starts, _: starts), story("row_kinds")),
    Mutant("sequence numbers count backwards", M + "merge.sequence.fixed_values", returning(lambda numbers: -numbers), story("row_kinds")),
    Mutant("the sort order is ignored", M + "merge.sequence.UserSequence.from_schema", returning(lambda made: replace(made, order=SortOrder.ASCENDING)), story("the_smaller_sequence_decides")),
    Mutant("the user's sequence is ignored", M + "merge.sequence.UserSequence.ranks", instead(lambda self, rows: None), story("the_users_sequence_decides")),
    Mutant("deletes are kept when reading", M + "merge.selection.adds", returning(lambda kept: kept | True), story("row_kinds")),
    Mutant("-U rows are rows", M + "merge.selection.adds", instead(lambda kinds: kinds != 3), story("row_kinds")),
    Mutant("deletes are dropped although older rows lie below", M + "lsm.rewrite_plan.may_drop_deletes", returning(lambda _: True), story("deletes_above_a_deep_level")),
    Mutant("deletes are never dropped", M + "lsm.rewrite_plan.may_drop_deletes", returning(lambda _: False), story("deletes_above_a_deep_level")),
    Mutant("overlapping files are read raw", M + "planning.scan.sections", each_file_alone, story("a_replaced_value_is_not_found")),
    Mutant("overlapping files are not merged by compaction", M + "lsm.rewrite_plan.sections", each_file_alone, story("rows_are_cut_everywhere")),
    Mutant("rows equal to the bound wait for the next cut", M + "read.merge.upper_bound", returning(lambda at: max(0, at - 1)), story("rows_are_cut_everywhere")),
    Mutant("writers number rows from zero", M + "table.bucket_context.Staging.next_sequence_number", instead(lambda self, partition, bucket: 0), story("row_kinds")),
    # Files and their statistics.
    Mutant("nobody counts deletes", M + "data_files.writer.OpenFile.close", returning(lambda file: replace(file, meta=replace(file.meta, delete_row_count=0))), story("row_kinds")),
    Mutant("maxima are cut and not rounded up", M + "format.stats.truncated_upper", instead(lambda text, length: text[:length]), story("statistics_at_their_edges")),
    Mutant("the last key of a file is its first", M + "data_files.writer._stored_ends", returning(lambda ends: [(first, first) for first, _ in ends]), story("row_kinds")),
    Mutant("sequence ranges are one off", M + "data_files.writer.OpenFile.close", returning(lambda file: replace(file, meta=replace(file.meta, min_sequence_number=file.meta.min_sequence_number - 1))), story("row_kinds")),
    Mutant("bucket without abs", M + "table.bucket_keys.bucket_of", signed_bucket, story("an_emptied_table")),
    Mutant("partition names are not escaped", M + "format.partition_path.escape", instead(lambda text: text), story("partitions_with_any_name")),
    # What compactions tell and hide.
    Mutant("level 0 moves up untold", M + "compact.plan._Planner._must_rewrite", instead(lambda *given, **named: False), test_changelog_compaction.test_a_lone_file_is_rewritten_where_it_has_to_be_told),
    Mutant("a -U parts from its +U", M + "data_files.writer.DataFileWriter._uncut", instead(lambda self, waiting, count: count), test_changelog_compaction.test_a_pair_is_never_parted),
    Mutant("older rows are not hidden", M + "compact.lookup.LookupRewriter._mark", instead(lambda self, positions: None), test_changelog_compaction.test_replaced_rows_are_marked_and_deletes_are_not_kept),
    Mutant("a lookup finds hidden rows", M + "table.deletion_vectors.BucketDeletions.deleted", returning(lambda gone: gone & False), test_changelog_compaction.test_what_comes_again_as_it_was_is_there_once),
    Mutant("vectors outlive their files", M + "table.deletion_vectors.BucketDeletions.forget", instead(lambda self, names: None), test_changelog_compaction.test_a_bucket_has_one_index_file_which_goes_with_the_files_it_marks),
    Mutant("sums are counted at every level", M + "read.split.merge_rules", returning(lambda rules: replace(rules, newest_stands=False)), test_changelog_compaction.test_sums_are_not_counted_twice),
    # Reading.
    Mutant("a value filter is pushed below the merge", M + "planning.scan.SplitPlanner.plan", values_first, story("a_replaced_value_is_not_found")),
    Mutant("time travel is exclusive", M + "table.time_travel.snapshot_at", lambda found: lambda session, millis: found(session, millis - 1), story("time_is_inclusive")),
    Mutant("what a reader misses is left out", M + "read.scan.Scan._naming_expiry", instead(lambda self: contextlib.suppress(NotFoundError)), reader),
    Mutant("a reader is not told of expiry", M + "read.scan.raise_if_expired", instead(lambda *_: None), reader),
    # Commit.
    Mutant("commit by rename", M + "testing.memory_file_io.MemoryFileIO.publish", overwriting_publish, two_writers("upsert_other", "delete_some")),
    Mutant("nobody renumbers rows of concurrent writers", M + "commit.commit.rebase_step", instead(lambda session, step, base, **_: step), story("two_writers_on_one_base")),
    Mutant("conflicts are not looked for", M + "commit.commit.find_conflict", instead(lambda *given, **named: None), two_writers("compact_fully", "compact_fully")),
    Mutant("an overwrite deletes what it saw at first", M + "dml.write.propose", of_the_old_base, two_writers("overwrite_other", "upsert_numbered")),
    Mutant("a lost reply is a lost race", M + "commit.publish._outcome", instead(lambda session, snapshot: PublishOutcome.LOST), unanswered("commit")),
    Mutant("what is unknown is lost", M + "commit.publish._unknown_publish", lambda unknown: known_to_be_lost(unknown), unknown("commit")),
    Mutant("replays are not recognised", M + "commit.replays.Replays.proof", instead(lambda *_: None), killed("commit")),
    Mutant("LATEST is trusted", M + "metadata.snapshots.SnapshotStore.latest", hint_only, killed("commit")),
    Mutant("a total counts the delta alone", M + "commit.commit.plan_commit", returning(lambda plan: replace(plan, total_record_count=plan.delta_record_count)), story("a_replaced_value_is_not_found")),
    Mutant("a refused publish leaves its files", M + "commit.commit.discard_metadata", instead(lambda *_: None), refused("commit")),
    # Maintenance.
    Mutant("expiry deletes the snapshot first", M + "maintenance.expire.carry_out", snapshots_first, killed("expire")),
    Mutant("expiry forgets tags", M + "table.references.References.retained_by_tags", instead(lambda *given, **named: []), story("a_tag_outlives_its_snapshot")),
    Mutant("expiry takes one too many", M + "maintenance.expire.choose_expired", lambda choose: one_more(choose), story("retention_counts")),
    Mutant("expiry deletes what kept snapshots need", M + "table.references.References.retained_by_snapshots", instead(lambda *given, **named: []), story("retention_counts")),
    Mutant("an unreadable root is an empty one", M + "table.references.References.retained_by_tags", lambda kept: shrugging(kept), unreadable("expire")),
    Mutant("an unreadable tag keeps nothing from the orphans", M + "table.references.References.retained_by_tags", lambda kept: shrugging(kept), unreadable_for_good("remove orphans")),
    Mutant("an unreadable snapshot keeps nothing from the orphans", M + "table.references.References.retained_by_snapshots", lambda kept: shrugging(kept), unreadable_for_good("remove orphans")),
    Mutant("expiry begins without a word", M + "metadata.snapshots.SnapshotStore.advance_earliest", instead(lambda self, number, *args, **kwargs: None), tagger),
    Mutant("maintenance forgets branches", M + "table.references._branch_marks", instead(lambda session: {}), killed("remove orphans")),
    Mutant("a single listing is believed", M + "metadata.tags.stable_listing", instead(lambda file_io, directory: file_io.list(directory)), lied_to("expire", "nothing")),
    Mutant("a rollback begins with the newest", M + "maintenance.rollback._with_marker", returning(lambda plan: replace(plan, snapshots=plan.snapshots[::-1])), killed("roll back", When.AFTER)),
    Mutant("a branch is deleted before its name is claimed", M + "metadata.branches.BranchClaim.take", instead(lambda self, require: None), killed("delete a branch", extent="all")),
    Mutant("whoever makes a branch does not look whose it is", M + "metadata.branches.BranchClaim.is_held", instead(lambda self: True), maker),
    Mutant("a void claim is obeyed", M + "metadata.snapshots.unclaimed", instead(lambda file_io, paths, path, data: None if data.startswith(b'{"lsm-claim"') else data), test_branch_names.test_a_void_claim_is_read_as_what_it_held_before),
    Mutant("a commit on a branch that is renamed counts", M + "commit.publish.renamed_to", instead(lambda snapshot: None), renamer),
    Mutant("a fast-forward does not keep what it takes over", M + "maintenance.branches._snapshots_retained", instead(lambda *_: contextlib.nullcontext()), forwarder),
    # The disk.
    Mutant("files are not synced", M + "storage.local.LocalFileIO.sync", instead(lambda self, paths: None), power_cut("commit")),
    Mutant("new directories are not synced", M + "storage.local.LocalFileIO._make_directories", instead(lambda self, path, *, waits: os.makedirs(path, exist_ok=True)), power_cut("first commit")),
)  # fmt: skip


def known_to_be_lost(unknown: Any) -> Any:
    return lambda snapshot: StorageError(unknown(snapshot).message)


def one_more(choose: Any) -> Any:
    def mutated(snapshots: Any, retention: Any, **named: Any) -> Any:
        choice = choose(snapshots, retention, **named)
        if len(choice.kept) > 1:
            return replace(choice, expired=(*choice.expired, choice.kept[0]), kept=choice.kept[1:])
        return choice

    return mutated


def shrugging(function: Any) -> Any:
    def mutated(*given: Any, **named: Any) -> Any:
        try:
            return list(function(*given, **named))
        except LsmError:
            return []

    return mutated


# --- the hunt -------------------------------------------------------------------------------------


@contextlib.contextmanager
def alive(mutant: Mutant) -> Iterator[None]:
    """The engine with one mutation; what the suites remember of the sound engine stays.

    What the engine remembers goes before and after, so that neither is mistaken for the other.
    """
    for name in SCENARIOS:
        outcome(name)
    known = set(_checked)
    owner, attribute = _found(mutant.target)
    # A static method is found as its function, and has to go back as what it was.
    static = isinstance(vars(owner).get(attribute), staticmethod)
    changed = mutant.change(getattr(owner, attribute))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, staticmethod(changed) if static else changed)
        bucket_context._path.cache_clear()
        forget_reads()
        try:
            yield
        finally:
            bucket_context._path.cache_clear()
            forget_reads()
            _checked.clear()
            _checked.update(known)


def _found(target: str) -> tuple[Any, str]:
    """The module or class that holds a dotted name, and the last part of the name."""
    parts = target.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:-1]:
            owner = getattr(owner, part)
        return owner, parts[-1]
    raise LookupError(target)


def is_noticed(mutant: Mutant) -> str | None:
    """Hunt; return what the suite said, or None if it said nothing."""
    with alive(mutant):
        try:
            mutant.hunt()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as noticed:  # noqa: BLE001 - whatever it says, it said something
            return (
                f"{type(noticed).__name__}: {str(noticed).splitlines()[0] if str(noticed) else ''}"
            )
    return None


def main() -> None:
    """Hunt them all, and say who lives."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    LocalExecutor.__init__ = lambda self, threads=None: setattr(self, "threads", 1)  # type: ignore[method-assign]
    survivors = []
    for mutant in MUTANTS:
        if wanted not in mutant.name:
            continue
        started = time.monotonic()
        said = is_noticed(mutant)
        seconds = time.monotonic() - started
        print(
            f"{'noticed' if said else 'LIVES  '} {seconds:6.1f} s  {mutant.name}: {said or ''}"[
                :200
            ],
            flush=True,
        )
        if said is None:
            survivors.append(mutant.name)
    print(f"{len(survivors)} survive: {survivors}" if survivors else "none survives")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
