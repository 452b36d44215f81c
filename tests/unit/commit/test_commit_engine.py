"""The one commit engine: replays, waiting, lost answers, staged files, and what an attempt costs."""

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind, StorageError
from lsm_engine.commit import publish
from lsm_engine.ddl.open import load_schema
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.planning.proposal import retry_wait_millis
from lsm_engine.table.components import Components, LocalExecutor
from lsm_engine.table.session import TableSession
from tests.fault.doubles import ManualClock, NumberedIds
from tests.fault.recording_file_io import Call, RecordingFileIO
from tests.model.invariants import check_reachability
from tests.model.stored_table import StoredTable
from tests.unit.table.history_tables import Story


def rows_of(story: Story, table: lsm.Table | None = None) -> list[dict[str, Any]]:
    found = (table or story.reopened()).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["v"] or ""))


def slow_writer(
    story: Story, on_call: Callable[[Call], None], *, first_id: int = 700_000
) -> tuple[lsm.Table, RecordingFileIO]:
    """The table as a process has it whose calls others may come between."""
    disk = RecordingFileIO(story.disk, on_call=on_call)
    parts = Components(
        file_io=disk,
        clock=ManualClock(story.clock.millis),
        ids=NumberedIds(first=first_id),
        executor=LocalExecutor(threads=1),
    )
    return lsm.Table(TableSession("t", parts, load_schema(disk, "t")), "t"), disk


def losing_races(
    story: Story, races: int, *, first_id: int = 700_000
) -> tuple[lsm.Table, RecordingFileIO]:
    """A writer before each of whose first publishes somebody else commits."""
    other, ids = story.reopened(), count(1_000)

    def overtake(call: Call) -> None:
        number = next(ids) if call.verb == "publish" else 0
        if 1_000 <= number < 1_000 + races:
            other.upsert([{"id": number, "v": "theirs"}])

    return slow_writer(story, overtake, first_id=first_id)


# --- replays --------------------------------------------------------------------------------------

KEYS = pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
NUMBERED = {"commit_user": "job", "commit_identifier": 7}
VERBS: dict[str, Callable[[lsm.Table], Any]] = {
    "upsert": lambda table: table.upsert([{"id": 1, "v": "mine"}], **NUMBERED),
    "delete": lambda table: table.delete([{"id": 1}], **NUMBERED),
    "insert": lambda table: table.insert([{"id": 9, "v": "mine"}], **NUMBERED),
    "update": lambda table: table.update([{"id": 1, "v": "mine"}], **NUMBERED),
    "overwrite": lambda table: table.overwrite([{"id": 1, "v": "mine"}], **NUMBERED),
    "update where": lambda table: table.update(set={"v": "v || 'x'"}, where="id < 3", **NUMBERED),
    "delete where": lambda table: table.delete(where="id < 3", **NUMBERED),
    "merge": lambda table: (
        table.merge([{"id": 1, "v": "mine"}, {"id": 9, "v": "mine"}], **NUMBERED)
        .when_matched_delete()
        .when_not_matched_insert_all()
        .execute()
    ),
    "compact": lambda table: table.compact(full=True, **NUMBERED),
    "rescale": lambda table: table.rescale(3, **NUMBERED),
    "rollback_to_as_latest": lambda table: table.rollback_to_as_latest(1, **NUMBERED),
}
WITHOUT_KEY: dict[str, Callable[[lsm.Table], Any]] = {
    "append": lambda table: table.append([{"id": 1, "v": "mine"}], **NUMBERED),
    "overwrite": lambda table: table.overwrite([{"id": 1, "v": "mine"}], **NUMBERED),
    "delete": lambda table: table.delete(KEYS, **NUMBERED),
    "rollback_to_as_latest": lambda table: table.rollback_to_as_latest(1, **NUMBERED),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_replay_is_a_no_op(verb: str) -> None:
    story = Story()
    story.put(k1="a", k2="b")
    story.put(k2="c")
    made = VERBS[verb](story.table)
    story.put(k1="theirs", k5="theirs")
    before = rows_of(story)
    assert VERBS[verb](story.reopened()).id == made.id
    assert story.table.latest_snapshot().id == made.id + 1
    assert rows_of(story) == before
    check_reachability(StoredTable(story.disk))


@pytest.mark.parametrize("verb", ["upsert", "compact"])
def test_a_replay_returns_its_own_snapshot_also_behind_later_numbers(verb: str) -> None:
    """As a bookmark it leaves out nothing that others did before the later number."""
    story = Story()
    story.put(k1="a", k2="b")
    story.put(k2="c")
    made = VERBS[verb](story.table)
    story.put(k5="theirs")
    story.table.upsert([{"id": 6, "v": "mine"}], commit_user="job", commit_identifier=8)
    again = VERBS[verb](story.reopened())
    assert again.id == made.id
    changes = story.reopened().changelog(after=again, mode="delta").to_pylist()
    assert [row["id"] for row in changes] == [5, 6]


@pytest.mark.parametrize("options", [{}, {"changelog-producer": "lookup"}], ids=["plain", "lookup"])
def test_the_upkeep_of_a_number_that_a_branch_has_again_is_no_replay(
    options: dict[str, str],
) -> None:
    """Its rows would wait for the next write: the compaction of main had the same number, and was its newest."""
    story = Story(options={"write-only": "false", "merge-engine": "first-row", **options})
    story.put(k1="a")
    story.table.create_tag("now")
    VERBS["overwrite"](story.table)
    story.table.create_branch("beside", "now")
    beside = story.reopened().branch("beside")
    beside.upsert([{"id": 5, "v": "b"}])
    made = VERBS["overwrite"](beside)
    assert made.visible
    assert rows_of(story, beside) == [{"id": 1, "v": "mine"}]


def test_a_replayed_rescale_leaves_the_number_that_others_chose_since() -> None:
    story = Story()
    story.put(k1="a", k2="b")
    made = story.table.rescale(3, **NUMBERED)
    story.reopened().rescale(5)
    table = story.reopened()
    assert table.rescale(3, **NUMBERED) == made
    assert table.schema.bucket_count == 5
    table.upsert([{"id": 3, "v": "c"}])
    assert len(rows_of(story)) == 3


@pytest.mark.parametrize("verb", WITHOUT_KEY)
def test_a_replay_on_a_table_without_a_key_is_a_no_op(verb: str) -> None:
    story = Story(key=(), options={"bucket": "-1", "deletion-vectors.enabled": "true"})
    for _ in range(2):
        story.table.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    made = WITHOUT_KEY[verb](story.table)
    story.table.append([{"id": 3, "v": "theirs"}])
    before = rows_of(story)
    assert WITHOUT_KEY[verb](story.reopened()).id == made.id
    assert story.table.latest_snapshot().id == made.id + 1
    assert rows_of(story) == before
    check_reachability(StoredTable(story.disk))


def test_a_replayed_rollback_to_as_latest_undoes_nothing_that_others_committed() -> None:
    story = Story()
    first = story.put(k1="a")
    story.put(k1="b")
    made = story.table.rollback_to_as_latest(first, **NUMBERED)
    assert rows_of(story) == [{"id": 1, "v": "a"}]
    story.put(k1="c", k2="d")
    again = story.reopened().rollback_to_as_latest(first, **NUMBERED)
    assert again == made
    assert rows_of(story) == [{"id": 1, "v": "c"}, {"id": 2, "v": "d"}]


def test_a_rollback_to_as_latest_is_a_replay_also_when_its_target_has_expired() -> None:
    story = Story()
    first = story.put(k1="a")
    story.put(k1="b")
    made = story.table.rollback_to_as_latest(first, **NUMBERED)
    story.put(k1="c")
    story.clock.advance(10_000_000)
    story.table.expire_snapshots(retain_min=2, retain_max=2, older_than="1 s")
    assert made is not None
    assert story.reopened().rollback_to_as_latest(first, **NUMBERED) == made


def test_a_replay_that_races_with_its_first_attempt_is_a_no_op() -> None:
    """Both attempts have staged their rows when the first lands."""
    story = Story()
    story.put(k1="a")
    landed: list[Snapshot | None] = []

    def first_attempt(call: Call) -> None:
        if call.verb == "publish" and not landed:
            landed.append(None)
            landed[0] = VERBS["upsert"](story.reopened())

    table, _ = slow_writer(story, first_attempt)
    assert VERBS["upsert"](table) == landed[0]
    assert [one.id for one in story.table.snapshots()] == [1, 2]
    check_reachability(StoredTable(story.disk))


# --- contention -----------------------------------------------------------------------------------


def test_contention_costs_waiting_and_no_error() -> None:
    story = Story()
    story.put(k1="a")
    table, _ = losing_races(story, 40)
    made = table.upsert([{"id": 2, "v": "mine"}])
    assert made.id == 42
    assert {"id": 2, "v": "mine"} in rows_of(story)
    assert len(rows_of(story)) == 42
    slept = table.session.clock.slept
    assert len(slept) == 40
    assert max(slept) <= 10
    check_reachability(StoredTable(story.disk))


def test_the_timeout_ends_a_commit_that_keeps_losing() -> None:
    story = Story(options={"commit.timeout": "100 ms"})
    story.put(k1="a")
    table, _ = losing_races(story, 10_000)
    with pytest.raises(lsm.CommitConflictError, match=r"commit\.timeout") as refused:
        table.upsert([{"id": 2, "v": "mine"}])
    assert refused.value.kind is ErrorKind.RETRIES_EXHAUSTED
    assert refused.value.facts["waited_millis"] > 100
    assert {"id": 2, "v": "mine"} not in rows_of(story)
    check_reachability(StoredTable(story.disk))


@pytest.mark.parametrize("allowed", [0, 3])
def test_a_number_of_retries_that_is_set_is_kept_to(allowed: int) -> None:
    story = Story(options={"commit.max-retries": str(allowed)})
    story.put(k1="a")
    table, _ = losing_races(story, allowed)
    table.upsert([{"id": 2, "v": "mine"}])
    table, _ = losing_races(story, allowed + 1, first_id=800_000)
    with pytest.raises(lsm.CommitConflictError) as refused:
        table.upsert([{"id": 3, "v": "mine"}])
    assert refused.value.facts["retries"] == allowed + 1
    check_reachability(StoredTable(story.disk))


@pytest.mark.parametrize("act", [
    lambda table: table.rollback_to_as_latest(1),
    lambda table: table.compact_manifest(dry_run=False),
    lambda table: table.delete([{"id": 1}]),
    lambda table: table.overwrite([{"id": 1, "v": "mine"}]),
], ids=["rollback_to_as_latest", "compact_manifest", "delete", "overwrite"])  # fmt: skip
def test_every_verb_waits_out_contention(act: Callable[[lsm.Table], Any]) -> None:
    story = Story()
    story.put(k1="a")
    story.put(k1="b")
    table, _ = losing_races(story, 15)
    act(table)
    assert story.table.latest_snapshot().id == 18
    assert story.table.verify().is_clean
    check_reachability(StoredTable(story.disk))


def test_what_a_lost_race_leaves_valid_is_not_written_again() -> None:
    """An append adds the same to each base: only the base's list and the snapshot are new."""
    story = Story(key=(), options={"bucket": "-1"})
    story.table.append([{"id": 1, "v": "a"}])
    other = story.reopened()
    left = [3]

    def overtake(call: Call) -> None:
        if call.verb == "publish" and left[0]:
            left[0] -= 1
            other.append([{"id": 2, "v": "theirs"}])

    table, disk = slow_writer(story, overtake)
    table.append([{"id": 3, "v": "mine"}])
    written = [call.path for call in disk.calls if call.verb == "write_new"]
    assert sum("manifest-list" not in path for path in written) == 1
    assert sum("manifest-list" in path for path in written) == 1 + 4
    assert sum(call.verb == "open_output" for call in disk.calls) == 1
    assert len(rows_of(story)) == 5
    check_reachability(StoredTable(story.disk))


def test_numbers_leave_room_after_the_second_lost_race() -> None:
    """A writer that loses again and again need not write its rows again each time."""
    story = Story()
    story.put(k1="a")
    table, disk = losing_races(story, 12)
    table.upsert([{"id": 2, "v": "mine"}])
    assert sum(call.verb == "open_output" for call in disk.calls) == 3
    assert story.table.verify().is_clean


# --- fairness -------------------------------------------------------------------------------------


def simulated(stage_millis: list[int], *, attempt_millis: int, until: int) -> list[int]:
    """Commits of writers that stage, look, and publish; who publishes on an old base has lost."""
    chance = random.Random(7)
    events = [(chance.random() * spent, at) for at, spent in enumerate(stage_millis)]
    heapq.heapify(events)
    looked: dict[int, int] = {}
    lost = [0] * len(stage_millis)
    commits = [0] * len(stage_millis)
    newest = 0
    now = 0.0
    while now < until:
        now, at = heapq.heappop(events)
        if at not in looked:
            looked[at] = newest
            heapq.heappush(events, (now + attempt_millis * (0.5 + chance.random()), at))
            continue
        wait: float = stage_millis[at] * (0.5 + chance.random())
        if looked.pop(at) == newest:
            newest, lost[at] = newest + 1, 0
            commits[at] += 1
        else:
            lost[at] += 1
            fraction = chance.random()
            wait = retry_wait_millis(lost[at], least=10, longest=10_000, fraction=fraction)
        heapq.heappush(events, (now + wait, at))
    return commits


@pytest.mark.parametrize("writers", [2, 8, 16])
def test_the_slowest_writer_gets_a_quarter_of_the_commits_of_the_fastest(writers: int) -> None:
    for attempt_millis in (5, 20, 80):
        commits = simulated([15] * writers, attempt_millis=attempt_millis, until=120_000)
        assert min(commits) >= max(commits) / 4, (attempt_millis, commits)


def test_a_writer_beside_one_that_needs_no_time_to_stage_is_not_starved() -> None:
    commits = simulated([3, 15], attempt_millis=8, until=120_000)
    assert min(commits) >= max(commits) / 4, commits


def test_who_has_lost_most_waits_least() -> None:
    waits = [retry_wait_millis(n, least=12, longest=10_000, fraction=1) for n in range(1, 8)]
    assert waits == [12, 6, 4, 3, 3, 3, 3]
    assert retry_wait_millis(1, least=12, longest=5, fraction=1) == 5
    assert retry_wait_millis(1, least=12, longest=10_000, fraction=0.25) == 3


# --- staged files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", ["true", "false"])
@pytest.mark.parametrize("which", ["data-", "changelog-", "manifest-"])
def test_staged_files_that_are_gone_fail_the_commit(fsync: str, which: str) -> None:
    """The writer was stopped after staging; orphan removal took its files meanwhile."""
    story = Story(options={"commit.fsync": fsync, "changelog-producer": "input"})
    story.put(k1="a")
    before = set(story.disk._files)
    gone: list[str] = []

    def remove(call: Call) -> None:
        is_last = call.verb == "write_new" and "manifest-list" in call.path
        if is_last:
            for path in set(story.disk._files) - before:
                if path.rpartition("/")[2].startswith(which):
                    gone.append(path)
                    del story.disk._files[path]

    table, _ = slow_writer(story, remove)
    with pytest.raises(lsm.CommitConflictError, match="removal of orphan files") as refused:
        table.upsert([{"id": 2, "v": "mine"}])
    assert refused.value.kind is ErrorKind.STAGED_FILES_GONE
    assert gone
    assert set(refused.value.facts["files"]) <= set(gone)
    assert story.table.latest_snapshot().id == 1
    assert rows_of(story) == [{"id": 1, "v": "a"}]
    check_reachability(StoredTable(story.disk))


@pytest.mark.parametrize("fsync", ["true", "false"])
def test_staged_files_are_looked_for_again_after_a_lost_race(fsync: str) -> None:
    story = Story(key=(), options={"bucket": "-1", "commit.fsync": fsync})
    story.table.append([{"id": 1, "v": "a"}])
    known = set(story.disk._files)
    publishes: list[Call] = []

    def overtake(call: Call) -> None:
        if call.verb == "publish" and not publishes:
            publishes.append(call)
            for path in set(story.disk._files) - known:
                if path.rpartition("/")[2].startswith("data-"):
                    del story.disk._files[path]
            story.reopened().append([{"id": 2, "v": "theirs"}])

    table, _ = slow_writer(story, overtake)
    with pytest.raises(lsm.CommitConflictError, match="executors wrote") as refused:
        table.append([{"id": 3, "v": "mine"}])
    assert refused.value.kind is ErrorKind.STAGED_FILES_GONE
    assert [row["id"] for row in rows_of(story)] == [1, 2]


# --- what nobody can tell -------------------------------------------------------------------------


def test_a_snapshot_that_cannot_be_confirmed_is_unknown_and_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    story.put(k1="a")

    def unanswered(*_: object) -> bool:
        raise StorageError("no answer")

    monkeypatch.setattr(publish, "confirm", unanswered)
    with pytest.raises(lsm.CommitUnknownError) as unknown:
        story.table.upsert([{"id": 2, "v": "mine"}])
    assert unknown.value.facts["snapshot_id"] == 2
    monkeypatch.undo()
    assert rows_of(story) == [{"id": 1, "v": "a"}, {"id": 2, "v": "mine"}]


def test_a_revoked_snapshot_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.put(k1="a")
    confirm, revoked = publish.confirm, []

    def revoke_first(snapshots: Any, landed: Snapshot, *more: Any) -> bool:
        if not revoked:
            revoked.append(landed)
            assert snapshots.delete(landed.id)
            return False
        return confirm(snapshots, landed, *more)

    monkeypatch.setattr(publish, "confirm", revoke_first)
    made = story.table.upsert([{"id": 2, "v": "mine"}])
    assert made.id == 2
    assert made != revoked[0]
    assert rows_of(story) == [{"id": 1, "v": "a"}, {"id": 2, "v": "mine"}]
    check_reachability(StoredTable(story.disk))


# --- what a small commit costs --------------------------------------------------------------------


def test_calls_of_a_small_commit() -> None:
    """From the first look at the newest snapshot to the publish: nothing is looked for twice."""
    story = Story()
    calls: list[str] = []
    table, disk = slow_writer(story, lambda call: calls.append(f"{call.verb} {call.path}"))
    for number in (1, 2, 3):
        calls.clear()
        written = len(disk.calls)
        table.upsert([{"id": number, "v": "a"}], commit_user="job", commit_identifier=number)
    before = [call.verb for call in disk.calls[written:]]
    publish = next(at for at, call in enumerate(calls) if call.startswith("publish"))
    reads = [
        call for call in calls[:publish] if call.startswith(("read", "exists", "list", "status"))
    ]
    # Staging and the commit each look for the newest snapshot: a hint, its file, and its successor.
    assert len([call for call in reads if "LATEST" in call]) <= 3, calls
    assert not [call for call in reads if "/manifest" in call], "its own manifest was decoded again"
    assert len(reads) <= 12, reads
    assert before.count("write_new") == 3
    assert before.count("sync") == 1
    assert before.count("publish") == 1
