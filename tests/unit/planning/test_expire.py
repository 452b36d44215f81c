"""Which snapshots go, and the files that go with them; tags and their end."""

import datetime as dt
import re
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError, InvalidOptionError
from lsm_engine.format.manifest import ManifestEntry, fold
from lsm_engine.format.tag import Tag
from lsm_engine.options.modes import EntryKind
from lsm_engine.planning.expire import (
    MetadataNames,
    RetainedFiles,
    candidate_buckets,
    dead_candidates,
    plan_expiry,
    plan_tag_removal,
    snapshots_to_replay,
)
from lsm_engine.planning.names import checked_branch_name, checked_tag_name
from lsm_engine.planning.retention import Retention, choose_expired
from lsm_engine.planning.tags import created_at, expired_tags, same_tag
from tests.unit.planning.facts import entry, snapshot

DELETE = EntryKind.DELETE


def choose(ids: str, *, now: int = 100, consumers: tuple[int, ...] = (), **options: int):
    """Snapshot n is committed at time n, unless it says n@time."""
    made = []
    for word in ids.split():
        id, _, time = word.partition("@")
        made.append(snapshot(int(id), time_millis=int(time or id)))
    retention = Retention(
        **{"retained_min": 1, "retained_max": 1000, "time_retained_millis": 0, "expire_limit": 50}
        | options
    )
    return choose_expired(made, retention, now_millis=now, consumer_next_ids=consumers)


@pytest.mark.parametrize(
    ("ids", "options", "expired", "reason"),
    [
        ("", {}, 0, "no snapshots"),
        ("7", {}, 0, "newest 1"),
        ("1 2 3 4 5", {}, 4, "newest 1"),
        ("1 2 3 4 5", {"retained_min": 3}, 2, "newest 3"),
        ("1 2 3 4 5", {"retained_min": 9}, 0, "newest 9"),
        # not its own age, its successor's: 2 is old enough, but it was the head until 3 came at 96
        ("1 2 3@96 4@97 5@98", {"time_retained_millis": 10}, 1, "snapshot 3, the successor of 2"),
        ("1 2 3@89 4@90 5@98", {"time_retained_millis": 10}, 2, "snapshot 4"),
        ("1 2 3 4 5", {"time_retained_millis": 1000}, 0, "snapshot 2"),
        # too many go whatever their age
        ("1 2 3 4 5", {"time_retained_millis": 1000, "retained_max": 2}, 3, "snapshot 5"),
        ("1 2 3 4 5", {"time_retained_millis": 1000, "retained_max": 2, "retained_min": 2}, 3, "newest 2"),
        # consumers and the limit
        ("1 2 3 4 5", {"consumers": (3, 5)}, 2, "consumer"),
        ("1 2 3 4 5", {"consumers": (1,)}, 0, "consumer"),
        ("1 2 3 4 5", {"consumers": (1,), "retained_max": 2}, 0, "consumer"),
        ("1 2 3 4 5", {"expire_limit": 2}, 2, "at most 2"),
        ("3 4 5", {"expire_limit": 1, "retained_max": 1}, 1, "at most 1"),
        # an expiry that was killed left a gap
        ("1 4 5 6", {}, 3, "newest 1"),
    ],
)  # fmt: skip
def test_where_the_line_lies(ids: str, options: dict, expired: int, reason: str) -> None:
    choice = choose(ids, **options)
    assert len(choice.expired) == expired
    assert re.search(reason, choice.reason)
    assert len(choice.expired) + len(choice.retained) == len(ids.split())


def test_the_minimum_may_not_exceed_the_maximum() -> None:
    with pytest.raises(InvalidOptionError, match="num-retained"):
        choose("1", retained_min=3, retained_max=2)


def told(entries: dict) -> str:
    return " ".join(sorted(name for _, _, name in entries))


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([entry("a")], ""),
        ([entry("a", kind=DELETE)], "a"),
        ([entry("a", kind=DELETE), entry("a", level=5)], ""),  # upgraded: the same bytes
        ([entry("a", level=5), entry("a", kind=DELETE)], ""),
        ([entry("a", kind=DELETE), entry("a", level=5), entry("a", level=5, kind=DELETE)], "a"),
        ([entry("a"), entry("a", kind=DELETE)], "a"),  # came and went
        ([entry("a", kind=DELETE), entry("a", bucket=1)], "a"),
        ([entry("a", kind=DELETE), entry("b", kind=DELETE, bucket=2)], "a b"),
    ],
)
def test_candidates(deltas: list[ManifestEntry], expected: str) -> None:
    found = dead_candidates(deltas)
    assert told(found) == expected
    assert {bucket for _, bucket in candidate_buckets(found)} == {key[1] for key in found}


def root(name: str, *entries: ManifestEntry, **names: set[str]) -> RetainedFiles:
    held = MetadataNames(**{kind: frozenset(some) for kind, some in names.items()})
    return RetainedFiles(name=name, entries=entries, names=held)


def test_what_another_root_names_stays() -> None:
    choice = choose("1 2 3")
    candidates = dead_candidates([entry(name, kind=DELETE) for name in "abcd"])
    plan = plan_expiry(
        choice,
        candidates,
        changelogs=[entry("changelog-x")],
        names=MetadataNames(
            manifests=frozenset({"m1", "m2"}), manifest_lists=frozenset({"l1"}),
            index_manifests=frozenset({"i1"}), index_files=frozenset({"f1"}), statistics=frozenset({"s1"}),
        ),
        retained=[
            root("snapshot 3", entry("z"), manifests={"m2"}),
            root("tag x", entry("b"), entry("c", bucket=1), statistics={"s1"}),
            root("tag y", entry("b"), entry("d", level=4)),
        ],
    )  # fmt: skip
    assert [file.file_name for file in plan.data_files] == ["a", "c"]
    assert [file.file_name for file in plan.changelog_files] == ["changelog-x"]
    assert plan.metadata == MetadataNames(
        manifests=frozenset({"m1"}), manifest_lists=frozenset({"l1"}),
        index_manifests=frozenset({"i1"}), index_files=frozenset({"f1"}),
    )  # fmt: skip
    assert plan.kept_by == (("tag x", 1), ("tag y", 1))
    assert [one.id for one in plan.expired] == [1, 2]
    assert plan.freed_bytes == 300
    assert not plan.is_empty


def test_nothing_expired_means_nothing_deleted() -> None:
    choice = choose("1 2 3", retained_min=3)
    names = MetadataNames(manifests=frozenset({"m"}))
    plan = plan_expiry(choice, {}, changelogs=[], names=names, retained=[root("snapshot 1")])
    assert plan.is_empty
    assert snapshots_to_replay(choice) == ()
    assert [one.id for one in snapshots_to_replay(choose("1 2 3 4", retained_min=2))] == [2, 3]


def test_a_tag_takes_what_only_it_names() -> None:
    plan = plan_tag_removal(
        [entry("a"), entry("b")],
        MetadataNames(manifests=frozenset({"m1", "m2"})),
        [root("snapshot 9", entry("b", level=3), manifests={"m2"})],
        reason="tag x deleted",
    )
    assert [file.file_name for file in plan.data_files] == ["a"]
    assert plan.metadata == MetadataNames(manifests=frozenset({"m1"}))
    assert not plan.is_empty


# --- every history: what is kept can be read, what is gone was reachable from nothing ------------


@st.composite
def histories(draw: st.DrawFn) -> list[list[ManifestEntry]]:
    """Deltas that add, delete and upgrade files, as commits do."""
    live: dict[str, int] = {}
    deltas, names = [], iter(f"f{n}" for n in range(1000))
    for _ in range(draw(st.integers(1, 8))):
        delta = []
        for name in (
            draw(st.lists(st.sampled_from(sorted(live)), unique=True, max_size=3)) if live else []
        ):
            level = live.pop(name)
            delta.append(entry(name, level=level, kind=DELETE))
            if level < 5 and draw(st.booleans()):
                live[name] = level + 1
                delta.append(entry(name, level=level + 1))
        for _ in range(draw(st.integers(0, 2))):
            name = next(names)
            live[name] = 0
            delta.append(entry(name))
        deltas.append(delta)
    return deltas


@given(histories(), st.data())
def test_no_live_file_goes_and_no_dead_one_stays(
    deltas: list[list[ManifestEntry]], data: st.DataObject
) -> None:
    ids = range(1, len(deltas) + 1)

    def state(id: int) -> list[ManifestEntry]:
        return fold(one for delta in deltas[:id] for one in delta)

    def files(id: int) -> set:
        return {one.physical_file for one in state(id)}

    tagged = data.draw(st.sets(st.sampled_from(ids)))
    on_disk = {one.physical_file for delta in deltas for one in delta}
    earliest = 1
    while earliest < len(deltas):  # in several rounds, as time goes by
        retained = data.draw(st.integers(1, len(deltas) - earliest + 1))
        choice = choose(" ".join(map(str, range(earliest, len(deltas) + 1))), retained_min=retained)
        if not choice.expired:
            break
        candidates = dead_candidates(
            one for snap in snapshots_to_replay(choice) for one in deltas[snap.id - 1]
        )
        kept = [root("first", *state(choice.retained[0].id))]
        kept += [root(str(snap.id), *deltas[snap.id - 1]) for snap in choice.retained[1:]]
        kept += [root("tag", *state(id)) for id in tagged]
        plan = plan_expiry(choice, candidates, changelogs=[], names=MetadataNames(), retained=kept)
        on_disk -= {(file.partition, file.bucket, file.file_name) for file in plan.data_files}
        earliest = choice.retained[0].id
        readable = {*range(earliest, len(deltas) + 1), *tagged}
        assert set().union(*(files(id) for id in readable)) <= on_disk
    assert on_disk == set().union(*(files(id) for id in {*range(earliest, len(deltas) + 1), *tagged})) or earliest == 1  # fmt: skip


# --- tags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v1", "2024-01-01", "nightly build", "ümlaut", "a.b", "x" * 200])
def test_names_that_are_fine(name: str) -> None:
    assert checked_tag_name(name) == name


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", ".hidden", "a\\b", "a\nb", "a\x00", " a", "a ", "12", "x" * 201, "ü" * 101, "\ud800"])  # fmt: skip
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(InvalidInputError, match="tag name"):
        checked_tag_name(name)


def test_branches_are_not_called_main() -> None:
    assert checked_branch_name("dev") == "dev"
    with pytest.raises(InvalidInputError, match="table itself"):
        checked_branch_name("main")
    with pytest.raises(InvalidInputError, match="branch name"):
        checked_branch_name("a/b")


def test_a_number_is_a_name_only_where_nothing_else_is_numbered() -> None:
    assert checked_tag_name("20240506", numeric=True) == "20240506"
    with pytest.raises(InvalidInputError, match="snapshot id"):
        checked_tag_name("20240506")


def test_a_name_turns_no_text_round() -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        checked_tag_name("a\u202eb")


NOON = dt.datetime(2024, 5, 6, 12)  # noqa: DTZ001  tags are stamped without a zone


def tag(name: str, created: tuple[int, ...] | None, retained: int | None) -> Tag:
    return Tag(name=name, snapshot=snapshot(3), created=created, retained_millis=retained)


def test_tags_end_with_their_lifetime() -> None:
    born = (2024, 5, 6, 11, 0)  # as Java writes a full minute
    tags = [
        tag("late", born, 3_600_000 - 1),
        tag("exact", born, 3_600_000),
        tag("early", born, 1),
        tag("forever", born, None),
        tag("unborn", None, 1),
    ]
    assert [one.name for one in expired_tags(tags, local_now=NOON)] == ["early", "late"]


def test_birthdays_come_back() -> None:
    now = NOON.replace(microsecond=123456)
    made = created_at(tag("x", (*now.timetuple()[:6], 123_456_000), 1))
    assert made == now.replace(tzinfo=dt.UTC)


def test_the_same_tag_again() -> None:
    existing = tag("x", None, None)
    assert same_tag(existing, snapshot(3))
    assert not same_tag(existing, snapshot(4))


def test_names_of_a_root_are_not_held_beside_their_union() -> None:
    """There may be tens of thousands of roots, which name nearly the same manifests."""
    before: list[weakref.ref[frozenset[str]]] = []

    def kept() -> Iterator[RetainedFiles]:
        for number in range(5):
            assert [held() for held in before[:-1]] == [None] * (number - 1 if number else 0)
            names = frozenset([f"m{number}", "shared"])
            before.append(weakref.ref(names))
            yield RetainedFiles(
                name=f"snapshot {number}", entries=(), names=MetadataNames(manifests=names)
            )
            del names

    gone = MetadataNames(manifests=frozenset(["m0", "m4", "shared", "old"]))
    plan = plan_tag_removal([], gone, kept(), reason="")
    assert plan.metadata == MetadataNames(manifests=frozenset(["old"]))
    assert len(before) == 5
