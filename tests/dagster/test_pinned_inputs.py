"""The rule that finds the rows of a recorded snapshot, over facts alone."""

import pytest

from lsm_assets.versions import (
    CommitFacts,
    Pin,
    RetainedReference,
    StateLost,
    TableVersion,
    parse_version,
    resolve_pin,
)
from tests.dagster.lake import MARKS

pytestmark = MARKS


def version(text: str) -> TableVersion:
    found = parse_version(text)
    assert found is not None, text
    return found


def live(*texts: str) -> dict[int, TableVersion]:
    return {version(text).snapshot_id: version(text) for text in texts}


def commit(text: str, *partitions: str) -> CommitFacts:
    return CommitFacts(version=version(text), partitions=frozenset(partitions))


A, B = "aaaaaaaa", "bbbbbbbb"
PAST = commit(f"3-{A}", "dt=1")


def resolve(
    recorded: str,
    there: dict[int, TableVersion],
    partitions: frozenset[str] | None = None,
    **facts: object,
) -> Pin | StateLost:
    read_in = None if partitions is None else lambda changed: changed.keys() & partitions
    return resolve_pin(version(recorded), live=there, find_read_partitions=read_in, **facts)


def test_the_recorded_snapshot_is_read_while_it_is_there() -> None:
    assert resolve(f"3-{A}", live(f"3-{A}", f"4-{A}")) == Pin(snapshot_id=3)
    assert resolve("3", live(f"3-{A}")) == Pin(snapshot_id=3)  # recorded before versions had marks


@pytest.mark.parametrize("where", [{"tag": "v1"}, {"branch": "fix"}])
def test_a_tag_or_a_branch_that_holds_it_is_next(where: dict[str, str]) -> None:
    other = RetainedReference(version=version(f"3-{B}"), tag="of another commit")
    holder = RetainedReference(version=version(f"3-{A}"), **where)
    found = resolve(f"3-{A}", live(f"9-{A}"), references=[other, holder], expired_commit=PAST)
    assert isinstance(found, Pin)
    assert (found.snapshot_id, found.tag, found.branch) == (
        3,
        where.get("tag"),
        where.get("branch"),
    )
    assert next(iter(where.values())) in found.reason


def test_an_expired_snapshot_is_read_in_the_newest_that_left_the_rows_alone() -> None:
    since = [commit(f"4-{A}"), commit(f"5-{A}", "dt=2"), commit(f"6-{A}"), commit(f"7-{A}", "dt=1")]
    there = live(f"5-{A}", f"6-{A}", f"7-{A}")
    of_1 = resolve(
        f"3-{A}", there, expired_commit=PAST, later_commits=since, partitions=frozenset({"dt=1"})
    )
    assert isinstance(of_1, Pin)
    assert of_1.snapshot_id == 6
    assert "expired" in of_1.reason
    for partitions in (frozenset({"dt=2"}), None):
        found = resolve(
            f"3-{A}", there, expired_commit=PAST, later_commits=since, partitions=partitions
        )
        assert isinstance(found, StateLost)
        assert "snapshot 5 has changed" in found.reason
    untouched = frozenset({"dt=3"})
    assert (
        resolve(
            f"3-{A}", there, expired_commit=PAST, later_commits=since, partitions=untouched
        ).snapshot_id
        == 7
    )


def test_a_commit_that_may_have_changed_anything_has_changed_what_is_read() -> None:
    anything = CommitFacts(version=version(f"4-{A}"), partitions=None)
    for partitions in (None, frozenset({"dt=1"}), frozenset()):
        found = resolve(
            f"3-{A}",
            live(f"4-{A}"),
            expired_commit=PAST,
            later_commits=[anything],
            partitions=partitions,
        )
        assert isinstance(found, StateLost)


@pytest.mark.parametrize("first", [5, 6])
def test_a_commit_that_nothing_is_known_of_is_no_proof(first: int) -> None:
    since = [commit(f"{number}-{A}") for number in (4, 5, 6) if number >= first]
    found = resolve(f"3-{A}", live(f"6-{A}"), expired_commit=PAST, later_commits=since)
    assert isinstance(found, StateLost)
    assert "no record of snapshot 4" in found.reason


@pytest.mark.parametrize(
    ("recorded", "there", "past", "why"),
    [
        (f"3-{A}", live(), None, "no snapshot"),
        (f"3-{A}", live(f"2-{A}"), None, "rolled back"),
        (f"3-{A}", live(f"2-{A}", f"4-{B}"), None, "rolled back"),
        (f"3-{A}", live(f"3-{B}", f"4-{B}"), None, "rolled back"),
        (f"3-{A}", live(f"5-{B}"), commit(f"3-{B}"), "replaced"),
        (f"3-{A}", live(f"5-{B}"), None, "no record"),
    ],
)
def test_what_is_nowhere_says_why(
    recorded: str, there: dict[int, TableVersion], past: CommitFacts | None, why: str
) -> None:
    found = resolve(recorded, there, expired_commit=past)
    assert isinstance(found, StateLost)
    assert why in found.reason


def test_versions_are_read_as_they_are_written() -> None:
    for text in ("0", "18", f"18-{A}"):
        assert version(text).text == text
    others = (
        "",
        "v1",
        "-1",
        "18-",
        "18-AAAAAAAA",
        f"18-{A}0",
        "\u0661",
        "9" * 19,
        "e3b0c44298fc1c14",
    )
    assert [text for text in others if parse_version(text) is not None] == []
