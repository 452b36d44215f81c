"""What changed: the changelog of every input row, deltas, states compared, and following a table."""

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsm_engine as lsm
from lsm_engine.changes.splits import read_changes
from lsm_engine.kernels.changes import equal_rows
from tests.unit.table.history_tables import COLUMNS, START, Story

KINDS = ("+I", "-U", "+U", "-D")
INPUT = {"changelog-producer": "input"}
WIDE = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("s", pa.int64())]
)


def said(table: pa.Table) -> list[tuple[Any, ...]]:
    """Changes as (kind, id, v)."""
    return list(
        zip(*(table.column(name).to_pylist() for name in ("_row_kind", "id", "v")), strict=True)
    )


def kinded(rows: list[tuple[str, int, str | None]]) -> pa.Table:
    kinds, ids, values = zip(*rows, strict=True)
    return pa.table(
        {"_row_kind": kinds, "id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())}
    )


# --- expiry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["delta", "changelog", "diff"])
@pytest.mark.parametrize("planned", [False, True])
def test_changes_that_expire_under_their_reader_say_so(mode: str, planned: bool) -> None:
    """Also before the snapshots themselves are gone: they go last."""
    story = Story(options=INPUT)
    for value in "abc":
        story.put(k1=value)
    changes = story.reopened().changes(1, 2, mode=mode)
    batches = changes.to_batches() if not planned else read_splits(changes)
    story.table.compact(full=True)
    delete, gone, change = story.disk.delete, [], story.disk.change_if_unchanged

    def removed(path: str) -> bool:
        gone.append(path)
        return delete(path)

    def dying(path: str, data: bytes | None, *, expected: bytes) -> bool:
        if data is None and path.startswith("snapshot/"):
            raise lsm.StorageError("cannot be deleted now", path=path)
        return change(path, data, expected=expected)

    story.disk.delete = removed  # type: ignore[method-assign]
    story.disk.change_if_unchanged = dying  # type: ignore[method-assign]
    with pytest.raises(lsm.StorageError):
        story.table.expire_snapshots(retain_min=1, retain_max=1, older_than="0 s")
    assert gone
    with pytest.raises(lsm.ExpiredError, match=r"ha(s|ve) expired"):
        list(batches)


def test_a_lost_file_of_a_snapshot_that_is_there_has_not_expired() -> None:
    story = Story(options=INPUT)
    story.put(k1="a")
    changes = story.reopened().changes(0, 1)
    (lost,) = (path for path in story.files("bucket-0") if "changelog" in path)
    story.disk.delete(lost)
    with pytest.raises(lsm.NotFoundError) as caught:
        changes.to_arrow()
    assert not isinstance(caught.value, lsm.ExpiredError)


def read_splits(changes: Any) -> Any:
    """The rows of splits that are planned now and read later, as tasks elsewhere do."""
    rows, splits = changes.rows, list(changes.splits())
    return (batch for context, split in splits for batch in read_changes(context, rows, split))


def test_a_row_that_comes_after_its_deletion_is_told_after_it() -> None:
    """In one write: whoever follows the table would have deleted it."""
    removes = {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}
    story = Story(options=removes)
    story.table.upsert(kinded([("+I", 1, "a"), ("-D", 2, None), ("+I", 2, "b")]))
    told = [kind for kind, key, _ in said(story.table.changelog()) if key == 2]
    assert told == ["-D", "+I"]


# --- changelog-producer = input ------------------------------------------------------------------


def test_input_rows_are_told_as_they_came() -> None:
    story = Story(options=INPUT)
    came = [("+I", 2, "b"), ("-U", 1, "a"), ("+U", 1, "aa"), ("-D", 9, None), ("+I", 2, "bb")]
    story.table.upsert(kinded(came))
    told = story.table.changelog()
    # In key order; of one key as they came.
    assert said(told) == [
        ("-U", 1, "a"), ("+U", 1, "aa"), ("+I", 2, "b"), ("+I", 2, "bb"), ("-D", 9, None),
    ]  # fmt: skip
    assert told.schema.names == ["_snapshot_id", "_row_kind", "id", "v"]
    snapshot = story.table.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.changelog_record_count, snapshot.delta_record_count) == (5, 3)
    assert story.table.verify().problems == ()


def test_neither_overwrites_nor_compactions_tell_input() -> None:
    story = Story(options=INPUT)
    story.table.upsert(kinded([("+I", 1, "a")]))
    story.table.overwrite(pa.table({"id": [1, 2], "v": ["x", "y"]}))
    story.table.compact(full=True)
    assert said(story.table.changelog(after=1)) == []
    assert [one.changelog_record_count for one in story.table.snapshots()] == [1, None, None]
    story.check()


def test_ignored_deletes_are_not_told() -> None:
    story = Story(options={**INPUT, "ignore-delete": "true"})
    story.table.upsert(kinded([("+I", 1, "a"), ("-D", 1, "a"), ("-U", 2, "b"), ("+U", 2, "c")]))
    assert said(story.table.changelog()) == [("+I", 1, "a"), ("+U", 2, "c")]


@pytest.mark.parametrize("sequence", [{}, {"sequence.field": "s"}])
@pytest.mark.parametrize("spills", ["true", "false"])
def test_pairs_stay_pairs_whatever_spills(sequence: dict[str, str], spills: str) -> None:
    story = Story(WIDE, options={**INPUT, **sequence, "write-buffer-size": "64 kb",
                                 "write-buffer-spillable": spills})  # fmt: skip
    random.seed(3)
    count = 12_000
    ids = [key for _ in range(count // 2) for key in [random.randrange(40)] * 2]
    rows = pa.table(
        {
            "id": ids,
            "v": [f"value {at}" for at in range(count)],
            "s": [count - at for at in range(count)],
            "_row_kind": ["-U", "+U"] * (count // 2),
        }
    )
    story.table.upsert(pa.Table.from_batches(rows.to_batches(max_chunksize=1_000)))
    told = story.table.changelog()
    assert told.num_rows == count
    kinds, keys = told.column("_row_kind").to_pylist(), told.column("id").to_pylist()
    assert kinds == ["-U", "+U"] * (count // 2)
    assert keys[::2] == keys[1::2]
    if spills == "true":
        wanted = rows.append_column("at", [list(range(count))]).sort_by(
            [("id", "ascending"), ("at", "ascending")]
        )
        assert told.column("v").to_pylist() == wanted.column("v").to_pylist()


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        {"merge-engine": "aggregation", "fields.s.aggregate-function": "sum"},
    ],
    ids=["deduplicate", "partial-update", "aggregation"],
)
def test_input_replayed_makes_the_table_at_every_snapshot(engine: dict[str, str]) -> None:
    told = Story(
        WIDE, options={**INPUT, **engine, "write-only": "false", "write-buffer-size": "16 kb"}
    )
    twin = Story(WIDE, options={**engine, "write-only": "false"})
    chance = random.Random(11)
    for _ in range(6):
        size = chance.choice([1, 40, 1_500])
        rows = [
            {
                "_row_kind": chance.choice(["+I", "+U", "+U", "-D"]),
                "id": chance.randrange(60),
                "v": chance.choice([None, "x", "y" * 40]),
                "s": chance.choice([None, chance.randrange(9)]),
            }
            for _ in range(size)
        ]
        told.table.upsert(rows)
    for snapshot in told.table.snapshots():
        changes = told.table.changelog(snapshot.id - 1, snapshot.id).drop_columns(["_snapshot_id"])
        assert changes.num_rows == (snapshot.changelog_record_count or 0)
        if changes.num_rows:
            twin.table.upsert(changes)
        there = told.table.scan(snapshot_id=snapshot.id).to_arrow().sort_by("id")
        assert twin.table.scan().to_arrow().sort_by("id") == there


# --- ranges and modes ----------------------------------------------------------------------------


@pytest.fixture
def grown() -> Story:
    """1 and 2 are appended, 3 compacted, 4 overwritten, 5 appended; tags at 2 and 5."""
    story = Story()
    table = story.table
    table.upsert(kinded([("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]))
    story.clock.advance(1_000)
    table.upsert(kinded([("+U", 1, "A"), ("-D", 2, None)]))
    table.create_tag("two")
    story.clock.advance(1_000)
    table.compact(full=True)
    story.clock.advance(1_000)
    table.overwrite(pa.table({"id": [3, 7], "v": ["c", "x"]}))
    story.clock.advance(1_000)
    table.upsert(kinded([("+I", 8, "y")]))
    table.create_tag("five")
    return story


FIRST = [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")]
SECOND = [("+U", 1, "A"), ("-D", 2, None)]
FIFTH = [("+I", 8, "y")]
REPLACED = [("-D", 1, "A"), ("+I", 7, "x")]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, [*FIRST, *SECOND, *FIFTH]),
        ({"after": 0}, [*FIRST, *SECOND, *FIFTH]),
        ({"after": 1}, [*SECOND, *FIFTH]),
        ({"upto": 1}, FIRST),
        ({"after": 1, "upto": 2}, SECOND),
        ({"after": 2, "upto": 4}, []),
        ({"after": 5}, []),
        ({"after": 1, "upto": "two"}, SECOND),
        ({"after": "two", "upto": "five"}, FIFTH),
        ({"after": "two", "upto": "two"}, []),
        ({"after_millis": START, "upto_millis": START + 1_500}, SECOND),
        ({"after_millis": START - 1}, [*FIRST, *SECOND, *FIFTH]),
        ({"mode": "delta", "upto": 2}, [*FIRST, *SECOND]),
        ({"mode": "diff"}, [("+I", 3, "c"), ("+I", 7, "x"), ("+I", 8, "y")]),
        ({"mode": "diff", "after": 1}, [("-D", 1, "a"), ("-D", 2, "b"), ("+I", 7, "x"), ("+I", 8, "y")]),
        ({"mode": "diff", "after": 1, "upto": 2}, [("-U", 1, "a"), ("+U", 1, "A"), ("-D", 2, "b")]),
        ({"mode": "diff", "after": 2, "upto": 3}, []),
        ({"mode": "diff", "after": "two", "upto": "five"}, [*REPLACED, ("+I", 8, "y")]),
        ({"where": pc.field("id") >= 3}, [("+I", 3, "c"), ("+I", 8, "y")]),
        ({"where": pc.field("_row_kind") == "-D"}, [("-D", 2, None)]),
        ({"where": (pc.field("_snapshot_id") > 1) & (pc.field("v") != "A")}, FIFTH),
    ],
)  # fmt: skip
def test_ranges(grown: Story, asked: dict[str, Any], wanted: list[Any]) -> None:
    assert said(grown.table.changelog(**asked)) == wanted
    assert said(grown.table.changes(**asked).to_reader().read_all()) == wanted


def test_overwrites_show_if_asked_for(grown: Story) -> None:
    grown.table.alter(lsm.SetOption(key="streaming-read-overwrite", value="true"))
    assert said(grown.table.changelog(after=2)) == [*REPLACED, *FIFTH]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_overwrites_do_not_show_twice(producer: str) -> None:
    options = {"changelog-producer": producer, "streaming-read-overwrite": "true"}
    with pytest.raises(lsm.InvalidOptionError, match="streaming-read-overwrite"):
        Story(options=options)


def test_columns_of_changes(grown: Story) -> None:
    for names in (["_row_kind"], ["v"], ["id", "_snapshot_id"], ["v", "_row_kind", "id"]):
        got = grown.table.changelog(columns=names)
        assert got.column_names == names
        assert got == grown.table.changelog().select(names)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"after": 3, "upto": 2}, lsm.InvalidInputError),
        ({"after": -1}, lsm.InvalidInputError),
        ({"after": 9}, lsm.NotFoundError),
        ({"upto": "nobody"}, lsm.NotFoundError),
        ({"after": 1, "after_millis": 5}, lsm.InvalidInputError),
        ({"mode": "sideways"}, lsm.InvalidInputError),
        ({"mode": "changelog"}, lsm.InvalidInputError),
        ({"columns": ["nobody"]}, lsm.NotFoundError),
        ({"where": pc.field("nobody") == 1}, lsm.LsmError),
    ],
)
def test_bad_questions(grown: Story, asked: dict[str, Any], error: type[lsm.LsmError]) -> None:
    with pytest.raises(error):
        grown.table.changelog(**asked)


def test_states_of_a_table_without_a_key_cannot_be_compared() -> None:
    story = Story(key=(), options={"bucket": "-1"})
    story.table.append(pa.table({"id": [1], "v": ["a"]}))
    assert said(story.table.changelog()) == [("+I", 1, "a")]
    with pytest.raises(lsm.InvalidInputError, match="cannot be compared"):
        story.table.changelog(mode="diff")
    with pytest.raises(lsm.InvalidOptionError, match="primary key"):
        story.table.alter(lsm.SetOption(key="streaming-read-overwrite", value="true"))


rows_of_ids = st.lists(st.tuples(st.sampled_from(["+I", "-D"]), st.integers(0, 12)), max_size=12)


@given(st.lists(rows_of_ids, min_size=2, max_size=5), st.data())
def test_a_diff_turns_one_state_into_the_other(steps: list[Any], data: st.DataObject) -> None:
    vectors = data.draw(st.booleans())
    story = Story(options={"write-only": "false", "deletion-vectors.enabled": str(vectors).lower()})
    for at, rows in enumerate(steps):
        if rows:
            story.table.upsert(
                kinded([(kind, key, f"{at}" if key % 3 else "same") for kind, key in rows])
            )
        if data.draw(st.booleans()):
            story.table.compact(full=data.draw(st.booleans()))
    ids = [0, *(snapshot.id for snapshot in story.table.snapshots())]
    after = data.draw(st.sampled_from(ids))
    upto = data.draw(st.sampled_from([number for number in ids if number >= after]))
    state = {} if after == 0 else dict(state_of(story, after))
    for kind, key, value in said(story.table.changelog(after, upto, mode="diff")):
        if kind in ("-U", "-D"):
            assert state.pop(key) == value
        else:
            assert key not in state
            state[key] = value
    assert state == ({} if upto == 0 else dict(state_of(story, upto)))


def state_of(story: Story, snapshot_id: int) -> list[tuple[int, str]]:
    rows = story.table.scan(snapshot_id=snapshot_id).to_arrow()
    return list(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


# --- what has expired ----------------------------------------------------------------------------


def test_expired_changes_are_said_to_be_gone(grown: Story) -> None:
    grown.table.expire_snapshots(retain_max=2, older_than="0 s")
    assert said(grown.table.changelog()) == FIFTH
    with pytest.raises(lsm.ExpiredError, match="oldest kept are those of 4"):
        grown.table.changelog(after=1)
    # A tag keeps its own state.
    assert said(grown.table.changelog("two", mode="diff")) == [*REPLACED, ("+I", 8, "y")]


def test_changelogs_outlive_snapshots_without_a_seam() -> None:
    story = Story(
        options={**INPUT, "changelog.num-retained.max": "20", "changelog.num-retained.min": "20"}
    )
    for at in range(6):
        story.clock.advance(1_000)
        story.table.upsert(kinded([("-U", 1, f"{at}"), ("+U", 1, f"{at + 1}")]))
    before = story.table.changelog()
    story.table.expire_snapshots(retain_max=2, older_than="0 s")
    assert len(story.table.snapshots()) == 2
    assert story.table.changelog() == before
    assert said(story.table.changelog(3, 5)) == [
        ("-U", 1, "3"),
        ("+U", 1, "4"),
        ("-U", 1, "4"),
        ("+U", 1, "5"),
    ]
    # Times find what only the changelog knows by now.
    third = START + 3_000
    got = story.table.changelog(after_millis=third, upto_millis=third + 2_500)
    assert set(got.column("_snapshot_id").to_pylist()) == {4, 5}
    items = story.table.follow("from-timestamp", timestamp_millis=third, poll_millis=None)
    assert [item.snapshot_id for item in items] == [3, 4, 5, 6]
    items = story.table.follow("from-snapshot", snapshot_id=1, poll_millis=None)
    assert [item.snapshot_id for item in items] == [1, 2, 3, 4, 5, 6]


# --- following -----------------------------------------------------------------------------------


def followed(story: Story, start: str, **asked: Any) -> list[tuple[int, bool, list[Any]]]:
    items = story.table.follow(start, poll_millis=None, **asked)
    return [(item.snapshot_id, item.is_full, said(item.to_arrow())) for item in items]


def test_starts(grown: Story) -> None:
    state = [("+I", 3, "c"), ("+I", 7, "x"), ("+I", 8, "y")]
    assert followed(grown, "latest-full") == [(5, True, state)]
    assert followed(grown, "latest") == []
    assert followed(grown, "from-snapshot", snapshot_id=2) == [
        (2, False, SECOND),
        (5, False, FIFTH),
    ]
    assert followed(grown, "from-snapshot-full", snapshot_id=2) == [
        (2, True, [("+I", 1, "A"), ("+I", 3, "c")]), (5, False, FIFTH),
    ]  # fmt: skip
    assert followed(grown, "from-timestamp", timestamp_millis=START + 1_000) == [
        (2, False, SECOND), (5, False, FIFTH),
    ]  # fmt: skip
    assert followed(grown, "from-timestamp", timestamp_millis=0)[0] == (1, False, FIRST)
    assert followed(grown, "from-snapshot", snapshot_id=1, upto=2) == [
        (1, False, FIRST),
        (2, False, SECOND),
    ]
    where = pc.field("_row_kind") == "+I"
    assert followed(grown, "latest-full", where=where & (pc.field("id") > 3)) == [
        (5, True, state[1:])
    ]
    for start in ("from-snapshot", "from-timestamp", "yesterday"):
        with pytest.raises(lsm.InvalidInputError):
            grown.table.follow(start)


VECTORS = {"deletion-vectors.enabled": "true"}
FIRST_ROW = {"merge-engine": "first-row"}
LOOKUP = {"changelog-producer": "lookup"}


@pytest.mark.parametrize(
    ("options", "is_told_at_once"),
    [
        ({}, True),
        (INPUT, True),
        (VECTORS, True),
        (INPUT | VECTORS, True),
        (FIRST_ROW, True),
        (LOOKUP, False),
        (LOOKUP | VECTORS, False),
        (LOOKUP | VECTORS | {"deletion-vectors.merge-on-read": "true"}, False),
        (LOOKUP | FIRST_ROW, False),
        ({"changelog-producer": "full-compaction"}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("start", ["latest-full", "from-snapshot-full"])
def test_a_reader_begins_with_what_was_told(
    options: dict[str, str], is_told_at_once: bool, start: str
) -> None:
    """Rows that a compaction tells later are not in the state that a reader begins with."""
    story = Story(options=options)
    story.put(k1="a", k2="b")
    story.table.compact(full=True)
    story.put(k1="A", k3="c")
    everything = {1: "a" if "merge-engine" in options else "A", 2: "b", 3: "c"}
    follower = story.table.follow(start, snapshot_id=3, poll_millis=None)
    state = next(follower).to_arrow()
    known = {row["id"]: row["v"] for row in state.to_pylist()}
    assert known == (everything if is_told_at_once else {1: "a", 2: "b"})
    filtered = story.table.follow("latest-full", where=pc.field("_row_kind") == "+I", upto=3)
    assert said(next(filtered).to_arrow()) == said(state)
    story.table.compact(full=True)
    for kind, key, value in (row for item in follower for row in said(item.to_arrow())):
        assert not is_told_at_once, "it comes again"
        if kind in ("-U", "-D"):
            assert known.pop(key) == value
        else:
            assert key not in known
            known[key] = value
    assert known == everything


def test_a_follower_waits_for_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    follower = story.table.follow("latest-full", poll_millis=50)
    monkeypatch.setattr(
        story.clock, "sleep_millis", lambda _: story.table.upsert(kinded([("+I", 1, "a")]))
    )
    item = next(follower)
    assert (item.snapshot_id, said(item.to_arrow())) == (1, [("+I", 1, "a")])
    assert follower.position == 2


def test_a_consumer_goes_on_where_it_stopped(grown: Story) -> None:
    consumers = grown.table.session.consumers
    first = grown.table.follow("from-snapshot", snapshot_id=1, poll_millis=None, consumer_id="etl")
    assert next(first).snapshot_id == 1
    assert consumers.find("etl") is None  # nobody has said that it was dealt with
    assert next(first).snapshot_id == 2
    position = consumers.find("etl")
    assert position is not None
    assert position.next_snapshot_id == 2
    # It died here: the second snapshot comes again, and what it needs does not expire.
    grown.table.expire_snapshots(retain_max=1, older_than="0 s")
    assert [one[0] for one in followed(grown, "latest", consumer_id="etl")] == [2, 5]
    assert followed(grown, "latest", consumer_id="etl") == []


def test_rolled_back_and_overtaken_readers_are_told(grown: Story) -> None:
    reader = grown.table.follow("from-snapshot", snapshot_id=5, poll_millis=None)
    assert next(reader).snapshot_id == 5
    late = grown.table.follow("from-snapshot", snapshot_id=2, poll_millis=None)
    grown.table.rollback_to(snapshot_id=4)
    with pytest.raises(lsm.NotFoundError, match="rolled back"):
        next(reader)
    grown.table.expire_snapshots(retain_max=1, older_than="0 s")
    with pytest.raises(lsm.ExpiredError):
        next(late)


@pytest.mark.parametrize("start", ["latest", "latest-full"])
def test_readers_notice_that_what_they_read_was_replaced(grown: Story, start: str) -> None:
    reader = grown.table.follow(start, poll_millis=5)
    grown.table.upsert(kinded([("+U", 3, "read")]))
    newest = grown.table.snapshots()[-1].id
    while next(reader).snapshot_id != newest:
        pass
    grown.table.rollback_to(snapshot_id=4)
    for value in ("one", "two", "three"):  # the reader's next snapshot is there again
        grown.table.upsert(kinded([("+U", 3, value)]))
    with pytest.raises(lsm.NotFoundError, match="rolled back"):
        next(reader)


# --- system tables -------------------------------------------------------------------------------


def test_audit_log_and_binlog() -> None:
    story = Story(options=INPUT)
    story.table.upsert(kinded([("+I", 1, "a"), ("-U", 2, "x"), ("+U", 3, "y")]))
    story.table.upsert(kinded([("-U", 1, "a"), ("+U", 1, "b"), ("-D", 3, "y")]))
    log = story.table.system("audit_log")
    assert log.column_names == ["rowkind", "id", "v"]
    changes = story.table.changelog()
    assert log.column("rowkind") == changes.column("_row_kind")
    packed = story.table.system("binlog").to_pylist()
    assert packed == [
        {"rowkind": "+I", "id": [1], "v": ["a"]},
        {"rowkind": "-U", "id": [2], "v": ["x"]},  # the +U behind it is of another key
        {"rowkind": "+U", "id": [3], "v": ["y"]},
        {"rowkind": "+U", "id": [1, 1], "v": ["a", "b"]},
        {"rowkind": "-D", "id": [3], "v": ["y"]},
    ]
    assert story.table.system("audit_log", snapshot_id=1).num_rows == 3
    assert story.table.system("binlog", where=pc.field("rowkind") == "-D").num_rows == 1
    empty = Story()
    assert [empty.table.system(name).num_rows for name in ("audit_log", "binlog", "ro")] == [
        0,
        0,
        0,
    ]


def test_ro_shows_the_deepest_level_alone(grown: Story) -> None:
    table = grown.table
    assert table.system("ro").num_rows == 0
    table.compact(full=True)
    table.upsert(kinded([("+U", 3, "newer")]))
    rows = table.system("ro")
    assert rows.schema == COLUMNS
    assert dict(zip(*rows.to_pydict().values(), strict=True)) == {3: "c", 7: "x", 8: "y"}
    assert table.system("ro", snapshot_id=1).num_rows == 0
    assert equal_rows(rows.columns, table.system("ro", tag=None).columns, 3).all()
