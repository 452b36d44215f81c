"""A sample of all pairs of operations on names; the whole, and triples, are a command (tests/fault/all_pairs).

The sample is the same each time: every so many of the pairs, over all stores and kinds of tables.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    LsmError,
    NotFoundError,
)
from lsm_engine.metadata.trash import TrashRecord
from lsm_engine.planning.ownership import same_state
from lsm_engine.table.references import References
from tests.fault import all_pairs
from tests.fault.all_pairs import (
    UNCHANGING,
    Combination,
    Schedule,
    attempted,
    calls_of,
    campaign,
    forget_runs,
    killed,
    killed_at,
    lost_undos,
    pairs,
    problems_of,
    schedule,
    schedules,
)
from tests.fault.pair_operations import (
    JUDGE,
    KINDS,
    OPERATIONS,
    OURS,
    STORES,
    actor_of_theirs,
    expire,
    prepared,
    write,
)
from tests.fault.paused_lakes import lake_doubles
from tests.fault.paused_stores import Disk, StorageCall, object_doubles

PAIRS_IN_CI = 12
OF_THE_WHOLE = ("client", "forget", "branch", "fast-forward", "rescale", "roll back", "restore")
"""Parts of names of operations that are left to the command: docs/testing.md says which pairs of them are unsettled."""


@pytest.fixture(autouse=True, scope="module")
def _doubles() -> Iterator[None]:
    with object_doubles(), lake_doubles():
        yield


@pytest.fixture
def other_engine() -> Iterator[pytest.MonkeyPatch]:
    """Let the engine be another one, of which nothing is known that ran before, and nothing later."""
    prepared("memory", "trash")
    forget_runs()
    with pytest.MonkeyPatch.context() as patch:
        yield patch
    forget_runs()


def sampled(every: list[Combination], number: int) -> list[Combination]:
    settled = [
        each
        for each in every
        if not any(part in name for part in OF_THE_WHOLE for name in (each.ours, *each.theirs))
    ]
    return settled[len(settled) // number // 2 :: len(settled) // number]


def failed(
    combinations: list[Combination], run: Callable[..., Iterator[Schedule]] = schedules
) -> list[str]:
    """Return what is wrong after the schedules of some combinations."""
    wrong: list[str] = []

    def report(done: Schedule, problem: str, reason: str) -> None:
        wrong.append(f"{problem}: {done.combination} at {done.at} {done.call}: {reason}")

    figures = campaign(combinations, report, run=run)
    assert figures.schedules > len(combinations)
    return wrong


def test_pairs_lose_nothing() -> None:
    every = list(pairs(list(STORES), list(KINDS), list(OPERATIONS), list(OPERATIONS)))
    assert not failed(sampled(every, PAIRS_IN_CI))


@pytest.mark.parametrize("store", ["memory", "objects"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("tag the oldest", "expire"), ("rename a tag", "delete a tag"), ("upsert", "roll back")],
)
def test_places_that_are_left_out_give_the_same(store: str, ours: str, theirs: str) -> None:
    combination = Combination(store, "plain", ours, (theirs,))
    ends = [
        {_end(done) for done in schedules(combination, every_call=every_call)}
        for every_call in (True, False)
    ]
    counts = [
        sum(done.count for done in schedules(combination, every_call=every_call))
        for every_call in (True, False)
    ]
    assert ends[0] == ends[1]
    assert counts[0] == counts[1]


def _end(done: Schedule) -> object:
    told = tuple(type(answer).__name__ for answer in (done.ours, *done.theirs))
    return told, frozenset(done.disk.contents().items())


def test_a_tag_without_its_look_is_noticed(other_engine: pytest.MonkeyPatch) -> None:
    """The campaign can fail: a tag that is not looked at after its creation names deleted files."""
    other_engine.setattr("lsm_engine.table.tags.is_expiring", lambda *_: False)
    wrong = failed([Combination("memory", "plain", "tag the oldest", ("expire",))])
    assert any(each.startswith(all_pairs.UNREADABLE) for each in wrong)
    assert any(each.startswith(all_pairs.LATER) for each in wrong)


def test_a_tag_of_a_time_does_not_pass_over_one_that_is_renamed() -> None:
    pair = "tag what a tag holds", ("rename a tag that holds",)
    assert not failed([Combination("memory", "plain", *pair)])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("tag the oldest", "expire"),
        ("tag what a tag holds", "delete a tag that holds"),
        ("rename a tag that holds", "delete a tag that holds"),
    ],
)
def test_a_kill_leaves_no_tag_of_what_another_has_deleted(ours: str, theirs: str) -> None:
    assert not failed([Combination("memory", "plain", ours, (theirs,))], killed)


@pytest.mark.parametrize("ours", ["tag the oldest", "rename a tag that holds"])
def test_what_is_being_tagged_is_forgotten_or_forget_says_that_it_is_not(ours: str) -> None:
    assert not failed([Combination("memory", "plain", ours, ("forget",))])


def test_of_two_that_forget_a_key_neither_lets_a_consumer_miss_changes() -> None:
    """The second one writes the newest state anew once more: a snapshot without changes, which the consumer passes."""
    combination = Combination("memory", "changelog", "forget", ("forget",))
    calls = calls_of("memory", "changelog", "forget")
    published = calls.index(StorageCall("publish", ("snapshot/snapshot-8",))) + 1
    done, _ = schedule(combination, published + 1)
    assert not list(problems_of(done))
    write(done.disk.opened(JUDGE), 200, 1, "later")
    table = done.disk.opened(JUDGE)
    (consumer,) = table.consumers()
    latest = table.latest_snapshot()
    assert latest is not None
    assert consumer.next_snapshot_id <= latest.id


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("expire partitions", "move a tag"),
        ("rename a tag that holds", "expire partitions"),
        ("restore files", "delete a tag that holds"),
        ("tag the oldest", "remove unexisting files"),
    ],
)
def test_tags_beside_repairs_and_an_expiry_of_partitions_stay_readable(
    ours: str, theirs: str
) -> None:
    assert not failed([Combination("memory", "partitioned", ours, (theirs,))])


def failed_at_changes(combination: Combination) -> list[str]:
    """Return what is wrong where ours is stopped before each call that changes something."""
    calls = calls_of(combination.store, combination.kind, combination.ours)
    return [
        f"{combination} at {at} {call}: {problem}: {reason}"
        for at, call in enumerate(calls, 1)
        if call.verb not in UNCHANGING
        for problem, reason in problems_of(schedule(combination, at)[0])
    ]


def last_change(operation: str, path: str) -> int:
    """Return the place of the last call of an operation that changes a file of a plain table in memory."""
    calls = calls_of("memory", "plain", operation)
    return max(
        at
        for at, call in enumerate(calls, 1)
        if call.paths == (path,) and call.verb not in UNCHANGING
    )


def test_an_expiry_leaves_the_commit_that_got_the_id_of_what_it_was_about_to_delete() -> None:
    """Another expiry had ended what it had begun, and a rollback to a tag had freed the ids."""
    others = "expire", TO_A_TAG, "upsert", "delete"
    combination = Combination("memory", "plain", "expire", others)
    done, _ = schedule(combination, last_change("expire", "snapshot/snapshot-4"))
    assert not any(isinstance(answer, LsmError) for answer in (done.ours, *done.theirs))
    assert "snapshot/snapshot-4" in done.disk.contents()
    assert not list(problems_of(done))


@pytest.mark.parametrize(
    "theirs", [("rename a branch",), ("fast-forward", "delete another branch")]
)
@pytest.mark.parametrize("ours", ["remove orphans", "delete a tag that holds"])
def test_what_moves_between_branches_while_references_are_read_keeps_its_files(
    ours: str, theirs: tuple[str, ...]
) -> None:
    """The removal of orphans had read main, or the listing of branches, and deleted the files of what moved."""
    assert not failed([Combination("objects", "index", ours, theirs)])


@pytest.mark.parametrize("force", [False, True])
def test_the_only_branch_becomes_main_and_is_deleted_while_references_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    """Main was read before, and no listing names the branch afterwards."""
    table = lsm.open_catalog(str(tmp_path)).create_table(
        "db.t", {"k": "BIGINT", "v": "BIGINT"}, ["k"]
    )
    table.upsert([{"k": 1, "v": 1}])
    table.tags.create("base")
    table.branches.create("work", tag="base")
    table.branch("work").upsert([{"k": 2, "v": 2}])
    for key in range(3, 5 if force else 3):
        table.upsert([{"k": key, "v": key}])
    read, began = References.retained_by_branch, []

    def retained(self: References, *arguments: Any) -> Iterator[Any]:
        yield from read(self, *arguments)
        if not began:
            began.append(True)
            changed_table = lsm.open_catalog(str(tmp_path)).table("db.t")
            changed_table.branches.fast_forward("work", force=force)
            changed_table.branches.delete("work")

    monkeypatch.setattr(References, "retained_by_branch", retained)
    table.maintenance.remove_orphan_files(older_than="0 s", dry_run=False, force=True)
    assert began
    rows = lsm.open_catalog(str(tmp_path)).table("db.t").to_arrow().sort_by("k")
    assert rows["k"].to_pylist() == [1, 2]


def test_branches_that_are_exchanged_while_references_are_read_keep_their_files() -> None:
    """Each name was there before and after, and stood for the other branch meanwhile."""
    disk = prepared("objects", "index")
    newest = [disk.opened(OURS).branch(name).scan().to_arrow() for name in ("ahead", "side")]
    listing = StorageCall("list", ("branch/branch-side/snapshot",))
    expected = calls_of("objects", "index", "remove orphans").count(listing)
    listed = 0

    def exchange(call: StorageCall) -> None:
        nonlocal listed
        listed += call == listing
        if call == listing and listed == expected:  # `ahead` was read, this one was not
            table = disk.opened(actor_of_theirs(0))
            table.rename_branch("ahead", "new")
            table.rename_branch("side", "ahead")
            table.rename_branch("new", "side")

    attempted("remove orphans", disk.process(OURS, exchange))
    assert listed > expected
    rows = [disk.opened(JUDGE).branch(name).scan().to_arrow() for name in ("side", "ahead")]
    assert rows == newest


ROLLING_BACK, TO_A_TAG = "roll back", "roll back to a tag that holds"


def test_a_rollback_to_a_tag_is_refused_while_an_expiry_deletes_what_it_has_passed() -> None:
    """The expiry had looked at a snapshot, and deleted the one that a commit made with its id since."""
    combination = Combination("memory", "plain", "expire", (TO_A_TAG, "upsert", "delete"))
    last = last_change("expire", "snapshot/snapshot-4")
    done, _ = schedule(combination, last)
    assert isinstance(done.theirs[0], CommitConflictError)
    assert "snapshots before 7 are just expiring" in str(done.theirs[0])
    assert not list(problems_of(done))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ROLLING_BACK, "repair the earliest"),
        (TO_A_TAG, "repair the earliest"),
        ("repair the earliest", ROLLING_BACK),
        ("repair the earliest", TO_A_TAG),
        ("repair the earliest", "expire"),
    ],
)
def test_a_repair_of_earliest_beside_a_rollback_or_an_expiry_loses_no_snapshot(
    ours: str, theirs: str
) -> None:
    """It deleted what was below the marker, the target among it; or it moved EARLIEST back to what had expired."""
    assert not failed([Combination("objects", "append", ours, (theirs,))])


@pytest.mark.parametrize("theirs", ["rename the table", "drop and create"])
def test_a_repair_beside_a_rename_or_a_drop_reports_no_damage(theirs: str) -> None:
    assert not failed([Combination("lake", "plain", "repair the earliest", (theirs,))])


@pytest.mark.parametrize(
    ("store", "ours", "theirs"),
    [
        ("memory", ROLLING_BACK, "move a tag"),
        ("objects", ROLLING_BACK, "move a tag"),
        ("memory", "move a tag", ROLLING_BACK),
        ("memory", "move a tag that holds", ROLLING_BACK),
        ("memory", TO_A_TAG, "tag the oldest"),
        ("memory", TO_A_TAG, "rename a tag"),
        ("memory", "restore", TO_A_TAG),
    ],
)
def test_a_tag_beside_a_rollback_does_not_end_on_what_the_rollback_took(
    store: str, ours: str, theirs: str
) -> None:
    """Nor does a restore: who made, moved or renamed a tag, or keeps a state by one, looks at the newest once more."""
    assert not failed([Combination(store, "plain", ours, (theirs,))])


@pytest.mark.parametrize(("ours", "theirs"), [("rescale", ROLLING_BACK), (ROLLING_BACK, "rescale")])
def test_a_rescale_beside_a_rollback_leaves_a_table_that_takes_writes(
    ours: str, theirs: str
) -> None:
    assert not failed_at_changes(Combination("memory", "partitioned", ours, (theirs,)))


@pytest.mark.parametrize("target", [ROLLING_BACK, TO_A_TAG])
def test_two_rollbacks_and_an_expiry_leave_a_table_that_is_read_and_written(target: str) -> None:
    """One is stopped before each call that changes something, while another rollback and an expiry end.

    It wrote LATEST of a seal that was gone, which made the table unreadable, and left a file above the target, which
    no commit passes.
    """
    for theirs in ((target, "expire"), ("expire", target)):
        assert not failed_at_changes(Combination("memory", "plain", target, theirs))


@pytest.mark.parametrize("store", ["memory", "objects"])
def test_a_fast_forward_beside_a_rollback_leaves_a_table_that_is_read(store: str) -> None:
    """It published the branch's snapshot above the one that the rollback had taken, as if the table had been empty."""
    assert not failed([Combination(store, "plain", "fast-forward", (ROLLING_BACK,))])


FORCED = "fast-forward by force"


@pytest.mark.parametrize(
    ("store", "path"),
    [
        ("memory", "tag/tag-rolling-back-000002000000"),
        ("memory", "snapshot/snapshot-7"),
        ("memory", "snapshot/snapshot-8"),
        ("objects", "snapshot/snapshot-7"),
        ("objects", "snapshot/snapshot-8"),
    ],
)
def test_a_rollback_beside_one_that_ends_it_leaves_what_others_published_with_its_ids(
    store: str, path: str
) -> None:
    """The forced fast-forward rolls back to the same snapshot, and publishes snapshots with the ids that went.

    The slow rollback deleted one of these, and LATEST named it; or it published a marker without its sign, stopped, and
    no commit was made any more.
    """
    combination = Combination(store, "changelog", ROLLING_BACK, (FORCED,))
    changing = [
        at
        for at, call in enumerate(calls_of(store, "changelog", ROLLING_BACK), 1)
        if call.verb not in UNCHANGING and path in call.paths
    ]
    for at in (changing[0], changing[0] + 1, changing[-1]):
        assert not list(problems_of(schedule(combination, at)[0])), at


def test_a_deletion_on_condition_that_deletes_all_the_same_is_noticed(
    other_engine: pytest.MonkeyPatch,
) -> None:
    """The campaign can fail: a rollback that looks, and then deletes, takes the snapshot of the fast-forward."""
    other_engine.setattr(
        "lsm_engine.metadata.snapshots.SnapshotStore.delete_state",
        lambda snapshots, snapshot: snapshots._is_there(snapshot) and snapshots.delete(snapshot.id),
    )
    combination = Combination("memory", "changelog", ROLLING_BACK, (FORCED,))
    calls = calls_of(combination.store, combination.kind, ROLLING_BACK)
    deleted = calls.index(StorageCall("delete", ("snapshot/snapshot-8",))) + 1
    assert list(problems_of(schedule(combination, deleted)[0]))


@pytest.mark.parametrize("theirs", ["upsert", "tag the newest"])
def test_what_is_done_beside_a_forced_fast_forward_is_on_a_state_before_it_or_of_the_branch(
    theirs: str,
) -> None:
    """Main was at the snapshot of both on the way: a tag had that state, and a commit on it left main there."""
    combination = Combination("memory", "plain", FORCED, (theirs,))
    changing = [
        at
        for at, call in enumerate(calls_of("memory", "plain", FORCED), 1)
        if call.verb not in UNCHANGING
        and call.paths[0] in ("snapshot/snapshot-7", "snapshot/snapshot-8", "tag/tag-top")
    ]
    for at in (changing[0] + 1, changing[1] + 1):
        assert not list(problems_of(schedule(combination, at)[0])), at


def _forwarded(
    disk: Disk, name: str, path: str, act: Callable[[Disk], object], *, force: bool
) -> None:
    """Fast-forward main, and let others act before each first call that publishes a path."""
    acts = [act]

    def on_call(call: StorageCall) -> None:
        if acts and (call.verb, *call.paths) == ("publish", path):
            acts.pop()(disk)

    process = disk.process(OURS, on_call)
    with process.announcing():
        process.open_table().fast_forward(name, force=force)


@pytest.mark.parametrize("store", ["memory", "objects"])
def test_a_forced_fast_forward_goes_from_the_newest_snapshot_to_those_of_the_branch(
    store: str,
) -> None:
    disk = prepared(store, "plain")
    seen: list[tuple[int, str]] = []

    def on_call(call: StorageCall) -> None:
        if call.verb not in UNCHANGING:
            newest = disk.opened(JUDGE).latest_snapshot()
            assert newest is not None
            if (newest.id, newest.commit_user) not in seen:
                seen.append((newest.id, newest.commit_user))

    process = disk.process(OURS, on_call)
    with process.announcing():
        process.open_table().fast_forward("side", force=True)
    table = disk.opened(JUDGE)
    assert [number for number, _ in seen] == [7, 7, 8][: len(seen)]
    assert (
        seen[1:]
        == [(each.id, each.commit_user) for each in table.snapshots()[-2:]][: len(seen) - 1]
    )
    assert len(seen) > 1


def test_a_forced_fast_forward_goes_on_after_a_commit_between_two_snapshots_of_a_long_branch() -> (
    None
):
    """It raised a conflict, and left main at a snapshot of the branch, with that commit."""
    disk = prepared("memory", "plain")
    branch = disk.opened(OURS).branch("side")
    for key in (40, 42):
        write(branch, key, 1, "long")
    newest = branch.latest_snapshot()
    assert newest is not None
    assert newest.id == 10

    def commit(disk: Disk) -> None:
        write(disk.opened(actor_of_theirs(0)), 70, 1, "upserted")

    _forwarded(disk, "side", "snapshot/snapshot-10", commit, force=True)
    table = disk.opened(JUDGE)
    assert same_state(table.latest_snapshot(), newest)
    assert table.scan().to_arrow() == table.branch("side").scan().to_arrow()
    assert not table.verify().problems


def test_a_fast_forward_that_others_overtake_on_the_way_says_what_main_has() -> None:
    disk = prepared("memory", "plain")
    write(disk.opened(OURS).branch("ahead"), 40, 1, "long")

    def commit(disk: Disk) -> None:
        write(disk.opened(actor_of_theirs(0)), 70, 1, "upserted")

    with pytest.raises(CommitUnknownError, match="main has snapshot 8 of branch 'ahead'"):
        _forwarded(disk, "ahead", "snapshot/snapshot-9", commit, force=False)
    process = disk.process(JUDGE)
    process.open_table().fast_forward("ahead", force=True)
    table = disk.opened(JUDGE)
    assert table.scan().to_arrow() == table.branch("ahead").scan().to_arrow()


@pytest.mark.parametrize("path", ["snapshot/snapshot-8", "snapshot/snapshot-7"])
def test_a_forced_fast_forward_that_died_is_finished_by_another_or_by_a_rollback(path: str) -> None:
    calls = calls_of("memory", "plain", FORCED)
    for theirs in (FORCED, ROLLING_BACK):
        changed = [
            at
            for at, call in enumerate(calls, 1)
            if call.paths == (path,) and call.verb not in UNCHANGING
        ]
        for at in changed:
            done = killed_at(Combination("memory", "plain", FORCED, ()), at + 1, at + 1)
            attempted(theirs, done.disk.process(JUDGE))
            table = done.disk.opened(JUDGE)
            newest = table.latest_snapshot()
            assert newest is not None
            assert newest.id == 8 if theirs == FORCED else newest.id <= 7, at
            assert "top" not in [tag.name for tag in table.tags()], at
            write(table, 200, 1, "later")
            assert not table.verify().problems, at


def test_a_tag_of_the_branch_that_is_written_anew_meanwhile_is_taken_over_as_it_is_by_now() -> None:
    """Its content had changed since the plan, and its old state had expired: main got no tag."""
    combination = Combination("memory", "plain", FORCED, ("forget",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    first_look = StorageCall("read", ("branch/branch-side/tag/tag-done",))
    last = max(at for at, call in enumerate(calls, 1) if call == first_look)
    for at in (last - 1, last):  # before and after the lock tag of main
        done, _ = schedule(combination, at)
        assert not list(problems_of(done)), at


def test_a_fast_forward_leaves_no_tag_of_what_a_rollback_of_main_has_taken() -> None:
    combination = Combination("memory", "plain", "fast-forward by force", (ROLLING_BACK,))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    published = max(
        at for at, call in enumerate(calls, 1) if call.paths == ("snapshot/snapshot-8",)
    )
    rolled_back = 0
    for at in range(published, len(calls) + 1):
        done, _ = schedule(combination, at)
        table = done.disk.opened(JUDGE)
        newest = table.latest_snapshot()
        assert newest is not None
        if not isinstance(done.theirs[0], LsmError):
            rolled_back += 1
            assert newest.id == 6
            assert "done" not in [tag.name for tag in table.tags()], calls[at - 1]
    assert rolled_back


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("rename the table", "drop the table"), ("drop the table", "rename the table")],
)
def test_a_drop_beside_a_rename_of_the_table_leaves_no_files_without_a_name(
    ours: str, theirs: str
) -> None:
    """The drop found the directory moved and the old name still there, and forgot that name alone."""
    assert not failed([Combination("lake", "plain", ours, (theirs,))])


def test_a_rename_whose_new_name_is_dropped_before_it_returns_does_not_say_that_it_found_no_table() -> (
    None
):
    combination = Combination("lake", "plain", "rename the table", ("drop a new table",))
    done, _ = schedule(combination, len(calls_of("lake", "plain", combination.ours)) - 3)
    assert isinstance(done.ours, CommitUnknownError)
    assert "db.t was renamed to db.new" in str(done.ours)
    assert not list(problems_of(done))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("drop the table", "register what is found"), ("register what is found", "drop the table")],
)
def test_what_is_found_beside_a_drop_gets_no_name_without_files(ours: str, theirs: str) -> None:
    """The drop had forgotten the name, and its files were still there to be found."""
    assert not failed([Combination("lake", "plain", ours, (theirs,))])


def test_an_undo_that_is_killed_beside_an_emptying_leaves_nothing_that_a_reader_takes_for_a_snapshot() -> (
    None
):
    """What it made below EARLIEST names files that are gone: reads, verify and orphan removal pass it over."""
    combination = Combination("memory", "trash", "undo maintenance", ("empty the trash",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    first = min(
        at
        for at, call in enumerate(calls, 1)
        if call.paths == ("snapshot/snapshot-3",) and call.verb == "publish"
    )
    done = killed_at(combination, first, first + 1)
    assert "snapshot/snapshot-3" in done.disk.contents()
    assert not list(problems_of(done))
    table = done.disk.opened(JUDGE)
    assert [snapshot.id for snapshot in table.snapshots()] == [4, 5, 6, 7]
    table.remove_orphan_files(dry_run=False, older_than="0 s", force=True)
    assert not table.verify().problems
    expire(table)
    assert "snapshot/snapshot-3" not in done.disk.contents()


@pytest.mark.parametrize("ours", ["tag the newest", "move a tag"])
def test_a_tag_whose_maker_was_killed_beside_a_rollback_stays_readable(ours: str) -> None:
    """It may name what was rolled back: nobody acknowledged it, and it can be read until it is deleted."""
    assert not failed([Combination("memory", "plain", ours, (ROLLING_BACK,))], killed)


def test_an_undo_that_gives_nothing_back_is_noticed(other_engine: pytest.MonkeyPatch) -> None:
    """The campaign can fail: names alone look as before the expiry, and snapshots are looked for besides."""
    combination = Combination("memory", "trash", "undo maintenance", ("upsert",))
    with other_engine.context() as patch:
        patch.setattr("lsm_engine.maintenance.trash._GivingBack.snapshot", lambda *_: None)
        patch.setattr("lsm_engine.metadata.snapshots.SnapshotStore.announce", lambda *_: None)
        done, _ = schedule(combination, 1)
    forget_runs()
    assert isinstance(done.ours, TrashRecord)
    assert any("given back, and lost" in reason for _, reason in lost_undos(done))


def test_the_kind_with_long_changelogs_keeps_changelogs() -> None:
    disk = prepared("memory", "long changelog")
    assert {"changelog/changelog-2", "changelog/changelog-3"} <= disk.contents().keys()
    expire(disk.opened(JUDGE))
    assert {"changelog/changelog-5", "changelog/changelog-6"} <= disk.contents().keys()


def test_a_commit_between_the_listing_of_an_expiry_and_latest_is_no_lost_snapshot() -> None:
    """On an object store both are asked for at once: LATEST named a snapshot that the listing did not have yet."""
    combination = Combination("objects", "long changelog", "expire", ("compact",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    whole_listing = next(
        at for at, call in enumerate(calls, 1) if call.verb == "list" and call.paths == ("",)
    )
    done, _ = schedule(combination, whole_listing)
    assert not isinstance(done.ours, Exception)
    assert not list(problems_of(done))


def test_a_rename_of_a_branch_that_is_deleted_leaves_nothing_that_stops_maintenance() -> None:
    """It left LATEST without a snapshot under the new name; killed there, it made expiry and orphan removal fail."""
    combination = Combination("memory", "plain", "rename a branch", ("delete a branch",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    latest = ("branch/branch-side/snapshot/LATEST",)
    stopped = next(at for at, call in enumerate(calls, 1) if call == StorageCall("replace", latest))
    for last in range(stopped + 20, stopped + 45):
        assert not list(problems_of(killed_at(combination, stopped, last)))


def test_a_rename_that_waits_in_vain_for_the_old_name_says_that_the_new_one_is_there() -> None:
    """It said that nothing was changed; and a deletion that holds the old name goes on to delete that alone."""
    combination = Combination("objects", "plain", "delete a branch", ("rename a branch",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    lock = StorageCall("put", ("branch/branch-side/schema/.schema-0.lock",))
    done, _ = schedule(combination, calls.index(lock) + 2)
    (renamed,) = done.theirs
    assert isinstance(renamed, CommitUnknownError)
    assert "'side' is there as 'new'" in str(renamed)
    assert not list(problems_of(done))


@pytest.mark.parametrize(
    "theirs", ["fast-forward by force", "rename a branch", "roll a branch back"]
)
def test_the_marker_of_a_rollback_goes_nowhere_else(theirs: str) -> None:
    """A fast-forward and a rename took it along, and nobody finished it there; a rollback that failed over it said no."""
    combination = Combination("objects", "plain", "roll a branch back", (theirs,))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    branch = "branch/branch-side"
    marker = calls.index(StorageCall("put", (f"{branch}/snapshot/snapshot-9",)))
    places = (
        marker + 2,
        calls.index(StorageCall("delete", (f"{branch}/snapshot/snapshot-7",))) + 2,
        calls.index(StorageCall("put", (f"{branch}/snapshot/.snapshot-8.lock",))) + 2,
        calls.index(StorageCall("delete", (f"{branch}/snapshot/.snapshot-8.lock",))) + 2,
    )
    for at in places:
        done, _ = schedule(combination, at)
        assert not list(problems_of(done)), at


@pytest.mark.parametrize("theirs", ["forget", "roll back to a tag that holds"])
def test_a_fast_forward_does_not_take_a_listing_that_is_out_of_date_for_the_table(
    theirs: str,
) -> None:
    """All that it had listed went before it was read: it took main for empty, and put the branch below main's newest."""
    combination = Combination("memory", "plain", "fast-forward", (theirs,))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    beyond = StorageCall("exists", ("snapshot/snapshot-8",))
    ahead = StorageCall("read", ("branch/branch-ahead/snapshot/snapshot-8",))
    for call in (beyond, ahead):
        done, _ = schedule(combination, calls.index(call) + 1)
        assert not list(problems_of(done)), call


def test_a_rollback_that_is_done_does_not_fail_where_its_branch_is_renamed_before_it_returns() -> (
    None
):
    """The last act makes its deletions durable, in a directory that is gone by then."""
    combination = Combination("memory", "plain", "roll a branch back", ("rename a branch",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    last = max(at for at, call in enumerate(calls, 1) if call.verb == "sync")
    done, _ = schedule(combination, last)
    assert not isinstance(done.ours, Exception)
    assert not list(problems_of(done))


@pytest.mark.parametrize("theirs", ["drop the table", "rename the table"])
def test_a_commit_of_a_client_beside_a_drop_or_a_rename_counts_where_the_table_is_or_is_not_acknowledged(
    theirs: str,
) -> None:
    combination = Combination("lake", "plain", "commit of a client", (theirs,))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    published = next(at for at, call in enumerate(calls, 1) if call.verb == "publish")
    for at, error in ((published, NotFoundError), (published + 1, CommitUnknownError)):
        done, _ = schedule(combination, at)
        assert isinstance(done.ours, error), at
        assert not list(problems_of(done)), at


def test_an_expiry_that_dies_once_it_has_moved_earliest_has_not_moved_it_back() -> None:
    """It was paused before that, while another one passed a snapshot more, and deleted it."""
    others = "delete a consumer", "upsert", "expire"
    combination = Combination("memory", "plain", "expire", others)
    moved = last_change("expire", "snapshot/EARLIEST")
    done = killed_at(combination, moved, moved + 1)
    assert not any(isinstance(answer, LsmError) for answer in done.theirs)
    assert done.disk.contents()["snapshot/EARLIEST"] == b"8"
    assert not list(problems_of(done))


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        ("add a column", "plain"),
        ("tag the oldest", "plain"),
        ("rename a tag", "plain"),
        ("clear consumers", "vectors"),
        ("restore", "vectors"),
        ("roll back", "append"),
    ],
)
def test_nothing_of_a_table_is_lost_as_it_is_renamed_or_gets_into_one_made_in_its_place(
    ours: str, kind: str
) -> None:
    """An operation that was paused meanwhile takes back what it made in the directory of another table.

    Where the table was renamed with what it had made, it says that this is unknown, or that nothing was done.
    """
    others = ("rename the table", "drop and create")
    assert not failed([Combination("lake", kind, ours, (other,)) for other in others])


def test_a_rename_of_a_branch_whose_table_is_renamed_is_unknown_half_way() -> None:
    """The new branch had moved along, and the error named another process that had renamed or deleted the old one."""
    combination = Combination("lake", "plain", "rename a branch", ("rename the table",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    path = "branch/branch-side/schema/schema-0"
    for at in [at for at, call in enumerate(calls, 1) if call.paths[0].endswith(path)][-6:]:
        assert not list(problems_of(schedule(combination, at)[0])), at


def test_a_rollback_whose_table_was_renamed_tells_how_it_is_finished() -> None:
    """The marker goes with the table: the rollback is begun, and cannot be refused."""
    combination = Combination("lake", "append", "roll back", ("rename the table",))
    answers = [done.ours for done in schedules(combination)]
    unknown = [answer for answer in answers if isinstance(answer, CommitUnknownError)]
    assert unknown
    assert any("roll back to" in str(answer) and "new name" in str(answer) for answer in unknown)


@pytest.mark.parametrize(
    "ours", ["tag on a branch", "move a tag on a branch", "create a consumer on a branch"]
)
def test_what_a_rename_of_the_branch_took_along_is_not_reported_as_missing(ours: str) -> None:
    """The tag was there by the new name of the branch, and its maker said that nothing was changed."""
    assert not failed([Combination("objects", "plain", ours, ("rename a branch",))])


@pytest.mark.parametrize("store", ["memory", "objects"])
def test_a_tag_that_was_renamed_or_deleted_beside_a_rename_of_its_branch_does_not_come_back(
    store: str,
) -> None:
    others = ("rename a tag on a branch", "delete a tag on a branch")
    assert not failed(
        [Combination(store, "plain", "rename a branch", (other,)) for other in others]
    )
    combination = Combination(store, "plain", "rename a branch", others[1:])
    for done in schedules(combination):
        if not isinstance(done.theirs[0], LsmError) and not isinstance(done.ours, LsmError):
            tags = done.disk.opened(JUDGE).branch("new").tags.names()
            assert "done" not in tags, done.call


@pytest.mark.parametrize("ours", ["fast-forward by force", "fast-forward"])
def test_a_tag_that_moved_below_a_branch_is_not_taken_over(ours: str) -> None:
    """It had been planned when the tag was of a snapshot of the branch."""
    combination = Combination("memory", "plain", ours, ("move a tag on a branch",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    path = "branch/branch-side/tag/tag-done"
    places = [at for at, call in enumerate(calls, 1) if path in call.paths]
    for at in (*places, *(place + 1 for place in places)):
        assert not list(problems_of(schedule(combination, at)[0])), at


@pytest.mark.parametrize("store", ["memory", "objects"])
def test_an_expiry_leaves_a_branch_that_was_made_again_of_the_same_tag_alone(store: str) -> None:
    """It begins with the same snapshot as the former one, which expired there: the new branch had none."""
    assert not failed([Combination(store, "plain", "expire a branch", ("make a branch anew",))])


def test_an_expiry_puts_no_changelog_into_a_table_that_was_made_anew() -> None:
    """It named files of the dropped table, and no expiry or removal of orphans went on."""
    combination = Combination("lake", "long changelog", "expire a branch", ("drop and create",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    changelogs = [
        at for at, call in enumerate(calls, 1) if "/changelog/changelog-" in call.paths[0]
    ]
    for at in (changelogs[0] - 3, *changelogs):
        assert not list(problems_of(schedule(combination, at)[0])), at


@pytest.mark.parametrize("ours", ["follow", "expire tags"])
@pytest.mark.parametrize("theirs", ["rename the table", "drop and create"])
def test_a_reader_or_an_expiry_of_tags_changes_nothing_in_another_table(
    ours: str, theirs: str
) -> None:
    """A consumer got into a table that was made anew; tags whose time was over stayed under the new name without a word."""
    assert not failed([Combination("lake", "changelog", ours, (theirs,))])


def test_an_expiry_that_finds_nothing_looks_whether_the_table_was_renamed() -> None:
    combination = Combination("lake", "plain", "expire", ("rename the table",))
    calls = calls_of(combination.store, combination.kind, combination.ours)
    at = next(at for at, call in enumerate(calls, 1) if call.paths[0].endswith("/consumer"))
    assert not list(problems_of(schedule(combination, at)[0]))
