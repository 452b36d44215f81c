"""Tags: made of snapshots and times, renamed, moved, expired, and made by themselves."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

import lsm_engine as lsm
from tests.unit.table.history_tables import START, Story

DAY = 86_400_000
MIDNIGHT = START - START % DAY


@pytest.fixture
def told() -> Story:
    made = Story()
    made.put(k1="a")  # START + 1 s
    made.put(k1="b")
    made.put(k1="c")
    return made


def test_from_a_time_it_is_the_first_snapshot_at_or_after(told: Story) -> None:
    for name, millis, wanted in (("x", 1500, 2), ("y", 2000, 2), ("z", 0, 1)):
        assert told.table.create_tag(name, from_millis=START + millis).snapshot.id == wanted
    with pytest.raises(lsm.NotFoundError, match="at that time or after"):
        told.table.create_tag("w", from_millis=START + 3001)
    with pytest.raises(lsm.InvalidInputError, match="not both"):
        told.table.create_tag("w", 1, from_millis=START)


def test_from_a_time_whose_snapshot_only_a_tag_keeps(told: Story) -> None:
    told.table.create_tag("kept", 1)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert told.table.create_tag("again", from_millis=START).snapshot.id == 1
    told.table.delete_tag("kept")
    assert told.rows(tag="again") == {1: "a"}
    told.check()


def test_a_tag_stays_readable_when_its_snapshot_has_expired(told: Story) -> None:
    told.table.create_tag("kept", 2)
    told.table.compact(full=True)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert told.rows(tag="kept") == {1: "b"}
    told.check()
    told.table.delete_tag("kept")
    told.check()


def test_a_tag_is_renamed(told: Story) -> None:
    told.table.create_tag("old", 1, retained="7 d")
    told.table.create_tag("taken", 2)
    before = told.table.tags()[0]
    new = told.table.rename_tag("old", "new")
    assert (new.name, new.snapshot, new.retained_millis) == ("new", before.snapshot, 7 * DAY)
    assert {one.name for one in told.table.tags()} == {"new", "taken"}
    with pytest.raises(lsm.AlreadyExistsError):
        told.table.rename_tag("new", "taken")
    with pytest.raises(lsm.NotFoundError, match="no tag 'old'"):
        told.table.rename_tag("old", "other")
    with pytest.raises(lsm.InvalidInputError):
        told.table.rename_tag("new", "../x")
    assert {one.name for one in told.table.tags()} == {"new", "taken"}


def test_a_tag_is_moved_and_frees_what_only_it_named(told: Story) -> None:
    told.table.create_tag("t", 1)
    told.table.compact(full=True)
    told.table.expire_snapshots(retain_min=2, retain_max=2, older_than="0 s")
    assert told.rows(tag="t") == {1: "a"}
    moved = told.table.replace_tag("t", 4, retained="1 d")
    assert (moved.snapshot.id, moved.retained_millis) == (4, DAY)
    assert told.rows(tag="t") == {1: "c"}
    told.check()
    with pytest.raises(lsm.NotFoundError, match="no tag"):
        told.table.replace_tag("absent", 4)


def test_lifetimes(told: Story) -> None:
    """The clock of the process stands still in February 2024."""
    told.table.create_tag("brief", 1, retained="1 ms")
    told.table.create_tag("long", 1, retained="1 d")
    told.table.create_tag("ever", 2)
    told.clock.local_time = lambda: (2024, 3, 1, 12, 34, 0, 0)  # type: ignore[method-assign]
    assert told.table.expire_tags(dry_run=True).names == ("brief",)
    assert told.table.expire_snapshots(dry_run=True).tags == ("brief",)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert {one.name for one in told.table.tags()} == {"long", "ever"}
    assert told.table.expire_tags(older_than="1 h").names == ("long",)
    told.check()


def test_expiry_of_tags_can_be_left_to_others() -> None:
    told = Story(options={"tag.time-expire-enabled": "false"})
    told.put(k1="a")
    told.table.create_tag("brief", retained="1 ms")
    told.clock.local_time = lambda: (2024, 3, 1, 12, 34, 0, 0)  # type: ignore[method-assign]
    assert told.table.expire_snapshots().tags == ()
    assert told.table.expire_tags().names == ("brief",)


# --- by themselves -------------------------------------------------------------------------------


def at(told: Story, millis: int, value: str = "x") -> None:
    told.clock.millis = millis - 1000
    told.put(k1=value)


def names(told: Story) -> list[str]:
    return sorted(one.name for one in told.table.tags())


def daily(**options: str) -> Story:
    zone = {"sink.process-time-zone": "UTC"}
    return Story(options={"tag.automatic-creation": "process-time", **zone, **options})


def test_a_tag_a_day() -> None:
    told = daily()
    at(told, MIDNIGHT + 1000, "a")
    assert names(told) == ["2023-11-13"]
    at(told, MIDNIGHT + DAY - 1, "b")
    assert names(told) == ["2023-11-13"]
    at(told, MIDNIGHT + DAY, "c")
    assert names(told) == ["2023-11-13", "2023-11-14"]
    assert told.rows(tag="2023-11-14") == {1: "c"}
    at(told, MIDNIGHT + 4 * DAY, "d")
    assert names(told) == ["2023-11-13", "2023-11-14", "2023-11-17"]


def test_late_rows_are_waited_for_and_gaps_filled() -> None:
    told = daily(**{"tag.creation-delay": "10 min", "tag.automatic-completion": "true"})
    at(told, MIDNIGHT + 11 * 60_000)
    at(told, MIDNIGHT + DAY + 9 * 60_000)
    assert names(told) == ["2023-11-13"]
    at(told, MIDNIGHT + 3 * DAY + 10 * 60_000)
    assert names(told) == ["2023-11-13", "2023-11-14", "2023-11-15", "2023-11-16"]


def test_only_so_many_and_those_of_people_do_not_count() -> None:
    told = daily(**{"tag.num-retained-max": "2"})
    for day in range(4):
        at(told, MIDNIGHT + day * DAY)
        told.table.create_tag(f"mine-{day}")
    assert names(told) == ["2023-11-15", "2023-11-16", "mine-0", "mine-1", "mine-2", "mine-3"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"tag.period-formatter": "without_dashes"}, "20231113"),
        ({"tag.creation-period": "hourly"}, "2023-11-14 04"),
        ({"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"}, "20231114 04"),
        ({"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"}, "2023111404"),
        ({"tag.creation-period": "two-hours"}, "2023-11-14 02"),
        ({"tag.creation-period": "two-hours", "tag.period-formatter": "without_dashes"}, "2023-11-14 02"),
        ({"tag.creation-period-duration": "15 min"}, "202311140515"),
        ({"sink.process-time-zone": "Asia/Shanghai", "tag.creation-period": "hourly"}, "2023-11-14 12"),
        ({"sink.process-time-zone": "America/New_York"}, "2023-11-13"),
    ],
)  # fmt: skip
def test_names_of_periods(options: dict[str, str], wanted: str) -> None:
    told = daily(**options)
    at(told, MIDNIGHT + 5 * 3_600_000 + 31 * 60_000)
    assert names(told) == [wanted]
    assert told.rows(tag=wanted) == {1: "x"}
    told.table.delete_tag(wanted)


def test_watermarks_close_periods_and_absent_ones_none() -> None:
    told = Story(options={"tag.automatic-creation": "watermark"})
    at(told, MIDNIGHT + 5 * DAY)
    assert names(told) == []
    assert told.table.create_due_tags().created == ()


def test_batch_moves_one_tag_a_day() -> None:
    told = Story(options={"tag.automatic-creation": "batch", "sink.process-time-zone": "UTC"})
    at(told, MIDNIGHT, "a")
    at(told, MIDNIGHT + 2000, "b")
    assert names(told) == ["batch-write-2023-11-14"]
    assert told.rows(tag="batch-write-2023-11-14") == {1: "b"}
    at(told, MIDNIGHT + DAY, "c")
    assert names(told) == ["batch-write-2023-11-14", "batch-write-2023-11-15"]
    told.check()


def test_what_was_not_tagged_is_tagged_when_asked_for() -> None:
    told = Story()
    for day in range(3):
        at(told, MIDNIGHT + day * DAY, str(day))
    told.table.alter(
        lsm.SetOption(key="tag.automatic-creation", value="process-time"),
        lsm.SetOption(key="sink.process-time-zone", value="UTC"),
    )
    planned = told.table.create_due_tags(dry_run=True)
    assert planned.created == ("2023-11-13", "2023-11-14", "2023-11-15")
    assert names(told) == []
    assert told.table.create_due_tags().created == planned.created
    assert told.rows(tag="2023-11-14") == {1: "1"}
    assert told.table.create_due_tags().created == ()


def test_a_delay_as_long_as_the_period_makes_no_sense() -> None:
    told = daily(**{"tag.creation-delay": "1 d"})
    told.put(k1="a")  # the commit stands, and the log says why there is no tag
    assert names(told) == []
    with pytest.raises(lsm.InvalidOptionError, match="shorter"):
        told.table.create_due_tags()


def test_a_tag_whose_last_plan_fails_is_gone_and_told_so(told: Story) -> None:
    """Its file goes first; a root of a branch that is damaged just then keeps the files that it named."""
    told.table.create_tag("start", 1)
    told.table.create_branch("work", tag="start")
    told.table.create_tag("kept", 2)
    told.table.compact(full=True)
    told.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    heard = Mock()
    told.parts = replace(told.parts, listeners=(heard,))
    table, change = told.reopened(), told.disk.change_if_unchanged
    root = told.table.branch("work").session.paths.snapshot_file(1)

    def damages(path: str, data: bytes | None, *, expected: bytes) -> bool:
        if path == "tag/tag-kept" and data is None:
            told.disk.replace(root, b"{")
        return change(path, data, expected=expected)

    before = told.files()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(told.disk, "change_if_unchanged", damages)
        table.delete_tag("kept")
    heard.removing.assert_called_once_with("t")
    assert before - told.files() == {"tag/tag-kept"}
    with pytest.raises(lsm.NotFoundError, match="no tag 'kept'"):
        table.delete_tag("kept")
