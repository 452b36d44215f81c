"""The last commit identifier of each commit user: from snapshots and the file to what a replay is."""

from dataclasses import replace

import pytest

from lsm_engine.base.units import BATCH_COMMIT_IDENTIFIER, FIRST_SNAPSHOT_ID
from lsm_engine.format.commit_message import (
    AT_LEAST,
    FORGOTTEN_LENGTH,
    UNCERTAIN,
    CommitIdentifiers,
    LastCommit,
    RecordedIdentifiers,
    key_of,
)
from lsm_engine.format.documents import COMMIT_IDENTIFIERS, encode_identifiers
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.options.modes import CommitKind
from lsm_engine.planning.commit_identifiers import (
    USERS_CARRIED,
    CarriedUsers,
    ChainIdentifiers,
    Limits,
    carried_users,
    counted_chain,
    ends_chain,
    has_property,
    identifiers_of,
    is_replay,
    last_commit,
    last_commit_of,
    recorded_before,
    rolled_back,
)
from lsm_engine.planning.proposal import CommitStep
from lsm_engine.planning.snapshot_chain import BASE, ROLLBACK_TARGET
from tests.unit.planning.facts import snapshot

ADA, BOB, EVE = key_of("ada"), key_of("bob"), key_of("eve")
FOREVER = Limits(users=10, seconds=1_000_000)


def last(
    identifier: int, snapshot_id: int = 1, *, kinds: str = "a", seconds: int = 0
) -> LastCommit:
    return LastCommit(identifier=identifier, kinds=kinds, snapshot_id=snapshot_id, seconds=seconds)


def commit(snapshot_id: int, user: str = "ada", identifier: int = 1, **properties: str) -> Snapshot:
    """A snapshot of this engine: it names its base."""
    made = snapshot(snapshot_id, user=user, identifier=identifier, time_millis=5_999)
    return replace(made, properties={BASE: f"delta-{snapshot_id - 1}", **properties})


def carrying(snapshot_id: int, identifiers: CommitIdentifiers, **facts: object) -> Snapshot:
    """A snapshot that carries commit identifiers."""
    made = commit(snapshot_id, **facts)
    text = encode_identifiers(identifiers)
    return replace(made, properties={**(made.properties or {}), COMMIT_IDENTIFIERS: text})


def line_of(identifiers: CommitIdentifiers, oldest_id: int | None = None) -> ChainIdentifiers:
    return ChainIdentifiers(identifiers=identifiers, oldest_id=oldest_id)


def users_of(**users: LastCommit) -> dict[str, LastCommit]:
    return {key_of(user): commit for user, commit in users.items()}


def test_a_snapshot_ends_a_line_if_it_is_the_first_or_marks_a_rollback():
    assert ends_chain(commit(FIRST_SNAPSHOT_ID))
    assert not ends_chain(commit(FIRST_SNAPSHOT_ID + 1))
    assert ends_chain(replace(commit(9), properties={ROLLBACK_TARGET: "3"}))


def test_a_snapshot_has_the_property_or_has_not():
    assert has_property(carrying(4, CommitIdentifiers()))
    assert not has_property(commit(4))
    assert not has_property(snapshot(4))


def test_below_a_snapshot_without_a_base_only_what_earliest_has_not_passed_counts():
    others = [snapshot(9), snapshot(8), snapshot(7)]
    assert counted_chain(others, None) == others
    assert counted_chain(others, 7) == others
    assert counted_chain(others, 8) == others[:2]
    assert counted_chain(others, 9) == others[:1]
    assert counted_chain(others, 10) == others  # beyond the newest: a hint that is not believed
    ours = [commit(9), commit(8), commit(7)]
    assert counted_chain(ours, 9) == ours


def test_without_snapshots_nobody_has_committed():
    assert identifiers_of([], None, "f") == line_of(CommitIdentifiers())


def test_commits_are_collected_down_to_the_first_snapshot():
    line = [commit(3, "bob", 7), commit(2, "ada", 5), commit(FIRST_SNAPSHOT_ID, "bob", 6)]
    collected = identifiers_of(line, None, "f")
    assert collected.identifiers.users == users_of(
        ada=last(5, 2, seconds=5), bob=last(7, 3, seconds=5)
    )
    assert list(collected.identifiers.users) == [ADA, BOB]
    assert collected.oldest_id is None
    assert not collected.asks_file
    assert not collected.identifiers.is_recorded


def test_batch_commits_have_no_number_to_keep():
    assert not identifiers_of(
        [commit(1, "ada", BATCH_COMMIT_IDENTIFIER)], None, "f"
    ).identifiers.users


def test_the_property_stands_for_all_that_is_below():
    carried = CommitIdentifiers(users=users_of(bob=last(3, 2)), has_more=True, has_file=True)
    line = [commit(5, "ada", 8), carrying(4, carried, user="eve", identifier=1)]
    collected = identifiers_of(
        line, RecordedIdentifiers(snapshot_id=9, users=users_of(eve=last(9))), "f"
    )
    assert collected.identifiers.users == users_of(bob=last(3, 2), ada=last(8, 5, seconds=5))
    assert collected.oldest_id is None
    assert collected.asks_file


def test_commits_of_another_client_are_remembered():
    carried = CommitIdentifiers()
    collected = identifiers_of(
        [snapshot(5, user="java", identifier=2), carrying(4, carried)], None, "f"
    )
    assert collected.identifiers.is_recorded
    assert set(collected.identifiers.users) == {key_of("java")}


def test_the_file_tells_what_has_expired():
    recorded = RecordedIdentifiers(
        snapshot_id=9, users=users_of(bob=last(3, 9), ada=last(4, 2), eve=last(7, 10))
    )
    collected = identifiers_of([commit(10, "ada", 5)], recorded, "f")
    assert collected.oldest_id == 10
    assert collected.asks_file
    assert collected.identifiers.has_more
    assert collected.identifiers.has_file
    assert not collected.identifiers.is_incomplete
    # Of eve the file has a commit that is not on the line: it was rolled back.
    assert collected.identifiers.users == users_of(bob=last(3, 9), ada=last(5, 10, seconds=5))
    first = identifiers_of([commit(FIRST_SNAPSHOT_ID, "ada", 5)], recorded, "f")
    assert first.oldest_id is None
    assert not first.asks_file
    without = identifiers_of([commit(10, "ada", 5)], None, "f")
    assert without.oldest_id is None


@pytest.mark.parametrize(
    ("snapshot_id", "is_recorded", "has_gap"),
    [(8, False, True), (9, False, False), (8, True, False)],
)
def test_what_expired_after_the_file_was_written_is_a_gap(snapshot_id, is_recorded, has_gap):
    recorded = RecordedIdentifiers(
        snapshot_id=snapshot_id, users=users_of(bob=last(3, 2)), is_recorded=is_recorded
    )
    identifiers = identifiers_of([commit(10)], recorded, "f").identifiers
    assert identifiers.is_incomplete is has_gap
    assert identifiers.users[BOB].kinds == ("a+" if has_gap else "a")
    assert identifiers.is_recorded is is_recorded


def test_a_gap_that_is_no_more_is_forgotten():
    recorded = RecordedIdentifiers(
        snapshot_id=9, users=users_of(bob=last(3, 2, kinds="a" + AT_LEAST))
    )
    assert identifiers_of([commit(10)], recorded, "f").identifiers.users[BOB].kinds == "a"


def test_an_attempt_that_may_have_landed_below_the_oldest_snapshot_is_uncertain():
    recorded = RecordedIdentifiers(
        snapshot_id=9,
        users=users_of(ada=last(4, 2, seconds=77)),
        pending={ADA: (5, 8), BOB: (6, 8), EVE: (7, 9)},
    )
    users = identifiers_of([commit(10, "zoe")], recorded, "f").identifiers.users
    assert users[ADA] == last(5, 8, kinds=UNCERTAIN, seconds=77)
    assert users[BOB] == last(6, 8, kinds=UNCERTAIN)
    assert EVE not in users  # its snapshot would be there
    older = replace(recorded, pending={ADA: (4, 8)})
    assert identifiers_of([commit(10, "zoe")], older, "f").identifiers.users[ADA].kinds == "a"


def test_the_last_commit_of_a_user_is_on_the_line_or_in_the_file():
    recorded = RecordedIdentifiers(snapshot_id=5, users=users_of(bob=last(3, 5), eve=last(3, 6)))
    whole = line_of(CommitIdentifiers(users=users_of(ada=last(9))))
    assert last_commit(ADA, whole, None, 5) == last(9)
    assert last_commit(BOB, whole, recorded, 5) is None  # the file is not asked
    more = line_of(CommitIdentifiers(has_more=True))
    assert last_commit(BOB, more, recorded, 5) == last(3, 5)
    assert last_commit(EVE, more, recorded, 5) is None  # newer than the base
    assert last_commit(BOB, line_of(CommitIdentifiers(), oldest_id=5), recorded, 9) is None
    assert last_commit(BOB, line_of(CommitIdentifiers(), oldest_id=6), recorded, 9) == last(3, 5)


def test_the_last_commit_of_a_user_is_unknown_where_something_is_missing():
    more = line_of(CommitIdentifiers(has_more=True))
    with pytest.raises(LookupError):
        last_commit(BOB, more, None, 5)
    forgotten = RecordedIdentifiers(snapshot_id=5, forgotten=frozenset({BOB[:FORGOTTEN_LENGTH]}))
    with pytest.raises(LookupError):
        last_commit(BOB, more, forgotten, 5)
    assert last_commit(ADA, more, forgotten, 5) is None
    newer = replace(forgotten, users=users_of(bob=last(3, 9)))
    assert last_commit(BOB, more, newer, 5) is None
    with pytest.raises(LookupError):
        last_commit(BOB, line_of(CommitIdentifiers(is_incomplete=True)), None, 5)


def step(identifier: int, kind: CommitKind = CommitKind.APPEND) -> CommitStep:
    return CommitStep(
        kind=kind, uuid="u", commit_user="ada", commit_identifier=identifier, delta=()
    )


def test_a_step_is_a_replay_of_the_same_or_a_greater_identifier():
    assert not is_replay(step(5), None)
    assert is_replay(step(5), last(6))
    assert is_replay(step(5), last(5))
    assert not is_replay(step(5), last(4))
    assert not is_replay(step(5, CommitKind.COMPACT), last(5))
    assert is_replay(step(5, CommitKind.COMPACT), last(5, kinds="ac"))


def test_whether_a_step_is_a_replay_may_be_unknown():
    with pytest.raises(LookupError, match="ada"):
        is_replay(step(5), last(4, kinds="a" + AT_LEAST))
    with pytest.raises(LookupError):
        is_replay(step(5), last(5, kinds=UNCERTAIN))
    assert not is_replay(step(5), last(4, kinds=UNCERTAIN))
    assert is_replay(step(5), last(6, kinds=UNCERTAIN + AT_LEAST))


def test_the_next_snapshot_carries_the_users_of_its_base_but_its_own():
    identifiers = CommitIdentifiers(users=users_of(ada=last(1), bob=last(2)))
    carried = carried_users(identifiers, ADA, FOREVER, 100)
    assert carried == CarriedUsers(users=users_of(bob=last(2)), has_evicted=False)


def test_users_that_have_not_committed_for_long_are_not_carried():
    identifiers = CommitIdentifiers(
        users=users_of(ada=last(1, seconds=49), bob=last(2, seconds=50))
    )
    carried = carried_users(identifiers, EVE, Limits(users=9, seconds=50), 100)
    assert carried == CarriedUsers(users=users_of(bob=last(2, seconds=50)), has_evicted=True)


@pytest.mark.parametrize(
    ("count", "limit", "carried"),
    [
        (2, 3, 2),  # and the committing one
        (3, 3, 2),
        (USERS_CARRIED - 1, 1_000, USERS_CARRIED - 1),
        (USERS_CARRIED, 1_000, USERS_CARRIED // 2),
        (USERS_CARRIED, USERS_CARRIED, USERS_CARRIED // 2),
        (1, 1, 0),
    ],
)
def test_the_most_recent_users_are_carried_up_to_a_number(count, limit, carried):
    users = {key_of(str(number)): last(number) for number in range(count)}
    chosen = carried_users(CommitIdentifiers(users=users), ADA, Limits(users=limit, seconds=9), 5)
    assert list(chosen.users) == list(users)[count - carried :]
    assert chosen.has_evicted is (carried < count)


def recorded_now(
    line: ChainIdentifiers, former: RecordedIdentifiers | None, *, key: str = ADA,
    base_id: int = 5, limits: Limits = FOREVER,
) -> RecordedIdentifiers:  # fmt: skip
    return recorded_before(key, line, former, base_id, limits=limits, now_seconds=100)


def test_the_file_takes_what_the_line_has():
    line = line_of(CommitIdentifiers(users=users_of(ada=last(3, 5), bob=last(1, 4))))
    assert recorded_now(line, None) == RecordedIdentifiers(
        snapshot_id=5, users=line.identifiers.users
    )
    former = RecordedIdentifiers(snapshot_id=3, users=users_of(ada=last(2, 3), eve=last(8, 2)))
    assert recorded_now(line, former).users == users_of(
        ada=last(3, 5), bob=last(1, 4), eve=last(8, 2)
    )


def test_the_file_keeps_what_is_newer_than_the_base():
    line = line_of(CommitIdentifiers(users=users_of(ada=last(3, 5), bob=last(1, 4))))
    former = RecordedIdentifiers(snapshot_id=7, users=users_of(ada=last(4, 6), bob=last(0, 5)))
    recorded = recorded_now(line, former)
    assert recorded.snapshot_id == 7
    assert recorded.users == users_of(ada=last(4, 6), bob=last(1, 4))


def test_the_file_loses_what_is_not_on_the_line():
    line = line_of(CommitIdentifiers(), oldest_id=3)
    former = RecordedIdentifiers(
        snapshot_id=9,
        users=users_of(a=last(1, 2), b=last(1, 3), c=last(1, 5), d=last(1, 6)),
    )
    assert recorded_now(line, former).users == users_of(a=last(1, 2), d=last(1, 6))
    assert recorded_now(line_of(CommitIdentifiers()), former).users == former.users


def test_the_file_keeps_a_number_of_users_and_remembers_whom_it_forgot():
    users = users_of(
        bob=last(1, 1, seconds=10), eve=last(1, 2, seconds=20), ada=last(1, 3, seconds=5)
    )
    line = line_of(CommitIdentifiers(users=users))
    recorded = recorded_now(line, None, limits=Limits(users=2, seconds=1_000))
    assert set(recorded.users) == {ADA, EVE}
    assert recorded.forgotten == {BOB[:FORGOTTEN_LENGTH]}
    again = recorded_now(
        line_of(CommitIdentifiers(users=users_of(bob=last(2, 4, seconds=30)))), recorded
    )
    assert not again.forgotten


def test_the_file_forgets_users_that_have_not_committed_for_long():
    users = users_of(ada=last(1, seconds=1), bob=last(1, seconds=89), eve=last(1, seconds=90))
    line = line_of(CommitIdentifiers(users=users))
    recorded = recorded_now(line, None, limits=Limits(users=9, seconds=10))
    assert set(recorded.users) == {ADA, EVE}  # the committing one stays
    assert recorded.forgotten == {BOB[:FORGOTTEN_LENGTH]}


def test_of_users_who_committed_in_one_second_the_later_snapshot_counts():
    users = users_of(bob=last(1, 4), eve=last(1, 3))
    recorded = recorded_now(
        line_of(CommitIdentifiers(users=users)), None, limits=Limits(users=2, seconds=1_000)
    )
    assert set(recorded.users) == {BOB}


def test_attempts_stay_until_their_user_has_committed_as_much():
    line = line_of(CommitIdentifiers(users=users_of(ada=last(3, 5))))
    for tried, stays in ((3, False), (4, True)):
        former = RecordedIdentifiers(snapshot_id=1, pending={ADA: (tried, 1), BOB: (1, 1)})
        pending = recorded_now(line, former).pending
        assert (ADA in pending) is stays
        assert BOB in pending


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("on_line", [False, True])
def test_the_file_remembers_that_other_clients_commit(in_file, on_line):
    former = RecordedIdentifiers(snapshot_id=1, is_recorded=in_file)
    recorded = recorded_now(line_of(CommitIdentifiers(is_recorded=on_line)), former)
    assert recorded.is_recorded is (in_file or on_line)


def test_a_rollback_takes_back_what_came_after_its_target():
    recorded = RecordedIdentifiers(
        snapshot_id=9, users=users_of(ada=last(1, 3), bob=last(2, 4)), pending={EVE: (1, 2)},
        forgotten=frozenset({"old"}), is_recorded=True,
    )  # fmt: skip
    back = rolled_back(recorded, line_of(CommitIdentifiers(has_more=True)), 3)
    assert back == RecordedIdentifiers(
        snapshot_id=3, users=users_of(ada=last(1, 3)),
        forgotten=frozenset({"old", BOB[:FORGOTTEN_LENGTH]}), is_recorded=False,
    )  # fmt: skip
    whole = rolled_back(recorded, line_of(CommitIdentifiers(is_recorded=True)), 3)
    assert whole.forgotten == {"old"}
    assert whole.is_recorded


def test_what_is_kept_of_a_commit():
    assert last_commit_of(commit(4, identifier=7)) == last(7, 4, seconds=5)
