"""A numbered commit is applied once, however many snapshots come after it, whoever makes and expires them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import lsm_engine as lsm
from lsm_engine.base.errors import ErrorKind
from lsm_engine.format.commit_message import RecordedIdentifiers
from lsm_engine.format.documents import COMMIT_IDENTIFIERS, decode_identifiers
from lsm_engine.planning.commit_identifiers import USERS_CARRIED
from tests.foreign_documents import commit_as_another_client, expire_as_another_client
from tests.unit.table.history_tables import Story

SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
EVERYTHING = {"retain_min": 1, "retain_max": 1, "older_than": "0 s", "everything": True}


class Feed(Story):
    """A table in which a row that is committed twice is seen twice."""

    def __init__(self, **options: str) -> None:
        super().__init__(options={**SUMS, **options})
        self.put(k0="x")

    def feed(self, identifier: int, user: str = "feed", table: lsm.Table | None = None) -> int:
        """Commit the number as a row, by a process of its own; return the snapshot's id."""
        self.clock.advance(1000)
        row = {"id": 1, "v": f"{user}-{identifier}"}
        made = (table or self.reopened()).upsert(
            [row], commit_user=user, commit_identifier=identifier
        )
        assert made is not None
        return made.id

    def expire(self) -> None:
        self.clock.advance(1000)
        self.reopened().expire_snapshots(**EVERYTHING)

    def fed(self, table: lsm.Table | None = None) -> list[str]:
        """What was committed, in order."""
        rows = (table or self.reopened()).scan(where="id = 1").to_arrow()["v"].to_pylist()
        return rows[0].split(",") if rows else []

    def recorded(self) -> RecordedIdentifiers | None:
        return self.table.session.commit_identifiers.read()

    def carried(self) -> str | None:
        newest = self.table.latest_snapshot()
        assert newest is not None
        return (newest.properties or {}).get(COMMIT_IDENTIFIERS)

    def refuses(self, identifier: int, user: str = "feed") -> lsm.InvalidInputError:
        before = self.table.latest_snapshot()
        with pytest.raises(lsm.InvalidInputError, match="set_commit_identifier") as refusal:
            self.feed(identifier, user)
        assert refusal.value.kind is ErrorKind.UNKNOWN_IDENTIFIER
        assert refusal.value.facts["commit_user"] == user
        assert self.table.latest_snapshot() == before
        return refusal.value


# --- writers of this engine alone -----------------------------------------------------------------


@pytest.mark.parametrize("count", [99, 150])
def test_a_replay_behind_many_commits_of_others(count: int) -> None:
    story = Feed()
    made = story.feed(1)
    for number in range(count):
        story.feed(number, "other")
    assert story.feed(1) == made
    assert story.fed().count("feed-1") == 1


def test_a_replay_whose_snapshot_has_expired_returns_the_oldest_that_holds_its_rows() -> None:
    story = Feed()
    story.feed(1)
    story.put(k2="theirs")
    newest = story.put(k3="theirs")
    story.expire()
    assert story.feed(1) == newest
    assert story.fed() == ["feed-1"]
    story.check()


def test_smaller_numbers_are_replays_and_greater_ones_are_new_after_an_expiry() -> None:
    story = Feed()
    story.feed(5)
    story.expire()
    story.put(k2="theirs")
    story.expire()
    for number in (3, 5, 6, 6, 5):
        story.feed(number)
    assert story.fed() == ["feed-5", "feed-6"]


def test_kinds_of_one_number_are_commits_of_their_own_after_an_expiry() -> None:
    numbered = {"commit_user": "feed", "commit_identifier": 5}
    story = Feed()
    story.table.overwrite([{"id": 1, "v": "over"}], **numbered)
    story.expire()
    story.feed(5)
    story.put(k2="theirs")
    story.expire()
    story.feed(5)
    story.reopened().overwrite([{"id": 7, "v": "over"}], **numbered)
    assert story.fed() == ["over", "feed-5"]


def test_a_writer_that_stays_open_goes_on_by_its_numbers() -> None:
    story = Feed()
    with story.table.writer(commit_user="feed") as writer:
        for number in (1, 2, 2, 1, 3):
            writer.write([{"id": 1, "v": f"feed-{number}"}])
            writer.commit(commit_identifier=number)
            story.expire()
    assert story.fed() == ["feed-1", "feed-2", "feed-3"]


def test_a_commit_reads_no_snapshot_for_its_number() -> None:
    """The newest carries all that is asked for."""
    story = Feed()
    story.feed(1)
    for number in range(30):
        story.put(k2=str(number))
    reads: list[str] = []
    read = story.disk.read
    story.disk.read = lambda path, *more, **named: reads.append(path) or read(path, *more, **named)  # type: ignore[method-assign, func-returns-value]
    story.feed(2)
    numbered = [path for path in reads if path.startswith("snapshot/snapshot-")]
    reads.clear()
    story.put(k2="x")
    assert len(numbered) <= len([path for path in reads if path.startswith("snapshot/snapshot-")])
    assert not any("commit-identifiers" in path for path in reads)


def test_a_user_of_which_nothing_is_known_is_new() -> None:
    story = Feed()
    assert story.table.last_commit_identifier("feed") is None
    story.feed(1, "other")
    story.expire()
    story.feed(0)
    assert story.table.last_commit_identifier("feed") == 0
    assert story.table.last_commit_identifier("other") == 1
    assert story.fed() == ["other-1", "feed-0"]


# --- bounds ---------------------------------------------------------------------------------------


def test_users_beyond_those_that_a_snapshot_carries_are_in_the_file() -> None:
    story = Feed()
    count = 3 * USERS_CARRIED
    for number in range(count):
        story.feed(7, f"user-{number}")
        carried = decode_identifiers(story.carried() or "", file_name="")
        assert len(carried.users) <= USERS_CARRIED
    story.expire()
    for number in range(count):
        assert story.table.last_commit_identifier(f"user-{number}") == 7
        story.feed(7, f"user-{number}")
    for number in range(0, count, 10):
        story.feed(8, f"user-{number}")
    assert len(story.fed()) == len(set(story.fed())) == count + count // 10


def test_a_user_beyond_the_number_that_is_kept_is_refused() -> None:
    story = Feed(**{"commit-identifier.num-retained": "2"})
    for user in "abc":
        story.feed(1, user)
    story.refuses(1, "a")
    story.refuses(2, "a")
    story.feed(1, "b")
    story.feed(1, "c")
    story.feed(1, "new")
    story.refuses(1, "b")
    story.expire()
    story.refuses(1, "a")
    assert story.fed() == ["a-1", "b-1", "c-1", "new-1"]


def test_a_user_beyond_the_age_that_is_kept_is_refused() -> None:
    story = Feed(**{"commit-identifier.time-retained": "1 d"})
    story.feed(1)
    story.clock.advance(2 * 86_400_000)
    assert story.table.last_commit_identifier("feed") == 1, "nobody has committed since"
    story.feed(1, "other")
    story.refuses(1)
    with pytest.raises(lsm.InvalidInputError) as refusal:
        story.table.last_commit_identifier("feed")
    assert refusal.value.kind is ErrorKind.UNKNOWN_IDENTIFIER
    story.feed(1, "other")
    assert story.fed() == ["feed-1", "other-1"]


@pytest.mark.parametrize("last", [1, 2])
def test_a_refused_user_goes_on_once_its_last_number_is_stated(last: int) -> None:
    story = Feed(**{"commit-identifier.num-retained": "1"})
    story.feed(1)
    story.feed(1, "other")
    story.refuses(2)
    story.table.set_commit_identifier("feed", last)
    story.feed(1)
    story.feed(2)
    assert story.fed() == ["feed-1", "other-1", "feed-2"][: 4 - last]


def test_a_user_begins_anew_with_smaller_numbers() -> None:
    story = Feed()
    story.feed(70)
    stated = story.table.set_commit_identifier("feed", 0)
    assert (stated.delta_record_count, story.table.last_commit_identifier("feed")) == (0, 0)
    story.expire()
    for number in (0, 1, 1, 2):
        story.feed(number)
    assert story.fed() == ["feed-70", "feed-1", "feed-2"]
    story.check()


def test_the_number_of_commits_without_one_is_not_stated() -> None:
    story = Feed()
    with pytest.raises(lsm.InvalidInputError, match="commits without one"):
        story.table.set_commit_identifier("feed", (1 << 63) - 1)


def test_a_refused_commit_deletes_no_file_that_an_earlier_one_may_have_made_visible() -> None:
    """The very same messages may be committed a second time."""
    story = Feed(**{"commit-identifier.num-retained": "1"})
    story.feed(1)
    story.feed(1, "other")
    before = story.files("bucket-0")
    story.refuses(1)
    assert story.files("bucket-0") >= before
    assert story.table.verify(deep=True).problems == ()


# --- other clients --------------------------------------------------------------------------------


def foreign(story: Feed, count: int = 3) -> None:
    commit_as_another_client(story.disk, count)


def test_a_replay_behind_commits_of_another_client() -> None:
    story = Feed()
    made = story.feed(1)
    foreign(story, 120)
    assert story.feed(1) == made
    story.feed(2)
    foreign(story, 120)
    for number in (2, 1, 3):
        story.feed(number)
    assert story.fed() == ["feed-1", "feed-2", "feed-3"]


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=[pytest.mark.sweep, pytest.mark.slow])]
)
def test_replays_after_thousands_of_foreign_snapshots_and_every_expiry(count: int) -> None:
    """Between numbers other clients commit `count` times in all, and one of the two expires all that it may."""
    story = Feed()
    rounds = 10
    for number in range(rounds):
        story.feed(number)
        foreign(story, count // rounds)
        story.feed(number)
        if number % 2:
            expire_as_another_client(story.disk, story.table.latest_snapshot().id)  # type: ignore[union-attr]
        else:
            story.expire()
        for replayed in range(number + 1):
            story.feed(replayed)
    assert story.fed() == [f"feed-{number}" for number in range(rounds)]


def test_numbers_of_another_client_count_as_well() -> None:
    story = Feed()
    commit_as_another_client(story.disk, 3, user="flink", identifier=4)
    story.put(k2="ours")
    story.feed(5, "flink")
    story.feed(6, "flink")
    story.feed(7, "flink")
    assert story.fed() == ["flink-7"]


def test_an_expiry_writes_down_what_the_last_snapshot_of_ours_has() -> None:
    story = Feed()
    story.feed(1)
    foreign(story)
    assert (story.recorded() or RecordedIdentifiers(snapshot_id=-1)).users == {}
    story.expire()
    foreign(story)
    story.expire()
    story.feed(1)
    story.feed(2)
    assert story.fed() == ["feed-1", "feed-2"]
    assert story.reopened().verify(deep=True).problems == ()


def test_an_expiry_of_a_table_that_carries_its_numbers_writes_nothing_down() -> None:
    story = Feed()
    story.feed(1)
    before = story.recorded()
    story.put(k2="x")
    story.expire()
    assert story.recorded() == before
    assert before == RecordedIdentifiers(snapshot_id=1)


def test_an_expiry_in_a_table_of_another_client_alone_leaves_no_file() -> None:
    story = Story(options=SUMS)
    story.put(k1="a")
    path = "snapshot/snapshot-1"
    newest = commit_as_another_client(story.disk, 5, identifier=1)
    story.disk.delete(path)
    story.disk.replace("snapshot/EARLIEST", b"2")
    story.clock.advance(10_000)
    assert story.reopened().expire_snapshots(**EVERYTHING).snapshot_ids == tuple(range(2, newest))
    assert story.table.session.commit_identifiers.read() is None


def test_a_full_expiry_of_another_client_that_commits_here_takes_no_number() -> None:
    """A numbered commit beside others is in the file as well."""
    story = Feed()
    foreign(story)
    for number in range(4):
        story.feed(number)
        expire_as_another_client(story.disk, commit_as_another_client(story.disk, 2))
        assert story.carried() is None
        for replayed in range(number + 1):
            story.feed(replayed)
        story.feed(7, f"user-{number}")
        story.feed(7, f"user-{number}")
    assert len(story.fed()) == len(set(story.fed())) == 8


def test_a_full_expiry_of_another_client_that_is_new_here_has_replays_refused() -> None:
    """Nobody had written the number down: it was carried by snapshots alone."""
    story = Feed()
    story.feed(1)
    story.feed(2)
    expire_as_another_client(story.disk, commit_as_another_client(story.disk, 12))
    story.refuses(2)
    story.refuses(3)
    story.refuses(1, "new")
    story.table.set_commit_identifier("feed", 2)
    story.feed(2)
    story.feed(3)
    story.refuses(1, "new")
    story.table.set_commit_identifier("feed", 3, others_are_new=True)
    story.feed(1, "new")
    assert story.fed() == ["feed-1", "feed-2", "feed-3", "new-1"]


def test_a_commit_whose_writer_died_unseen_before_another_client_expired_it_is_refused() -> None:
    """It was about to commit, and nobody knows whether it did."""
    story = Feed()
    foreign(story)
    story.feed(1)
    story.disk.replace("consumer/commit-identifiers", _with_intent(story, 2))
    expire_as_another_client(story.disk, commit_as_another_client(story.disk, 12))
    story.feed(1)
    story.refuses(2)
    story.table.set_commit_identifier("feed", 2)
    story.feed(3)
    assert story.fed() == ["feed-1", "feed-3"]


def _with_intent(story: Feed, identifier: int) -> bytes:
    """The file as a writer leaves it that dies between its intent and its publish."""
    disk, kept = story.disk, dict(story.disk._files)

    def dies(path: str, data: bytes) -> bool:
        raise KeyboardInterrupt(path)

    publish, disk.publish = disk.publish, dies  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        story.feed(identifier)
    disk.publish = publish  # type: ignore[method-assign]
    intent = disk.read("consumer/commit-identifiers")
    assert intent != kept["consumer/commit-identifiers"]
    return intent


def test_a_ghost_below_commits_of_another_client_is_no_commit() -> None:
    """It landed on an id that an expiry had passed, and was never part of the table."""
    story = Feed()
    foreign(story)
    story.feed(1)
    ghost = story.disk.read("snapshot/snapshot-5")
    newest = commit_as_another_client(story.disk, 4)
    expire_as_another_client(story.disk, newest - 3)
    story.disk.replace("snapshot/snapshot-5", ghost)
    story.disk.delete("consumer/commit-identifiers")
    story.feed(1)
    assert story.fed() == ["feed-1", "feed-1"], "without the file nothing else knows of it"


# --- rollback, branches, tags ---------------------------------------------------------------------


def roll_back(story: Feed, to: int) -> None:
    story.reopened().rollback_to(to)


def roll_back_to_tag(story: Feed, to: int) -> None:
    story.reopened().create_tag("kept", to)
    story.put(k5="x")
    story.expire()
    story.reopened().rollback_to(tag="kept")


@pytest.mark.parametrize("back", [roll_back, roll_back_to_tag])
@pytest.mark.parametrize("others", [0, 3])
def test_what_was_rolled_back_is_committed_again(
    back: Callable[[Feed, int], None], others: int
) -> None:
    story = Feed()
    if others:
        commit_as_another_client(story.disk, others)
    story.feed(1)
    target = story.feed(2)
    story.feed(3)
    story.feed(1, "new")
    back(story, target)
    assert story.table.last_commit_identifier("new") is None
    for number in (2, 3, 3):
        story.feed(number)
    story.feed(1, "new")
    assert story.fed() == ["feed-1", "feed-2", "feed-3", "new-1"]
    if others:
        expire_as_another_client(story.disk, commit_as_another_client(story.disk, 9))
        story.feed(3)
        story.feed(4)
        assert story.fed() == ["feed-1", "feed-2", "feed-3", "new-1", "feed-4"]


def test_what_was_rolled_back_is_not_in_the_file_either() -> None:
    story = Feed()
    commit_as_another_client(story.disk, 2)
    target = story.feed(1)
    story.feed(2)
    roll_back(story, target)
    expire_as_another_client(story.disk, commit_as_another_client(story.disk, 9))
    story.feed(1)
    story.feed(2)
    assert story.fed() == ["feed-1", "feed-2"]


def test_a_state_that_is_made_the_newest_again_forgets_no_number() -> None:
    """History stays: whoever feeds the table goes on, and nothing comes again that was undone."""
    story = Feed()
    target = story.feed(1)
    story.feed(2)
    story.reopened().rollback_to_as_latest(target)
    story.feed(2)
    story.feed(3)
    assert story.fed() == ["feed-1", "feed-3"]


@pytest.mark.parametrize("others", [0, 3])
def test_a_branch_has_the_numbers_up_to_its_tag_and_its_own(others: int) -> None:
    story = Feed()
    story.feed(1)
    if others:
        commit_as_another_client(story.disk, others)
    story.reopened().create_tag("now")
    story.reopened().create_branch("beside", "now")
    story.feed(2)
    beside = story.reopened().branch("beside")
    for number in (1, 2, 2):
        story.feed(number, table=beside)
    story.feed(1)
    assert story.fed(beside) == story.fed() == ["feed-1", "feed-2"]


@pytest.mark.parametrize("users", [1, 2 * USERS_CARRIED])
def test_main_has_the_numbers_of_a_branch_that_it_was_forwarded_to(users: int) -> None:
    story = Feed()
    story.feed(1, "main")
    story.reopened().create_tag("now")
    story.reopened().create_branch("beside", "now")
    beside = story.reopened().branch("beside")
    for user in range(users):
        story.feed(1, f"user-{user}", beside)
    story.reopened().fast_forward("beside")
    story.feed(1, "main")
    for user in range(users):
        story.feed(1, f"user-{user}")
    assert len(story.fed()) == len(set(story.fed())) == users + 1


def test_a_table_that_is_made_anew_knows_no_number(tmp_path: Path) -> None:
    with lsm.open_catalog(str(tmp_path)) as catalog:
        for _ in range(2):
            table = catalog.create_table("a.t", {"id": int}, primary_key="id")
            made = table.upsert([{"id": 1}], commit_user="feed", commit_identifier=1)
            assert made is not None
            assert table.count() == made.id == 1
            catalog.drop_table("a.t")


# --- the file -------------------------------------------------------------------------------------


def test_a_damaged_file_is_named_and_refuses_only_who_needs_it() -> None:
    story = Feed()
    story.feed(1)
    story.disk.replace("consumer/commit-identifiers", b"{}")
    story.feed(2)
    story.put(k2="x")
    expire_as_another_client(story.disk, commit_as_another_client(story.disk, 12))
    with pytest.raises(lsm.CorruptFileError, match="commit-identifiers"):
        story.feed(3)
    story.put(k2="y")


def test_properties_of_another_snapshot_bring_no_numbers_along() -> None:
    story = Feed()
    story.feed(1)
    newest = story.table.latest_snapshot()
    assert newest is not None
    foreign(story)
    story.table.upsert([{"id": 2, "v": "x"}], properties=newest.properties)
    assert story.carried() is None


def test_a_commit_that_follows_one_which_a_rollback_took_is_not_committed() -> None:
    """Each of its numbers is the next one: a reader of changes would leave out what was rolled back."""
    story = Feed()
    first = story.feed(1)
    story.feed(2)
    row = [{"id": 1, "v": "feed-3"}]
    following = {"commit_user": "feed", "commit_identifier": 3, "after_identifier": 2}
    story.table.rollback_to(first)
    for table in (story.reopened(), story.table):
        with pytest.raises(lsm.CommitConflictError, match="follows 2, and the table has 1"):
            table.upsert(row, **following)
    story.feed(2)
    assert story.reopened().upsert(row, **following) is not None
    assert story.reopened().upsert(row, **following) is not None  # a replay
    assert story.fed() == ["feed-1", "feed-2", "feed-3"]
    with pytest.raises(lsm.InvalidInputError, match="commit_identifier"):
        story.table.upsert(row, after_identifier=2)
